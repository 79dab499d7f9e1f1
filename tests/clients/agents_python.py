"""`openai-agents` for Python, on chat completions and on responses."""

import openai
from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, fails, play, same

import agents
from agents import Agent, Runner

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)
asked = []


@agents.function_tool
def weather(city: str) -> str:
    """Tells the weather."""
    asked.append(city)
    return "25 degrees"


def cases(name, model):
    def agent(**more):
        return Agent(name="Assistant", instructions="Be brief.", model=model, **more)

    async def answer(text, **more):
        return (await Runner.run(agent(**more), text)).final_output

    async def chat():
        same(await answer("Hi"), HELLO)

    async def stream():
        run = Runner.run_streamed(agent(), "Hi")
        events = [
            event async for event in run.stream_events() if event.type == "raw_response_event"
        ]
        same(run.final_output, HELLO)
        assert [e for e in events if e.data.type == "response.output_text.delta"]

    async def own_tool():
        same(await answer(f"own agents_python {name}", tools=[weather]), FOUND)
        run = Runner.run_streamed(agent(tools=[weather]), f"own agents_python {name}")
        async for _ in run.stream_events():
            pass
        same(run.final_output, FOUND)
        same(asked, [])

    async def client_tool():
        same(await answer("weather", tools=[weather]), SUNNY)
        same(asked, ["Rome"])
        run = Runner.run_streamed(agent(tools=[weather]), "weather")
        async for _ in run.stream_events():
            pass
        same(run.final_output, SUNNY)
        same(asked, ["Rome", "Rome"])
        asked.clear()

    async def shape():
        same(await answer("a person", output_type=Person), ADA)

    async def consent():
        first = await Runner.run(agent(), f"Please clean agents_python-{name}.")
        assert ASKS in first.final_output, first.final_output
        talk = [*first.to_input_list(), {"role": "user", "content": "yes"}]
        same(await answer(talk), CLEAN)

    async def error():
        with fails(Exception, "No."):
            same(await answer("fail"), "an exception")

    prefix = "" if name == "chat" else f"{name}_"
    listed = (chat, stream, own_tool, client_tool, shape, consent, error)
    return {f"{prefix}{case.__name__}": case for case in listed}


play(
    cases("chat", agents.OpenAIChatCompletionsModel("hermes", client))
    | cases("responses", agents.OpenAIResponsesModel("hermes", client))
)
