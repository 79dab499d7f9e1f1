"""`hermes prompt-size`: what it says is what a model call really carries."""

import json
from pathlib import Path

from fakes.command import Hermes
from fakes.model import FakeModelServer


async def test_the_parts_are_those_of_a_real_request(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        hermes = Hermes(tmp_path, server.base_url)
        shown = json.loads((await hermes.run("prompt-size", "--json")).out)
        await hermes.run("chat", "-q", "hi")
        sent = next(r.body for r in server.requests if "tools" in r.body)
    system = sent["messages"][0]["content"]
    separators = 2 * (len(shown["sections"]) - 1)
    assert sum(part["bytes"] for part in shown["sections"]) + separators == len(system.encode())
    assert {part["name"]: part["bytes"] for part in shown["tools"]} == {
        tool["function"]["name"]: len(_compact(tool)) for tool in sent["tools"]
    }


async def test_the_total_is_the_sum_and_stands_beside_the_budget(tmp_path: Path) -> None:
    shown = json.loads(
        (await Hermes(tmp_path, "http://127.0.0.1:9").run("prompt-size", "--json")).out
    )
    parts = [*shown["sections"], *shown["tools"]]
    assert shown["bytes"] == sum(part["bytes"] for part in parts)
    assert shown["tokens"] == round(shown["bytes"] / 4)
    assert 0 < shown["tokens"] < shown["budget_tokens"]


async def test_project_notes_and_soul_are_counted_and_can_be_left_out(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9")
    (hermes.work / "AGENTS.md").write_text("x" * 4000, encoding="utf-8")
    with_notes = json.loads((await hermes.run("prompt-size", "--json")).out)
    without = json.loads((await hermes.run("prompt-size", "--json", "--ignore-rules")).out)
    context = next(part for part in with_notes["sections"] if part["name"] == "context")
    assert context["bytes"] > 4000
    assert with_notes["bytes"] - without["bytes"] == context["bytes"]


async def test_fewer_toolsets_make_a_smaller_prompt(tmp_path: Path) -> None:
    hermes = Hermes(tmp_path, "http://127.0.0.1:9")
    all_of_it = json.loads((await hermes.run("prompt-size", "--json")).out)
    files = json.loads((await hermes.run("prompt-size", "--json", "-t", "file")).out)
    names = {part["name"] for part in files["tools"]}
    assert "read_file" in names
    assert "terminal" not in names
    assert files["bytes"] < all_of_it["bytes"]


async def test_a_person_gets_a_table_with_the_largest_first(tmp_path: Path) -> None:
    outcome = await Hermes(tmp_path, "http://127.0.0.1:9").run("prompt-size")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    tools = lines[lines.index(next(line for line in lines if line.startswith("Tools"))) + 1 :]
    sizes = [int(line.split()[1].replace(",", "")) for line in tools[: tools.index("")]]
    assert sizes == sorted(sizes, reverse=True)
    assert lines[-1].endswith("of the budget of 5,000 tokens.")


def _compact(tool: object) -> bytes:
    return json.dumps(tool, separators=(",", ":"), ensure_ascii=False).encode()
