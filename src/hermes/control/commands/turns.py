"""Commands about work in progress: stop, queue, steer, busy, approve, deny, answer."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hermes.control.child_turns import BACKGROUND, running_children, stop_child
from hermes.control.commands.context import CommandContext, Preference
from hermes.control.commands.registry import Category, Invocation, Where, command
from hermes.control.commands.wording import count, listing
from hermes.control.lanes.gateway import BusyMode
from hermes.domain.approvals import Approval, ApprovalKind, Choice
from hermes.domain.errors import UsageError
from hermes.domain.wording import ago, one_line, visible

EFFECTS = {
    BusyMode.INTERRUPT: "stops the running turn and is answered next",
    BusyMode.QUEUE: "waits until the running turn has ended",
    BusyMode.STEER: "reaches the running turn after its next tool call",
}
RESTARTED = "gateway:restarted"
"""Under this name the ledger keeps who asked for the last restart, and where."""
NOTE_SECONDS = 5.0
SCOPES = tuple(choice.value for choice in Choice if choice is not Choice.DENY)


_row = partial(command, Category.RUNNING)


@_row("stop", "", "Stop the turn and drop queued messages")
async def stop(context: CommandContext, _invocation: Invocation) -> None:
    stopped, dropped = await stop_everything(context)
    tasks = [] if context.guest else await _background_tasks(context)
    for child in tasks:
        context.host.gateway.interrupt(child)
    with_tasks = f"Stopped, with {count(len(tasks), 'task')} in the background."
    said = with_tasks if tasks else "Stopped." if stopped else "Nothing is running."
    await context.reply("\n".join([said, *dropped]))


async def _background_tasks(context: CommandContext) -> list[str]:
    gateway, session = context.host.gateway, context.session
    running = await running_children(gateway, session.id) if session else []
    return [child.id for child, message in running if message.reply_context == BACKGROUND]


async def stop_everything(context: CommandContext) -> tuple[bool, list[str]]:
    """Stop the turn and drop what waits; return whether one ran, and lines about the dropped."""
    if context.session is None:
        return False, []
    session_id = context.session.id
    waiting = await context.ledger.waiting(session_id)
    if context.guest:
        await _check_own_turn(context, session_id)
        waiting = [each for each in waiting if each.message.sender.id == context.caller.user_id]
    # Dropped first: the lane would take the next one the moment its turn stops.
    await context.ledger.drop([entry.id for entry in waiting], "stopped by a command")
    stopped = context.host.gateway.interrupt(session_id)
    if not waiting:
        return stopped, []
    lines = [f"{count(len(waiting), 'queued message')} will not be answered:"]
    return stopped, lines + [f"  {one_line(entry.message.text, 70)}" for entry in waiting]


async def _check_own_turn(context: CommandContext, session_id: str) -> None:
    current = context.host.gateway.current_turn(session_id)
    begun = await context.ledger.entries_of_turn(current.turn_id) if current else ()
    if begun and begun[0].message.sender.id != context.caller.user_id:
        raise UsageError("Somebody else asked for what is running: you cannot stop it.")


@_row("agents tasks", "[stop ID|all]", "Show and stop tasks of child agents", choices=("stop",))
async def agents(context: CommandContext, invocation: Invocation) -> None:
    gateway, session = context.host.gateway, context.session
    word, wanted = [*invocation.words, "", ""][:2]
    running = await running_children(gateway, session.id) if session else []
    if word and word.lower() != "stop":
        raise UsageError(f"`{word}` is not known here.", hint="/agents, /agents stop ID|all")
    if not word:
        now = gateway.clock.now()
        rows = [
            (child.id, f"{ago(now - child.started_at)}: {one_line(visible(about.text), 70)}")
            for child, about in running
        ]
        listed = listing(rows, terminal=context.terminal)
        await context.reply(listed if rows else "No tasks of child agents are running.")
        return
    chosen = [child.id for child, _ in running if wanted in ("all", child.id)]
    if not chosen:
        raise UsageError(f"No task `{wanted}` is running.", hint="See them with: /agents")
    for child_id in chosen:
        stop_child(gateway, child_id)
    await context.reply(f"Stopped {count(len(chosen), 'task')}.")


@_row("queue q", "TEXT", "Send text after the running turn")
async def queue(context: CommandContext, invocation: Invocation) -> None:
    await context.caller.submit(_text(invocation), mode=BusyMode.QUEUE)


@_row("steer", "TEXT", "Send text to the running turn")
async def steer(context: CommandContext, invocation: Invocation) -> None:
    await context.caller.submit(_text(invocation), mode=BusyMode.STEER)


@_row("restart", "", "Restart the gateway", where=Where.CHAT, admin=True)
async def restart(context: CommandContext, _invocation: Invocation) -> None:
    host, chat = context.host, context.chat
    if host.restart is None or chat is None:
        raise UsageError("There is no gateway here that could be restarted.")
    # A command that comes again, because the process died on the way, restarts nothing.
    asked_by = f"restart:{chat.platform}:{chat.account}:{chat.reply_to}"
    before: Any = await context.ledger.kept(RESTARTED)
    if isinstance(before, dict) and before["id"] == asked_by:
        return
    promise = {
        "id": asked_by,
        "owner": host.gateway.owner,
        "at": host.gateway.clock.now(),
        "target": msgspec.to_builtins(replace(chat, reply_to=None, context="")),
    }
    await context.ledger.keep(RESTARTED, promise)
    with suppress(TimeoutError):
        async with asyncio.timeout(NOTE_SECONDS):
            await context.reply("Restarting. I'll tell you when I'm back.")
    host.restart()


def _text(invocation: Invocation) -> str:
    if not invocation.rest:
        raise UsageError(
            "What should be sent?", hint=f"For example: /{invocation.name} and test it"
        )
    return invocation.rest


@_row("busy", "[mode]", "Choose what text sent during a turn does", choices=tuple(BusyMode))
async def busy(context: CommandContext, invocation: Invocation) -> None:
    word, session = invocation.rest.lower(), context.session
    if word and word not in set(BusyMode):
        raise UsageError(f"`{word}` is not a mode.", hint=f"One of: {', '.join(BusyMode)}.")
    if word:
        await context.prefer(Preference.BUSY, word)
        mode = BusyMode(word)
    else:
        mode = await context.host.busy_mode(context.caller.source, session.id if session else None)
    await context.reply(f"Busy mode {mode.value}: text sent during a turn {EFFECTS[mode]}.")


@_row("approve", "[session|always|all]", "Approve the pending action", choices=(*SCOPES, "all"))
async def approve(context: CommandContext, invocation: Invocation) -> None:
    words = [word.lower() for word in invocation.words]
    everything = "all" in words
    scopes = [word for word in words if word != "all"] or [Choice.ONCE.value]
    if scopes[0] not in SCOPES:
        hint = f"One of: {', '.join(SCOPES)}, all."
        raise UsageError(f"`{scopes[0]}` is not a scope.", hint=hint)
    pending = await _pending(context, ApprovalKind.APPROVAL)
    chosen = pending if everything else pending[:1]
    if any(scopes[0] not in approval.request.choices for approval in chosen):
        hint = "/approve allows it once."
        raise UsageError(f"This cannot be approved as `{scopes[0]}`.", hint=hint)
    await _answer(context, chosen, Choice(scopes[0]), "")


@_row("deny", "[all] [reason]", "Deny the pending action", choices=("all",))
async def deny(context: CommandContext, invocation: Invocation) -> None:
    first, _, after = invocation.rest.partition(" ")
    everything = first.lower() == "all"
    pending = await _pending(context, ApprovalKind.APPROVAL, deny=True)
    reason = after.strip() if everything else invocation.rest
    await _answer(context, pending if everything else pending[:1], Choice.DENY, reason)


@_row("answer", "TEXT", "Answer the model's question")
async def answer(context: CommandContext, invocation: Invocation) -> None:
    pending = await _pending(context, ApprovalKind.QUESTION)
    if not invocation.rest:
        raise UsageError("What is the answer?", hint="For example: /answer the second one")
    answers, by = context.host.answers, context.user_name or context.caller.user_id
    taken = await answers.reply(pending[0].request.id, invocation.rest, by=by)
    text = taken.decision.text if taken and taken.decision else ""
    await context.reply(f"Answered: {text}" if taken else "This was already answered.")


async def _pending(
    context: CommandContext, kind: ApprovalKind, *, deny: bool = False
) -> list[Approval]:
    """Return what the caller may answer, oldest first."""
    session, found, refused = context.need_session(), list[Approval](), ""
    pending = await context.ledger.pending_approvals(session.id)
    for approval in pending or await context.nearby():
        if approval.request.kind is kind:
            refusal = await context.refusal(approval.request, deny=deny)
            refused = refused or refusal
            found += [] if refusal else [approval]
    if not found and refused:
        raise UsageError(refused)
    if not found:
        raise UsageError(
            "Nothing is waiting for approval."
            if kind is ApprovalKind.APPROVAL
            else "No question is waiting for an answer."
        )
    return found


async def _answer(
    context: CommandContext, approvals: list[Approval], choice: Choice, reason: str
) -> None:
    verb = "Denied" if choice is Choice.DENY else f"Approved ({choice.value})"
    for approval in approvals:
        request = approval.request
        taken = await context.host.answers.answer(
            request.id, choice, by=context.user_name or context.caller.user_id, text=reason
        )
        subject = one_line(visible(request.subject), 70)
        await context.reply(f"{verb}: {subject}" if taken else f"Already answered: {subject}")
