"""Effects of a delivery: scripts, comments on GitHub, texts in chats.

Whatever leaves has an outbox entry first, under an id made of route, delivery
and attempt: a process that comes after a crash finds it and does not send
again what may be there already.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from hermes.control.webhooks.intake import HookRefused, Ignored
from hermes.control.webhooks.routes import GITHUB_COMMENT
from hermes.domain.errors import HermesError
from hermes.domain.outbound import SILENT_MARKERS, OutboxEntry, OutboxKind, OutboxState, Target
from hermes.domain.ports.clock import Clock
from hermes.domain.ports.ledger import OutboxStore
from hermes.domain.webhooks import HookDelivery, ScriptEnd

log = logging.getLogger(__name__)

LOG = "log"
GITHUB = "github"
MAX_COMMENT = 65_000
SILENT = "[SILENT]"
IGNORE = "__hermes_ignore__"
_PLATFORM = re.compile(r"[a-z][a-z0-9_]{0,40}")
_REPO = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}/[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}")
_NUMBER = re.compile(r"[0-9]{1,10}")


Scripts = Callable[[str, bytes, float], Awaitable[ScriptEnd]]
"""(script, stdin, timeout): runs to its end; `HermesError` if it cannot be started."""
Comments = Callable[[str, str, str], Awaitable[None]]
"""(repo, number, text): comments on GitHub; `HermesError` if that fails."""
Deliver = Callable[[Target, str, str], Awaitable[None]]
"""(target, text, outbox id): returns when the text is there; `HermesError` if it cannot be sent.

A target without a chat is the home channel of its platform. What was sent under an
id is not sent again.
"""


def is_silent(text: str) -> bool:
    lines = text.strip().splitlines() or [""]
    return text.strip() in {"", *SILENT_MARKERS} or "[SILENT]" in (
        lines[0].strip(),
        lines[-1].strip(),
    )


def chat_of(target: str, extra: dict[str, str]) -> Target:
    """Return the chat that `platform[:chat[:thread]]` and `deliver_extra` name."""
    platform, _, place = target.partition(":")
    if _PLATFORM.fullmatch(platform) is None:
        raise HermesError(
            f"`{target}` is no place that results can be delivered to.",
            hint="Use log, github_comment, a platform, or platform:chat[:thread].",
        )
    # Matrix rooms and users have a colon in their own names.
    whole = place.startswith(("!", "#", "@"))
    chat, thread = (place, "") if whole else (*place.split(":", 1), "")[:2]
    return Target(
        platform=platform,
        account="",
        chat_id=chat or extra.get("chat_id", ""),
        thread_id=thread or extra.get("thread_id") or extra.get("message_thread_id") or None,
    )


class Results:
    def __init__(
        self, outbox: OutboxStore, clock: Clock, deliver: Deliver, comment: Comments
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._deliver = deliver
        self._comment = comment

    async def send(self, delivery: HookDelivery, text: str, agent_id: str) -> None:
        if delivery.target == LOG:
            log.info("webhook %s, %s: %s", delivery.route, delivery.delivery_id, text)
        elif delivery.target == GITHUB_COMMENT:
            await self._send_comment(delivery, text, agent_id)
        else:
            chat = chat_of(delivery.target, delivery.target_extra)
            await self._deliver(chat, text, outbox_id(delivery))

    async def _send_comment(self, delivery: HookDelivery, text: str, agent_id: str) -> None:
        repo, number = (delivery.target_extra.get(name, "") for name in ("repo", "pr_number"))
        if _REPO.fullmatch(repo) is None or _NUMBER.fullmatch(number) is None:
            raise HermesError(
                f"`{repo}` and `{number}` do not name a pull request.",
                hint="Check deliver_extra.repo (owner/name) and deliver_extra.pr_number.",
            )
        now = self._clock.now()
        entry = await self._outbox.enqueue(
            OutboxEntry(
                id=outbox_id(delivery),
                agent_id=agent_id,
                target=Target(platform=GITHUB, account="gh", chat_id=f"{repo}#{number}"),
                kind=OutboxKind.DELIVERY,
                content=text[:MAX_COMMENT],
                session_id=delivery.session_id,
                created_at=now,
                updated_at=now,
            )
        )
        if entry.state is OutboxState.SENT:
            return
        if await self._outbox.claim_send(entry.id, now) is None:
            raise HermesError(
                "An earlier attempt at this comment was cut off; it may be there already.",
                hint=f"Look at {repo}#{number}.",
            )
        record = partial(self._outbox.update_outbox, entry.id)
        try:
            await self._comment(repo, number, entry.content)
        except HermesError as error:
            await record(state=OutboxState.FAILED, at=self._clock.now(), error=error.message)
            raise
        await record(state=OutboxState.SENT, at=self._clock.now())


async def apply_script(run: Scripts, script: str, payload: Any, timeout: float) -> Any | Ignored:
    """Run a script; return what takes the payload's place."""
    outcome = await run(script, msgspec.json.encode(payload), timeout)
    if outcome.timed_out:
        raise HookRefused(503, "The script of this route did not end in time.")
    if outcome.cut:
        raise HookRefused(503, "The script of this route wrote too much.")
    if outcome.exit_code != 0:
        log.warning("webhook script %s: exit %d: %s", script, outcome.exit_code, outcome.errors)
        return Ignored("script failed")
    return _meaning(outcome.output.strip(), payload)


def _meaning(output: str, payload: Any) -> Any | Ignored:
    if not output or output == SILENT:
        return Ignored("script said nothing")
    try:
        made = msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError, ValueError):
        made = None
    if not isinstance(made, dict):
        whole = payload if isinstance(payload, dict) else {"payload": payload}
        return {**whole, "script_output": output}
    return Ignored("script") if made.get(IGNORE) is True else made


def outbox_id(delivery: HookDelivery) -> str:
    return f"webhook:{delivery.route}:{delivery.delivery_id}#{delivery.attempt}"
