// What the official Node SDK makes of each fault; see tests/clients/faults.

import OpenAI from "openai";

const { baseURL, maxRetries, atOnce, questions } = JSON.parse(process.argv[2]);

async function ask({ key, stream, timeout }) {
  let text = "";
  let tries = 0;
  const client = new OpenAI({
    baseURL,
    apiKey: "unused",
    maxRetries,
    timeout,
    logLevel: "off",
    defaultHeaders: { "x-case": key },
    fetch: (...given) => {
      tries += 1;
      return fetch(...given);
    },
  });
  try {
    const answer = await client.completions.create({ model: "m", prompt: "Hi", stream });
    if (!stream) return { tries, ...plain(answer) };
    for await (const chunk of answer) text += chunk.choices.map((choice) => choice.text).join("");
  } catch (error) {
    return { tries, text, error: error.constructor.name };
  }
  return { tries, text };
}

function plain(answer) {
  if (typeof answer === "string") return { instead: "a string" };
  if (!answer.choices) return { instead: "an object without choices" };
  return { text: answer.choices[0].text };
}

const found = {};

async function work() {
  for (let next; (next = questions.shift()); ) found[next.key] = await ask(next);
}

await Promise.all(Array.from({ length: atOnce }, work));
console.log(JSON.stringify(found));
// connections that are kept alive would keep the process
process.exit(0);
