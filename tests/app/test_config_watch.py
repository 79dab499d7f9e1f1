"""A configuration that changes while the gateway runs."""

import asyncio
from pathlib import Path

import pytest

from hermes.app.access import access_settings
from hermes.app.config_watch import ConfigChange, ConfigWatcher
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome
from hermes.testing.clock import FakeClock


class Watched:
    """A home whose configuration a test rewrites."""

    def __init__(self, root: Path) -> None:
        self.home = HermesHome(root=root / "home").ensure()
        self.managed = root / "managed.yaml"
        self.environ = {"HOME": str(root)}
        self.reports: list[str | None] = []
        self.clock = FakeClock()

    def write(self, text: str) -> None:
        new = self.home.root / "new"
        new.write_text(text, encoding="utf-8")
        new.replace(self.home.config_file)

    def load(self) -> LoadedConfig:
        return load_config(self.home, self.environ, managed=self.managed)

    def watcher(self) -> ConfigWatcher:
        return ConfigWatcher(self.home, self.environ, self.load(), self.clock, managed=self.managed)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def changed(watched: Watched, before: str, after: str) -> ConfigChange | None:
    watched.write(before)
    watcher = watched.watcher()
    assert await watcher.look(watched.reports.append) is None
    watched.write(after)
    return await watcher.look(watched.reports.append)


async def test_what_is_safe_is_told_from_what_needs_a_restart(watched: Watched) -> None:
    before = "streaming: {enabled: true}\nterminal: {backend: local}\n"
    change = await changed(
        watched, before, "streaming: {enabled: false}\nterminal: {lifetime_seconds: 9}\n"
    )
    assert change is not None
    assert change.safe == {"streaming"}
    assert change.needs_restart == {"terminal"}
    assert change.loaded.config.streaming.enabled is False


async def test_lists_of_people_are_applied_at_once_and_a_new_token_is_not(watched: Watched) -> None:
    before = "platforms:\n  telegram: {enabled: true, allowed_users: ['1']}\n  irc: {token: a}\n"
    after = (
        "platforms:\n"
        "  telegram: {enabled: true, allowed_users: ['1', '2'], extra: {dm_policy: open}}\n"
        "  irc: {token: b}\n"
    )
    change = await changed(watched, before, after)
    assert change is not None
    assert change.safe == {"access"}
    assert change.needs_restart == {"platforms.irc"}
    settings = access_settings(change.loaded, [("telegram", "TELEGRAM")])
    assert settings["telegram"].users == {"1", "2"}
    assert settings["telegram"].dm_policy == "open"


async def test_the_older_block_and_the_gateways_lists_count_as_lists(watched: Watched) -> None:
    change = await changed(
        watched, "telegram: {}\n", "telegram: {dm_policy: open}\ngateway: {allowed_users: ['5']}\n"
    )
    assert change is not None
    assert change.safe == {"access"}
    assert not change.needs_restart
    settings = access_settings(change.loaded, [("telegram", "TELEGRAM")])
    assert settings["telegram"].dm_policy == "open"
    assert settings["telegram"].gateway_users == {"5"}


async def test_variables_in_the_env_file_count(watched: Watched) -> None:
    watched.write("display: {}\n")
    watcher = watched.watcher()
    watched.home.env_file.write_text("TELEGRAM_GROUP_ALLOWED_CHATS=-100\nOPENAI_API_KEY=sk-x\n")
    change = await watcher.look(watched.reports.append)
    assert change is not None
    assert change.safe == {"access"}
    assert change.needs_restart == {"environment"}


async def test_a_bad_configuration_is_reported_and_the_last_good_one_stays(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("agent: {max_turns: 7}\n")
    watcher = watched.watcher()
    watched.write("agent: {max_turns: many}\n")
    assert await watcher.look(watched.reports.append) is None
    assert watcher.loaded.config.agent.max_turns == 7
    assert watcher.problem is not None
    assert "agent.max_turns" in (watched.reports[-1] or "")
    assert "the last good one stays" in caplog.text
    assert await watcher.look(watched.reports.append) is None
    assert len(watched.reports) == 1, "the same mistake is told once"
    watched.write("agent: {max_turns: 8}\n")
    change = await watcher.look(watched.reports.append)
    assert change is not None
    assert change.needs_restart == {"agent"}
    assert watched.reports[-1] is None


async def test_a_file_that_only_looks_different_is_no_change(watched: Watched) -> None:
    assert await changed(watched, "display: {}\n", "# a remark\ndisplay: {}\n") is None


async def test_it_looks_every_two_seconds(watched: Watched) -> None:
    watched.write("display: {}\n")
    watcher, applied = watched.watcher(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run(lambda _change: applied.set(), watched.reports.append))
        await watched.clock.until_sleeping()
        watched.write("streaming: {enabled: false}\n")
        watched.clock.advance(2)
        async with asyncio.timeout(10):
            await applied.wait()
        task.cancel()


async def test_keys_of_the_api_server_count_at_once_and_its_port_does_not(
    watched: Watched,
) -> None:
    def api(extra: str) -> str:
        return f"platforms:\n  api_server: {{enabled: true, extra: {{{extra}}}}}\n"

    change = await changed(watched, api("key: a, port: 1"), api("key: b, port: 1"))
    assert change is not None
    assert change.safe == {"access"}
    assert not change.needs_restart
    change = await changed(watched, api("key: b, port: 1"), api("key: b, port: 2"))
    assert change is not None
    assert change.needs_restart == {"platforms.api_server"}
