// Vercel's `ai` with `@ai-sdk/openai`, on chat completions and on responses.

import assert from "node:assert/strict";
import { ADA, ASKS, CLEAN, FOUND, HELLO, SUNNY, apiKey, baseURL, includes, load, named, play } from "./common.mjs";

const { Output, generateText, stepCountIs, streamText, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const { z } = await load("zod");
globalThis.AI_SDK_LOG_WARNINGS = false;

function cases(api) {
  const openai = createOpenAI({ apiKey, baseURL });
  const model = api === "chat" ? openai.chat("hermes") : openai.responses("hermes");
  const asked = [];
  const weather = tool({
    description: "Tells the weather.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => { asked.push(city); return "25 degrees"; },
  });
  const common = { model, maxRetries: 0, stopWhen: stepCountIs(5) };
  const given = (text) => (typeof text === "string" ? { prompt: text } : { messages: text });
  const answer = (text, more = {}) => generateText({ ...common, ...given(text), ...more });
  const streamed = async (text, more = {}) => {
    let failed;
    const made = streamText({ ...common, ...given(text), ...more, onError: ({ error }) => { failed = error; } });
    let said = "";
    for await (const piece of made.textStream) said += piece;
    if (failed) throw failed;
    return said;
  };
  return named(api, {
    async chat() { assert.equal((await answer("Hi", { system: "Be brief." })).text, HELLO); },
    async stream() { assert.equal(await streamed("Hi"), HELLO); },
    async own_tool() {
      const made = await answer(`own vercel_npm ${api}`, { tools: { weather } });
      assert.deepEqual([made.text, made.steps.length], [FOUND, 1]);
      assert.equal(await streamed(`own vercel_npm ${api}`, { tools: { weather } }), FOUND);
      assert.deepEqual(asked, []);
    },
    async client_tool() {
      assert.equal((await answer("weather", { tools: { weather } })).text, SUNNY);
      assert.ok((await streamed("weather", { tools: { weather } })).endsWith(SUNNY));
      assert.deepEqual(asked, ["Rome", "Rome"]);
    },
    async shape() {
      const schema = z.object({ name: z.string(), age: z.number() });
      const made = await answer("a person", { output: Output.object({ schema }) });
      assert.deepEqual(made.output, ADA);
    },
    async consent() {
      const talk = [{ role: "user", content: `Please clean vercel_npm-${api}.` }];
      const first = await answer(talk);
      includes(first.text, ASKS);
      talk.push(...first.response.messages, { role: "user", content: "yes" });
      assert.equal((await answer(talk)).text, CLEAN);
    },
    async error() {
      await assert.rejects(answer("fail"), /No\./);
      await assert.rejects(streamed("fail"));
    },
  });
}

await play({ ...cases("chat"), ...cases("responses") });
