// The mock as a test sees it: a scope of its own on the server, driven by the control API.

import { randomUUID } from "node:crypto";
import { inject } from "vitest";

export class Mock {
  constructor(name = randomUUID()) {
    this.name = name;
    this.url = `${inject("mockServer")}/t/${name}`;
    this.baseURL = `${this.url}/compat`;
  }

  // Add a rule as fixture files have them: {when: {prompt: {contains: "tea"}}, reply: "Milk?"}
  async rule(rule) {
    return this.#call("POST", "/_mock/rules", rule);
  }

  // Fail unless there were such requests: {times: 3, when: {prompt: {contains: "tea"}}}
  async assertRequested(wanted = {}) {
    return this.#call("POST", "/_mock/journal/check", wanted);
  }

  async requests() {
    return (await this.#call("GET", "/_mock/journal")).entries;
  }

  async remove() {
    return this.#call("DELETE", `/_mock/scopes/${this.name}`);
  }

  async #call(method, path, body) {
    const response = await fetch(this.url + path, {
      method,
      headers: body && { "Content-Type": "application/json" },
      body: body && JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error?.message ?? answer.error);
    return answer;
  }
}
