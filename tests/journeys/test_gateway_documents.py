"""Files that people send to a chat: read by the model and its tools, wherever these run."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fakes import docker_engine
from fakes.gateway import running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.execution.backends.sandbox import backend as sandbox

ANN = 777
BINARY = b"%PDF-1.4 \xff\xfe the secret is 4711\n"


def backends(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """Return the options of a gateway whose commands run there."""
    if name == "docker":
        engine = request.getfixturevalue("engine")
        terminal = {"docker_image": docker_engine.IMAGE, "docker_network": False}
        return {"environ": {"DOCKER_HOST": engine}, "terminal": {"backend": name, **terminal}}
    if name == "sandbox" and sandbox.unavailable():
        pytest.skip("no sandboxes here")
    return {"terminal": {"backend": name}}


def said(model: FakeModelServer, role: str) -> list[str]:
    """Return what the last request says in a role."""
    messages = model.requests[-1].body["messages"]
    texts = [json.dumps(m["content"], ensure_ascii=False) for m in messages if m["role"] == role]
    return [text for text in texts if "Context for this reply" not in text]


async def send(telegram: FakeTelegram, content: bytes, name: str, caption: str) -> None:
    before = len(telegram.replies(ANN))
    telegram.world.say_file(ANN, ANN, "document", content, name=name, caption=caption)
    await telegram.until(lambda: len(telegram.replies(ANN)) > before, 60)
    await telegram.until(lambda: "Done." in telegram.replies(ANN)[-1].text, 60)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "backend",
    ["local", "sandbox", pytest.param("docker", marks=pytest.mark.xdist_group("docker"))],
)
async def test_a_document_is_readable_by_the_tools(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str
) -> None:
    script = Script(default=Step(text="Done."))
    options = backends(request, backend)
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, **options):
            await send(telegram, BINARY, "my report.pdf", "keep this")
            await send(telegram, BINARY.replace(b"4711", b"0815"), "my report.pdf", "and this")
            told = "".join(said(model, "user"))
            first, second = re.findall(r"\[file: my report\.pdf, at ([^\]]+)\]", told)
            assert first != second
            calls = [
                Call(name="terminal", arguments={"command": f"cat {first}"}),
                Call(name="terminal", arguments={"command": f"cat {second}"}),
                Call(name="read_file", arguments={"path": first}),
            ]
            script.rules.append(
                Rule(contains="look", steps=[Step(calls=calls), Step(text="Done.")])
            )
            before = len(telegram.replies(ANN))
            telegram.say(ANN, ANN, "look into them")
            await telegram.until(lambda: len(telegram.replies(ANN)) > before, 60)
            await telegram.until(lambda: len(said(model, "tool")) == 3, 60)
            shown = said(model, "tool")
            assert "the secret is 4711" in shown[0]
            assert "the secret is 0815" in shown[1]
            assert "no file" not in shown[2]
            script.rules.append(Rule(contains="back", steps=[Step(text=f"MEDIA:{second}")]))
            telegram.say(ANN, ANN, "send it back")
            await telegram.until(lambda: telegram.called("sendDocument"), 60)
            if backend != "local":
                assert str(tmp_path) not in "".join(said(model, "user")), "no path of the host"


async def test_a_short_text_is_in_the_message_and_stays_there(tmp_path: Path) -> None:
    script = Script(default=Step(text="Done."))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            await send(telegram, b"buy milk\nbuy bread\n", "list.txt", "my list")
            (told,) = said(model, "user")
            assert "buy milk\\nbuy bread" in told
            assert "[Content of list.txt:]" in told
            await send(telegram, b"x" * 100_001, "long.txt", "a long one")
            first, second = said(model, "user")
            assert first == told, "the history keeps its bytes"
            assert "[file: long.txt" in second
            assert "xxxxx" not in second
