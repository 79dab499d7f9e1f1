"""Hooks: told of what happens, allowed to decide about commands, never fatal."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.config.paths import HermesHome
from hermes.control.hook_files import disable_hook, enable_hook, hook_files, load_hooks
from hermes.control.hooks import HookAction, HookBus
from hermes.domain.errors import ConfigError, NobodyChosen, NotFound

Heard = list[tuple[str, dict[str, Any]]]


async def test_handlers_are_told_of_their_events_only() -> None:
    bus, heard = HookBus(), Heard()

    async def handle(event: str, context: dict[str, Any]) -> None:
        heard.append((event, context))

    bus.on("session:start", handle)
    await bus.emit("session:start", {"session_id": "s1"})
    await bus.emit("session:end", {"session_id": "s1"})
    assert heard == [("session:start", {"session_id": "s1"})]


async def test_a_star_stands_for_every_event_of_its_group() -> None:
    bus, heard = HookBus(), list[str]()

    async def handle(event: str, _context: dict[str, Any]) -> None:
        heard.append(event)

    off = bus.on("agent:*", handle)
    for event in ("agent:start", "agent:step", "session:start"):
        await bus.emit(event, {})
    off()
    await bus.emit("agent:end", {})
    assert heard == ["agent:start", "agent:step"]
    assert not bus.hears("agent:end")


def test_an_event_that_does_not_exist_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="agent:begin"):
        HookBus().on("agent:begin", print)


async def test_plain_functions_run_beside_the_loop() -> None:
    bus, threads = HookBus(), list[str]()
    bus.on("agent:end", lambda _event, _context: threads.append(threading.current_thread().name))
    await bus.emit("agent:end", {})
    assert threads == ["hook"]


async def test_a_handler_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bus, heard = HookBus(), list[str]()

    def broken(_event: str, _context: dict[str, Any]) -> None:
        raise RuntimeError("oops")

    async def handle(event: str, context: dict[str, Any]) -> None:
        heard.append(event)
        context["changed"] = True

    bus.on("agent:end", broken, name="mine")
    bus.on("agent:end", handle)
    context: dict[str, Any] = {}
    await bus.emit("agent:end", context)
    assert heard == ["agent:end"]
    assert context == {}, "a handler changes its own copy"
    assert "hook mine failed at agent:end" in caplog.text


async def test_a_handler_that_hangs_is_given_up_and_not_called_again_until_it_is_back() -> None:
    bus, calls = HookBus(timeout=0.05), list[str]()
    release, started = threading.Event(), threading.Event()

    def slow(event: str, _context: dict[str, Any]) -> None:
        calls.append(event)
        started.set()
        release.wait(30)

    bus.on("agent:*", slow)
    await bus.emit("agent:start", {})
    assert started.is_set()
    await bus.emit("agent:step", {})
    assert calls == ["agent:start"]
    release.set()
    async with asyncio.timeout(10):
        while "agent:end" not in calls:
            await bus.emit("agent:end", {})


async def test_posted_events_are_told_in_order_without_waiting() -> None:
    bus, heard = HookBus(), list[int]()

    async def handle(_event: str, context: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(context["iteration"])

    bus.on("agent:step", handle)
    for iteration in range(5):
        bus.post("agent:step", {"iteration": iteration})
    assert heard == []
    async with asyncio.TaskGroup() as group:
        running = group.create_task(bus.run())
        await bus.drained()
        running.cancel()
    assert heard == [0, 1, 2, 3, 4]


async def test_more_than_can_be_told_is_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = HookBus()
    bus.on("agent:step", lambda _event, _context: None)
    for _ in range(1001):
        bus.post("agent:step", {})
    assert "too slow" in caplog.text


@pytest.mark.parametrize(
    ("answer", "action"),
    [
        (None, HookAction.ALLOW),
        ("deny", HookAction.ALLOW),
        ({"decision": "allow"}, HookAction.ALLOW),
        ({"decision": "deny", "message": "not now"}, HookAction.DENY),
        ({"decision": "handled"}, HookAction.HANDLED),
        ({"decision": "rewrite", "command_name": "new"}, HookAction.REWRITE),
        ({"decision": "explode"}, HookAction.ALLOW),
        ({"decision": 5}, HookAction.ALLOW),
    ],
)
async def test_a_command_is_decided_by_what_a_handler_returns(
    answer: object, action: HookAction
) -> None:
    bus = HookBus()
    bus.on("command:*", lambda _event, _context: answer)
    decision = await bus.decide("model", {"command": "model"})
    assert decision.decision is action
    if action is HookAction.DENY:
        assert decision.message == "not now"


async def test_the_first_answer_that_is_not_allow_counts() -> None:
    bus = HookBus()
    bus.on("command:model", lambda _event, _context: {"decision": "allow"})
    bus.on("command:*", lambda _event, _context: {"decision": "deny", "message": "first"})
    bus.on("command:model", lambda _event, _context: {"decision": "handled"})
    assert (await bus.decide("model", {})).message == "first"
    assert (await bus.decide("new", {})).message == "first"


# -- hooks in files ----------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(root=tmp_path / "home").ensure()


def write_hook(home: HermesHome, name: str = "notes", handler: str = "", events: str = "") -> Path:
    folder = home.hooks_dir / name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = f"name: {name}\ndescription: Takes notes\nevents: [{events or 'agent:end'}]\n"
    (folder / "HOOK.yaml").write_text(manifest)
    default = f"async def handle(event_type, context):\n    context['heard'].append('{name}')\n"
    (folder / "handler.py").write_text(handler or default)
    return folder


async def told(home: HermesHome) -> tuple[list[str], tuple[str, ...]]:
    bus, heard = HookBus(), list[str]()
    warnings = load_hooks(home, bus)
    await bus.emit("agent:end", {"heard": heard})
    return heard, warnings


async def test_a_hook_runs_only_after_a_person_enabled_it(home: HermesHome) -> None:
    write_hook(home)
    heard, (warning,) = await told(home)
    assert heard == []
    assert "nobody has enabled it" in warning
    assert not enable_hook(home, "notes").problem
    assert await told(home) == (["notes"], ())
    disable_hook(home, "notes")
    assert (await told(home))[0] == []


async def test_a_hook_that_was_changed_needs_consent_again(home: HermesHome) -> None:
    folder = write_hook(home)
    enable_hook(home, "notes")
    write_hook(home, handler="def handle(event_type, context): context['heard'].append('evil')\n")
    heard, (warning,) = await told(home)
    assert heard == []
    assert "changed" in warning
    enable_hook(home, "notes")
    assert (await told(home))[0] == ["evil"]
    (folder / "helper.py").write_text("x = 1\n")
    assert (await told(home))[0] == [], "a new file is a change, too"


PICK = "def handle(event_type, context): return 'coder'\n"


@pytest.mark.parametrize("change", ["handler", "manifest", "events", "gone", "import", "links"])
async def test_without_the_hook_that_chooses_the_agent_nobody_is_chosen(
    home: HermesHome, tmp_path: Path, change: str
) -> None:
    handler = "raise RuntimeError('at import')\n" if change == "import" else PICK
    folder = write_hook(home, "pick", handler, "select_agent")
    enable_hook(home, "pick")
    if change == "handler":
        (folder / "handler.py").write_text(PICK + "# changed\n")
    elif change == "manifest":
        (folder / "HOOK.yaml").write_text("events: [")
    elif change == "events":
        (folder / "HOOK.yaml").write_text("events: [agent:end]")
    elif change == "gone":
        folder.rename(tmp_path / "elsewhere")
    elif change == "links":
        (folder / "more.py").symlink_to("handler.py")
    bus = HookBus()
    (warning,) = load_hooks(home, bus)
    assert "The hook pick does not run" in warning
    assert "are refused" in warning
    with pytest.raises(NobodyChosen, match="The hook pick"):
        await bus.select_agent({})
    disable_hook(home, "pick")
    bus = HookBus()
    load_hooks(home, bus)
    assert await bus.select_agent({}) is None


async def test_a_hook_enabled_again_without_choosing_chooses_no_more(home: HermesHome) -> None:
    write_hook(home, "pick", PICK, "select_agent")
    enable_hook(home, "pick")
    folder = write_hook(home, "pick", PICK)
    enable_hook(home, "pick")
    (folder / "handler.py").write_text("x = 1\n")
    bus = HookBus()
    load_hooks(home, bus)
    assert await bus.select_agent({}) is None


async def test_a_hook_that_others_can_write_is_refused(home: HermesHome) -> None:
    folder = write_hook(home)
    enable_hook(home, "notes")
    (folder / "handler.py").chmod(0o666)
    heard, (warning,) = await told(home)
    assert heard == []
    assert "written by others" in warning
    with pytest.raises(ConfigError):
        enable_hook(home, "notes")


async def test_a_link_to_elsewhere_is_refused(home: HermesHome, tmp_path: Path) -> None:
    folder = write_hook(home)
    real = tmp_path / "handler.py"
    (folder / "handler.py").rename(real)
    (folder / "handler.py").symlink_to(real)
    assert "not a plain file" in (await told(home))[1][0]


@pytest.mark.parametrize(
    ("handler", "events", "problem"),
    [
        ("def handle(:", "", "cannot be loaded"),
        ("x = 1\n", "", "no function"),
        ("raise RuntimeError('at import')\n", "", "at import"),
    ],
)
async def test_a_hook_that_cannot_be_loaded_is_a_warning(
    home: HermesHome, handler: str, events: str, problem: str
) -> None:
    write_hook(home, "bad", handler, events)
    write_hook(home, "good")
    for name in ("bad", "good"):
        enable_hook(home, name)
    heard, (warning,) = await told(home)
    assert heard == ["good"]
    assert problem in warning


def test_a_manifest_that_makes_no_sense_is_named(home: HermesHome) -> None:
    write_hook(home, "a", events="agent:begin")
    write_hook(home, "b")
    (home.hooks_dir / "b" / "HOOK.yaml").write_text("events: [")
    (home.hooks_dir / "c").mkdir()
    problems = {hook.name: hook.problem for hook in hook_files(home)}
    assert "agent:begin" in problems["a"]
    assert "is not valid" in problems["b"]
    assert "HOOK.yaml" in problems["c"]
    with pytest.raises(NotFound):
        enable_hook(home, "d")
