"""Where commands run when nobody has chosen: in the sandbox, or not at all in a chat."""

from pathlib import Path

import pytest

from fakes.hermes_process import other_process
from hermes.app.options import AppOptions
from hermes.app.settings import (
    ON_THIS_COMPUTER,
    backend_name,
    backend_warnings,
    has_private_workspace,
)
from hermes.config.loader import load_config
from hermes.config.paths import HermesHome
from hermes.execution.backends.sandbox import backend as sandbox

WITHOUT_BWRAP = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap")
_CHOSEN = """
    import asyncio
    from pathlib import Path
    from fakes.boxes import Boxes, sh
    from hermes.app.options import AppOptions
    from hermes.app.settings import backend_name, backend_warnings
    from hermes.config.loader import load_config
    from hermes.config.paths import HermesHome
    from hermes.domain.errors import HermesError

    home = HermesHome(root=Path({home!r}))
    loaded = load_config(home, {{}})

    async def main():
        for platform in ("cli", "gateway"):
            options = AppOptions(home=home, environ={{}}, cwd=Path("/"), platform=platform)
            print(platform, backend_name(loaded, options), backend_warnings(loaded, options))
        boxes = Boxes("sandbox", home.root)
        environment = await boxes.open()
        try:
            await sh(environment, "echo it ran")
        except HermesError as error:
            print(error.message)

    asyncio.run(main())
"""


def options(home: Path, cwd: Path, platform: str = "cli") -> AppOptions:
    environ = {"HOME": str(home.parent)}
    return AppOptions(home=HermesHome(root=home), environ=environ, cwd=cwd, platform=platform)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    reason = sandbox.unavailable()
    if reason:
        pytest.skip(reason)
    (tmp_path / "home/.hermes").mkdir(parents=True)
    (tmp_path / "home/project").mkdir()
    return tmp_path / "home/.hermes"


@pytest.mark.parametrize("platform", ["cli", "gateway", "webhook", "cron"])
def test_commands_run_in_the_sandbox_unless_somebody_chose(home: Path, platform: str) -> None:
    made = options(home, home.parent / "project", platform)
    assert backend_name(load_config(made.home, {}), made) == "sandbox"
    (home / "config.yaml").write_text("terminal: {backend: local}\n")
    assert backend_name(load_config(made.home, {}), made) == "local"


def test_a_home_is_no_project(home: Path) -> None:
    loaded = load_config(HermesHome(root=home), {})
    assert not has_private_workspace("sandbox", options(home, home.parent / "project"))
    assert has_private_workspace("sandbox", options(home, home.parent))
    assert backend_warnings(loaded, options(home, home.parent / "project")) == ()
    (said,) = backend_warnings(loaded, options(home, home.parent))
    assert "is no project" in said


def test_a_folder_of_a_repository_says_what_is_not_there(home: Path) -> None:
    loaded, top = load_config(HermesHome(root=home), {}), home.parent / "project"
    package = top / "packages/web"
    package.mkdir(parents=True)
    (top / ".git").mkdir()
    (said,) = backend_warnings(loaded, options(home, package))
    assert said.startswith(f"the repository above ({top}) is not in the sandbox: git asks to leave")
    assert backend_warnings(loaded, options(home, top)) == ()
    assert backend_warnings(loaded, options(home, package, "gateway")) == ()
    (package / ".git").write_text("gitdir: ../../.git/modules/web\n")
    assert backend_warnings(loaded, options(home, package)) == ()


def test_a_home_with_a_repository_is_nowhere_to_start(home: Path) -> None:
    (home.parent / ".git").mkdir()
    loaded = load_config(HermesHome(root=home), {})
    assert backend_warnings(loaded, options(home, home.parent / "project")) == ()


def test_a_gateway_on_local_says_what_that_means(home: Path) -> None:
    (home / "config.yaml").write_text("terminal: {backend: local}\n")
    loaded = load_config(HermesHome(root=home), {})
    (said,) = backend_warnings(loaded, options(home, home.parent, "gateway"))
    assert "without a wall" in said
    (at_the_terminal,) = backend_warnings(loaded, options(home, home.parent))
    assert at_the_terminal == f"commands {ON_THIS_COMPUTER}"


def test_without_bubblewrap_chats_are_refused_and_the_terminal_is_on_its_own(home: Path) -> None:
    process = other_process(_CHOSEN.format(home=str(home)), before=WITHOUT_BWRAP)
    said, _ = process.communicate(timeout=50)
    lines = said.decode()
    assert "cli local" in lines
    assert "gateway sandbox" in lines
    assert "commands of chats are refused" in lines
    assert "Commands and files need the sandbox, and it cannot run here: bubblewrap" in lines
    assert "it ran" not in lines
