"""`litellm`: completions, and responses."""

import json

import litellm
from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, fails, play, same

litellm.telemetry = False
litellm.suppress_debug_info = True
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": SCHEMA}
WHERE = {"model": "openai/hermes", "api_base": URL, "api_key": KEY, "num_retries": 0}


def user(text):
    return {"role": "user", "content": text}


async def ask(messages, **more):
    given = [user(messages)] if isinstance(messages, str) else messages
    return await litellm.acompletion(messages=given, **WHERE, **more)


async def chat():
    same((await ask("Hi")).choices[0].message.content, HELLO)


async def stream():
    chunks = [chunk async for chunk in await ask("Hi", stream=True)]
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks), HELLO)


async def own_tool():
    answer = (await ask("own litellm_python chat")).choices[0]
    same((answer.message.content, answer.message.tool_calls), (FOUND, None))


async def client_tool():
    talk, tools = [user("weather")], [{"type": "function", "function": WEATHER}]
    said = (await ask(talk, tools=tools)).choices[0].message
    (call,) = said.tool_calls
    same(json.loads(call.function.arguments), {"city": "Rome"})
    talk += [said, {"role": "tool", "tool_call_id": call.id, "content": "25 degrees"}]
    same((await ask(talk, tools=tools)).choices[0].message.content, SUNNY)


async def shape():
    given = (await ask("a person", response_format=Person)).choices[0].message.content
    same(Person.model_validate_json(given), ADA)


async def consent():
    talk = [user("Please clean litellm_python-chat.")]
    talk += [(await ask(talk)).choices[0].message, user("yes")]
    assert ASKS in talk[1].content
    same((await ask(talk)).choices[0].message.content, CLEAN)


async def error():
    with fails(litellm.BadGatewayError, "No."):
        await ask("fail")
    with fails(litellm.AuthenticationError):
        await litellm.acompletion(messages=[user("Hi")], **{**WHERE, "api_key": "wrong-0123456789"})


async def respond(given, **more):
    return await litellm.aresponses(input=given, **WHERE, **more)


def text_of(response):
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return "".join(part.text for part in parts)


async def responses_chat():
    same(text_of(await respond("Hi")), HELLO)


async def responses_stream():
    events = [event async for event in await respond("Hi", stream=True)]
    same("".join(e.delta for e in events if e.type == "response.output_text.delta"), HELLO)


async def responses_own_tool():
    same(text_of(await respond("own litellm_python responses")), FOUND)


async def responses_client_tool():
    tools = [{"type": "function", **WEATHER}]
    first = await respond("weather", tools=tools)
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "25 degrees"}
    second = await respond([result], tools=tools, previous_response_id=first.id)
    same(text_of(second), SUNNY)


async def responses_shape():
    made = await respond("a person", text_format=Person)
    same(Person.model_validate_json(text_of(made)), ADA)


async def responses_consent():
    first = await respond("Please clean litellm_python-responses.")
    assert ASKS in text_of(first)
    same(text_of(await respond("yes", previous_response_id=first.id)), CLEAN)


async def responses_error():
    same((await respond("fail")).status, "failed")
    with fails(litellm.BadRequestError):
        await respond("Hi", previous_response_id="resp_unknown")


CASES = (chat, stream, own_tool, client_tool, shape, consent, error)
RESPONSES = (
    *(responses_chat, responses_stream, responses_own_tool, responses_client_tool),
    *(responses_shape, responses_consent, responses_error),
)
play({case.__name__: case for case in (*CASES, *RESPONSES)})
