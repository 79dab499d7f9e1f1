"""`instructor`: answers in a given shape, by a tool, by a schema and on responses."""

import instructor
import openai
from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, URL, Person, fails, play, same

bare = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)
tools = instructor.from_openai(bare)


def user(text):
    return {"role": "user", "content": text}


async def ask(client, text, kind, **more):
    given = [user(text)] if isinstance(text, str) else text
    create = client.chat.completions.create
    return await create(model="hermes", messages=given, response_model=kind, **more)


async def chat():
    same((await ask(tools, "Hi", None)).choices[0].message.content, HELLO)


async def stream():
    create = tools.chat.completions.create_partial
    seen = [
        part
        async for part in create(
            model="hermes", messages=[user("by the tool PartialPerson")], response_model=Person
        )
    ]
    same(seen[-1], ADA)


async def own_tool():
    same((await ask(tools, "own instructor_python chat", None)).choices[0].message.content, FOUND)


async def shape():
    same(await ask(tools, "by the tool Person", Person), ADA)
    schema = instructor.from_openai(bare, mode=instructor.Mode.JSON_SCHEMA)
    same(await ask(schema, "a person", Person), ADA)
    as_text = instructor.from_openai(bare, mode=instructor.Mode.JSON)
    same(await ask(as_text, "a person", Person), ADA)


async def responses_shape():
    client = instructor.from_openai(bare, mode=instructor.Mode.RESPONSES_TOOLS)
    same(await ask(client, "by the tool Person", Person), ADA)


async def consent():
    talk = [user("Please clean instructor_python-chat.")]
    said = (await ask(tools, talk, None)).choices[0].message.content
    assert ASKS in said
    talk += [{"role": "assistant", "content": said}, user("yes")]
    same((await ask(tools, talk, None)).choices[0].message.content, CLEAN)


async def error():
    with fails(Exception, "No."):
        await ask(tools, "fail", Person, max_retries=0)


listed = (chat, stream, own_tool, shape, responses_shape, consent, error)
play({case.__name__: case for case in listed})
