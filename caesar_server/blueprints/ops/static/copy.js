// Gives each example a button that copies it.  Where the clipboard cannot be written (a page that came
// over plain HTTP from another machine) the text is selected instead.
"use strict";

for (const sample of document.querySelectorAll(".sample")) {
  const code = sample.querySelector("code");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  sample.append(button);
}
