"""Settings of a platform, from their three places into its own struct.

A platform declares its settings once, as a msgspec struct with defaults that extends
`ChatSettings`. `read_settings` looks each field up: environment names (`<PREFIX>_<FIELD>`)
win over `platforms.<name>` with its `extra`, which wins over the older block `<name>:`.
What people write loosely (`yes`, one id instead of a list, lists with commas) is
straightened by the field's type before msgspec checks it. A struct inside the struct
(`webhook`) is found as `webhook: {url: …}`, `webhook_url` or `<PREFIX>_WEBHOOK_URL`, and is
there only if one of its fields is.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import FieldInfo, fields

from hermes.domain.errors import ConfigError
from hermes.domain.patterns import SafePattern
from hermes.domain.platforms import ChatPlatform
from hermes.domain.ports.platform import Outgoing, SettingPlaces

Seconds = Annotated[float, Meta(gt=0, lt=1e6)]

_LOG = logging.getLogger(__name__)
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
S = TypeVar("S", bound=Struct)


class ChatSettings(Struct, frozen=True, kw_only=True):
    """What can be set on every platform."""

    require_mention: bool = True
    """In groups, answer only when spoken to."""
    mention_patterns: tuple[SafePattern, ...] = ()
    free_response_chats: frozenset[str] = frozenset()
    allowed_chats: frozenset[str] = frozenset()
    """Groups to answer in; empty: all. Private chats are not affected."""
    allowed_topics: frozenset[str] = frozenset()
    ignored_threads: frozenset[str] = frozenset()
    guest_mode: bool = False
    """Answer explicit mentions in groups that are not allowed otherwise."""
    observe_unmentioned_group_messages: bool = False
    reactions: bool = False
    reply_to_mode: Literal["off", "first", "all"] = "first"
    """Which messages of an answer are shown as replies to the question."""
    notifications: Literal["important", "all"] = "important"
    """Which messages make a sound: answers and questions, or progress, too."""
    typing_indicator: bool = True
    """Show that an answer is being made."""
    gateway_restart_notification: bool = True
    """Say in the chat where `/restart` was sent that the gateway is back."""
    channel_prompts: Mapping[str, str] = field(default_factory=dict)
    """Chat id, or `chat:topic`, to an extra prompt."""

    def replied_to(self, outgoing: Outgoing) -> str | None:
        """Return the message that a piece is shown as a reply to, if any."""
        again = outgoing.continues and self.reply_to_mode == "first"
        off = self.reply_to_mode == "off" or again or outgoing.aside
        return None if off else outgoing.target.reply_to

    def silent(self, outgoing: Outgoing) -> bool:
        return outgoing.silent or (outgoing.aside and self.notifications == "important")

    def channel_prompt(self, chat_id: str, thread_id: str | None) -> str:
        """Return the extra prompt of a chat or topic; the topic's own comes first."""
        prompts = self.channel_prompts
        return prompts.get(f"{chat_id}:{thread_id}") or prompts.get(chat_id) or ""


class WebhookAddress(Struct, frozen=True, kw_only=True):
    """Being called by the platform instead of asking."""

    url: str
    port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    host: str = "127.0.0.1"
    secret: str = ""
    """What the platform must send along; empty: a new one with every start."""

    def __repr__(self) -> str:
        return f"WebhookAddress(url={self.url!r}, host={self.host!r}, port={self.port})"


def read_settings(platform: ChatPlatform, wanted: type[S], places: SettingPlaces) -> S:
    """Build a platform's settings; `ConfigError` names what is missing or wrong."""
    lookup = _Lookup(platform, places)
    found = {each.name: lookup.value(each) for each in fields(wanted)}
    values = {name: value for name, value in found.items() if value is not None}
    for needed in platform.credentials:
        if needed.key in wanted.__struct_fields__ and not values.get(needed.key):
            raise ConfigError(f"{platform.label} has no {needed.label}.", hint=platform.setup)
    return wanted(**values)


def live_settings(
    platform: ChatPlatform, wanted: type[S], places: Callable[[], SettingPlaces]
) -> Callable[[], S]:
    """Return what reads the settings as they are now; what cannot be used changes nothing."""
    known = places()
    settings = read_settings(platform, wanted, known)

    def read() -> S:
        nonlocal known, settings
        latest = places()
        if latest is not known:
            known = latest
            try:
                settings = read_settings(platform, wanted, latest)
            except ConfigError as error:
                _LOG.warning("The settings of %s stay as they were: %s", platform.label, error)
        return settings

    return read


def credential(platform: ChatPlatform, places: SettingPlaces) -> str:
    """Return the secrets that only one gateway may use at a time; empty if one is missing."""
    lookup = _Lookup(platform, places)
    found = [lookup.find(each.key, each.variable) for each in platform.credentials]
    return "\n".join(map(str, found)) if all(found) else ""


class _Lookup:
    def __init__(self, platform: ChatPlatform, places: SettingPlaces) -> None:
        self._section = places.section
        self._variables = places.variables
        self._platform = platform
        self._named = {each.key: each.variable for each in platform.credentials}

    def value(self, each: FieldInfo, outer: str = "") -> Any:
        """Return the checked value of a field; None if it is set nowhere."""
        inner = _struct_in(each.type)
        if inner is not None:
            found = {f.name: self.value(f, f"{each.name}.") for f in fields(inner)}
            found = {name: value for name, value in found.items() if value is not None}
            required = [f.name for f in fields(inner) if f.required]
            return inner(**found) if all(name in found for name in required) else None
        key = outer + each.name
        value = self.find(key, self._named.get(key))
        if value is None:
            return None
        try:
            return msgspec.convert(
                _straightened(value, each.type), each.type, strict=False, dec_hook=_pattern
            )
        except msgspec.ValidationError as error:
            name = f"{self._platform.prefix}_{key.upper().replace('.', '_')}"
            raise ConfigError(
                f"{self._platform.label}'s setting {key} cannot be used: {error}.",
                hint=f"Correct `{key}` under platforms.{self._platform.name}.extra, or the "
                f"variable {name}.",
            ) from None

    def find(self, key: str, variable: str | None) -> object:
        for spelled in spellings(key):
            name = variable or f"{self._platform.prefix}_{spelled.upper().replace('.', '_')}"
            if self._variables.get(name, "").strip():
                return self._variables[name].strip()
        values = (_inside(self._section, spelled) for spelled in spellings(key))
        return next((value for value in values if value not in (None, "")), None)


def server_root(platform: str, url: str, example: str) -> str:
    """Return the address of a platform's server without a slash at its end."""
    root = url.strip().rstrip("/")
    if not root.startswith(("http://", "https://")):
        raise ConfigError(
            f"The {platform.capitalize()} server address {root!r} is not an http or https URL.",
            hint=f"Set platforms.{platform}.extra.base_url to e.g. {example}.",
        )
    return root


def spellings(key: str) -> tuple[str, ...]:
    """Return a key as it may be written: some platforms call their chats channels."""
    return (key, key.replace("_chats", "_channels")) if key.endswith("_chats") else (key,)


def _inside(block: Mapping[str, Any], key: str) -> object:
    """Look up `a.b` as `{a: {b: ...}}` or, as it was written before, as `a_b`."""
    head, _, tail = key.partition(".")
    if not tail:
        return block.get(key)
    inner = block.get(head)
    if isinstance(inner, Mapping) and inner.get(tail) is not None:
        value: object = inner[tail]
        return value
    return block.get(f"{head}_{tail}")


def _struct_in(wanted: Any) -> type[Struct] | None:
    """Return the struct of `Struct | None`."""
    for each in get_args(wanted):
        if isinstance(each, type) and issubclass(each, Struct):
            return each
    return None


def _straightened(value: Any, wanted: Any) -> Any:
    """Write a loosely written value as msgspec wants it; what is hopeless stays."""
    kind = get_origin(wanted) or wanted
    if kind is Annotated:
        return _straightened(value, get_args(wanted)[0])
    if kind is bool and isinstance(value, str):
        word = value.strip().lower()
        return word in _YES if word in _YES | _NO else value
    if kind is str and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind is Literal:
        # YAML reads a bare `off` as false.
        return "off" if value is False or value == "false" else value
    if kind in (tuple, frozenset):
        return _listed(value)
    if kind in (Mapping, dict) or getattr(kind, "__name__", "") == "Mapping":
        return _texts(value)
    return value


def _listed(value: Any) -> Any:
    """Accept a list however it is written: a list, JSON, lines, commas, a single item."""
    if isinstance(value, str):
        value = _split(value)
    if isinstance(value, int | float):
        value = [value]
    if not isinstance(value, Sequence | frozenset | set):
        return value
    return [
        item if isinstance(item, Mapping) else text for item in value if (text := str(item).strip())
    ]


def _split(text: str) -> list[object]:
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text, type=list[object])
        except msgspec.MsgspecError:
            pass
    return [*(text.splitlines() if "\n" in text else text.split(","))]


def _texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): str(text) for name, text in value.items() if text}


def _pattern(wanted: type, value: Any) -> Any:
    if wanted is SafePattern and isinstance(value, str):
        return SafePattern(value, ignore_case=True)
    raise TypeError(value)
