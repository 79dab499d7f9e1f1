// The `openai` npm package against a gateway: `node openai_client.mjs SCENARIO`.
//
// HERMES_URL and HERMES_KEY say where and who, CLIENT_FOLDER where the package is,
// OWN_CALLS how many tools the agent uses by itself in a `long` turn.
// A scenario that fails ends with a stack trace and another exit code than 0.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.CLIENT_FOLDER}/`);
const OpenAI = require("openai");

const apiKey = process.env.HERMES_KEY;
const baseURL = `${process.env.HERMES_URL}/v1`;
const ownCalls = Number(process.env.OWN_CALLS);
const client = new OpenAI({ apiKey, baseURL, maxRetries: 0, timeout: 20_000 });
const weather = JSON.parse(process.env.WEATHER);
const model = "hermes";
const user = (content) => [{ role: "user", content }];

function personFormat() {
  const properties = { name: { type: "string" }, age: { type: "integer" } };
  const schema = { type: "object", properties, required: ["name", "age"], additionalProperties: false };
  return { name: "person", strict: true, schema };
}

async function textOf(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  return text;
}

const scenarios = {
  async models() {
    const found = [];
    for await (const each of client.models.list()) found.push(each.id);
    assert.deepEqual(found, ["hermes"]);
  },

  async chat() {
    const { data, response } = await client.chat.completions
      .create({ model, messages: [{ role: "system", content: "Be brief." }, ...user("echo chat")] })
      .withResponse();
    assert.equal(data.choices[0].message.content, "echo chat");
    assert.equal(data.usage.total_tokens, 120);
    const headers = { "X-Hermes-Session-Id": response.headers.get("x-hermes-session-id") };
    await client.chat.completions.create({ model, messages: user("echo go on") }, { headers });
  },

  async stream() {
    const stream = await client.chat.completions.create({
      model, messages: user("Hi"), stream: true, stream_options: { include_usage: true },
    });
    let text = "", usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, "Hello from the agent.");
    assert.equal(usage.total_tokens, 120);
  },

  async tools() {
    for (const streaming of [true, false]) {
      const messages = user(`weather in Rome, streaming ${streaming}`);
      const tools = [{ type: "function", function: weather }];
      const turn = async () => streaming
        ? (await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion()).choices[0]
        : (await client.chat.completions.create({ model, messages, tools })).choices[0];
      const first = await turn();
      assert.equal(first.finish_reason, "tool_calls");
      const [call] = first.message.tool_calls;
      assert.equal(call.function.name, "weather");
      assert.deepEqual(JSON.parse(call.function.arguments), { city: "Rome" });
      messages.push(first.message, { role: "tool", tool_call_id: call.id, content: "25 degrees" });
      assert.equal((await turn()).message.content, "Sunny in Rome.");
    }
  },

  // The helper of the package that calls functions by itself until there is an answer.
  async runner() {
    const asked = [];
    const function_ = { ...weather, parse: JSON.parse, function: ({ city }) => { asked.push(city); return "25"; } };
    const runner = client.chat.completions.runTools({
      model, messages: user("weather in Rome, by the runner"), stream: true,
      tools: [{ type: "function", function: function_ }],
    });
    assert.equal(await runner.finalContent(), "Sunny in Rome.");
    assert.deepEqual(asked, ["Rome"]);
  },

  async long() {
    const stream = await client.chat.completions.create({ model, messages: user("long"), stream: true });
    assert.equal(await textOf(stream), "All of it is done.");
  },

  async responses() {
    const first = await client.responses.create({ model, input: "think" });
    assert.deepEqual(first.output.map((item) => item.type), ["reasoning", "message"]);
    assert.equal(first.output_text, "Thought.");
    const next = await client.responses.create({ model, input: "echo next", previous_response_id: first.id });
    assert.equal(next.output_text, "echo next");
    assert.equal((await client.responses.retrieve(first.id)).output_text, "Thought.");
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
    const named = await client.responses.create({ model, input: "echo named", conversation: "garden" });
    assert.equal(named.conversation.id, "garden");
  },

  async responses_stream() {
    const numbers = [];
    const stream = client.responses.stream({ model, input: "long" });
    stream.on("event", (event) => numbers.push(event.sequence_number));
    const final = await stream.finalResponse();
    assert.deepEqual(numbers, numbers.map((_, index) => index));
    assert.equal(final.output_text, "All of it is done.");
    assert.equal(final.output.filter((item) => item.type === "mcp_call").length, ownCalls);
  },

  async responses_tools() {
    const tools = [{ type: "function", strict: true, ...weather }];
    const first = await client.responses.create({ model, input: "weather in Rome", tools });
    const [call] = first.output.filter((i) => i.type === "function_call");
    assert.equal(call.name, "weather");
    const input = [{ type: "function_call_output", call_id: call.call_id, output: "25 degrees" }];
    const second = await client.responses.create({ model, input, tools, previous_response_id: first.id });
    assert.equal(second.output_text, "Sunny in Rome.");
  },

  async background() {
    let made = await client.responses.create({ model, input: "Hi", background: true });
    while (["queued", "in_progress"].includes(made.status)) made = await client.responses.retrieve(made.id);
    assert.equal(made.output_text, "Hello from the agent.");
    const stalled = await client.responses.create({ model, input: "stall", background: true });
    assert.equal((await client.responses.cancel(stalled.id)).status, "cancelled");
  },

  async shape() {
    const response_format = { type: "json_schema", json_schema: personFormat() };
    const chat = await client.chat.completions.parse({ model, messages: user("a person"), response_format });
    assert.deepEqual(chat.choices[0].message.parsed, { name: "Ada", age: 36 });
    const format = { type: "json_schema", ...personFormat() };
    const response = await client.responses.parse({ model, input: "a person", text: { format } });
    assert.deepEqual(response.output_parsed, { name: "Ada", age: 36 });
  },

  async picture() {
    const content = [
      { type: "text", text: "echo a picture" },
      { type: "image_url", image_url: { url: process.env.PIXEL } },
    ];
    await client.chat.completions.create({ model, messages: user(content) });
  },

  async errors() {
    const hi = { model, messages: user("Hi") };
    const wrong = new OpenAI({ apiKey: "wrong-key-0123456789", baseURL, maxRetries: 0 });
    await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
    const watcher = new OpenAI({ apiKey: process.env.WATCHER_KEY, baseURL, maxRetries: 0 });
    await assert.rejects(watcher.chat.completions.create(hi), OpenAI.PermissionDeniedError);
    const create = (more) => client.chat.completions.create({ ...hi, ...more });
    await assert.rejects(create({ model: "gpt-5" }), (error) =>
      error instanceof OpenAI.NotFoundError && error.code === "model_not_found");
    await assert.rejects(create({ n: 2 }), (error) =>
      error instanceof OpenAI.BadRequestError && error.param === "n");
    await assert.rejects(create({ messages: user("fail") }), OpenAI.InternalServerError);
    await assert.rejects(async () => textOf(await create({ messages: user("fail"), stream: true })),
      (error) => error instanceof OpenAI.APIError && error.code === "agent_incomplete");
  },

  async leave() {
    const stream = await client.chat.completions.create({ model, messages: user("stall, I leave"), stream: true });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  },

  // The package repeats the request by itself; the network loses the first answer.
  async once() {
    const retrying = new OpenAI({ apiKey, baseURL: process.env.CUT_LINE });
    const headers = { "Idempotency-Key": "npm once" };
    const stream = await retrying.chat.completions.create(
      { model, messages: user("once, by npm"), stream: true }, { headers });
    assert.equal(await textOf(stream), "Done once.");
  },
};

await scenarios[process.argv[2]]();
