from fakes.toolbox import Toolbox
from hermes.domain.messages import ToolOutcome
from hermes.testing.environment import FakeEnvironment


def step(name: str, status: str = "pending") -> dict[str, str]:
    return {"id": name, "content": f"do {name}", "status": status}


async def test_the_list_is_kept_with_the_session_and_merged_by_id() -> None:
    tools = Toolbox(FakeEnvironment())
    assert await tools.text("todo") == "The list is empty."
    await tools.do("todo", todos=[step("1", "in_progress"), step("2")])
    again = Toolbox(FakeEnvironment())
    again.facts = tools.facts
    assert await again.text("todo") == "[>] 1: do 1\n[ ] 2: do 2"
    merged = await again.text("todo", todos=[step("1", "completed"), step("3")], merge=True)
    assert merged == "[x] 1: do 1\n[ ] 2: do 2\n[ ] 3: do 3"
    done = await again.text("todo", todos=[{"id": "2", "status": "completed"}], merge=True)
    assert done == "[x] 1: do 1\n[x] 2: do 2\n[ ] 3: do 3"
    assert "needs `content`" in await again.text("todo", todos=[{"id": "7"}], merge=True)
    assert await again.text("todo", todos=[step("9", "cancelled")]) == "[-] 9: do 9"
    assert await again.text("todo", todos=[]) == "The list is empty."


async def test_wrong_lists_are_errors() -> None:
    tools = Toolbox(FakeEnvironment())
    too_many = [step(str(n)) for n in range(300)]
    assert (await tools.do("todo", todos=too_many)).outcome is ToolOutcome.ERROR
    assert (await tools.do("todo", todos=[step("1", "maybe")])).outcome is ToolOutcome.ERROR
    assert tools.facts == {}
