"""Who may talk to the agent, and what they may do: deny unless something allows.

The decision is a pure function of the message, the platform's settings and the
people a person has paired. The first rule that speaks decides; when none does,
the answer is no. Whoever is refused in private may be offered a pairing code;
in groups there is silence.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from hermes.domain.errors import ConfigError
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender

EVERYBODY = "*"
ALWAYS_ALLOWED = frozenset({"help", "start", "whoami"})
"""Commands that nobody who may talk is refused."""


class ChatPolicy(StrEnum):
    """Who is heard in private chats, or in groups, beyond the lists."""

    OPEN = "open"
    ALLOWLIST = "allowlist"
    PAIRING = "pairing"
    DISABLED = "disabled"
    """Nobody at all, lists or not."""


class BotPolicy(StrEnum):
    """What happens to messages written by other bots."""

    NONE = "none"
    MENTIONS = "mentions"
    ALL = "all"


class Strangers(StrEnum):
    """What somebody who is not allowed sees in a private chat."""

    PAIR = "pair"
    IGNORE = "ignore"


class AuthzSettings(Struct, frozen=True, kw_only=True):
    """Who is allowed on one platform."""

    platform: str
    trusted: bool = False
    """The platform proves its messages with a secret of its own."""
    users: frozenset[str] = frozenset()
    group_users: frozenset[str] = frozenset()
    """Heard in groups only."""
    group_chats: frozenset[str] = frozenset()
    """Groups in which everybody is heard."""
    gateway_users: frozenset[str] = frozenset()
    """Heard on every platform."""
    roles: frozenset[str] = frozenset()
    allow_all: bool = False
    gateway_allow_all: bool = False
    bots: BotPolicy = BotPolicy.NONE
    dm_policy: ChatPolicy | None = None
    group_policy: ChatPolicy | None = None
    strangers: Strangers | None = None
    """None: a pairing code, unless there is a list of users."""
    admins: frozenset[str] | None = None
    """None: everybody who may talk is an administrator."""
    user_commands: frozenset[str] | None = None
    """None: all commands that are not for administrators."""
    group_admins: frozenset[str] | None = None
    """None: as in private chats."""
    group_user_commands: frozenset[str] | None = None


class Access(Struct, frozen=True, kw_only=True):
    """What one person may do in one chat."""

    allowed: bool
    reason: str
    """Which rule decided; for logs, not for the person."""
    admin: bool = False
    pair: bool = False
    """Offer a pairing code."""
    commands: frozenset[str] | None = None
    """The only commands a person who is no administrator may run; None: see `may_run`."""


class CommandNames(Protocol):
    """What `may_run` wants to know about a command; `SlashCommand` is one."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def admin(self) -> bool:
        """Whether it is for administrators where access is divided."""
        ...


PairedCheck = Callable[[str, Sender], bool]


def _nobody(_platform: str, _sender: Sender) -> bool:
    return False


class Authorizer:
    """Decides for every message whether it is let in."""

    def __init__(
        self,
        settings: Mapping[str, AuthzSettings],
        *,
        paired: PairedCheck = _nobody,
    ) -> None:
        self._settings = dict(settings)
        self._paired = paired

    def update(self, settings: Mapping[str, AuthzSettings]) -> None:
        """Use other lists from now on."""
        self._settings = dict(settings)

    def check(self, message: InboundMessage) -> Access:
        """Say what the sender of `message` may do."""
        if message.internal:
            return Access(allowed=True, reason="made by Hermes itself", admin=True)
        settings = self._settings.get(message.platform)
        if settings is None:
            return Access(allowed=False, reason="the platform is not configured")
        private = message.chat.kind is ChatKind.PRIVATE
        allowed, reason = self._decide(settings, message, private=private)
        if not allowed:
            pair = private and not message.sender.is_bot and _offers_pairing(settings)
            return Access(allowed=False, reason=reason, pair=pair)
        return _granted(settings, message.sender, reason, private=private)

    def check_person(self, platform: str, chat: Chat, sender: Sender) -> Access:
        """Say what somebody may do in a chat without a message, e.g. press a button."""
        return self.check(
            InboundMessage(
                platform=platform,
                account="",
                native_id="",
                chat=chat,
                sender=sender,
                text="",
                sent_at=0.0,
            )
        )

    def _decide(
        self, settings: AuthzSettings, message: InboundMessage, *, private: bool
    ) -> tuple[bool, str]:
        policy = settings.dm_policy if private else settings.group_policy
        if settings.trusted:
            return True, "the platform proves its messages"
        if policy is ChatPolicy.DISABLED:
            return False, "the platform is switched off for this kind of chat"
        if not private and _chat_is_listed(settings, message.chat):
            return True, "the chat is on the list"
        if message.sender.is_bot:
            return _decide_bot(settings, message)
        because = self._because(settings, message, private=private)
        return (True, because) if because else _by_policy(settings, policy)

    def _because(
        self, settings: AuthzSettings, message: InboundMessage, *, private: bool
    ) -> str | None:
        """Return what lets a person in, whatever the policy of the chat."""
        if settings.allow_all:
            return "everybody is allowed on the platform"
        if not settings.roles.isdisjoint(message.sender.roles):
            return "has an allowed role"
        if self._paired(settings.platform, message.sender):
            return "is paired"
        if _user_is_listed(settings, message.sender, private=private):
            return "is on a list"
        return None


def _by_policy(settings: AuthzSettings, policy: ChatPolicy | None) -> tuple[bool, str]:
    if policy is ChatPolicy.OPEN:
        return True, "the policy is open"
    if policy is not None:
        return False, f"the policy is {policy.value}"
    if settings.gateway_allow_all:
        return True, "everybody is allowed on the gateway"
    return False, "nothing allows it"


def _decide_bot(settings: AuthzSettings, message: InboundMessage) -> tuple[bool, str]:
    # A list that names everybody means people: two bots answering each other never stop.
    named = (settings.users | settings.gateway_users) - {EVERYBODY}
    if named & _ids(message.sender):
        return True, "the bot is on a list"
    if settings.bots is BotPolicy.ALL:
        return True, "bots are allowed"
    answers_us = message.reply_to is not None and message.reply_to.own
    if settings.bots is BotPolicy.MENTIONS and (answers_us or _mentions(message)):
        return True, "the bot addressed us"
    return False, "bots are not allowed"


def _mentions(message: InboundMessage) -> bool:
    return bool(message.account) and any(
        form in message.text for form in (f"@{message.account}", f"<@!{message.account}>")
    )


def _chat_is_listed(settings: AuthzSettings, chat: Chat) -> bool:
    around = {chat.id, chat.parent_id or chat.id, chat.scope_id or chat.id}
    return bool(settings.group_chats & (around | {EVERYBODY}))


def _user_is_listed(settings: AuthzSettings, sender: Sender, *, private: bool) -> bool:
    listed = settings.users | settings.gateway_users
    if not private:
        listed |= settings.group_users
    return bool(listed & (_ids(sender) | {EVERYBODY}))


def _ids(sender: Sender) -> frozenset[str]:
    return frozenset({sender.id, sender.alt_id or sender.id} - {""})


def _offers_pairing(settings: AuthzSettings) -> bool:
    if settings.dm_policy is ChatPolicy.DISABLED:
        return False
    if settings.strangers is not None:
        return settings.strangers is Strangers.PAIR
    if settings.dm_policy is not None:
        return settings.dm_policy is ChatPolicy.PAIRING
    return not (settings.users or settings.gateway_users or settings.group_users)


def _granted(settings: AuthzSettings, sender: Sender, reason: str, *, private: bool) -> Access:
    admins, commands = settings.admins, settings.user_commands
    if not private:
        admins = admins if settings.group_admins is None else settings.group_admins
        commands = (
            commands if settings.group_user_commands is None else settings.group_user_commands
        )
    if admins is None and commands is None:
        return Access(allowed=True, reason=reason, admin=True)
    admin = bool((admins or frozenset()) & (_ids(sender) | {EVERYBODY}))
    return Access(allowed=True, reason=reason, admin=admin, commands=commands)


def may_run(command: CommandNames, access: Access) -> bool:
    if not access.allowed:
        return False
    names = frozenset(command.names)
    if access.admin or names & ALWAYS_ALLOWED:
        return True
    if access.commands is None:
        return not command.admin
    return bool(names & access.commands) or EVERYBODY in access.commands


def may_answer(access: Access, *, user_id: str, asked_by: str | None) -> bool:
    """Tell whether somebody may decide an approval that `asked_by`'s turn waits for.

    Administrators may decide for everybody; others for themselves only.
    """
    if not access.allowed:
        return False
    return access.admin or (asked_by is not None and user_id == asked_by)


PROVE_THEMSELVES = frozenset({"webhook"})
"""Platforms whose messages carry a secret of their own."""

ACCESS_KEYS = frozenset(
    {"allowed_users", "allow_all_users", "group_allowed_users", "group_allowed_chats"}
    | {"allowed_roles", "allow_bots", "dm_policy", "group_policy", "unauthorized_dm_behavior"}
    | {"allow_admin_from", "user_allowed_commands"}
    | {"group_allow_admin_from", "group_user_allowed_commands"}
)
"""Keys of a platform's section that only say who may do what."""

ACCESS_SUFFIXES = tuple(f"_{name.upper()}" for name in sorted(ACCESS_KEYS))
"""The same as ends of variable names: `TELEGRAM_ALLOWED_USERS`."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off", "none"})
E = TypeVar("E", bound=StrEnum)


def authz_settings(
    platform: str,
    section: Mapping[str, Any],
    *,
    gateway: Mapping[str, Any],
    variables: Mapping[str, str],
    prefix: str = "",
) -> AuthzSettings:
    """Build one platform's settings.

    `section` is `platforms.<p>` with its `extra` and the older `<p>:` block laid
    into it; `gateway` has `allowed_users`, `allow_all_users` and
    `unauthorized_dm_behavior` for all platforms. `ConfigError` for a word that
    means nothing: who may talk is never guessed.
    """
    source = _Source(platform, section, variables, prefix or platform.upper())
    strangers = source.word("unauthorized_dm_behavior", Strangers)
    if strangers is None:
        strangers = _word(
            gateway.get("unauthorized_dm_behavior"), Strangers, "unauthorized_dm_behavior"
        )
    return AuthzSettings(
        platform=platform,
        trusted=platform in PROVE_THEMSELVES,
        users=source.names("allowed_users") or frozenset(),
        group_users=source.names("group_allowed_users") or frozenset(),
        group_chats=source.names("group_allowed_chats") or frozenset(),
        gateway_users=_names(gateway.get("allowed_users"))
        | _names(variables.get("GATEWAY_ALLOWED_USERS")),
        roles=source.names("allowed_roles") or frozenset(),
        allow_all=source.flag("allow_all_users"),
        gateway_allow_all=_flag(gateway.get("allow_all_users"), "gateway.allow_all_users")
        or _flag(variables.get("GATEWAY_ALLOW_ALL_USERS"), "GATEWAY_ALLOW_ALL_USERS"),
        bots=source.bots(),
        dm_policy=source.word("dm_policy", ChatPolicy),
        group_policy=source.word("group_policy", ChatPolicy),
        strangers=strangers,
        admins=source.names("allow_admin_from"),
        user_commands=_commands(source.names("user_allowed_commands")),
        group_admins=source.names("group_allow_admin_from"),
        group_user_commands=_commands(source.names("group_user_allowed_commands")),
    )


class _Source:
    """One platform's section and variables, read by key."""

    def __init__(
        self, platform: str, section: Mapping[str, Any], variables: Mapping[str, str], prefix: str
    ) -> None:
        self._platform = platform
        self._section = section
        self._variables = variables
        self._prefix = prefix

    def _variable(self, key: str) -> str | None:
        return self._variables.get(f"{self._prefix}_{key.upper()}") or None

    def _where(self, key: str) -> str:
        return f"platforms.{self._platform}.{key}"

    def names(self, key: str) -> frozenset[str] | None:
        """Return the names under `key`; None when it is written nowhere."""
        found = [v for v in (self._section.get(key), self._variable(key)) if v not in (None, "")]
        return frozenset[str]().union(*map(_names, found)) if found else None

    def flag(self, key: str) -> bool:
        """Return whether `key` is switched on anywhere."""
        values = (self._section.get(key), self._variable(key))
        return any(_flag(value, self._where(key)) for value in values)

    def word(self, key: str, kind: type[E]) -> E | None:
        """Return what `key` says; the variable wins."""
        value = self._variable(key) or self._section.get(key)
        return _word(value, kind, self._where(key))

    def bots(self) -> BotPolicy:
        """Return what happens to bots; `true` means all of them."""
        value = self._variable("allow_bots") or self._section.get("allow_bots")
        if isinstance(value, bool):
            return BotPolicy.ALL if value else BotPolicy.NONE
        text = str(value or "").strip().lower()
        if text in _FALSE:
            return BotPolicy.NONE
        if text in _TRUE:
            return BotPolicy.ALL
        return _word(text, BotPolicy, self._where("allow_bots")) or BotPolicy.NONE


def _names(value: Any) -> frozenset[str]:
    if value is None:
        return frozenset()
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, int):
        items = [items]
    return frozenset(name for item in items if (name := str(item).strip()))


def _commands(names: frozenset[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(name.lstrip("/").lower() for name in names)


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool) or value is None:
        return bool(value)
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f"{where} is `{value}`, which is neither true nor false.")


def _word(value: Any, kind: type[E], where: str) -> E | None:
    text = str(value or "").strip().lower()
    if not text:
        return None
    if text not in set(kind):
        raise ConfigError(
            f"{where} is `{text}`, which does not exist.", hint=f"Use one of: {', '.join(kind)}."
        )
    return kind(text)
