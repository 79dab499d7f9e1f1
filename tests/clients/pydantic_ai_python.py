"""`pydantic-ai`, on chat completions and on responses."""

from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, fails, play, same
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=URL, api_key=KEY)
asked = []


def weather(city: str) -> str:
    """Tells the weather."""
    asked.append(city)
    return "25 degrees"


def cases(name, model):
    def agent(**more):
        return Agent(model, instructions="Be brief.", **more)

    async def answer(text, **more):
        return (await agent(**more).run(text)).output

    async def streamed(text, **more):
        async with agent(**more).run_stream(text) as run:
            return "".join([piece async for piece in run.stream_text(delta=True)])

    async def chat():
        same(await answer("Hi"), HELLO)

    async def stream():
        same(await streamed("Hi"), HELLO)

    async def own_tool():
        same(await answer(f"own pydantic_ai_python {name}", tools=[weather]), FOUND)
        assert (await streamed(f"own pydantic_ai_python {name}", tools=[weather])).endswith(FOUND)
        same(asked, [])

    async def client_tool():
        same(await answer("weather", tools=[weather]), SUNNY)
        same(asked, ["Rome"])
        # A stream that has begun to speak is the answer, as the library sees it: `run` with
        # events is what goes on after a tool.
        events = []

        async def seen(_, stream):
            events.extend([event async for event in stream])

        run = await agent(tools=[weather]).run("weather", event_stream_handler=seen)
        same(run.output, SUNNY)
        same(asked, ["Rome", "Rome"])
        assert events
        asked.clear()

    async def shape():
        same(await answer("a person", output_type=NativeOutput(Person)), ADA)
        same(await answer("by the tool final_result", output_type=Person), ADA)

    async def consent():
        first = await agent().run(f"Please clean pydantic_ai_python-{name}.")
        assert ASKS in first.output, first.output
        same((await agent().run("yes", message_history=first.all_messages())).output, CLEAN)

    async def error():
        with fails(Exception, "No."):
            same(await answer("fail"), "an exception")

    prefix = "" if name == "chat" else f"{name}_"
    listed = (chat, stream, own_tool, client_tool, shape, consent, error)
    return {f"{prefix}{case.__name__}": case for case in listed}


play(
    cases("chat", OpenAIChatModel("hermes", provider=provider))
    | cases("responses", OpenAIResponsesModel("hermes", provider=provider))
)
