"""Background processes over a restart of Hermes: found again, ended, or reported as cut off."""

import asyncio
from pathlib import Path
from typing import Any

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from fakes.toolbox import gone

ANN = 777


def background(command: str, **more: Any) -> Call:
    return Call(name="terminal", arguments={"command": command, "background": True, **more})


def process(action: str, **more: Any) -> Step:
    return Step(calls=[Call(name="process", arguments={"action": action, **more})])


async def test_what_runs_over_a_restart_is_found_and_the_rest_is_cut_off(tmp_path: Path) -> None:
    starts = [
        background("echo $$ > pid; exec sleep 300", notify_on_complete=True),
        background("echo $$ > other; exec sleep 301"),
        background("exit 3"),
        background("echo built", notify_on_complete=True),
    ]
    script = Script(
        rules=[
            Rule(contains="Hermes was restarted", steps=[process("list"), Step(text="looked")]),
            Rule(contains="ended with exit code 0", steps=[Step(text="it is built")]),
            Rule(contains="start", steps=[Step(calls=starts), Step(text="started")]),
        ],
        default=Step(text="hello"),
    )
    config = {"terminal": {"backend": "local", "cwd": str(tmp_path / "work")}}
    async with FakeModelServer(script) as model, FakeTelegram() as telegram, asyncio.timeout(50):
        url = telegram.base_url
        hermes = Hermes(tmp_path, model.base_url, gateway_config(url, **config))
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            telegram.say(ANN, ANN, "start")
            await telegram.until(lambda: "started" in str(telegram.replies(ANN)))
            await telegram.until(lambda: "it is built" in str(telegram.replies(ANN)))
            pid, other = (int((hermes.work / name).read_text()) for name in ("pid", "other"))
            await gateway.kill()
            kill = await asyncio.create_subprocess_exec("kill", "-9", str(other))
            await kill.wait()
            await gone(other)
            await gateway.start()
            await telegram.until(lambda: "looked" in str(telegram.replies(ANN)))
            results = _results(model)
            assert f"still runs from before Hermes was restarted (pid {pid})" in results[-1]
            assert "was cut off when Hermes was restarted: echo $$ > other" in results[-1]
            assert "ended with exit code 3 before Hermes was restarted" in results[-1]
            assert "ended with exit code 0 before Hermes was restarted" in results[-1]
            woken = str(model.requests[-1].body["messages"]).split("Hermes was restarted;")[1]
            assert "echo built" not in woken.split("tool_calls")[0]
            left = results[0].split("session_id ")[1].split(".")[0]
            end = [process("kill", session_id=left), Step(text="ended")]
            script.rules.insert(0, Rule(contains="end it", steps=end))
            telegram.say(ANN, ANN, "end it")
            await telegram.until(lambda: "ended" in str(telegram.replies(ANN)))
            assert _results(model)[-1] == f"{left} was ended."
            await gone(pid)
        finally:
            await gateway.kill()


def _results(model: FakeModelServer) -> list[str]:
    messages = model.requests[-1].body["messages"]
    return [str(each["content"]) for each in messages if each["role"] == "tool"]
