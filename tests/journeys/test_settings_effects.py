"""A changed `config.yaml` takes effect on a running gateway: every live setting, by its effect.

One gateway runs between a fake Telegram and a fake model. For each live setting the file is
changed twice, to a configuration and to the same with that setting different, and what a person
or the model sees must differ. What only a part of Hermes can show is asked of that part, which
reads the same handle. A setting that is read at start must be named by the gateway's state.
"""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml

from fakes.command import Hermes
from fakes.gateway import gateway_config
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.agent.compaction import Compactor
from hermes.app import config_watch
from hermes.app.build import App, open_app
from hermes.app.chat_door import allowed_files
from hermes.app.options import AppOptions
from hermes.app.serve import Service
from hermes.app.settings import access_settings, toolsets_of
from hermes.app.shutdown import StopSignals
from hermes.cli.commands.chat import chat_parts
from hermes.config.check import bare, fields_by_name, struct_of
from hermes.config.meaning import type_of
from hermes.config.paths import HermesHome
from hermes.control.admission.resets import Resets, user_note
from hermes.control.delivery.home_channel import configured_homes
from hermes.control.supervision.supervisor import AdapterState
from hermes.domain.inbound import ChatKind
from hermes.domain.ports.model import ModelInfo
from hermes.domain.session import Session
from hermes.domain.settings import Settings
from hermes.domain.settings.live import needs_restart
from hermes.streaming.chat.settings import presentation

SCRIPT = Script(
    rules=[
        Rule(
            contains="clean",
            steps=[
                Step(calls=[Call(name="terminal", arguments={"command": "rm -rf tmp"})]),
                Step(text="Done."),
            ],
        ),
        Rule(
            contains="look",
            steps=[
                Step(
                    text="Let me see.",
                    reasoning="Hm.",
                    calls=[Call(name="terminal", arguments={"command": "echo one two three four"})],
                ),
                Step(calls=[Call(name="terminal", arguments={"command": "echo 2"})]),
                Step(text="Done."),
            ],
        ),
    ],
    default=Step(text="Done."),
)
OVER = re.compile(
    r"Done\.|limit|budget|Approval needed|pairing approve|conversation|did not|cannot"
)
LONG = "All about it. " * 400
"""More than any limit of a file that the prompt is made of."""


class Bench:
    """A running gateway and the file that its settings come from."""

    def __init__(self, app: App, hermes: Hermes, telegram: FakeTelegram, model: FakeModelServer):
        self.app, self.telegram, self.model = app, telegram, model
        self.file = hermes.home / "config.yaml"
        self.base: dict[str, Any] = yaml.safe_load(self.file.read_text())
        self.work = hermes.work
        self._chats = itertools.count(1000)

    async def configure(self, *changes: dict[str, Any]) -> None:
        """Write the file and return when the gateway uses it."""
        document = json.loads(json.dumps(self.base))
        for change in changes:
            for key, value in change.items():
                _set(document, key, value)
        if document == yaml.safe_load(self.file.read_text()):
            return
        before, new = self.app.settings(), self.file.with_suffix(".new")
        new.write_text(yaml.safe_dump(document), encoding="utf-8")
        new.replace(self.file)
        await self.until(lambda: self.app.settings() is not before)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)

    async def say(self, text: str) -> list[str]:
        """Say something in a new chat; return what it looks like in the end."""
        chat = next(self._chats)
        self.telegram.say(chat, chat, text)

        def over() -> bool:
            shown = self.telegram.replies(chat)
            return bool(shown) and bool(OVER.search(shown[-1].text)) and "▉" not in shown[-1].text

        try:
            await self.until(over)
        except TimeoutError:
            raise AssertionError([seen.text for seen in self.telegram.replies(chat)]) from None
        return [seen.text.replace(str(chat), "") for seen in self.telegram.replies(chat)]


def _set(document: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        document = document.setdefault(name, {})
    document[last] = value


Probe = Callable[[Bench], Awaitable[object]]


async def request(bench: Bench) -> object:
    """Return what the model is asked with."""
    await bench.say("hello")
    body = bench.model.requests[-1].body
    text = re.sub(r"\d{4}|[0-9a-f]{12,}", "#", json.dumps(body["messages"]))
    return text, body.get("reasoning_effort"), [t["function"]["name"] for t in body["tools"]]


async def danger(bench: Bench) -> object:
    (bench.work / "tmp").mkdir(exist_ok=True)
    return await bench.say("clean up")


async def calls(bench: Bench) -> object:
    """Return how many calls to the model a turn with tools makes."""
    before = len(bench.model.requests)
    bench.telegram.say(1, 1, "look around")
    await bench.until(lambda: len(bench.model.requests) > before)
    await bench.until(lambda: not bench.app.gateway.live_sessions)
    return len(bench.model.requests) - before


async def answer(bench: Bench) -> object:
    return await bench.say("hello")


async def trigger(bench: Bench) -> object:
    return await bench.say("start over")


async def reset(bench: Bench, background: float | None = None) -> object:
    """Return why, how and whether told the next message opens a new session."""
    resets = Resets(bench.app.settings, UTC, lambda _session: background)
    used = Session(
        id="s", agent_id="main", source="telegram", started_at=0, updated_at=0, message_count=3
    )
    found = resets.due(used, "telegram", ChatKind.PRIVATE, 6 * 3600)
    return found and (found[0], user_note(*found))


async def reset_at_work(bench: Bench) -> object:
    return await reset(bench, 7200.0)


async def homes(bench: Bench) -> object:
    return configured_homes(bench.app.settings())


async def access(bench: Bench) -> object:
    """Return who may talk; strangers are offered a code only three times at once."""
    return access_settings(bench.app.loaded, [("telegram", "TELEGRAM")])["telegram"]


async def shown(bench: Bench) -> object:
    return presentation(bench.app.settings(), "telegram")


async def compaction(bench: Bench) -> object:
    info = ModelInfo(provider="p", model="m", context_window=100_000)

    class _Model:
        pass

    model: Any = _Model()
    model.info = info
    app = bench.app
    session = Session(id="s", agent_id="main", source="cli", started_at=0, updated_at=0)
    compactor = Compactor(app.services, app.agent("main"), session, model)
    due = [compactor.due(tokens) for tokens in range(0, 100_000, 10_000)]
    return compactor.enabled, due, app.services.settings().compression


async def files(bench: Bench) -> object:
    options = AppOptions(home=HermesHome(root=bench.file.parent), environ={}, cwd=bench.work)
    outside = bench.work.parent / "outside.txt"
    outside.write_text("x")
    return allowed_files(bench.app.settings, options)(str(outside))


async def cli_tools(bench: Bench) -> object:
    options = AppOptions(home=HermesHome(root=bench.file.parent), environ={}, cwd=bench.work)
    return toolsets_of(bench.app.settings(), options, "cli")


async def busy(bench: Bench) -> object:
    return await bench.app.commands().busy_mode("telegram", None)


async def terminal(bench: Bench) -> object:
    """Return what a terminal chat that is opened now shows, and how."""
    return chat_parts(bench.app, bench.app.agent("main")).host.settings().display


async def patience(bench: Bench) -> object:
    """Return what the notices of a turn that begins now go by, and the end of the gateway."""
    return bench.app.settings().agent


async def limits(bench: Bench) -> object:
    return bench.app.settings().approvals


OWN = "platforms.telegram"
SHUT = {f"{OWN}.allow_all_users": False}
IDLE = {"session_reset.mode": "both", "session_reset.idle_minutes": 60}
RUNNING = {**IDLE, "session_reset.bg_process_max_age_hours": 1}

CASES: dict[str, tuple[Probe, Any, dict[str, Any]]] = {
    "budget.session_tokens": (answer, 0, {}),
    "budget.session_usd": (answer, 0, {}),
    "budget.day_tokens": (answer, 0, {}),
    "budget.day_usd": (answer, 0, {}),
    "toolsets": (cli_tools, ["todo"], {}),
    "platform_toolsets": (request, {"telegram": ["todo"]}, {}),
    "agent.max_turns": (calls, 1, {"display.tool_progress": "off"}),
    "agent.gateway_timeout": (patience, 7, {}),
    "agent.gateway_timeout_warning": (patience, 7, {}),
    "agent.gateway_notify_interval": (patience, 7, {}),
    "agent.restart_drain_timeout": (patience, 7, {}),
    "agent.ephemeral_system_prompt": (request, "Be brief.", {}),
    "agent.reasoning_effort": (patience, "high", {}),
    "compression.enabled": (compaction, False, {}),
    "compression.threshold": (compaction, 0.9, {}),
    "compression.target_ratio": (compaction, 0.1, {}),
    "compression.protect_last_n": (compaction, 3, {}),
    "memory.memory_enabled": (request, False, {}),
    "memory.user_profile_enabled": (request, False, {}),
    "memory.memory_char_limit": (request, 100, {}),
    "memory.user_char_limit": (request, 100, {}),
    "context_file_max_chars": (request, 1000, {}),
    "platform_hints": (request, {"telegram": "Here is Telegram."}, {}),
    "approvals.mode": (danger, "off", {}),
    "approvals.timeout": (limits, 7, {}),
    "approvals.deny": (danger, ["rm *"], {}),
    "command_allowlist": (danger, ["rm -rf tmp"], {}),
    "gateway.media_delivery_allow_dirs": (files, ["{folder}"], {}),
    "gateway.allowed_users": (answer, ["*"], SHUT),
    "gateway.allow_all_users": (answer, True, SHUT),
    "platforms.*.home_channel.chat_id": (request, "42", {}),
    "platforms.*.home_channel.name": (request, "Den", {f"{OWN}.home_channel.chat_id": "42"}),
    "platforms.*.home_channel.thread_id": (homes, "5", {f"{OWN}.home_channel.chat_id": "42"}),
    "platforms.*.allowed_users": (answer, ["*"], SHUT),
    "platforms.*.allow_all_users": (access, False, {}),
    "streaming.enabled": (shown, False, {}),
    "streaming.transport": (shown, "off", {}),
    "streaming.edit_interval": (shown, 9.0, {}),
    "streaming.buffer_threshold": (shown, 99, {}),
    "streaming.cursor": (shown, "_", {}),
    "session_reset.mode": (reset, "daily", {}),
    "session_reset.at_hour": (reset, 23, {"session_reset.mode": "daily"}),
    "session_reset.idle_minutes": (reset, 60, {"session_reset.mode": "idle"}),
    "session_reset.notify": (reset, False, IDLE),
    "session_reset.bg_process_max_age_hours": (reset_at_work, 24, RUNNING),
    "session_reset.reset_by_type": (reset, {"dm": {"mode": "idle", "idle_minutes": 1}}, {}),
    "session_reset.reset_by_platform": (reset, {"telegram": "daily"}, {}),
    "reset_triggers": (trigger, ["start over"], {}),
    "unauthorized_dm_behavior": (access, "ignore", SHUT),
    "display.tool_progress": (shown, "off", {}),
    "display.tool_preview_length": (shown, 5, {}),
    "display.tool_progress_grouping": (shown, "separate", {}),
    "display.interim_assistant_messages": (shown, False, {}),
    "display.friendly_tool_labels": (shown, False, {}),
    "display.busy_input_mode": (busy, "queue", {}),
    "display.platforms.*.streaming": (shown, False, {}),
    "display.platforms.*.tool_progress": (shown, "off", {}),
    "display.platforms.*.tool_progress_grouping": (shown, "separate", {}),
    "display.platforms.*.tool_preview_length": (shown, 5, {}),
    "display.platforms.*.show_reasoning": (shown, True, {}),
    "display.platforms.*.interim_assistant_messages": (shown, False, {}),
    "display.platforms.*.friendly_tool_labels": (shown, False, {}),
    "display.platforms.*.busy_input_mode": (busy, "steer", {}),
    "privacy.redact_pii": (request, True, {}),
}
CASES |= {
    f"display.{name}": (terminal, value, {})
    for name, value in {
        "compact": True,
        "resume_display": "minimal",
        "bell_on_complete": True,
        "show_reasoning": False,
        "final_response_markdown": "raw",
        "inline_diffs": False,
        "show_cost": True,
        "skin": "mono",
    }.items()
}


def settings(kind: Any = Settings, path: str = "", restart: bool = False) -> dict[str, bool]:
    """Return every setting, and whether it needs a restart."""
    found: dict[str, bool] = {}
    for name, info in fields_by_name(kind).items():
        here, plain = restart or needs_restart(info.type), bare(info.type)
        key = f"{path}{name}"
        entries = get_args(plain)[1] if get_origin(plain) is dict else None
        section = struct_of(entries) or struct_of(plain)
        if section is None:
            found[key] = here
        else:
            found |= settings(section, f"{key}.*." if entries else f"{key}.", here)
    return found


def test_there_is_an_effect_for_every_live_setting() -> None:
    assert set(CASES) == {key for key, restart in settings().items() if not restart}


@asynccontextmanager
async def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(config_watch, "LOOK_EVERY_SECONDS", 0.02)
    async with FakeModelServer(SCRIPT) as model, FakeTelegram() as telegram:
        more = {"terminal": {"backend": "local"}, "display": {"tool_progress": "all"}}
        config = gateway_config(telegram.base_url, **more)
        for key, value in changed.items():
            _set(config, key.replace("__", "."), value)
        hermes = Hermes(folder, model.base_url, config)
        memories = hermes.home / "memories"
        memories.mkdir()
        for file in (memories / "MEMORY.md", memories / "USER.md", hermes.work / "AGENTS.md"):
            file.write_text(LONG * (9 if file.name == "AGENTS.md" else 1))
        options = AppOptions(
            home=HermesHome(root=hermes.home),
            environ=hermes.environ,
            cwd=hermes.work,
            can_ask=True,
            platform="gateway",
        )
        stop = StopSignals()
        async with open_app(options) as app, asyncio.TaskGroup() as group:
            group.create_task(Service(app, stop).run())
            yield Bench(app, hermes, telegram, model)
            stop.stop("the test is over")
            stop.stop("now")


@pytest.mark.timeout(300)
async def test_every_live_setting_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without: list[str] = []
    async with running(tmp_path, monkeypatch) as bench:
        await bench.say("hello")
        for key, (probe, value, around) in CASES.items():
            path = key.replace("*", "telegram")
            wanted = json.loads(json.dumps(value).replace("{folder}", str(tmp_path)))
            await bench.configure(around)
            before = await probe(bench)
            await bench.configure(around, {path: wanted})
            if before == await probe(bench):
                without.append(key)
    assert without == []


def another(kind: Any, value: Any) -> Any:
    """Return a value of a type that is not the one given."""
    plain = bare(kind)
    choices = [other for other in get_args(plain) if other not in (value, type(None))]
    if get_origin(plain) is Literal:
        return choices[0]
    if get_origin(plain) in {Union, UnionType}:
        return another(choices[0], value)
    if get_origin(plain) is tuple:
        return [{"provider": "x"}] if struct_of(get_args(plain)[0]) else ["x"]
    if get_origin(plain) is dict:
        return {"x": "y"}
    return not value if plain is bool else (value or 0) + 1 if plain in {int, float} else "other"


async def test_every_other_setting_is_named_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"providers": "mine", "platforms": "telegram"}
    keys = [key for key, restart in settings().items() if restart]
    paths = [key.replace("*", names.get(key.partition(".")[0], "")) for key in keys]
    async with running(tmp_path, monkeypatch, providers={"mine": {}}) as bench:
        state = bench.file.parent / "gateway_state.json"
        await bench.say("hello")
        started: Any = bench.app.settings()
        changes = {}
        for path in paths:
            kind, value = type_of(tuple(path.split("."))), started
            for name in path.split("."):
                value = value[name] if isinstance(value, dict) else getattr(value, name)
            changes[path] = another(kind, value)
        await bench.configure(changes, {"terminal.backend": "docker"})
        await bench.until(lambda: state.exists() and "after a restart" in state.read_text())
        (warning,) = [text for text in _warnings(state) if "after a restart" in text]
        assert [path for path in paths if path not in warning] == []
        assert bench.app.settings() == started, "nothing of it is in use"
        await bench.configure({"display.tool_progress": "off"})
        await bench.until(lambda: "after a restart" not in state.read_text())


def _warnings(state: Path) -> list[str]:
    found = json.loads(state.read_text())["warnings"]
    return [str(each) for each in (found.values() if isinstance(found, dict) else found)]


async def test_a_refused_token_is_tried_again_once_the_configuration_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = {"enabled": True, "extra": {"key": "k3y-" * 8, "port": 0}}
    changed = {"platforms__telegram__token": "1:wrong", "platforms__api_server": api}
    async with running(tmp_path, monkeypatch, **changed) as bench:

        def state() -> AdapterState | None:
            doors = bench.app.gateway.doors.health()
            return next((each.state for each in doors if each.name == "telegram"), None)

        await bench.until(lambda: state() is AdapterState.FATAL)
        env = bench.file.parent / ".env"
        env.write_text(f"TELEGRAM_BOT_TOKEN={bench.telegram.token}\n")
        await bench.until(lambda: state() is AdapterState.CONNECTED)
        assert await bench.say("hello") == ["Done."]
        # What was taken over then is not said to wait when something else changes,
        # and neither are rules that the platform reads for each message.
        changes = {"timezone": "UTC", "telegram": {"reactions": True}, "model.max_tokens": 77}
        await bench.configure(changes)
        file = bench.file.parent / "gateway_state.json"
        await bench.until(lambda: "after a restart" in file.read_text())
        (warning,) = [text for text in _warnings(file) if "after a restart" in text]
        assert "token" not in warning.lower().replace("max_tokens", "")
        assert "reactions" not in warning
