"""Scripts of routes, through the receiver: what their output means and how they are ended."""

from pathlib import Path
from typing import Any

import pytest

from fakes.webhook_door import SECRET, webhook_door
from hermes.domain.errors import ConfigError
from hermes.domain.webhooks import HookState
from hermes.execution.webhook_effects import HookScripts
from hermes.testing.model import ScriptedModel, say


def route(script: str, **more: Any) -> dict[str, Any]:
    return {"a": {"secret": SECRET, "prompt": "{x} {script_output}", "script": script, **more}}


def write(folder: Path, name: str, text: str) -> str:
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / "scripts" / name).write_text(text, encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ("cat", "1 {script_output}"),
        ("echo just text", "1 just text"),
        ("echo '[1]'", "1 [1]"),
        ("echo noise >&2; echo '{\"x\": 2}'", "2 {script_output}"),
    ],
)
async def test_a_script_changes_what_the_agent_is_asked(
    tmp_path: Path, script: str, asked: str
) -> None:
    model = ScriptedModel(default=say("Fine."))
    name = write(tmp_path, "s.sh", script)
    async with webhook_door(tmp_path, model, route(name)) as door:
        assert (await door.post("a", {"x": 1}, id="1")).status_code == 202
        await door.quiet()
    prompt = model.requests[0].messages[-1]
    assert str(prompt).split("\\n\\n")[-1].startswith(asked)


@pytest.mark.parametrize(
    "script",
    ["exit 1", "true", "echo '[SILENT]'", "echo '{\"__hermes_ignore__\": true}'"],
)
async def test_a_script_can_have_an_event_ignored_for_good(tmp_path: Path, script: str) -> None:
    model = ScriptedModel()
    name = write(tmp_path, "s.sh", script)
    async with webhook_door(tmp_path, model, route(name)) as door:
        answer = await door.post("a", {"x": 1}, id="1")
        assert (answer.status_code, answer.json()["status"]) == (200, "ignored")
        assert await door.state("a", "1") is HookState.IGNORED
        again = await door.post("a", {"x": 1}, id="1")
        assert again.json()["status"] == "duplicate"
    assert model.requests == []


async def test_a_duplicate_does_not_run_the_script_again(tmp_path: Path) -> None:
    name = write(tmp_path, "s.sh", f"echo run >> {tmp_path}/runs; cat")
    async with webhook_door(tmp_path, ScriptedModel(default=say("Fine.")), route(name)) as door:
        for _ in range(3):
            await door.post("a", {"x": 1}, id="1")
        await door.quiet()
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "run\n"


async def test_a_script_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    write(tmp_path, "s.sh", f"sleep 300 & echo $! > {tmp_path}/child; wait")
    async with webhook_door(
        tmp_path, ScriptedModel(), route("s.sh"), script_timeout_seconds=1.0
    ) as door:
        answer = await door.post("a", {"x": 1}, id="1")
        assert answer.status_code == 503
        assert await door.ledger.hook("a", "1") is None
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    assert not running(child)


def running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(") ")[2][0] not in "ZX"


async def test_a_script_that_writes_without_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "s.py", "print('x' * 3_000_000)")
    async with webhook_door(tmp_path, ScriptedModel(), route("s.py")) as door:
        assert (await door.post("a", {"x": 1}, id="1")).status_code == 503


async def test_errors_are_kept_apart_and_bounded(tmp_path: Path) -> None:
    write(tmp_path, "s.py", "import sys\nsys.stderr.write('e' * 500_000)\nprint('out')\n")
    done = await HookScripts(tmp_path / "scripts", {"PATH": "/usr/bin:/bin"}).run("s.py", b"", 20)
    assert done.output.strip() == "out"
    assert set(done.errors) == {"e"}
    assert len(done.errors) <= 2000


async def test_a_script_sees_no_secrets_and_gets_the_payload(tmp_path: Path) -> None:
    write(tmp_path, "s.sh", "env; cat")
    env = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-1", "NAMED": "n-1", "LANG": "C"}
    scripts = HookScripts(tmp_path / "scripts", env, {"NAMED"})
    done = await scripts.run("s.sh", b'{"payload": 1}', 20)
    assert "LANG=C" in done.output
    assert '{"payload": 1}' in done.output
    assert "sk-1" not in done.output
    assert "n-1" not in done.output


async def test_an_executable_is_run_as_it_is_and_other_files_by_python(tmp_path: Path) -> None:
    write(tmp_path, "tool", "#!/bin/sh\necho by sh\n")
    write(tmp_path, "other", "print('by python')")
    (tmp_path / "scripts" / "tool").chmod(0o755)
    scripts = HookScripts(tmp_path / "scripts", {"PATH": "/usr/bin:/bin"})
    assert (await scripts.run("tool", b"", 20)).output == "by sh\n"
    assert (await scripts.run("other", b"", 20)).output == "by python\n"


@pytest.mark.parametrize("name", ["../up.sh", "/bin/sh", "link.sh", "none.sh", ".", "", "a\0b"])
def test_only_files_below_the_scripts_directory_are_run(tmp_path: Path, name: str) -> None:
    write(tmp_path, "ok.sh", "true")
    (tmp_path / "up.sh").write_text("true", encoding="utf-8")
    (tmp_path / "scripts" / "link.sh").symlink_to(tmp_path / "up.sh")
    scripts = HookScripts(tmp_path / "scripts", {})
    scripts.check("ok.sh")
    with pytest.raises(ConfigError, match="no script"):
        scripts.check(name)
