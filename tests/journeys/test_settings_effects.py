"""A changed `config.yaml` takes effect on a running gateway: every live setting, seen from outside.

One gateway runs between a fake Telegram, a fake model and callers over HTTP. For each live setting
the file is changed twice, to a configuration and to the same with that setting different, and what
a person, the model or a caller gets must differ. Settings of the terminal are seen in a chat that
is opened beside the gateway. A setting that is read at start must be named by `hermes status`.

`CASES`, `AT_THE_TERMINAL`, `AT_THE_END` and `ELSEWHERE` name the proof of each live setting; one
without a proof fails the first test.
"""

import asyncio
import functools
import itertools
import json
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import httpx2
import pytest
import yaml
from msgspec import Struct

from fakes.command import Hermes
from fakes.gateway import gateway_config
from fakes.model import Call, Counts, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from fakes.telegram_world import Seen
from fakes.tmux import Tmux
from fakes.transcriber import FakeTranscriber, engine
from hermes.app import config_watch
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.app.serve import Service
from hermes.app.shutdown import StopSignals
from hermes.config.check import bare, fields_by_name, struct_of
from hermes.config.meaning import type_of
from hermes.config.paths import HermesHome
from hermes.control.delivery.rate_limit import Pacer, Urgency
from hermes.control.lanes.batches import NO_BATCHING
from hermes.control.supervision import health
from hermes.control.supervision.instance import hold_home
from hermes.control.supervision.supervisor import AdapterState
from hermes.domain.settings import Settings
from hermes.domain.settings.live import needs_restart
from hermes.entry.chat.door import ChatDoor
from hermes.execution.clock import SystemClock

SLOW = f"{'It takes a while to say all of this, piece by piece. ' * 3}Done."


def terminal(command: str, **more: Any) -> Call:
    return Call(name="terminal", arguments={"command": command, **more})


def script(folder: Path) -> Script:
    done, outside = Step(text="Done."), folder / "outside.txt"
    outside.write_text("x")
    tools = [
        Step(text="Let me see.", reasoning="Hm.", calls=[terminal("echo one two three four")]),
        Step(calls=[terminal("echo 2")]),
        done,
    ]
    heavy = Step(calls=[terminal("echo 3")], usage=Counts(input=400_000))
    note = Call(name="write_file", arguments={"path": "note.txt", "content": "a new line\n"})
    steps = {
        "USER: ": [Step(text="A summary.")],
        "clean": [Step(calls=[terminal("rm -rf tmp")]), done],
        "look": tools,
        "fill": [heavy, done],
        "slowly": [Step(text=SLOW, interval=0.03)],
        "repeat": [Step(text="repeat correct-horse-battery Done.")],
        "stall": [Step(text="Done.", stall="first")],
        "background": [Step(calls=[terminal("sleep 600", background=True)]), done],
        "file": [Step(text=f"MEDIA:{outside}\n\nDone.")],
        "note": [Step(reasoning="A thought.", calls=[note]), Step(text="All is **Done.**")],
    }
    return Script(
        rules=[Rule(contains=word, steps=each) for word, each in steps.items()], default=done
    )


OVER = re.compile(
    r"Done\.|limit|budget|Approval needed|pairing approve|conversation|did not|cannot|Nobody can"
)
LONG = "All about it. " * 400
"""More than any limit of a file that the prompt is made of."""
KEY = "a-key-of-this-test-and-no-other-one"


class Bench:
    """A running gateway, the file that its settings come from, and who talks to it."""

    def __init__(self, app: App, hermes: Hermes, telegram: FakeTelegram, model: FakeModelServer):
        self.app, self.hermes, self.telegram, self.model = app, hermes, telegram, model
        self.file = hermes.home / "config.yaml"
        self.base: dict[str, Any] = yaml.safe_load(self.file.read_text())
        self.work = hermes.work
        self.ahead = 0.0
        """Seconds that the gateway's clock is ahead of time."""
        self.end: Callable[[], Awaitable[None]]
        self._chats = itertools.count(1000)

    async def configure(self, *changes: dict[str, Any]) -> None:
        """Write the file and return when the gateway uses it."""
        document = json.loads(json.dumps(self.base))
        for change in changes:
            for key, value in change.items():
                _set(document, key, value)
        if document == yaml.safe_load(self.file.read_text()):
            return
        before = self.app.loaded
        self.write(yaml.safe_dump(document))
        await self.until(lambda: self.app.loaded is not before)

    def write(self, text: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self.file)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(40):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)

    async def idle(self) -> None:
        await self.until(lambda: not self.app.gateway.live_sessions)

    def new_chat(self) -> int:
        return next(self._chats)

    async def say(self, text: str, chat: int | None = None) -> list[str]:
        """Say something, in a new chat unless one is named; return what is seen in the end."""
        return [_anonymous(seen) for seen in await self.shown(text, chat)]

    async def shown(self, text: str, chat: int | None = None) -> list[Seen]:
        chat = chat or self.new_chat()
        before = len(self._over(chat))
        self.telegram.say(chat, chat, text)
        try:
            await self.until(lambda: len(self._over(chat)) > before)
        except TimeoutError:
            raise AssertionError([seen.text for seen in self.telegram.replies(chat)]) from None
        return self.telegram.replies(chat)

    def _over(self, chat: int) -> list[Seen]:
        shown = self.telegram.replies(chat)
        return [seen for seen in shown if OVER.search(seen.text) and "▉" not in seen.text]

    def state(self) -> str:
        file = self.hermes.home / "gateway_state.json"
        return file.read_text() if file.exists() else ""

    def says(self, text: str) -> bool:
        return text in self.state()

    def address(self, name: str) -> str:
        doors = self.app.gateway.doors.health()
        return next(f"http://{each.account}" for each in doors if each.name == name)


def _anonymous(seen: Seen) -> str:
    return seen.text.replace(str(seen.chat_id), "")


def _set(document: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for name in path:
        document = document.setdefault(name, {})
    document[last] = value


Probe = Callable[[Bench], Awaitable[object]]


def asked(bench: Bench) -> dict[str, Any]:
    """Return the last request that begins a turn: one that was denied may still go on."""
    bodies = [each.body for each in bench.model.requests if each.body.get("tools")]
    return [body for body in bodies if body["messages"][-1]["role"] == "user"][-1]


async def request(bench: Bench) -> object:
    """Return what the model is asked with."""
    await bench.say("hello")
    body = asked(bench)
    text = re.sub(r"\d{4}|[0-9a-f]{12,}", "#", json.dumps(body["messages"]))
    return text, body.get("reasoning_effort"), [t["function"]["name"] for t in body["tools"]]


async def voice(bench: Bench) -> object:
    """Return what the model is told of a voice message, and what is seen in the chat."""
    chat = bench.new_chat()
    expected = 2 if bench.app.settings().stt.echo_transcripts else 1
    bench.telegram.world.say_file(chat, chat, "voice", b"OggS")
    await bench.until(lambda: len(bench.telegram.replies(chat)) >= expected)
    await bench.until(lambda: "Done." in [seen.text for seen in bench.telegram.replies(chat)])
    told = asked(bench)["messages"][-1]["content"]
    seen = sorted(_anonymous(seen) for seen in bench.telegram.replies(chat))
    return re.sub(r"voice-\w{6}", "#", str(told)), seen


async def danger(bench: Bench, look: Probe | None = None) -> object:
    """Return what becomes of a dangerous command, or what `look` sees while it waits."""
    (bench.work / "tmp").mkdir(exist_ok=True)
    chat = bench.new_chat()
    shown = await bench.say("clean up", chat)
    found = await look(bench) if look else shown
    bench.telegram.say(chat, chat, "/deny")
    return found


async def waits_for_approval(bench: Bench) -> object:
    """Return how long an approval waits, as a caller of the API is told."""
    return await danger(bench, _patience)


async def _patience(bench: Bench) -> object:
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as caller:
        answer = await caller.get(f"{bench.address('api_server')}/v1/approvals")
    newest = answer.json()["data"][-1]
    return round(newest["expires_at"] - newest["created_at"])


async def calls(bench: Bench) -> object:
    """Return how many calls to the model a turn with tools makes."""
    before = len(bench.model.requests)
    bench.telegram.say(1, 1, "look around")
    await bench.until(lambda: len(bench.model.requests) > before)
    await bench.idle()
    return len(bench.model.requests) - before


async def answer(bench: Bench) -> object:
    return await bench.say("hello")


async def stranger(bench: Bench) -> object:
    """Return what somebody sees who comes for the first time."""
    # Only three can have a code at once.
    shutil.rmtree(bench.hermes.home / "platforms" / "pairing", ignore_errors=True)
    return [re.sub(r"[A-Z0-9]{8}", "#", text) for text in await bench.say("hello")]


async def unlisted(bench: Bench) -> object:
    """Return whether somebody who is on no list has heard anything when one who is has."""
    chat = bench.new_chat()
    bench.telegram.say(chat, chat, "hello")
    for _round in range(3):
        await bench.say("hello", 7)
    return bool(bench.telegram.replies(chat))


async def trigger(bench: Bench) -> object:
    return await bench.say("start over")


async def tools(bench: Bench) -> object:
    """Return what a turn with tools looks like in the end."""
    return await bench.say("look around")


async def growth(bench: Bench) -> object:
    """Return whether an answer was seen growing, and with which mark at its end."""
    *_, seen = await bench.shown("slowly please")
    looks = [text for text in seen.history if text != "…"]
    return len(looks) > 1, {text[-1] for text in looks} - set(SLOW)


async def notice(bench: Bench) -> object:
    """Return what is said first beside a turn in which nothing happens."""
    chat = bench.new_chat()
    bench.telegram.say(chat, chat, "stall")

    def said() -> set[str]:
        replies = bench.telegram.replies(chat)
        return {t[0] for seen in replies for t in (*seen.history, seen.text) if t[0] in "⏳⚠⏹"}

    await bench.until(said)
    first = said()
    bench.telegram.say(chat, chat, "/stop")
    await bench.idle()
    return first


async def summaries(bench: Bench) -> object:
    """Return how often older messages are summarised when the context has filled."""
    before = len(bench.model.requests)
    await bench.say("fill it")
    made = [json.dumps(each.body) for each in bench.model.requests[before:]]
    return sum("Summarise the conversation" in body for body in made)


async def sent_files(bench: Bench) -> object:
    chat = bench.new_chat()
    await bench.say("the file please", chat)
    await bench.until(lambda: len(bench.telegram.replies(chat)) == 2)
    return [seen.method for seen in bench.telegram.replies(chat)]


async def delivered(bench: Bench) -> object:
    """Return where a result goes that no chat asked for."""
    before = len(bench.telegram.replies(-1042))
    async with httpx2.AsyncClient() as caller:
        url = f"{bench.address('webhook')}/webhooks/plain"
        await caller.post(url, json={"text": f"news {before}"})
    await bench.until(lambda: len(bench.telegram.replies(-1042)) > before)
    return bench.telegram.replies(-1042)[-1].thread_id


async def busy(bench: Bench) -> object:
    """Return whether an answer is finished although something else is said meanwhile."""
    chat, before = bench.new_chat(), len(bench.model.requests)
    bench.telegram.say(chat, chat, "slowly please")
    await bench.until(lambda: len(bench.model.requests) > before)
    bench.telegram.say(chat, chat, "hello")
    await bench.until(lambda: [s.text for s in bench.telegram.replies(chat)][-1:] == ["Done."])
    return SLOW in [seen.text for seen in bench.telegram.replies(chat)]


async def busy_note(bench: Bench) -> object:
    """Return whether it is said what becomes of a message that comes during a turn."""
    chat, before = bench.new_chat(), len(bench.model.requests)
    bench.telegram.say(chat, chat, "slowly please")
    await bench.until(lambda: len(bench.model.requests) > before)
    bench.telegram.say(chat, chat, "hello")
    await bench.until(lambda: [s.text for s in bench.telegram.replies(chat)][-1:] == ["Done."])
    return any("your message is next" in seen.text for seen in bench.telegram.replies(chat))


async def next_day(bench: Bench, first: str = "hello") -> object:
    """Return what is said besides the answer 26 hours later, and whether it is a new session."""
    chat = bench.new_chat()
    await bench.say(first, chat)
    await bench.idle()
    bench.ahead = 26 * 3600.0
    await bench.say("hello", chat)
    await bench.until(lambda: [s.text for s in bench.telegram.replies(chat)].count("Done.") == 2)
    bench.ahead = 0.0
    asked = [m["content"] for m in bench.model.requests[-1].body["messages"] if m["role"] == "user"]
    said = [seen.text for seen in bench.telegram.replies(chat) if seen.text != "Done."]
    return len(asked), said


async def next_day_at_work(bench: Bench) -> object:
    return await next_day(bench, "in the background")


OWN = "platforms.telegram"
SHUT = {f"{OWN}.allow_all_users": False}
LISTED = {**SHUT, f"{OWN}.allowed_users": ["7"]}
HOME = {f"{OWN}.home_channel.chat_id": "-1042"}
IDLE = {"session_reset.mode": "idle"}
FULL = {"compression.protect_last_n": 1}
BRIEF = {"agent.gateway_timeout": 1.0}

SERVICE = {"base_url": "{transcriber}/v1", "api_key": "key-1"}


def _service(name: str) -> dict[str, tuple[Probe, Any, dict[str, Any]]]:
    around = {"stt.provider": name, f"stt.{name}": SERVICE}
    return {
        f"stt.{name}.base_url": (voice, "{transcriber}/v2", around),
        f"stt.{name}.api_key": (voice, "key-2", around),
        f"stt.{name}.model": (voice, "large", around),
    }


CASES: dict[str, tuple[Probe, Any, dict[str, Any]]] = {
    "budget.session_tokens": (answer, 0, {}),
    "budget.session_usd": (answer, 0, {}),
    "budget.day_tokens": (answer, 0, {}),
    "budget.day_usd": (answer, 0, {}),
    "platform_toolsets": (request, {"telegram": ["todo"]}, {}),
    "agent.max_turns": (calls, 1, {"display.tool_progress": "off"}),
    "agent.gateway_timeout": (notice, 0.05, {"agent.gateway_timeout_warning": 1.0}),
    "agent.gateway_timeout_warning": (notice, 0.05, BRIEF),
    "agent.gateway_notify_interval": (notice, 0.05, BRIEF),
    "agent.ephemeral_system_prompt": (request, "Be brief.", {}),
    "agent.reasoning_effort": (request, "high", {}),
    "compression.enabled": (summaries, False, FULL),
    "compression.threshold": (summaries, 0.9, FULL),
    "compression.target_ratio": (summaries, 0.0, {}),
    "compression.protect_last_n": (summaries, 1, {}),
    "memory.memory_enabled": (request, False, {}),
    "memory.user_profile_enabled": (request, False, {}),
    "memory.memory_char_limit": (request, 100, {}),
    "memory.user_char_limit": (request, 100, {}),
    "context_file_max_chars": (request, 1000, {}),
    "platform_hints": (request, {"telegram": "Here is Telegram."}, {}),
    "approvals.mode": (danger, "off", {}),
    "approvals.timeout": (waits_for_approval, 7, {}),
    "approvals.deny": (danger, ["rm *"], {}),
    "command_allowlist": (danger, ["rm -rf tmp"], {}),
    "gateway.media_delivery_allow_dirs": (sent_files, ["{folder}"], {}),
    "gateway.allowed_users": (stranger, ["*"], SHUT),
    "gateway.allow_all_users": (stranger, True, SHUT),
    "platforms.*.home_channel.chat_id": (request, "42", {}),
    "platforms.*.home_channel.name": (request, "Den", HOME),
    "platforms.*.home_channel.thread_id": (delivered, "5", HOME),
    "platforms.*.allowed_users": (stranger, ["*"], SHUT),
    "platforms.*.allow_all_users": (stranger, False, {}),
    "streaming.enabled": (growth, False, {}),
    "streaming.transport": (growth, "off", {}),
    "streaming.edit_interval": (growth, 9.0, {"streaming.buffer_threshold": 0}),
    "streaming.buffer_threshold": (growth, 1000, {"streaming.edit_interval": 9.0}),
    "streaming.cursor": (growth, "◆", {}),
    "session_reset.mode": (next_day, "daily", {}),
    "session_reset.at_hour": (next_day, 23, {"session_reset.mode": "daily"}),
    "session_reset.idle_minutes": (next_day, 60, IDLE),
    "session_reset.notify": (next_day, False, IDLE),
    "session_reset.bg_process_max_age_hours": (next_day_at_work, 48, IDLE),
    "session_reset.reset_by_type": (next_day, {"dm": {"mode": "idle", "idle_minutes": 1}}, {}),
    "session_reset.reset_by_platform": (next_day, {"telegram": "daily"}, {}),
    "agents": (answer, {"main": {"nonsense": True}}, {}),
    "routes": (answer, [{"platform": "telegram", "agent": "coder"}], {}),
    "profile_routes": (answer, [{"platform": "telegram", "profile": "coder"}], {}),
    "default_agent": (answer, "coder", {}),
    "reset_triggers": (trigger, ["start over"], {}),
    "unauthorized_dm_behavior": (unlisted, "pair", LISTED),
    "display.tool_progress": (tools, "off", {}),
    "display.tool_preview_length": (tools, 5, {}),
    "display.tool_progress_grouping": (tools, "separate", {}),
    "display.interim_assistant_messages": (tools, False, {}),
    "display.friendly_tool_labels": (tools, False, {}),
    "display.busy_input_mode": (busy, "queue", {}),
    "display.busy_ack_enabled": (busy_note, False, {}),
    "display.platforms.*.busy_ack_enabled": (busy_note, False, {}),
    "display.platforms.*.streaming": (growth, False, {}),
    "display.platforms.*.tool_progress": (tools, "off", {}),
    "display.platforms.*.tool_progress_grouping": (tools, "separate", {}),
    "display.platforms.*.tool_preview_length": (tools, 5, {}),
    "display.platforms.*.show_reasoning": (tools, True, {}),
    "display.platforms.*.interim_assistant_messages": (tools, False, {}),
    "display.platforms.*.friendly_tool_labels": (tools, False, {}),
    "display.platforms.*.busy_input_mode": (busy, "queue", {}),
    "privacy.redact_pii": (request, True, {}),
    "stt.enabled": (voice, False, {}),
    "stt.echo_transcripts": (voice, False, {}),
    "stt.provider": (voice, "openai", {"stt.openai": SERVICE}),
    "stt.language": (voice, "de", {}),
    "stt.local.model": (voice, "tiny", {}),
    **_service("openai"),
    **_service("groq"),
    **_service("mistral"),
}


class Terminal(Struct, frozen=True):
    """A chat at the terminal, from its start to its end."""

    opening: str
    screen: str
    raw: str
    request: dict[str, Any]
    """What the model was asked with first."""

    @property
    def tools(self) -> set[str]:
        return {tool["function"]["name"] for tool in self.request["tools"]}


AT_THE_TERMINAL: dict[str, tuple[Any, Callable[[Terminal], bool]]] = {
    "toolsets": (["file"], lambda seen: "terminal" in seen.tools),
    "display.compact": (True, lambda seen: "Tip:" in seen.opening),
    "display.resume_display": ("minimal", lambda seen: "earlier" in seen.screen),
    "display.bell_on_complete": (True, lambda seen: "\a" not in seen.raw),
    "display.show_reasoning": (False, lambda seen: "A thought." in seen.screen),
    "display.final_response_markdown": ("raw", lambda seen: "**" not in seen.screen),
    "display.inline_diffs": (False, lambda seen: "+a new line" in seen.screen),
    "display.show_cost": (True, lambda seen: "$0" not in seen.opening),
    "display.skin": ("mono", lambda seen: "\x1b[38;" in seen.raw),
}
"""Setting -> another value, and what is true only without it."""
AT_THE_END = "agent.restart_drain_timeout"


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


ELSEWHERE = {
    "agent/mcp/test_mcp_login.py": (
        "mcp_servers.*.auth mcp_servers.*.oauth_port mcp_servers.*.client_id"
        " mcp_servers.*.client_key mcp_servers.*.client_key_algorithm mcp_servers.*.client_secret"
        " mcp_servers.*.client_metadata_url mcp_servers.*.headers mcp_servers.*.issuer"
        " mcp_servers.*.keepalive mcp_servers.*.scope mcp_servers.*.transport"
    ),
    "agent/mcp/test_mcp_servers.py": (
        "mcp_servers.*.connect_timeout mcp_servers.*.cwd mcp_servers.*.elicitation"
        " mcp_servers.*.enabled mcp_servers.*.roots mcp_servers.*.sampling.enabled"
        " mcp_servers.*.sampling.max_rpm mcp_servers.*.sampling.max_tokens_cap"
        " mcp_servers.*.timeout mcp_servers.*.tools.include mcp_servers.*.tools.prompts"
        " mcp_servers.*.tools.resources mcp_servers.*.args mcp_servers.*.command"
        " mcp_servers.*.env mcp_servers.*.tools.exclude mcp_servers.*.url"
        " mcp_discovery_timeout"
    ),
    "agent/tools/test_execute_code.py": "code_execution.max_tool_calls code_execution.mode"
    " code_execution.timeout",
    "agent/tools/test_media_tools.py": (
        "tts.openai.api_key tts.openai.model tts.openai.voice tts.provider image_gen.api_key"
        " image_gen.base_url image_gen.model tts.openai.base_url tts.espeak.voice"
    ),
    "agent/tools/test_tool_search.py": (
        "tool_loop_guardrails.hard_stop_after.exact_failure"
        " tool_loop_guardrails.hard_stop_after.idempotent_no_progress"
        " tool_loop_guardrails.hard_stop_after.same_tool_failure"
        " tool_loop_guardrails.hard_stop_enabled tool_loop_guardrails.warn_after.exact_failure"
        " tool_loop_guardrails.warn_after.idempotent_no_progress"
        " tool_loop_guardrails.warn_after.same_tool_failure"
        " tool_loop_guardrails.warnings_enabled tools.tool_search.enabled"
        " tools.tool_search.max_search_limit tools.tool_search.search_default_limit"
        " tools.tool_search.threshold_pct"
    ),
    "agent/tools/test_web_tools.py": (
        "web.extract_char_limit security.allow_private_urls web.backend web.search_backend"
        " security.website_blocklist.domains security.website_blocklist.enabled"
        " security.website_blocklist.shared_files"
    ),
    "app/test_fetch.py": "browser.allow_private_urls",
    "execution/browser/test_browser.py": "browser.cdp_url browser.command_timeout"
    " browser.dialog_policy browser.dialog_timeout_s browser.inactivity_timeout",
    "journeys/test_ask_agent.py": "ask_agent.agents ask_agent.enabled ask_agent.max_depth"
    " ask_agent.max_model_calls ask_agent.max_questions ask_agent.timeout",
    "journeys/test_clarify.py": "agent.clarify_timeout",
    "journeys/test_delegation.py": "delegation.max_iterations delegation.max_spawn_depth"
    " delegation.model delegation.child_timeout_seconds delegation.max_concurrent_children"
    " delegation.max_summary_chars delegation.orchestrator_enabled delegation.provider"
    " delegation.subagent_auto_approve",
    "journeys/test_gateway_tools.py": "gateway.message_targets checkpoints.enabled",
    "state/test_checkpoints.py": (
        "checkpoints.auto_prune checkpoints.retention_days checkpoints.max_file_size_mb"
        " checkpoints.max_snapshots"
    ),
}
"""Settings that a tool reads with each use, and the tests that see them make a difference."""


def test_there_is_an_effect_for_every_live_setting() -> None:
    elsewhere = [key for keys in ELSEWHERE.values() for key in keys.split()]
    proven = [*CASES, *AT_THE_TERMINAL, AT_THE_END, *elsewhere]
    live = {key for key, restart in settings().items() if not restart}
    assert sorted(proven) == sorted(live)
    for file, keys in ELSEWHERE.items():
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert [key for key in keys.split() if key.rpartition(".")[2] not in text] == []


async def _at_once(_pacer: Pacer, _urgency: Urgency, _patience: float = 0.0) -> bool:
    return True


@asynccontextmanager
async def running(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any
) -> AsyncIterator[Bench]:
    monkeypatch.setattr(config_watch, "LOOK_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(health, "WRITE_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(ChatDoor, "window", lambda _door, _platform: NO_BATCHING)
    monkeypatch.setattr(Pacer, "wait", _at_once)
    monkeypatch.setitem(sys.modules, "faster_whisper", engine())
    async with FakeModelServer(script(folder)) as model, FakeTelegram() as telegram:
        config = gateway_config(telegram.base_url) | {
            "model": {
                "provider": "groq",
                "default": "fake-1",
                "base_url": model.base_url,
                "api_key": "any",
                "context_length": 600_000,
            },
            "terminal": {"backend": "local"},
            "display": {"tool_progress": "all"},
            "streaming": {"edit_interval": 0.01},
        }
        for key, value in changed.items():
            _set(config, key.replace("__", "."), value)
        hermes = Hermes(folder, config=config)
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
        with hold_home(hermes.home, sys.argv, supervised=False):
            async with open_app(options) as app, asyncio.TaskGroup() as group:
                service = group.create_task(Service(app, stop).run())
                bench = Bench(app, hermes, telegram, model)
                monkeypatch.setattr(SystemClock, "now", lambda _clock: time.time() + bench.ahead)

                async def end() -> None:
                    stop.stop("the test asks for it")
                    await asyncio.wait([service])

                bench.end = end
                yield bench
                stop.stop("the test is over")
                stop.stop("now")


def _filled(value: Any, folder: Path, service: FakeTranscriber) -> Any:
    text = json.dumps(value).replace("{folder}", str(folder))
    return json.loads(text.replace("{transcriber}", service.origin))


LISTENERS = {
    "platforms__api_server": {"enabled": True, "extra": {"key": KEY, "port": 0}},
    "platforms__webhook": {
        "enabled": True,
        "extra": {
            "port": 0,
            "secret": "INSECURE_NO_AUTH",
            "routes": {"plain": {"prompt": "{text}", "deliver": "telegram", "deliver_only": True}},
        },
    },
}


@pytest.mark.timeout(300)
async def test_every_live_setting_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without: list[str] = []
    usual: dict[tuple[Probe, str], object] = {}
    async with (
        FakeTranscriber() as service,
        running(tmp_path, monkeypatch, **LISTENERS) as bench,
    ):
        bench.telegram.chat(-1042, "supergroup", is_forum=True).topics[5] = "News"
        await bench.say("hello")
        for key, (probe, value, around) in CASES.items():
            place, base = (probe, json.dumps(around)), _filled(around, tmp_path, service)
            if place not in usual:
                await bench.configure(base)
                usual[place] = await probe(bench)
            wanted = _filled(value, tmp_path, service)
            await bench.configure(base, {key.replace("*", "telegram"): wanted})
            if usual[place] == await probe(bench):
                without.append(key)
        assert without == []
        await bench.configure()
        for probe in {probe for probe, around in usual if around == "{}"}:
            assert await probe(bench) == usual[probe, "{}"], "what is taken out of the file is over"


@pytest.mark.xdist_group("tmux")
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_a_chat_at_the_terminal_goes_by_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as bench:
        assert (await bench.hermes.run("chat", "-q", "an earlier question")).out == "Done.\n"
        usual = await at_the_terminal(bench)
        await bench.configure({key: value for key, (value, _) in AT_THE_TERMINAL.items()})
        changed = await at_the_terminal(bench)
    found = {key: (holds(usual), holds(changed)) for key, (_, holds) in AT_THE_TERMINAL.items()}
    assert found == dict.fromkeys(AT_THE_TERMINAL, (True, False))


async def at_the_terminal(bench: Bench) -> Terminal:
    (bench.work / "note.txt").unlink(missing_ok=True)
    before = len(bench.model.requests)
    folder = Path(tempfile.mkdtemp(dir=bench.hermes.folder))
    tmux = Tmux(folder, columns=120, rows=60)
    try:
        environ = " ".join(f"{name}={value}" for name, value in bench.hermes.environ.items())
        command = shlex.join(bench.hermes.argv("chat", "--continue"))
        tmux.run(f"cd {bench.work}; {environ} LC_ALL=C.UTF-8 TERM=screen-256color {command}")
        opening = await asyncio.to_thread(tmux.wait_for, r"^❯$")
        tmux.type("a note please")
        tmux.keys("Enter")
        screen = await asyncio.to_thread(tmux.wait_for, r"All is .*Done[^❯]*\n❯\n")
        return Terminal(opening, screen, tmux.raw(), bench.model.requests[before].body)
    finally:
        tmux.close()


@pytest.mark.parametrize("seconds", [0, 20])
async def test_the_end_of_the_gateway_gives_turns_the_time_in_the_file(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves `agent.restart_drain_timeout`: set while the gateway runs, it counts at its end."""
    usual = {"agent__restart_drain_timeout": 20 - seconds}
    async with running(tmp_path, monkeypatch, **usual) as bench:
        await bench.say("hello")
        await bench.configure({AT_THE_END: seconds})
        bench.telegram.say(5, 5, "slowly please")
        await bench.until(lambda: bench.telegram.replies(5))
        await bench.end()
        said = [seen.text for seen in bench.telegram.replies(5)]
    assert (said == [SLOW]) is bool(seconds)


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
        return {"x": {} if struct_of(get_args(plain)[1]) else "y"}
    return not value if plain is bool else (value or 0) + 1 if plain in {int, float} else "other"


async def test_every_other_setting_is_named_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"providers": "mine", "platforms": "telegram"}
    keys = [key for key, restart in settings().items() if restart]
    paths = [key.replace("*", names.get(key.partition(".")[0], "")) for key in keys]
    # A new token is connected with at once.
    paths.remove(f"{OWN}.token")
    async with running(tmp_path, monkeypatch, providers={"mine": {}}) as bench:
        await bench.say("hello")
        started: Any = bench.app.settings()
        changes = {}
        for path in paths:
            kind, value = type_of(tuple(path.split("."))), started
            for name in path.split("."):
                value = value[name] if isinstance(value, dict) else getattr(value, name)
            changes[path] = another(kind, value)
        await bench.configure(changes, {"terminal.backend": "docker"})
        await bench.until(lambda: "after a restart" in bench.state())
        shown = (await bench.hermes.run("status")).out
        (warning,) = [line for line in shown.splitlines() if "after a restart" in line]
        named = re.split(r"[\s,]+", warning)
        assert [
            path for path in paths if not any(f"{name}.".startswith(f"{path}.") for name in named)
        ] == []
        assert bench.app.settings() == started, "nothing of it is in use"
        await bench.configure({"display.tool_progress": "off"})
        await bench.until(lambda: "after a restart" not in bench.state())
        assert "after a restart" not in (await bench.hermes.run("status")).out


MISTAKES: dict[str, tuple[str, Any]] = {
    "agent.max_turns should be a whole number": ("agent.max_turns", "many"),
    "streaming.transport should be one of": ("streaming.transport", "sometimes"),
    "reset_by_platform.telegram": ("session_reset.reset_by_platform", {"telegram": "weekly"}),
    "dm_policy is `sometimes`": (f"{OWN}.extra.dm_policy", "sometimes"),
    "setting reactions cannot be used": ("telegram.reactions", "perhaps"),
    "The key of the API server is": (
        "platforms.api_server",
        {"enabled": True, "extra": {"key": "k"}},
    ),
}


async def test_a_file_that_cannot_be_used_is_named_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch) as bench:
        good = bench.file.read_text()
        wrong = {"did not find expected": "model: [\n", "config.yaml is empty or gone": ""}
        for told, (key, value) in MISTAKES.items():
            document = json.loads(json.dumps(bench.base))
            _set(document, key, value)
            wrong[told] = yaml.safe_dump(document)
        await bench.say("hello", 1)
        started = bench.app.loaded
        for told, text in wrong.items():
            bench.write(text)
            await bench.until(functools.partial(bench.says, told))
            assert (await bench.say("hello", 1))[-1] == "Done."
            assert bench.app.loaded is started
        # Two edits at once: the last one counts.
        bench.write(good + "agent: {max_turns: 5}\n")
        bench.write(good + "agent: {max_turns: 6}\nreset_triggers: [start over]\n")
        await bench.until(lambda: bench.app.settings().agent.max_turns == 6)
        assert "ew conversation" in (await bench.say("start over", 1))[-1]
        await bench.until(lambda: not json.loads(bench.state())["warnings"])


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
        env.write_text(
            f"TELEGRAM_BOT_TOKEN={bench.telegram.token}\nMAIL_PASSWORD=correct-horse-battery\n"
        )
        await bench.until(lambda: state() is AdapterState.CONNECTED)
        assert await bench.say("hello") == ["Done."]
        told = await bench.say("repeat correct-horse-battery")
        assert told == ["repeat MAIL_PASSWORD Done."], "a new secret is one at once"
        # What was taken over then is not said to wait when something else changes,
        # and neither are rules that the platform reads for each message.
        changes = {"timezone": "UTC", "telegram": {"reactions": True}, "model.max_tokens": 77}
        await bench.configure(changes)
        await bench.until(lambda: "after a restart" in bench.state())
        (warning,) = json.loads(bench.state())["warnings"]
        assert "token" not in warning.lower().replace("max_tokens", "")
        assert "reactions" not in warning
