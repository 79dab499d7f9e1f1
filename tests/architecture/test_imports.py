"""What importing costs, and what it must not do."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hermes

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
