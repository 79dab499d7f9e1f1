"""What importing costs, and what it must not do."""

import ast
import asyncio
import signal
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import hermes
from fakes.command import Hermes
from fakes.gateway import gateway_config
from fakes.model import FakeModelServer, Script, Step
from fakes.telegram import FakeTelegram

SOURCE = Path(hermes.__file__).parent


def modules_after(statement: str) -> set[str]:
    """Return the modules that are loaded after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    return set(done.stdout.split())


def test_version_loads_neither_asyncio_nor_an_http_client_nor_click() -> None:
    code = (
        "import sys; sys.argv = ['hermes', '--version']\n"
        "from hermes.cli.main import main; main()\n"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    lines = done.stdout.split("\n")
    assert lines[0] == f"hermes {hermes.__version__}"
    loaded = set(lines[1:])
    assert not loaded & {"asyncio", "httpx2", "click", "msgspec", "yaml", "sqlite3", "logging"}


def test_importing_the_package_has_no_side_effects(tmp_path: Path) -> None:
    code = "import hermes.app.build, hermes.cli.root, hermes.control.lanes.gateway"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=30,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / "home")},
    )
    assert list(tmp_path.iterdir()) == []


def test_the_http_client_is_loaded_only_when_a_model_is_called() -> None:
    assert "httpx2" not in modules_after("import hermes.app.build")


WATCHED = """import atexit, os, sys
from pathlib import Path
atexit.register(lambda: Path(os.environ["LOADED"]).write_text("\\n".join(sys.modules)))
from hermes.cli.main import main
main()
"""
OF_EVERY_TURN = {"click", "httptools", "msgspec", "truststore", "yaml"}
OF_THE_GATEWAY = {
    "anyio",
    "cronsim",
    "h11",
    "httpcore2",
    "httpx2",
    "idna",
    "sniffio",
    "uvicorn",
    "wsproto",
}


async def test_no_library_of_a_tool_is_loaded_until_the_tool_is_used(tmp_path: Path) -> None:
    """A turn of `hermes chat` and a gateway that answers: all tools on offer, none used."""
    installed = set(packages_distributions())
    async with FakeModelServer(Script(default=Step(text="ok"))) as model, FakeTelegram() as chats:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(chats.base_url))

        async def started(file: str, *arguments: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", WATCHED, *arguments),
                cwd=hermes.work,
                env={**hermes.environ, "LOADED": str(tmp_path / file)},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )

        async with asyncio.timeout(60):
            await (await started("chat", "chat", "-q", "hello")).wait()
            gateway = await started("gateway", "gateway", "run")
            chats.say(7, 7, "hello")
            await chats.until(lambda: "ok" in str(chats.replies(7)))
            gateway.send_signal(signal.SIGTERM)
            await gateway.wait()
        assert len(model.requests[0].body["tools"]) > 20
    for file, expected in (("chat", OF_EVERY_TURN), ("gateway", OF_EVERY_TURN | OF_THE_GATEWAY)):
        names = {name.partition(".")[0] for name in (tmp_path / file).read_text().split()}
        public = {name for name in names & installed if not name.startswith("_")}
        assert public - {"hermes", "typing_extensions", "cython_runtime"} <= expected
        assert "hermes.agent.mcp.client" not in (tmp_path / file).read_text().split()


def test_the_help_of_the_command_imports_no_command() -> None:
    loaded = modules_after(
        "from hermes.cli.root import hermes as h\ntry: h.main(['--help'])\nexcept SystemExit: pass"
    )
    assert not {name for name in loaded if name.startswith("hermes.cli.commands.")}


def test_only_the_config_layer_reads_the_environment() -> None:
    offenders = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if "os.environ" in path.read_text(encoding="utf-8")
        and path.relative_to(SOURCE).parts[0] != "config"
    ]
    # Sent to where commands run, never imported here.
    assert offenders == ["agent/tools/code_child.py"]


@pytest.mark.parametrize("banned", ["run_in_executor(", "asyncio.create_task("])
def test_what_breaks_structured_concurrency_is_not_used(banned: str) -> None:
    offenders = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if banned in path.read_text(encoding="utf-8")
    ]
    assert offenders == []


BOUNDARIES = (
    "the boundary of a turn",
    "the boundary of a tool",
    "the boundary of a delivery",
    "the boundary of an obligation",
    "the boundary of an adapter",
    "the boundary of a background service",
    "the boundary of a request",
    "the boundary of a command",
    "the boundary of a hook",
    "the boundary of a plugin",
    "handed to whoever waits",
    "reported by",
)


def test_everything_is_caught_only_at_a_boundary_that_is_named() -> None:
    """A handler of `Exception` raises again, or says of which boundary it is the end."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
                continue
            caught = ast.unparse(node.type) if node.type else "BaseException"
            named = any(boundary in lines[node.lineno - 1] for boundary in BOUNDARIES)
            if caught in {"Exception", "BaseException"} and not named:
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert wrong == []


def test_every_layer_says_what_it_owns() -> None:
    layers = [path for path in SOURCE.iterdir() if path.is_dir() and path.name[0] not in "_."]
    missing = [path.name for path in layers if not (path / "README.md").exists()]
    assert missing == []
