"""`hermes chat`: talk to the agent."""

import getpass
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from hermes.agent.fetch import PageFetcher
from hermes.app.build import App, open_app
from hermes.app.options import AppOptions, run
from hermes.app.watchdog import watchdog
from hermes.cli.home import app_options, session_called
from hermes.cli.widgets import ProgressLine
from hermes.domain.errors import NotFound, UsageError
from hermes.domain.events import TurnFinished
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.profile import DEFAULT_AGENT, AgentProfile
from hermes.domain.session import Session
from hermes.domain.turn import TurnState
from hermes.entry.terminal.chat import ChatParts, run_chat
from hermes.entry.terminal.oneshot import EXIT_CODES, PLATFORM, answer_once, finish_earlier, inbound
from hermes.models.local.files import EMBEDDED, PROVIDER, TOY_NOTICE
from hermes.streaming.stdout import PlainOutput

KILLED = 128
HOLD_SECONDS = 0.3
"""How long text is held back in a pipe to tell remarks from answers."""


@click.command()
@click.option("-q", "--query", help="Ask one question and print the answer; `-` reads stdin.")
@click.option("-z", "--oneshot", help="The same as -q.")
@click.option("-Q", "--quiet", is_flag=True, help="No notices on stderr.")
@click.option("-r", "--resume", metavar="ID|TITLE", help="Continue this session.")
@click.option(
    "-c",
    "--continue",
    "latest",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Continue the latest session, or the latest of that name.",
)
@click.option("-m", "--model", help="Use this model.")
@click.option("--provider", help="Use this provider.")
@click.option("-t", "--toolsets", metavar="A,B", help="Use these toolsets.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Model calls a turn may make.")
@click.option("--yolo", is_flag=True, help="Ask for no approval; what is never allowed stays so.")
@click.option("--usage-file", type=click.Path(path_type=Path), help="Write usage as JSON here.")
@click.option("--source", default=PLATFORM, help="Label of a new session; `tool` hides it.")
@click.option("--no-restore-cwd", is_flag=True, help="Stay out of the session's directory.")
@click.option("--ignore-rules", is_flag=True, help="Leave out SOUL.md, memory and project files.")
def command(**given: Any) -> None:
    """Talk to the agent: interactively, or one question with -q."""
    query = given["query"] if given["query"] is not None else given["oneshot"]
    options = _options(given, can_ask=query is None)
    sys.exit(run(_chat(options, given) if query is None else _ask_once(options, given, query)))


def _options(given: dict[str, Any], *, can_ask: bool) -> AppOptions:
    toolsets = given["toolsets"]
    names = tuple(t.strip() for t in toolsets.split(",") if t.strip()) if toolsets else None
    same = ("model", "provider", "max_turns", "yolo", "ignore_rules")
    return app_options(toolsets=names, can_ask=can_ask, **{name: given[name] for name in same})


def _question(query: str) -> str:
    text = sys.stdin.read() if query == "-" else query
    if not text.strip():
        raise UsageError("The question is empty.", hint="Give some text after -q, or on stdin.")
    return text


async def _ask_once(options: AppOptions, given: dict[str, Any], query: str) -> int:
    text = _question(query)

    def note(line: str) -> None:
        if not given["quiet"] or line.startswith(("hermes:", "  ->")):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    async with open_app(options) as app:
        for warning in app.loaded.warnings:
            note(f"· {warning}")
        session = await _earlier_session(app, given)
        if session is None:
            session = await app.gateway.open_session(DEFAULT_AGENT, given["source"], user_name())
        output = PlainOutput(
            out=sys.stdout,
            note=note,
            monotonic=app.clock.monotonic,
            hold=0.0 if sys.stdout.isatty() else HOLD_SECONDS,
        )
        message = inbound(session, text, user_name(), app.clock.now())
        tools = app.tools.registry(app.agent(session.agent_id), session.source).specs()
        finished = await finish_earlier(app.gateway, session, output, tools)
        if finished is None or finished.outcome is not TurnState.INTERRUPTED:
            finished = await answer_once(app.gateway, session, message, output)
    if given["usage_file"] is not None:
        _write_usage(given["usage_file"], session, app, finished)
    note(f"· session {session.id}")
    return EXIT_CODES.get(finished.outcome, 1)


async def _chat(options: AppOptions, given: dict[str, Any]) -> int:
    async with open_app(options) as app:
        session = await _earlier_session(app, given)
        profile = app.agent(session.agent_id if session else DEFAULT_AGENT)
        notices = await _ready(app, profile)
        with watchdog(app.owner.stall_path):
            code = await run_chat(chat_parts(app, profile, session, notices))
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


async def _earlier_session(app: App, given: dict[str, Any]) -> Session | None:
    """Find the session that `-r` or `-c` means; None if a new one is wanted."""
    if given["resume"] is None and given["latest"] is None:
        return None
    reference = given["resume"] or given["latest"]
    if reference:
        session = await session_called(app.ledger, reference)
    else:
        query = SessionQuery(agent_id=DEFAULT_AGENT, source=PLATFORM, limit=1)
        latest = await app.ledger.sessions(query)
        if not latest:
            raise NotFound("There is no session to continue yet.", hint="Start one with: hermes")
        session = latest[0]
    if given["no_restore_cwd"]:
        session = await app.ledger.update_session(session.id, cwd=str(app.options.cwd))
    return session


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
