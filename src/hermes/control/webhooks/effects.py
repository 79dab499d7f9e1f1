"""Effects of a delivery: scripts, comments on GitHub, texts in chats.

Whatever leaves has an outbox entry first, under an id made of route, delivery
and attempt: a process that comes after a crash finds it and does not send
again what may be there already.
"""

import logging
import re
from typing import Any, Protocol

import msgspec
from msgspec import Struct

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


class ScriptRunner(Protocol):
    def check(self, script: str) -> None:
        """Raise `ConfigError` if a route may not run this."""
        ...

    async def run(self, script: str, stdin: bytes, timeout: float) -> ScriptEnd:
        """Run a script to its end; `HermesError` if it cannot be started."""
        ...


class GitHubComments(Protocol):
    async def comment(self, repo: str, number: str, text: str) -> None:
        """Post a comment; `HermesError` if that fails."""
        ...


class Deliver(Protocol):
    async def deliver(
        self,
        platform: str,
        chat_id: str | None,
        thread_id: str | None,
        text: str,
        *,
        entry_id: str,
    ) -> None:
        """Send a text and return when it is there; `HermesError` if it cannot be sent.

        Without a chat it goes to the platform's home channel. `entry_id` is the
        id of the outbox entry: what was sent under it is not sent again.
        """
        ...


class Address(Struct, frozen=True, kw_only=True):
    platform: str
    chat_id: str | None = None
    """None: the platform's home channel."""
    thread_id: str | None = None


def is_silent(text: str) -> bool:
    """Tell whether a result asks not to be delivered."""
    lines = text.strip().splitlines() or [""]
    return text.strip() in {"", *SILENT_MARKERS} or "[SILENT]" in (
        lines[0].strip(),
        lines[-1].strip(),
    )


def address_of(target: str, extra: dict[str, str]) -> Address:
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
    return Address(
        platform=platform,
        chat_id=chat or extra.get("chat_id") or None,
        thread_id=thread or extra.get("thread_id") or extra.get("message_thread_id") or None,
    )


class Results:
    def __init__(
        self,
        outbox: OutboxStore,
        clock: Clock,
        deliver: Deliver,
        comments: GitHubComments,
        agent_id: str,
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._deliver = deliver
        self._comments = comments
        self._agent_id = agent_id

    async def send(self, delivery: HookDelivery, text: str) -> None:
        """Bring a result to its target; `HermesError` if it did not get there."""
        if delivery.target == LOG:
            log.info("webhook %s, %s: %s", delivery.route, delivery.delivery_id, text)
        elif delivery.target == GITHUB_COMMENT:
            await self._comment(delivery, text)
        else:
            address = address_of(delivery.target, delivery.target_extra)
            await self._deliver.deliver(
                address.platform,
                address.chat_id,
                address.thread_id,
                text,
                entry_id=outbox_id(delivery),
            )

    async def _comment(self, delivery: HookDelivery, text: str) -> None:
        repo, number = (delivery.target_extra.get(name, "") for name in ("repo", "pr_number"))
        if _REPO.fullmatch(repo) is None or _NUMBER.fullmatch(number) is None:
            raise HermesError(
                f"`{repo}` and `{number}` do not name a pull request.",
                hint="Check deliver_extra.repo (owner/name) and deliver_extra.pr_number.",
            )
        entry = await self._outbox.enqueue(self._entry(delivery, f"{repo}#{number}", text))
        if entry.state is OutboxState.SENT:
            return
        if await self._outbox.claim_send(entry.id, self._clock.now()) is None:
            raise HermesError(
                "An earlier attempt at this comment was cut off; it may be there already.",
                hint=f"Look at {repo}#{number}.",
            )
        try:
            await self._comments.comment(repo, number, entry.content)
        except HermesError as error:
            await self._record(entry.id, OutboxState.FAILED, error.message)
            raise
        await self._record(entry.id, OutboxState.SENT)

    def _entry(self, delivery: HookDelivery, place: str, text: str) -> OutboxEntry:
        now = self._clock.now()
        return OutboxEntry(
            id=outbox_id(delivery),
            agent_id=self._agent_id,
            target=Target(platform=GITHUB, account="gh", chat_id=place),
            kind=OutboxKind.DELIVERY,
            content=text[:MAX_COMMENT],
            session_id=delivery.session_id,
            created_at=now,
            updated_at=now,
        )

    async def _record(self, entry_id: str, state: OutboxState, error: str | None = None) -> None:
        await self._outbox.update_outbox(entry_id, state=state, at=self._clock.now(), error=error)


async def apply_script(
    runner: ScriptRunner, script: str, payload: Any, timeout: float
) -> Any | Ignored:
    """Run a script; return what takes the payload's place."""
    outcome = await runner.run(script, msgspec.json.encode(payload), timeout)
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
    """Return the id of the outbox entry with the result of this attempt."""
    return f"webhook:{delivery.route}:{delivery.delivery_id}#{delivery.attempt}"
