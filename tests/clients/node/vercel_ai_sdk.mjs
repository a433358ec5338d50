// The Vercel AI SDK with its provider for OpenAI-compatible servers.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { main } from "./scenario.mjs";

function call({ baseURL, kind, prompt, model = "caesar-research", usage = false, ...settings }) {
  const caesar = createOpenAICompatible({ name: "caesar", baseURL, includeUsage: usage });
  return {
    model: kind === "chat" ? caesar.chatModel(model) : caesar.completionModel(model),
    prompt,
    maxRetries: 0,
    ...settings,
  };
}

function describe(error) {
  const { name, message, statusCode, isRetryable, responseBody, reason, errors } = error;
  return {
    name,
    message,
    statusCode,
    isRetryable,
    reason,
    body: responseBody === undefined ? undefined : JSON.parse(responseBody),
    attempts: errors?.length,
    value: error instanceof Error ? undefined : error,
  };
}

async function read(result, see = () => {}) {
  const parts = [];
  for await (const part of result.fullStream) {
    parts.push(part);
    see(part, parts);
  }
  const join = (type) =>
    parts
      .filter((part) => part.type === type)
      .map((part) => part.text)
      .join("");
  return {
    text: join("text-delta"),
    reasoning: join("reasoning-delta"),
    errors: parts.filter((part) => part.type === "error").map((part) => describe(part.error)),
    types: [...new Set(parts.map((part) => part.type))],
    finish: parts.filter((part) => part.type === "finish").map((part) => part.finishReason)[0],
    usage: parts.filter((part) => part.type === "finish").map((part) => part.totalUsage)[0],
  };
}

await main({
  async plain(given) {
    const { text, reasoningText, finishReason, usage } = await generateText(call(given));
    return { text, reasoningText, finishReason, usage };
  },

  async streamed(given) {
    return read(streamText({ ...call(given), onError() {} }));
  },

  // What somebody sees who reads the text alone.
  async textOnly(given) {
    const result = streamText({ ...call(given), onError() {} });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    return { text, whole: await result.text, finish: await result.finishReason };
  },

  async failing(given) {
    try {
      await generateText(call(given));
    } catch (error) {
      return describe(error);
    }
    throw new Error("no error was raised");
  },

  async leaving(given) {
    const abort = new AbortController();
    const result = streamText({ ...call(given), abortSignal: abort.signal, onError() {} });
    return read(result, (part, parts) => {
      if (parts.filter(({ type }) => type === "text-delta").length === 3) abort.abort();
    });
  },
});
