// The program under test.

import OpenAI from "openai";

export async function summarize(topic, { baseURL, apiKey }) {
  const client = new OpenAI({ baseURL, apiKey, maxRetries: 2 });
  const prompt = `Summarize what is new in ${topic}.`;
  const stream = await client.completions.create({ model: "caesar-research", prompt, stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
  return text;
}
