// `@openai/agents`, on chat completions and on responses.

import assert from "node:assert/strict";
import { ADA, ASKS, CLEAN, FOUND, HELLO, SUNNY, apiKey, baseURL, includes, load, named, play } from "./common.mjs";

const { Agent, OpenAIProvider, Runner, setTracingDisabled, tool, user } = await load("@openai/agents");
const { z } = await load("zod");
setTracingDisabled(true);

function cases(api) {
  const modelProvider = new OpenAIProvider({ apiKey, baseURL, useResponses: api === "responses" });
  const runner = new Runner({ modelProvider });
  const asked = [];
  const weather = tool({
    name: "weather",
    description: "Tells the weather.",
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => { asked.push(city); return "25 degrees"; },
  });
  const agent = (more = {}) => new Agent({ name: "Assistant", instructions: "Be brief.", model: "hermes", ...more });
  const answer = async (text, more) => (await runner.run(agent(more), text)).finalOutput;
  const streamed = async (text, more) => {
    const run = await runner.run(agent(more), text, { stream: true });
    for await (const _ of run) ;
    await run.completed;
    return run.finalOutput;
  };
  return named(api, {
    async chat() { assert.equal(await answer("Hi"), HELLO); },
    async stream() { assert.equal(await streamed("Hi"), HELLO); },
    async own_tool() {
      assert.equal(await answer(`own agents_npm ${api}`, { tools: [weather] }), FOUND);
      assert.equal(await streamed(`own agents_npm ${api}`, { tools: [weather] }), FOUND);
      assert.deepEqual(asked, []);
    },
    async client_tool() {
      assert.equal(await answer("weather", { tools: [weather] }), SUNNY);
      assert.equal(await streamed("weather", { tools: [weather] }), SUNNY);
      assert.deepEqual(asked, ["Rome", "Rome"]);
    },
    async shape() {
      const outputType = z.object({ name: z.string(), age: z.number() });
      assert.deepEqual(await answer("a person", { outputType }), ADA);
    },
    async consent() {
      const first = await runner.run(agent(), `Please clean agents_npm-${api}.`);
      includes(first.finalOutput, ASKS);
      assert.equal(await answer([...first.history, user("yes")]), CLEAN);
    },
    async error() { await assert.rejects(answer("fail")); },
  });
}

await play({ ...cases("chat"), ...cases("responses") });
