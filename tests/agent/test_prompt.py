"""The system prompt: a fixed order, byte-stable, nothing volatile."""

from hermes.agent.prompt import PromptInputs, build_prompt, prompt_sections, shorten
from hermes.domain.ports.files import IdentitySnapshot
from hermes.domain.tools import ToolSpec


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters={}, toolset="t")


def inputs(**changes: object) -> PromptInputs:
    values: dict[str, object] = {
        "identity": IdentitySnapshot(
            soul="SOUL", memory="MEMORY", user="USER", skills="- SKILL: does things"
        ),
        "tools": [spec("read_file"), spec("terminal"), spec("patch"), spec("todo")],
        "platform": "cli",
        "platform_hint": None,
        "context": ("AGENTS.md", "PROJECT"),
        "date": "Monday, 2026-01-05",
        "model": "m",
        "cwd": "/w",
    }
    return PromptInputs(**{**values, **changes})  # type: ignore[arg-type]


def test_the_parts_come_in_the_fixed_order() -> None:
    text = build_prompt(inputs())
    names = list(prompt_sections(inputs()))
    assert names == ["identity", "tools", "skills", "platform", "context", "memory", "user", "date"]
    assert text.index("PROJECT") < text.index("MEMORY") < text.index("USER") < text.index("2026")


def test_the_same_inputs_give_the_same_bytes() -> None:
    assert build_prompt(inputs()).encode() == build_prompt(inputs()).encode()


def test_guidance_speaks_only_of_tools_that_are_there() -> None:
    text = build_prompt(inputs(tools=[]))
    assert "Working with tools" not in text
    assert "todo" not in build_prompt(inputs(tools=[spec("terminal")]))


def test_a_platform_hint_can_be_replaced_and_removed() -> None:
    assert "BE BRIEF" in build_prompt(inputs(platform_hint="BE BRIEF"))
    assert "platform" not in prompt_sections(inputs(platform_hint=""))


def test_without_files_the_default_identity_speaks() -> None:
    bare = build_prompt(inputs(identity=IdentitySnapshot(), context=None, cwd=None))
    assert bare.startswith("You are Hermes")


def test_a_long_project_file_keeps_its_head_and_tail() -> None:
    text = shorten("a" * 800 + "b" * 800, 1000)
    assert text.startswith("a" * 700)
    assert text.endswith("b" * 200)
    assert "700 characters left out" in text


def test_a_chat_platform_brings_its_hint_and_the_place_follows() -> None:
    sections = prompt_sections(inputs(platform="telegram", place="A group.", environment="A box."))
    assert "MEDIA:/" in sections["platform"]
    assert sections["environment"] == "## Where your tools work\nA box."
    names = list(sections)
    assert names.index("environment") < names.index("platform") < names.index("place")
    assert "platform" not in prompt_sections(inputs(platform="unheard-of"))
