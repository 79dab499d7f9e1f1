"""Hooks of installed packages: loaded only when a person has switched them on."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.package import install
from hermes.control.hooks import AGENT_START, GROUP, HookBus, load_hook_plugins
from hermes.domain.errors import NobodyChosen
from hermes.domain.settings import Settings


@pytest.fixture
def package(tmp_path: Path) -> Iterator[None]:
    """An installed package with one good and one broken entry point."""
    install(
        tmp_path,
        "greeter_plugin",
        "HEARD = []\n"
        "def register(bus):\n"
        "    bus.on('agent:start', lambda event, context: HEARD.append(context['message']))\n"
        "def broken(bus):\n"
        "    raise RuntimeError('oh no')\n",
        f"[{GROUP}]\ngreeter = greeter_plugin:register\nbroken = greeter_plugin:broken\n",
    )
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path.remove(str(tmp_path))
    sys.modules.pop("greeter_plugin", None)


def config(*names: str) -> Settings:
    base = Settings()
    return replace(base, plugins=replace(base.plugins, enabled=names))


@pytest.mark.usefixtures("package")
async def test_an_enabled_plugin_hears_what_happens() -> None:
    bus = HookBus()
    assert load_hook_plugins(config("greeter"), bus) == []
    await bus.emit(AGENT_START, {"message": "hello"})
    assert sys.modules["greeter_plugin"].HEARD == ["hello"]


@pytest.mark.usefixtures("package")
def test_a_plugin_nobody_enabled_is_not_even_imported() -> None:
    assert load_hook_plugins(config(), HookBus()) == []
    assert "greeter_plugin" not in sys.modules


@pytest.mark.usefixtures("package")
def test_a_broken_or_missing_plugin_is_named_and_does_no_harm() -> None:
    bus, chosen = HookBus(), config("broken", "nowhere")
    missing, broken = load_hook_plugins(chosen, bus)
    assert "oh no" in broken
    assert "nowhere" in missing
    assert bus.missing == {}, "where there is one agent there is nothing to choose"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("name", ["broken", "nowhere"])
async def test_where_there_are_several_agents_a_missing_plugin_may_have_chosen(name: str) -> None:
    bus = HookBus()
    load_hook_plugins(replace(config(name), agents={"coder": {}}), bus)
    with pytest.raises(NobodyChosen, match=f"The plugin `{name}`"):
        await bus.select_agent({})
