"""`hermes chat`: talk to the agent."""

import asyncio
import getpass
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from hermes.agent.fetch import PageFetcher
from hermes.agent.tools.toolsets import composites, installed_tools, resolve_toolsets
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions, run
from hermes.app.watchdog import watchdog
from hermes.cli.front import behind_a_front
from hermes.cli.home import app_options, loaded_config, session_called, this_home
from hermes.cli.root import chat_options, on_command_line
from hermes.cli.widgets import ProgressLine, is_interactive
from hermes.config.loader import LoadedConfig
from hermes.control.admission.routing import named
from hermes.domain.errors import (
    BudgetExhausted,
    ConfigError,
    MissingExtra,
    NotFound,
    StoreError,
    StoreTooNew,
    UsageError,
)
from hermes.domain.events import TurnFinished
from hermes.domain.ports.ledger import Ledger, SessionQuery
from hermes.domain.profile import AgentProfile
from hermes.domain.session import Session
from hermes.domain.turn import TurnState
from hermes.domain.wording import harmless
from hermes.entry.terminal.chat import ChatParts, run_chat
from hermes.entry.terminal.oneshot import PLATFORM, answer_once, finish_earlier, inbound
from hermes.models.local.files import EMBEDDED, PROVIDER, TOY_NOTICE
from hermes.state.sqlite.ledger import open_ledger
from hermes.streaming.stdout import PlainOutput

KILLED = 128
_EXIT_CODES = {TurnState.DONE: 0, TurnState.INTERRUPTED: 130}
_FAILED = {"internal": 70} | {
    kind.code: kind.exit_code
    for kind in (UsageError, ConfigError, MissingExtra, StoreError, StoreTooNew, BudgetExhausted)
}
HOLD_SECONDS = 0.3
"""How long text is held back in a pipe to tell remarks from answers."""


@click.command("chat")
@chat_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Talk to the agent: interactively, or one question with -q."""
    # Flags may stand before the command too: those behind it win.
    before = ctx.obj or {}
    given |= {name: before[name] for name in before if not on_command_line(ctx, name)}
    query = given["query"] if given["query"] is not None else given["oneshot"]
    query = None if query is None else _question(query)
    if given["toolsets"]:
        _check_toolsets(given["toolsets"])
    loaded = _configured(given, may_ask=query is None)
    if loaded is None:
        return
    options = replace(_options(given, can_ask=query is None), loaded=loaded)
    if query is not None:
        sys.exit(run(_ask_once(options, given, query)))
    let_go = behind_a_front() if is_interactive() else None
    sys.exit(run(_chat(options, given, let_go)))


def _check_toolsets(names: str) -> None:
    toolset_of = {name: tool.toolset for name, tool in installed_tools().items()}
    unknown = resolve_toolsets(_words(names), (), toolset_of).unknown
    if unknown:
        raise UsageError(
            f"There is no toolset `{unknown[0]}`.",
            hint=f"Toolsets: {', '.join(sorted({*toolset_of.values(), *composites()}))}.",
        )


def _configured(given: dict[str, Any], *, may_ask: bool) -> LoadedConfig | None:
    """Return a configuration with a model; at the first start a person is asked for one."""
    loaded = loaded_config()
    named = given["agent"] or given["model"] or given["resume"] or given["latest"] is not None
    if named or loaded.config.model.model:
        return loaded
    if not (may_ask and is_interactive()):
        raise ConfigError(
            "No model is chosen.", hint="Choose one with `hermes setup`, or name it with -m."
        )
    from hermes.cli.commands.setup import ask  # noqa: PLC0415 - only the first start asks

    click.echo("Welcome to Hermes. One question before the first conversation.")
    ask(this_home())
    loaded = loaded_config()
    return loaded if loaded.config.model.model else None


def _words(names: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in names.split(",") if word.strip())


def _options(given: dict[str, Any], *, can_ask: bool) -> AppOptions:
    names = _words(given["toolsets"]) if given["toolsets"] else None
    same = ("model", "provider", "max_turns", "yolo", "ignore_rules")
    return app_options(toolsets=names, can_ask=can_ask, **{name: given[name] for name in same})


def _question(query: str) -> str:
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise UsageError("The question is empty.", hint="Give some text after -q, or on stdin.")
    return text


async def _ask_once(options: AppOptions, given: dict[str, Any], text: str) -> int:
    def note(line: str) -> None:
        if not given["quiet"] or line.startswith(("hermes:", "  ->")):
            sys.stderr.write((harmless(line) if sys.stderr.isatty() else line) + "\n")
            sys.stderr.flush()

    options = await _in_its_directory(options, given)
    async with open_app(options) as app:
        for warning in (*app.loaded.warnings, *filter(None, [options.restored])):
            note(f"· {warning}")
        session = await _earlier_session(app.ledger, given)
        if session is None:
            agent = _agent(app, given)
            session = await app.gateway.open_session(agent, given["source"], user_name())
        output = PlainOutput(
            out=sys.stdout,
            note=note,
            monotonic=app.clock.monotonic,
            hold=0.0 if sys.stdout.isatty() else HOLD_SECONDS,
            shown=harmless if sys.stdout.isatty() else str,
        )
        message = inbound(session, text, user_name(), app.clock.now())
        tools = app.tools.registry(app.agent(session.agent_id), session.source).specs()
        finished = await finish_earlier(app.gateway, session, output, tools)
        if finished is None or finished.outcome is not TurnState.INTERRUPTED:
            finished = await answer_once(app.gateway, session, message, output)
    if given["usage_file"] is not None:
        _write_usage(given["usage_file"], session, app, finished)
    note(f"· session {session.id}")
    return exit_code(finished)


async def _chat(
    options: AppOptions, given: dict[str, Any], let_go: Callable[[], None] | None
) -> int:
    options = await _in_its_directory(options, given)
    async with open_app(options) as app:
        session = await _earlier_session(app.ledger, given)
        profile = app.agent(session.agent_id if session else _agent(app, given))
        notices = (*await _ready(app, profile), *filter(None, [options.restored]))
        with watchdog(app.owner.stall_path):
            parts = chat_parts(app, profile, session, notices)
            code = await run_chat(replace(parts, let_go=let_go))
        if code > KILLED:
            # Leaving by an exception keeps a running turn open for the next start.
            raise SystemExit(code)
        return code


def chat_parts(
    app: App, profile: AgentProfile, session: Session | None = None, notices: tuple[str, ...] = ()
) -> ChatParts:
    return ChatParts(
        host=app.commands(),
        profile=profile,
        home=app.options.home,
        environ=app.options.environ,
        user=user_name(),
        session=session,
        notices=(*app.loaded.warnings, *notices),
        fetch_url=PageFetcher(),
    )


def _agent(app: App, given: dict[str, Any]) -> str:
    """Return the agent that is named, or the default agent."""
    return named(given["agent"] or app.settings().default_agent)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "user"


async def _ready(app: App, profile: AgentProfile) -> tuple[str, ...]:
    """Have an embedded model loaded, with a progress bar; return what to say about it."""
    if profile.provider != PROVIDER:
        return ()
    progress = ProgressLine()
    try:
        tools = app.tools.registry(profile, PLATFORM).specs()
        await app.models.start(profile, tools, progress)
    finally:
        progress.finish()
    return (TOY_NOTICE,) if profile.model == EMBEDDED else ()


async def _in_its_directory(options: AppOptions, given: dict[str, Any]) -> AppOptions:
    """Say in which directory the session that is continued works, or move it here."""
    if given["resume"] is None and given["latest"] is None:
        return options
    async with open_ledger(options.home.ensure()) as ledger:
        session, here = await _earlier_session(ledger, given), options.cwd
        own = Path(session.cwd) if session and session.cwd else here
        if session is None or own == here:
            return options
        there = await asyncio.to_thread(own.is_dir)
        if there and not given["no_restore_cwd"]:
            said = f"This conversation works in {own}, not in {here}. --no-restore-cwd moves it."
            return replace(options, own_cwd=str(own), restored=said)
        await ledger.update_session(session.id, cwd=str(here))
        gone = "" if there else f" {own} is gone."
        return replace(options, restored=f"This conversation works in {here} from now on.{gone}")


async def _earlier_session(ledger: Ledger, given: dict[str, Any]) -> Session | None:
    """Find the session that `-r` or `-c` means; None if a new one is wanted."""
    if given["resume"] is None and given["latest"] is None:
        return None
    reference = given["resume"] or given["latest"]
    if reference:
        session = await session_called(ledger, reference)
        if given["agent"] and named(given["agent"]) != session.agent_id:
            raise UsageError(
                f"The session {session.id} is one of the agent `{session.agent_id}`,"
                f" not of `{named(given['agent'])}`.",
                hint=f"Continue it with: hermes -a {session.agent_id} -r {session.id}",
            )
    else:
        agent = named(given["agent"] or loaded_config().config.default_agent)
        query = SessionQuery(agent_id=agent, source=PLATFORM, limit=1)
        latest = await ledger.sessions(query)
        if not latest:
            raise NotFound("There is no session to continue yet.", hint="Start one with: hermes")
        session = latest[0]
    return session


def exit_code(finished: TurnFinished) -> int:
    """Return the code that docs/how-to/one-shot.md names for the end of a turn."""
    failed = _FAILED.get(finished.error.code, 1) if finished.error else 1
    return _EXIT_CODES.get(finished.outcome, failed)


def _write_usage(path: Path, session: Session, app: App, finished: TurnFinished) -> None:
    usage, profile = finished.usage, app.agent(session.agent_id)
    document = {
        "session_id": session.id,
        "provider": profile.provider,
        "model": profile.model,
        "outcome": finished.outcome.value,
        "model_calls": finished.model_calls,
        **msgspec.structs.asdict(usage),
        "total_tokens": usage.total_tokens,
        "cost_usd": finished.cost_usd,
        "error": msgspec.to_builtins(finished.error) if finished.error else None,
    }
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")
    except OSError as error:
        raise UsageError(f"The usage could not be written to {path}: {error.strerror}.") from error
