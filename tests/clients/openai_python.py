"""`openai` for Python: chat completions and responses."""

import json

import openai
from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, fails, play, same

client = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": SCHEMA}


def user(text):
    return {"role": "user", "content": text}


async def ask(messages, **more):
    given = [user(messages)] if isinstance(messages, str) else messages
    return await client.chat.completions.create(model="hermes", messages=given, **more)


async def chat():
    same((await ask("Hi")).choices[0].message.content, HELLO)


async def stream():
    chunks = [chunk async for chunk in await ask("Hi", stream=True)]
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks), HELLO)


async def own_tool():
    answer = (await ask("own openai_python chat")).choices[0]
    same((answer.message.content, answer.message.tool_calls), (FOUND, None))


async def client_tool():
    talk, tools = [user("weather")], [{"type": "function", "function": WEATHER}]
    said = (await ask(talk, tools=tools)).choices[0].message
    (call,) = said.tool_calls
    same(json.loads(call.function.arguments), {"city": "Rome"})
    talk += [said, {"role": "tool", "tool_call_id": call.id, "content": "25 degrees"}]
    same((await ask(talk, tools=tools)).choices[0].message.content, SUNNY)


async def shape():
    given = await client.chat.completions.parse(
        model="hermes", messages=[user("a person")], response_format=Person
    )
    same(given.choices[0].message.parsed, ADA)


async def consent():
    talk = [user("Please clean openai_python-chat.")]
    talk += [(await ask(talk)).choices[0].message, user("yes")]
    assert ASKS in talk[1].content
    same((await ask(talk)).choices[0].message.content, CLEAN)


async def error():
    with fails(openai.InternalServerError, "No."):
        await ask("fail")
    with fails(openai.AuthenticationError):
        await client.with_options(api_key="wrong-key-0123456789").models.list()


async def respond(given, **more):
    return await client.responses.create(model="hermes", input=given, **more)


async def responses_chat():
    same((await respond("Hi")).output_text, HELLO)


async def responses_stream():
    async with client.responses.stream(model="hermes", input="Hi") as events:
        async for _ in events:
            pass
        same((await events.get_final_response()).output_text, HELLO)


async def responses_own_tool():
    made = await respond("own openai_python responses")
    same([item.type for item in made.output], ["mcp_call", "message"])
    same(made.output_text, FOUND)


async def responses_client_tool():
    tools = [{"type": "function", "strict": False, **WEATHER}]
    first = await respond("weather", tools=tools)
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "25 degrees"}
    second = await respond([result], tools=tools, previous_response_id=first.id)
    same(second.output_text, SUNNY)


async def responses_shape():
    made = await client.responses.parse(model="hermes", input="a person", text_format=Person)
    same(made.output_parsed, ADA)


async def responses_consent():
    first = await respond("Please clean openai_python-responses.")
    assert ASKS in first.output_text
    same((await respond("yes", previous_response_id=first.id)).output_text, CLEAN)


async def responses_error():
    same((await respond("fail")).status, "failed")
    with fails(openai.NotFoundError):
        await client.responses.retrieve("resp_unknown")


CASES = (chat, stream, own_tool, client_tool, shape, consent, error)
RESPONSES = (
    *(responses_chat, responses_stream, responses_own_tool, responses_client_tool),
    *(responses_shape, responses_consent, responses_error),
)
play({case.__name__: case for case in (*CASES, *RESPONSES)})
