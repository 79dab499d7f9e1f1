// `openai` for JavaScript: chat completions and responses.

import assert from "node:assert/strict";
import { ADA, ASKS, CLEAN, FOUND, HELLO, SUNNY, apiKey, baseURL, includes, load, named, play } from "./common.mjs";

const { default: OpenAI } = await load("openai");
const client = new OpenAI({ apiKey, baseURL, maxRetries: 0 });
const user = (content) => ({ role: "user", content });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const weather = { name: "weather", description: "Tells the weather.", parameters };
const properties = { name: { type: "string" }, age: { type: "integer" } };
const schema = { type: "object", properties, required: ["name", "age"], additionalProperties: false };
const person = { name: "person", strict: true, schema };

async function ask(messages, more = {}) {
  const given = typeof messages === "string" ? [user(messages)] : messages;
  return (await client.chat.completions.create({ model: "hermes", messages: given, ...more })).choices[0].message;
}
const respond = (input, more = {}) => client.responses.create({ model: "hermes", input, ...more });

const chat = {
  async chat() { assert.equal((await ask("Hi")).content, HELLO); },
  async stream() {
    const stream = client.chat.completions.stream({ model: "hermes", messages: [user("Hi")] });
    assert.equal(await stream.finalContent(), HELLO);
  },
  async own_tool() {
    const said = await ask("own openai_npm chat");
    assert.deepEqual([said.content, said.tool_calls], [FOUND, undefined]);
  },
  async client_tool() {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model: "hermes", messages: [user("weather")], stream: true,
      tools: [{ type: "function", function: { ...weather, parse: JSON.parse, function: ({ city }) => { asked.push(city); return "25"; } } }],
    });
    assert.equal(await runner.finalContent(), SUNNY);
    assert.deepEqual(asked, ["Rome"]);
  },
  async shape() {
    const response_format = { type: "json_schema", json_schema: person };
    const made = await client.chat.completions.parse({ model: "hermes", messages: [user("a person")], response_format });
    assert.deepEqual(made.choices[0].message.parsed, ADA);
  },
  async consent() {
    const talk = [user("Please clean openai_npm-chat.")];
    talk.push(await ask(talk), user("yes"));
    includes(talk[1].content, ASKS);
    assert.equal((await ask(talk)).content, CLEAN);
  },
  async error() {
    await assert.rejects(ask("fail"), OpenAI.InternalServerError);
  },
};

const responses = {
  async chat() { assert.equal((await respond("Hi")).output_text, HELLO); },
  async stream() {
    const stream = client.responses.stream({ model: "hermes", input: "Hi" });
    assert.equal((await stream.finalResponse()).output_text, HELLO);
  },
  async own_tool() {
    const made = await respond("own openai_npm responses");
    assert.deepEqual(made.output.map((item) => item.type), ["mcp_call", "message"]);
  },
  async client_tool() {
    const tools = [{ type: "function", strict: false, ...weather }];
    const first = await respond("weather", { tools });
    const [call] = first.output.filter((item) => item.type === "function_call");
    const input = [{ type: "function_call_output", call_id: call.call_id, output: "25" }];
    assert.equal((await respond(input, { tools, previous_response_id: first.id })).output_text, SUNNY);
  },
  async shape() {
    const text = { format: { type: "json_schema", ...person } };
    assert.deepEqual((await client.responses.parse({ model: "hermes", input: "a person", text })).output_parsed, ADA);
  },
  async consent() {
    const first = await respond("Please clean openai_npm-responses.");
    includes(first.output_text, ASKS);
    assert.equal((await respond("yes", { previous_response_id: first.id })).output_text, CLEAN);
  },
  async error() { assert.equal((await respond("fail")).status, "failed"); },
};

await play({ ...named("chat", chat), ...named("responses", responses) });
