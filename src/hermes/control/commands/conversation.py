"""Commands about the conversation: new, retry, undo, branch, resume, save, compress, sethome."""

import asyncio
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from hermes.control.commands.context import CommandContext, Preference
from hermes.control.commands.registry import Category, Invocation, Where, command
from hermes.control.commands.turns import stop_everything
from hermes.control.commands.wording import (
    Exchange,
    asked_again,
    count,
    exchanges,
    session_line,
    table,
)
from hermes.control.delivery.home_channel import HomeChannel, set_home_channel
from hermes.control.lanes.gateway import BusyMode
from hermes.domain.errors import ConfigError, Conflict, NotFound, UsageError
from hermes.domain.ids import new_session_id
from hermes.domain.messages import AssistantMessage, ToolMessage, UserMessage, content_text
from hermes.domain.ports.clock import clock_time
from hermes.domain.ports.ledger import SessionQuery
from hermes.domain.session import Lineage, NewSession, Session, StoredMessage
from hermes.domain.wording import ago, one_line

LISTED = 20
SEARCHED = 500
"""How many of a person's conversations are looked through for a name."""
STOP_SECONDS = 5.0
HISTORY_LINES = 20

_talk = partial(command, Category.SESSION)
_idle = partial(command, Category.SESSION, needs_idle=True)
_screen = partial(command, Category.SESSION, where=Where.TERMINAL)
_admin = partial(command, Category.SESSION, where=Where.CHAT, admin=True)


@_talk("new reset", "[title]", "Start a new conversation")
async def new(context: CommandContext, invocation: Invocation) -> None:
    if context.terminal and context.busy:
        raise Conflict("/new has to wait until the turn has ended.", hint="/stop ends it now.")
    stopped, dropped = await stop_everything(context)
    if stopped and context.session is not None:
        # What it still has to say belongs above the new beginning.
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await context.host.gateway.idle(context.session.id)
    await _leave(context, "new")
    first = "I stopped what I was doing. " if stopped else ""
    beginning = f"{first}New conversation. /resume returns to the previous one."
    await context.reply("\n".join([beginning, *dropped]))
    if invocation.rest:
        session = await context.caller.ensure_session()
        await context.ledger.rename_session(session.id, invocation.rest)
        await context.caller.refresh()


@_screen("clear", "", "Clear the screen and start over", needs_idle=True)
async def clear(context: CommandContext, _invocation: Invocation) -> None:
    await _leave(context, "clear")
    context.screen.clear()


async def _leave(context: CommandContext, reason: str) -> None:
    if context.session is not None:
        await context.ledger.end_session(
            context.session.id, reason, context.host.gateway.clock.now()
        )
    await context.caller.switch(None)


@_idle("retry", "", "Send the last message again")
async def retry(context: CommandContext, _invocation: Invocation) -> None:
    session = context.need_session()
    nothing = "There is nothing to send again."
    found = await _exchanges(context, session, nothing)
    last = next((each for each in reversed(found) if each.typed), None)
    if last is None:
        raise UsageError(nothing)
    text, attachments = asked_again(last.asked)
    await context.ledger.rewind(session.id, last.seq)
    await context.caller.submit(text, mode=BusyMode.QUEUE, attachments=attachments)


@_idle("undo", "[N]", "Take back the last exchanges")
async def undo(context: CommandContext, invocation: Invocation) -> None:
    session = context.need_session()
    number = _number(invocation.rest or "1")
    found = await _exchanges(context, session, "There is nothing to take back.")
    first = found[-number] if number <= len(found) else found[0]
    removed = await context.ledger.rewind(session.id, first.seq)
    taken = min(number, len(found))
    await context.reply(
        f"Took back {count(taken, 'exchange')} ({count(removed, 'message')}), "
        f"from: {one_line(first.asked_text, 60)}"
    )
    await context.caller.refresh()
    if context.caller.screen is not None and first.typed:
        context.caller.screen.prefill(asked_again(first.asked)[0])


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"`{text}` is not a number of exchanges.", hint="For example: /undo 2")
    return int(text)


async def _exchanges(context: CommandContext, session: Session, none: str) -> list[Exchange]:
    found = exchanges(await context.ledger.history(session.id))
    if not found:
        raise UsageError(none)
    return found


@_talk("title", "[name]", "Show or set the title")
async def title(context: CommandContext, invocation: Invocation) -> None:
    if not invocation.rest:
        session = context.need_session()
        await context.reply(
            f"Title: {session.title}" if session.title else "No title yet. /title NAME sets one."
        )
        return
    session = await context.caller.ensure_session()
    renamed = await context.ledger.rename_session(session.id, invocation.rest)
    await context.caller.refresh()
    await context.reply(f"Title: {renamed.title}")


@_talk("sessions", "[title]", "List conversations")
async def sessions(context: CommandContext, invocation: Invocation) -> None:
    found = await _recent(context, invocation.rest or None)
    more = "Ask me in private for those of others." if context.operator and context.shared else ""
    if not found:
        await context.reply(f"There are no conversations yet. {more}".strip())
        return
    now, current = context.host.gateway.clock.now(), context.session.id if context.session else None
    lines = [session_line(each, now, current=each.id == current) for each in found]
    await context.reply("\n".join([*lines, f"/resume ID or TITLE continues one. {more}".strip()]))


@_idle("resume", "[id|title]", "Continue an earlier conversation")
async def resume(context: CommandContext, invocation: Invocation) -> None:
    session = await _wanted(context, invocation.rest)
    if session is None:
        return
    if context.session is not None and session.id == context.session.id:
        await context.reply("This conversation is already open.")
        return
    if context.shared and not context.operator:
        # What its owner waived alone is not waived for others.
        await context.ledger.remember(session.id, Preference.YOLO.value, None)
    await context.caller.switch(session)
    if not context.terminal:
        name = session.title or one_line(session.preview, 60) or session.id
        when = ago(context.host.gateway.clock.now() - session.updated_at)
        messages = count(session.message_count, "message")
        await context.reply(f"Back in “{name}” ({messages}, last used {when}). Go ahead.")


async def _wanted(context: CommandContext, reference: str) -> Session | None:
    if reference:
        if context.confidential:
            session = await context.ledger.find_session(reference)
        else:
            session = _named(await _recent(context, None, limit=SEARCHED), reference)
        if session is None:
            raise NotFound(f"There is no conversation `{reference}`.", hint="/sessions lists them.")
        if session.agent_id != context.agent_id:
            there = f"/agent {session.agent_id} first." if context.terminal else "Talk to it there."
            raise UsageError(
                f"This is a conversation of the agent `{session.agent_id}`.", hint=there
            )
        return session
    current = context.session.id if context.session else ""
    found = [each for each in await _recent(context, None) if each.id != current]
    if not found:
        await context.reply(f"There are no conversations{' beside this one' * bool(current)} yet.")
        return None
    now = context.host.gateway.clock.now()
    lines = [session_line(each, now, current=False).strip() for each in found]
    if context.caller.screen is None:
        await context.reply("\n".join([*lines, "/resume ID or TITLE continues one."]))
        return None
    chosen = await context.caller.screen.pick("Which conversation should continue?", lines)
    return None if chosen is None else found[chosen]


def _named(found: list[Session], reference: str) -> Session | None:
    """Find by id, by title or its numbered continuations, or by the beginning of an id."""
    title = re.compile(re.escape(reference) + r"( #\d+)?", re.IGNORECASE)
    for each in found:
        if each.id == reference or title.fullmatch(each.title or ""):
            return each
    begins = [each for each in found if each.id.startswith(reference)]
    if len(begins) > 1:
        raise Conflict(f"Several conversations have an id that begins with `{reference}`.")
    return begins[0] if begins else None


async def _recent(
    context: CommandContext, title_part: str | None, limit: int = LISTED
) -> list[Session]:
    """Return the conversations that the caller may see: theirs, and those of the place."""
    query = SessionQuery(
        agent_id=context.agent_id,
        source=None if context.confidential else context.caller.source,
        user_id=None if context.confidential else context.caller.user_id,
        key=None if context.confidential else context.key,
        exclude_sources=("tool", "cron"),
        title=title_part,
        min_messages=1,
        limit=limit,
    )
    return await context.ledger.sessions(query)


@_idle("branch fork", "[name]", "Continue in a copy of this conversation")
async def branch(context: CommandContext, invocation: Invocation) -> None:
    parent, now = context.need_session(), context.host.gateway.clock.now()
    copy = await context.ledger.branch_session(
        parent.id,
        NewSession(
            id=new_session_id(now),
            agent_id=parent.agent_id,
            source=context.caller.source,
            started_at=now,
            model=parent.model,
            provider=parent.provider,
            cwd=parent.cwd,
            user_id=context.caller.user_id,
            parent_id=parent.id,
            lineage=Lineage.BRANCH,
            title=invocation.rest or None,
        ),
    )
    await context.caller.switch(copy)
    name = f" “{copy.title}”" if copy.title else ""
    back = parent.title or parent.id
    await context.reply(
        f"This is now a copy of the conversation{name}; the original stays as it was."
        f" /resume {back} returns to it."
    )


@_screen("history", "[N]", "Show the conversation so far")
async def history(context: CommandContext, invocation: Invocation) -> None:
    session = context.need_session()
    limit = _number(invocation.rest) if invocation.rest else HISTORY_LINES
    found = exchanges(await context.ledger.history(session.id))
    lines = [f"{session.title or session.id} · {count(len(found), 'exchange')}"]
    for exchange in found[-limit:]:
        lines.append(f"{'>' if exchange.typed else '·'} {one_line(exchange.asked_text, 200)}")
        tools = f"  ({count(exchange.tools, 'tool call')})" if exchange.tools else ""
        lines.append(f"  {one_line(exchange.answer, 400) or '(no answer)'}{tools}")
    await context.reply("\n".join(lines))


@_screen("output", "[N]", "Show the whole output of a tool call")
async def output(context: CommandContext, invocation: Invocation) -> None:
    session = context.need_session()
    number = _number(invocation.rest or "1")
    history = await context.ledger.history(session.id)
    results = [each.message for each in history if isinstance(each.message, ToolMessage)]
    if number > len(results):
        raise UsageError(f"There are {count(len(results), 'tool call')} in this conversation.")
    result = results[-number]
    path = context.host.saved_dir / f"{session.id}-output-{len(results) - number + 1}.txt"
    text = content_text(result.content)
    await asyncio.to_thread(_write, path, text.encode(errors="replace"))
    lines = count(len(text.splitlines()), "line")
    await context.reply(f"{result.name}:\n{text}\n[{lines}, also in {path}]")


@command(
    Category.SESSION,
    "rollback",
    "[number [file]|diff number]",
    "List checkpoints of the project, compare with one, or go back to it",
    admin=True,
    needs_idle=True,
)
async def rollback(context: CommandContext, invocation: Invocation) -> None:
    store, words = context.host.checkpoints, invocation.words
    session = context.session
    folder = (session.cwd if session else None) or str(context.profile.workspace)
    if store is None:
        raise UsageError("There are no checkpoints here.")
    if not words:
        settings, kept = context.host.settings(), await store.snapshots(folder)
        rows = [
            (str(each.number), f"{clock_time(each.at.timestamp(), settings.timezone)}  {each.why}")
            for each in kept
        ]
        text = table(rows, terminal=context.terminal) if rows else f"{folder} has no checkpoints."
        if not settings.checkpoints.enabled:
            text += "\nThey are off: hermes config set checkpoints.enabled true"
        await context.reply(text)
        return
    compare = words[0] == "diff"
    number = words[1] if compare and len(words) > 1 else words[0]
    if not number.isdigit():
        raise UsageError("Say /rollback NUMBER [FILE] or /rollback diff NUMBER.")
    if compare:
        text = await store.diff(folder, int(number))
        await context.reply(text[:20_000] or "Nothing has changed since then.")
        return
    done = await store.restore(folder, int(number), " ".join(words[1:]))
    names = f"{count(len(done.changed), 'file')} changed ({', '.join(done.changed[:20])})"
    text = f"Back at {number}: {names if done.changed else 'nothing was different'}."
    if done.left:
        text += f" Too large for the checkpoint, so left as they are: {', '.join(done.left[:20])}."
    await context.reply(text)


@_screen("save", "[file]", "Write the conversation to a file")
async def save(context: CommandContext, invocation: Invocation) -> None:
    session = context.need_session()
    stored = await context.ledger.history(session.id)
    path = context.host.saved_dir / f"{session.id}.json"
    if invocation.rest:
        here = Path(session.cwd or context.profile.workspace)
        path = here / await asyncio.to_thread(Path(invocation.rest).expanduser)
    zone = context.host.settings().timezone
    markdown = path.suffix.lower() in (".md", ".markdown")
    data = _as_markdown(session, stored, zone).encode() if markdown else _as_json(session, stored)
    await asyncio.to_thread(_write, path, data)
    await context.reply(f"Saved {count(len(stored), 'message')} to {path}")


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}.", hint="Name another file."
        ) from error


def _as_json(session: Session, stored: list[StoredMessage]) -> bytes:
    document = {
        "session": msgspec.to_builtins(session),
        "messages": [msgspec.to_builtins(each) for each in stored],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _as_markdown(session: Session, stored: list[StoredMessage], zone: str) -> str:
    lines = [f"# {session.title or session.id}", "", f"_{clock_time(session.started_at, zone)}_"]
    for each in stored:
        message = each.message
        if isinstance(message, UserMessage):
            lines += ["", "## You", "", content_text(message.content)]
        elif isinstance(message, AssistantMessage) and message.text:
            lines += ["", "## Hermes", "", message.text]
    return "\n".join([*lines, ""])


@_idle("compress compact", "[focus]", "Summarise older messages")
async def compress(context: CommandContext, invocation: Invocation) -> None:
    session = context.need_session()
    await context.reply("Summarising the older part of the conversation…")
    done = await context.host.controls.compact(session, invocation.rest)
    await context.caller.refresh()
    if not done.messages:
        await context.reply("There is nothing old enough to summarise.")
        return
    await context.reply(
        f"Summarised {count(done.messages, 'message')}: "
        f"{done.tokens_before:,} tokens became {done.tokens_after:,}."
    )


@_admin("sethome set-home", "", "Make this chat the home channel")
async def sethome(context: CommandContext, _invocation: Invocation) -> None:
    chat = context.chat
    if chat is None:
        raise UsageError("Only a chat can be a home channel.", hint="Send /sethome there.")
    home = HomeChannel(
        platform=chat.platform,
        account=chat.account,
        chat_id=chat.chat_id,
        thread_id=chat.thread_id,
        name=context.chat_name,
        chat_kind=chat.chat_kind,
    )
    await set_home_channel(context.ledger, home)
    where = "topic" if chat.thread_id is not None else "chat"
    await context.reply(
        f"This {where} is now the home channel of {chat.platform}: messages that no chat"
        " asked for, such as reminders and results, are sent here."
    )
