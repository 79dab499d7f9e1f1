"""Authorisation: who may talk to the agent, and what they may do. Deny unless something allows.

The decision is a pure function of the message, the platform's settings and the
people a person has paired. The first rule that speaks decides; when none does,
the answer is no. Whoever is refused in private may be offered a pairing code;
in groups there is silence.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import fields, replace

from hermes.control.commands.registry import SlashCommand
from hermes.domain.approvals import ApprovalKind, ApprovalRequest
from hermes.domain.errors import ConfigError
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, Sender

EVERYBODY = "*"
ROLE = "role:"
"""In front of a role in a list of people: `allow_admin_from: ["role:moderators"]`."""
ALWAYS_ALLOWED = frozenset({"help", "start", "whoami"})
"""Commands that nobody who may talk is refused."""
FOR_GUESTS = ALWAYS_ALLOWED | {
    *("commands", "version", "status", "usage", "context", "tools"),
    *("queue", "stop", "approve", "deny", "answer"),
}
"""What a guest may run in a conversation that others share: it tells something, or looks itself
at whose turn it is about."""
PROVE_THEMSELVES = frozenset({"webhook"})
"""Platforms whose messages carry a secret of their own."""

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off", "none"})
NOBODY = frozenset[str]()
E = TypeVar("E", bound=StrEnum)


class ChatPolicy(StrEnum):
    """Who is heard in private chats, or in groups, beyond the lists."""

    OPEN = "open"
    ALLOWLIST = "allowlist"
    PAIRING = "pairing"
    DISABLED = "disabled"
    """Nobody at all, lists or not."""


class BotPolicy(StrEnum):
    """Which messages of other bots are heard."""

    NONE = "none"
    MENTIONS = "mentions"
    ALL = "all"


class Strangers(StrEnum):
    """What somebody who is not allowed sees in a private chat."""

    PAIR = "pair"
    IGNORE = "ignore"


class AuthzSettings(Struct, frozen=True, kw_only=True):
    """Who is allowed on one platform. All fields but the first four are keys of its section."""

    platform: str
    pairing: str = ""
    """Whose pairings count: `telegram`, or `telegram:coder` for the own bot of an agent."""
    gateway_users: frozenset[str] = NOBODY
    """Heard on every platform."""
    gateway_allow_all: bool = False
    allowed_users: frozenset[str] = NOBODY
    group_allowed_users: frozenset[str] = NOBODY
    """Heard in groups only."""
    group_allowed_chats: frozenset[str] = NOBODY
    """Groups in which everybody is heard."""
    allowed_roles: frozenset[str] = NOBODY
    allow_all_users: bool = False
    allow_bots: BotPolicy = BotPolicy.NONE
    dm_policy: ChatPolicy | None = None
    group_policy: ChatPolicy | None = None
    unauthorized_dm_behavior: Strangers | None = None
    """None: a pairing code, unless there is a list of users."""
    allow_admin_from: frozenset[str] | None = None
    """None: everybody who may talk is an administrator."""
    user_allowed_commands: frozenset[str] | None = None
    """None: all commands that are not for administrators."""
    group_allow_admin_from: frozenset[str] | None = None
    """None: as in private chats."""
    group_user_allowed_commands: frozenset[str] | None = None


ACCESS_KEYS = frozenset(AuthzSettings.__struct_fields__[4:])
"""Keys of a platform's section that only say who may do what."""
ACCESS_SUFFIXES = tuple(f"_{name.upper()}" for name in sorted(ACCESS_KEYS))
"""The same as ends of variable names: `TELEGRAM_ALLOWED_USERS`."""


class Access(Struct, frozen=True, kw_only=True):
    """What one person may do in one chat."""

    allowed: bool
    reason: str
    """Which rule decided; for logs, not for the person."""
    admin: bool = False
    """May use every command: is named as an administrator, or nobody is and they are listed."""
    operator: bool = False
    """Is named as an administrator: decides for others, sees their conversations and what is
    the operator's."""
    listed: bool = False
    """Is on a list by an id of their own, is paired or has an allowed role; or everybody is
    allowed on their own account, and no list names anybody."""
    guest: bool = False
    """Is let in by the place or by an open policy only: nothing lets them in themselves."""
    administrators: bool = False
    """Whether anybody is named as an administrator of such chats."""
    pair: str = ""
    """Offer a pairing code for this bot: `telegram`, `telegram:coder`."""
    commands: frozenset[str] | None = None
    """The only commands a person who is no administrator may run; None: see `may_run`."""


class Authorizer:
    def __init__(
        self,
        settings: Mapping[str, AuthzSettings],
        *,
        paired: Callable[[str, Sender], bool] = lambda _platform, _sender: False,
        account: Callable[[str, str], str] = lambda _platform, _account: "",
    ) -> None:
        """`settings` are by platform, and by `platform:account` for accounts of their own.

        `account` returns what one of our accounts is called in the configuration.
        """
        self._settings = settings
        self._account = account
        self._paired = paired

    def update(self, settings: Mapping[str, AuthzSettings]) -> None:
        self._settings = settings

    def check(self, message: InboundMessage) -> Access:
        if message.internal:
            return Access(allowed=True, reason="made by Hermes itself", admin=True)
        own = message.reply_to is not None and message.reply_to.own
        return self.check_person(
            message.platform,
            message.chat,
            message.sender,
            addressed=own or message.mentioned,
            account=message.account,
        )

    def check_person(
        self,
        platform: str,
        chat: Chat,
        sender: Sender,
        *,
        addressed: bool = False,
        account: str = "",
    ) -> Access:
        """Say what somebody may do in a chat, e.g. press a button."""
        own = f"{platform}:{self._account(platform, account)}"
        settings = self._settings.get(own) or self._settings.get(platform)
        if settings is None:
            return Access(allowed=False, reason="the platform is not configured")
        private = chat.kind is ChatKind.PRIVATE
        allowed, reason = self._decide(settings, chat, sender, addressed=addressed)
        if not allowed:
            pair = private and not sender.is_bot and _offers_pairing(settings)
            bot = settings.pairing or platform
            return Access(allowed=False, reason=reason, pair=bot if pair else "")
        listed = bool(self._listed(settings, sender, private=private)) or _all_alike(settings)
        access = _granted(settings, sender, reason, private=private, listed=listed)
        everybody = (
            settings.allow_all_users
            or settings.gateway_allow_all
            or EVERYBODY in _heard(settings, private=private)
        )
        return replace(access, guest=not (access.listed or access.operator or everybody))

    def _decide(
        self, settings: AuthzSettings, chat: Chat, sender: Sender, *, addressed: bool
    ) -> tuple[bool, str]:
        private = chat.kind is ChatKind.PRIVATE
        policy = settings.dm_policy if private else settings.group_policy
        if settings.platform in PROVE_THEMSELVES:
            return True, "the platform proves its messages"
        if policy is ChatPolicy.DISABLED:
            return False, "the platform is switched off for this kind of chat"
        if sender.is_bot:
            return _decide_bot(settings, addressed=addressed)
        if not private and _chat_is_listed(settings, chat):
            return True, "the chat is on the list"
        return self._decide_person(settings, sender, policy, private=private)

    def _decide_person(
        self, settings: AuthzSettings, sender: Sender, policy: ChatPolicy | None, *, private: bool
    ) -> tuple[bool, str]:
        if settings.allow_all_users:
            return True, "everybody is allowed on the platform"
        if reason := self._listed(settings, sender, private=private):
            return True, reason
        if EVERYBODY in _heard(settings, private=private):
            return True, "everybody is on a list"
        if policy is not None:
            return policy is ChatPolicy.OPEN, f"the policy is {policy.value}"
        if settings.gateway_allow_all:
            return True, "everybody is allowed on the gateway"
        return False, "nothing allows it"

    def _listed(self, settings: AuthzSettings, sender: Sender, *, private: bool) -> str:
        """Return what names the person, and not just everybody; empty if nothing does."""
        if not settings.allowed_roles.isdisjoint(sender.roles):
            return "has an allowed role"
        if self._paired(settings.pairing or settings.platform, sender):
            return "is paired"
        return "is on a list" if _heard(settings, private=private) & _ids(sender) else ""


def _heard(settings: AuthzSettings, *, private: bool) -> frozenset[str]:
    listed = settings.allowed_users | settings.gateway_users
    return listed if private else listed | settings.group_allowed_users


def _all_alike(settings: AuthzSettings) -> bool:
    """Tell whether everybody is allowed everywhere and no list makes a difference."""
    people = settings.allowed_users | settings.gateway_users
    everybody = settings.allow_all_users or settings.gateway_allow_all or EVERYBODY in people
    admins = (settings.allow_admin_from or NOBODY) | (settings.group_allow_admin_from or NOBODY)
    named = (people | settings.group_allowed_users | admins) - {EVERYBODY}
    return everybody and not named and not settings.allowed_roles


def _decide_bot(settings: AuthzSettings, *, addressed: bool) -> tuple[bool, str]:
    # Lists of users and of chats mean people: two bots that answer each other never stop.
    if settings.allow_bots is BotPolicy.ALL:
        return True, "bots are allowed"
    if settings.allow_bots is BotPolicy.MENTIONS and addressed:
        return True, "the bot addressed us"
    return False, "bots are not allowed"


def _chat_is_listed(settings: AuthzSettings, chat: Chat) -> bool:
    around = {chat.id, chat.parent_id or chat.id, chat.scope_id or chat.id, EVERYBODY}
    return bool(settings.group_allowed_chats & around)


def _named(names: frozenset[str], sender: Sender) -> bool:
    return bool(names & (_ids(sender) | {EVERYBODY}))


def _ids(sender: Sender) -> frozenset[str]:
    roles = {f"{ROLE}{role}" for role in sender.roles}
    return frozenset({sender.id, sender.alt_id or sender.id, *roles} - {"", EVERYBODY})


def _offers_pairing(settings: AuthzSettings) -> bool:
    if settings.dm_policy is ChatPolicy.DISABLED:
        return False
    if settings.unauthorized_dm_behavior is not None:
        return settings.unauthorized_dm_behavior is Strangers.PAIR
    if settings.dm_policy is not None:
        return settings.dm_policy is ChatPolicy.PAIRING
    return not (settings.allowed_users | settings.gateway_users | settings.group_allowed_users)


def _granted(
    settings: AuthzSettings, sender: Sender, reason: str, *, private: bool, listed: bool
) -> Access:
    admins, commands = settings.allow_admin_from, settings.user_allowed_commands
    if not private and settings.group_allow_admin_from is not None:
        admins = settings.group_allow_admin_from
    if not private and settings.group_user_allowed_commands is not None:
        commands = settings.group_user_allowed_commands
    operator = _named(admins or NOBODY, sender)
    listed = listed or bool((admins or NOBODY) & _ids(sender))
    return Access(
        allowed=True,
        reason=reason,
        admin=operator or (listed and admins is None and commands is None),
        operator=operator,
        listed=listed,
        administrators=bool(admins),
        commands=commands,
    )


def may_decide(
    request: ApprovalRequest, access: Access, *, asked: bool, private: bool, deny: bool = False
) -> bool:
    """Tell whether somebody may answer a request: who asked for the turn, or an administrator.

    In groups nobody who is on no list allows anything, not even what they asked for.
    """
    if not (asked or access.operator):
        return False
    return private or access.listed or deny or request.kind is ApprovalKind.QUESTION


def deciders(name: str, access: Access, *, private: bool) -> str:
    """Return who may allow what somebody with `access` asks for; empty: nobody."""
    if private or access.listed:
        return f"{name} or an administrator"
    return "an administrator" if access.administrators else ""


def may_run(command: SlashCommand, access: Access, *, shared: bool = False) -> bool:
    """Tell whether somebody may use a command; `shared`: in a conversation of several people.

    A guest changes nothing of the gateway, and nothing that is also others'.
    """
    if not access.allowed:
        return False
    names = frozenset(command.names)
    if access.guest and (command.admin or (shared and not names & FOR_GUESTS)):
        return False
    if access.admin or names & ALWAYS_ALLOWED:
        return True
    if access.commands is None:
        return not command.admin
    return bool(names & access.commands) or EVERYBODY in access.commands


# -- settings ----------------------------------------------------------------


def authz_settings(
    platform: str,
    section: Mapping[str, Any],
    *,
    gateway: Mapping[str, Any],
    variables: Mapping[str, str],
    prefix: str = "",
    agent: str = "",
) -> AuthzSettings:
    """Build one platform's settings.

    `section` is `platforms.<p>` with its `extra` and the older `<p>:` block laid
    into it; `gateway` has `allowed_users`, `allow_all_users` and
    `unauthorized_dm_behavior` for all platforms. Names count wherever they stand, and
    of two words the variable wins. `ConfigError` for a word that means nothing: who
    may talk is never guessed. `agent` is the one whose own account it is.
    """
    found: dict[str, Any] = {}
    for each in fields(AuthzSettings):
        if each.name not in ACCESS_KEYS:
            continue
        variable = variables.get(f"{prefix or platform.upper()}_{each.name.upper()}")
        values = [v for v in (variable, section.get(each.name)) if v not in (None, "")]
        if not values and each.name == "unauthorized_dm_behavior":
            values = [gateway.get(each.name) or ""]
        where = f"platforms.{platform}.{each.name}"
        value = _read(each.type, values, where) if values else None
        if value is not None:
            found[each.name] = value
    for key in ("user_allowed_commands", "group_user_allowed_commands"):
        if key in found:
            found[key] = frozenset(name.lstrip("/").lower() for name in found[key])
    return AuthzSettings(
        platform=platform,
        pairing=f"{platform}:{agent}" if agent else platform,
        gateway_users=_names(gateway.get("allowed_users"))
        | _names(variables.get("GATEWAY_ALLOWED_USERS")),
        gateway_allow_all=_flag(gateway.get("allow_all_users"), "gateway.allow_all_users")
        or _flag(variables.get("GATEWAY_ALLOW_ALL_USERS"), "GATEWAY_ALLOW_ALL_USERS"),
        **found,
    )


def _read(kind: Any, values: list[Any], where: str) -> Any:
    """Read the values of a key, the variable's first, as the type of its field."""
    if kind is bool:
        return any(_flag(value, where) for value in values)
    if kind is BotPolicy:
        text = str(values[0]).strip().lower()
        text = "all" if text in _TRUE else "none" if text in _FALSE else text
        return _word(text, BotPolicy, where)
    for words in (ChatPolicy, Strangers):
        if kind == words | None:
            return _word(values[0], words, where)
    return NOBODY.union(*map(_names, values))


def _names(value: Any) -> frozenset[str]:
    if value is None:
        return NOBODY
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, int):
        items = [items]
    return frozenset(name for item in items if (name := str(item).strip()))


def _flag(value: Any, where: str) -> bool:
    text = str("" if value is None else value).strip().lower()
    if text not in _TRUE | _FALSE:
        raise ConfigError(f"{where} is `{value}`, which is neither true nor false.")
    return text in _TRUE


def _word(value: Any, kind: type[E], where: str) -> E | None:
    text = str(value or "").strip().lower()
    if not text:
        return None
    if text not in set(kind):
        raise ConfigError(
            f"{where} is `{text}`, which does not exist.", hint=f"Use one of: {', '.join(kind)}."
        )
    return kind(text)
