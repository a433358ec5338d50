import { afterEach, beforeEach, expect, test } from "vitest";

import { summarize } from "./app.js";
import { Mock } from "./mock.js";

let mock;
beforeEach(() => {
  mock = new Mock();
});
afterEach(() => mock.remove());

const ask = (topic) => summarize(topic, { baseURL: mock.baseURL, apiKey: "test" });

test("a summary is put together from its chunks", async () => {
  await mock.rule({
    when: { prompt: { contains: "quantum" } },
    reply: { text: "Error correction improved.", chunks: 5 },
  });
  expect(await ask("quantum computing")).toBe("Error correction improved.");
});

test("two refusals are survived", async () => {
  await mock.rule({ reply: "At last." });
  const refusal = { kind: "status", status: 429, retry_after_s: 0.001 };
  await mock.rule({ times: 2, fault: refusal });
  expect(await ask("tea")).toBe("At last.");
  await mock.assertRequested({ times: 3, when: { prompt: { contains: "tea" } } });
  const statuses = (await mock.requests()).map((entry) => entry.response.status);
  expect(statuses).toEqual([429, 429, 200]);
});

test("an answer that breaks off is an error", async () => {
  await mock.rule({ reply: "one two three" });
  await mock.rule({ fault: { kind: "error_frame", after_chunks: 2, message: "Lost" } });
  await expect(ask("tea")).rejects.toThrow("Lost");
});

test("tests do not see each other's rules", async () => {
  expect(await ask("tea")).toBe("Summarize what is new in tea.");
  await mock.assertRequested({ times: 1 });
});

test("a check that fails says what came instead", async () => {
  await ask("tea");
  const wanted = { when: { prompt: { contains: "coffee" } } };
  await expect(mock.assertRequested(wanted)).rejects.toThrow("what is new in tea");
});
