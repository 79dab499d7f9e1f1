"""A configuration that changes while the gateway runs."""

import asyncio
from pathlib import Path

import pytest

from hermes.app.config_watch import ConfigWatcher, changed_variables
from hermes.app.settings import access_settings
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.paths import HermesHome
from hermes.domain.settings.live import LiveSettings
from hermes.testing import FakeClock


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


async def changed(watched: Watched, before: str, after: str) -> LoadedConfig | None:
    watched.write(before)
    watcher = watched.watcher()
    assert await watcher.look(watched.reports.append) is None
    watched.write(after)
    return await watcher.look(watched.reports.append)


async def test_live_settings_are_taken_over_and_the_others_are_named(watched: Watched) -> None:
    watched.write("streaming: {enabled: true}\nplatforms: {irc: {token: a}}\n")
    live = LiveSettings(watched.load().config)
    watched.write(
        "streaming: {enabled: false}\nterminal: {lifetime_seconds: 9}\nmodel: {model: m}\n"
        "platforms: {irc: {token: b, allowed_users: ['1']}, telegram: {enabled: true}}\n"
        "providers: {mine: {base_url: x}}\n"
    )
    assert live.update(watched.load().config) == {
        "terminal.lifetime_seconds",
        "model.model",
        "platforms.irc.token",
        "platforms.telegram.enabled",
        "providers.mine",
    }
    assert live().streaming.enabled is False
    assert live().platforms["irc"].allowed_users == ("1",)
    assert live().platforms["irc"].token == "a"
    assert live().terminal.lifetime_seconds == 300
    watched.write("streaming: {enabled: true}\nplatforms: {irc: {token: a}}\n")
    assert live.update(watched.load().config) == frozenset(), "what was changed back needs nothing"


async def test_variables_that_stand_for_no_setting_are_named(watched: Watched) -> None:
    watched.write("display: {}\n")
    watcher, before = watched.watcher(), watched.load()
    watched.home.env_file.write_text(
        "TELEGRAM_GROUP_ALLOWED_CHATS=-100\nOPENAI_API_KEY=sk-x\nTELEGRAM_BOT_TOKEN=t\n"
    )
    after = await watcher.look(watched.reports.append)
    assert after is not None
    assert changed_variables(before.variables, after.variables) == {"OPENAI_API_KEY"}
    live = LiveSettings(before.config)
    assert live.update(after.config) == {"platforms.telegram.token"}


async def test_the_older_block_and_the_gateways_lists_count_as_lists(watched: Watched) -> None:
    after = await changed(
        watched, "telegram: {}\n", "telegram: {dm_policy: open}\ngateway: {allowed_users: ['5']}\n"
    )
    assert after is not None
    settings = access_settings(after, [("telegram", "telegram", "TELEGRAM", None)])
    assert settings["telegram"].dm_policy == "open"
    assert settings["telegram"].gateway_users == {"5"}


async def test_a_bad_configuration_is_reported_and_the_last_good_one_stays(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.write("agent: {max_turns: 7}\n")
    watcher = watched.watcher()
    watched.write("agent: {max_turns: many}\n")
    assert await watcher.look(watched.reports.append) is None
    assert "agent.max_turns" in (watched.reports[-1] or "")
    assert "the last good one stays" in caplog.text
    assert await watcher.look(watched.reports.append) is None
    assert len(watched.reports) == 1, "the same mistake is told once"
    watched.write("agent: {max_turns: 8}\n")
    loaded = await watcher.look(watched.reports.append)
    assert loaded is not None
    assert loaded.config.agent.max_turns == 8
    assert watched.reports[-1] is None


async def test_it_looks_every_two_seconds(watched: Watched) -> None:
    watched.write("display: {}\n")
    watcher, found = watched.watcher(), asyncio.Queue[LoadedConfig]()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watcher.run(found.put_nowait, watched.reports.append))
        for length in (3, 4):
            await watched.clock.until_sleeping()
            watched.write(f"display: {{tool_preview_length: {length}}}\n")
            watched.clock.advance(1.9)
            await watched.clock.sleep(0)
            assert watched.clock.sleeping == 1, "it has not looked yet"
            watched.clock.advance(0.1)
            async with asyncio.timeout(10):
                loaded = await found.get()
            assert loaded.config.display.tool_preview_length == length
        task.cancel()


async def test_a_file_that_is_being_written_does_not_count_as_an_empty_one(
    watched: Watched,
) -> None:
    watched.write("approvals: {deny: ['rm *']}\n")
    watcher = watched.watcher()
    for there in (True, False):
        watched.write("")
        if not there:
            watched.home.config_file.unlink()
        assert await watcher.look(watched.reports.append) is None
        assert "config.yaml is empty or gone" in (watched.reports[-1] or "")
    watched.write("approvals: {deny: ['rm *', 'mv *']}\n")
    loaded = await watcher.look(watched.reports.append)
    assert loaded is not None
    assert loaded.config.approvals.deny == ("rm *", "mv *")
    assert watched.reports[-1] is None


async def test_a_change_before_the_first_look_is_not_missed(watched: Watched) -> None:
    watched.write("display: {}\n")
    loaded = watched.load()
    watched.write("streaming: {enabled: false}\n")
    watcher = ConfigWatcher(
        watched.home, watched.environ, loaded, watched.clock, managed=watched.managed
    )
    assert await watcher.look(watched.reports.append) is not None


async def test_a_file_that_only_looks_different_is_no_change(watched: Watched) -> None:
    assert await changed(watched, "display: {}\n", "# a remark\ndisplay: {}\n") is None
