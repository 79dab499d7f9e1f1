"""LangChain (`langchain-openai`), on chat completions and on responses; its agent, too."""

from common import ADA, ASKS, CLEAN, FOUND, HELLO, KEY, SUNNY, URL, Person, fails, play, same
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

asked = []


@tool
def weather(city: str) -> str:
    """Tells the weather."""
    asked.append(city)
    return "25 degrees"


def cases(name):
    model = ChatOpenAI(
        base_url=URL,
        api_key=KEY,
        model="hermes",
        max_retries=0,
        use_responses_api=name == "responses",
    )

    async def answer(text):
        return (await model.ainvoke(text)).text

    async def streamed(text, chosen=model):
        return "".join([chunk.text async for chunk in chosen.astream(text)])

    async def chat():
        same(await answer("Hi"), HELLO)

    async def stream():
        same(await streamed("Hi"), HELLO)

    async def own_tool():
        said = await model.bind_tools([weather]).ainvoke(f"own langchain_python {name}")
        same((said.text, said.tool_calls), (FOUND, []))
        same(await streamed(f"own langchain_python {name}", model.bind_tools([weather])), FOUND)

    async def client_tool():
        done = await create_agent(model, [weather]).ainvoke({"messages": ["weather"]})
        same(done["messages"][-1].text, SUNNY)
        same(asked, ["Rome"])
        agent = create_agent(model, [weather])
        told = agent.astream({"messages": ["weather"]}, stream_mode="values")
        states = [state async for state in told]
        same(states[-1]["messages"][-1].text, SUNNY)
        asked.clear()

    async def shape():
        same(await model.with_structured_output(Person).ainvoke("a person"), ADA)
        by_tool = model.with_structured_output(Person, method="function_calling")
        same(await by_tool.ainvoke("by the tool Person"), ADA)

    async def consent():
        talk = [{"role": "user", "content": f"Please clean langchain_python-{name}."}]
        talk += [await model.ainvoke(talk), {"role": "user", "content": "yes"}]
        assert ASKS in talk[1].text, talk[1]
        same((await model.ainvoke(talk)).text, CLEAN)

    async def error():
        with fails(Exception, "No."):
            same(await answer("fail"), "an exception")

    prefix = "" if name == "chat" else f"{name}_"
    listed = (chat, stream, own_tool, client_tool, shape, consent, error)
    return {f"{prefix}{case.__name__}": case for case in listed}


play(cases("chat") | cases("responses"))
