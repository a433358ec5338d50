// The official Node SDK.

import OpenAI from "openai";
import { main } from "./scenario.mjs";

function create({ baseURL, kind, prompt, maxRetries = 0, timeout_ms, ...body }) {
  const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries, timeout: timeout_ms });
  const model = body.model ?? "caesar-research";
  return kind === "chat"
    ? client.chat.completions.create({
        ...body,
        model,
        messages: [{ role: "user", content: prompt }],
      })
    : client.completions.create({ ...body, model, prompt });
}

const textOf = (choice) => choice.text ?? choice.message?.content ?? choice.delta?.content ?? "";

function describe(error) {
  const { status, code, type, param, message, requestID } = error;
  return { name: error.constructor.name, status, code, type, param, message, requestID };
}

await main({
  async plain(given) {
    const answer = await create(given);
    return {
      object: answer.object,
      texts: answer.choices.map(textOf),
      reasons: answer.choices.map((choice) => choice.finish_reason),
      usage: answer.usage,
      requestID: answer._request_id,
    };
  },

  async streamed(given) {
    const chunks = [];
    for await (const chunk of await create({ ...given, stream: true })) chunks.push(chunk);
    const choices = chunks.flatMap((chunk) => chunk.choices);
    return {
      text: choices.map(textOf).join(""),
      reasons: choices.map((choice) => choice.finish_reason),
      ids: [...new Set(chunks.map((chunk) => chunk.id))],
      usages: chunks.map((chunk) => chunk.usage),
      progress: chunks.flatMap((chunk) => chunk.caesar ?? []),
    };
  },

  // Gives the text before the error, which is null if no stream began, and the error.
  async failing(given) {
    let text = null;
    try {
      const answer = await create(given);
      if (given.stream) {
        text = "";
        for await (const chunk of answer) text += chunk.choices.map(textOf).join("");
      }
    } catch (error) {
      return { text, ...describe(error) };
    }
    throw new Error("no error was raised");
  },

  async leaving(given) {
    let ticks = 0;
    for await (const chunk of await create({ ...given, stream: true })) {
      ticks += chunk.choices.length;
      if (ticks === 3) break;
    }
    return { ticks };
  },

  async models({ baseURL }) {
    const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0 });
    const ids = [];
    for await (const model of client.models.list()) ids.push(model.id);
    return { ids, one: await client.models.retrieve("mock") };
  },
});
