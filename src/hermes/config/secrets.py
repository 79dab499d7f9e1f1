"""Secrets: their names and values, and taking them out of text.

`Secrets` holds what must never be shown. `Redactor` replaces these values
wherever they appear, also when they were URL-encoded, JSON-escaped, base64- or
hex-encoded, reversed or stripped of their punctuation on the way, and besides
that anything shaped like a well-known kind of credential.
"""

import base64
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit
from weakref import WeakKeyDictionary

from hermes.domain.platforms import credentials
from hermes.domain.profile import AgentScope, current_profile
from hermes.domain.settings.section import is_secret_name


def forms_of(value: str, min_length: int) -> Iterator[str]:
    """Yield `value` and every encoding of it that is worth looking for."""
    yield from (form for form in dict.fromkeys(_forms(value)) if len(form) >= min_length)


def pattern_of(forms: Iterable[str]) -> str:
    """Return a pattern that matches the longest of `forms` at any position.

    Common prefixes are factored out (a trie), so the time does not grow with
    the number of forms that begin alike or differently.
    """
    trie = _Node()
    for form in forms:
        node = trie
        for character in form:
            node = node.setdefault(character, _Node())
        node[""] = _Node()
    return _render(trie)


class _Node(dict[str, "_Node"]):
    """What may follow; the empty string marks the end of a form."""


def _forms(value: str) -> Iterator[str]:
    yield value
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    stripped = value.strip()
    yield stripped
    if "\n" in stripped:
        yield from (line.strip() for line in stripped.splitlines() if len(line.strip()) >= 16)
    if "," in stripped:
        # Several tokens in one variable: each is a secret of its own.
        yield from (part.strip() for part in stripped.split(",") if len(part.strip()) >= 12)
    data = stripped.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper(), stripped[::-1])
    letters = "".join(filter(str.isalnum, stripped))
    if len(letters) >= 12:
        yield letters
    yield from _base64_forms(value.encode("utf-8", "surrogatepass"))


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the part of the base64 text that does not depend on the neighbours."""
    for offset in range(3):
        padded = b"\0" * offset + data
        start = (0, 2, 3)[offset]
        end = len(padded) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded).decode()[start:end]


def _render(node: _Node) -> str:
    literal = ""
    while len(node) == 1 and "" not in node:
        ((character, node),) = node.items()
        literal += character
    head = re.escape(literal)
    branches = [re.escape(c) + _render(child) for c, child in node.items() if c]
    if not branches:
        return head
    body = f"(?:{'|'.join(branches)})"
    return head + body + ("?" if "" in node else "")


MIN_LENGTH = 8
"""Shorter values appear by chance in ordinary text and are not redacted."""

_PLAIN_ENDINGS = frozenset(
    {"URL", "URI", "HOST", "PORT", "DOMAIN", "ADDRESS", "ORIGINS", "PROXY", "EMAIL"}
    | {"USER", "USERS", "ROLES", "CHANNEL", "CHANNELS", "CHAT", "CHATS", "ROOMS", "TOPICS"}
    | {"NAME", "MODEL", "MODELS", "IMAGE", "BACKEND", "PROFILE", "REGION", "LANGUAGE", "TIMEZONE"}
    | {"PROVIDER", "ENGINE", "THEME", "FORMAT", "PROMPT", "LANG", "ALL", "TZ", "DEVICE"}
    | {"ENABLED", "MODE", "POLICY", "LEVEL", "TIMEOUT", "PREFIX", "PATTERNS", "VERSION", "ENV"}
    | {"PATH", "FILE", "DIR", "CWD", "ID"}
)
"""Ends of names in `.env` whose values are settings; all else there is secret."""
PLACEHOLDERS = frozenset(
    {"INSECURE_NO_AUTH", "changeme", "dummy-key", "lm-studio", "localhost", "no-key-required"}
    | {"not-needed", "placeholder", "undefined", "your-api-key", "your_api_key"}
)
"""What people write where a key is demanded but none is needed."""
_SWITCHES = frozenset({"", "true", "false", "yes", "no", "on", "off", "auto", "none"})
_FILES = (".json", ".pem", ".key", ".sock")
_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token|bot)\s+")

_SHAPES = r"""
    (?P<BEARER>\b[Bb]earer\s+)(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{12,} |
    (?P<PRIVATE_KEY>-----BEGIN\ [A-Z ]{0,40}PRIVATE\ KEY-----(?:[^-]|-(?!----)){1,20000}
      -----END\ [A-Z ]{0,40}PRIVATE\ KEY-----) |
    (?<![A-Za-z0-9_-])(?:
      (?P<API_KEY>(?:sk|pk|rk)-[A-Za-z0-9_-]{16,} | gsk_[A-Za-z0-9]{20,} | xai-[A-Za-z0-9]{20,}
        | AIza[A-Za-z0-9_-]{30,} | hf_[A-Za-z0-9]{20,} | tvly-[A-Za-z0-9-]{16,}
        | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}) |
      (?P<GITHUB_TOKEN>gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}) |
      (?P<GITLAB_TOKEN>glpat-[A-Za-z0-9_-]{16,}) |
      (?P<SLACK_TOKEN>xox[a-z]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}) |
      (?P<AWS_KEY>(?:AKIA|ASIA)[A-Z0-9]{16}) |
      (?P<JWT>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})
      %s
    )(?![A-Za-z0-9_-])
    """
"""Credentials of services; those of platforms are put in place of `%s`."""
_HINTS = (
    *("sk-", "pk-", "rk-", "gsk_", "xai-", "AIza", "hf_", "tvly-", "sk_", "rk_"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-"),
    *("AKIA", "ASIA", "eyJ", "earer", "PRIVATE KEY"),
)
"""Text without any of these has no credential of a known shape."""


@cache
def _shapes() -> re.Pattern[str]:
    own = [
        f"| (?P<{platform.prefix}_{each.key.upper()}>{each.shape})"
        for platform, each in credentials()
        if each.shape
    ]
    return re.compile(_SHAPES % "\n      ".join(own), re.VERBOSE | re.DOTALL)


@cache
def _hint() -> re.Pattern[str]:
    own = (each.mark for _, each in credentials() if each.mark)
    return re.compile("|".join(map(re.escape, (*_HINTS, *own))))


class Secrets:
    """Names and values that must not be shown. Frozen; `repr` shows names only."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(sorted(self._values))})"

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> str | None:
        return self._values.get(name) or None

    def names(self) -> frozenset[str]:
        return frozenset(self._values)

    def merged(self, other: "Secrets") -> "Secrets":
        return Secrets({**self._values, **dict(other.items())})

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield name and value. For the redactor and child environments only."""
        yield from self._values.items()


class Redactor:
    """Replaces secrets in text by `***NAME***`."""

    __slots__ = ("_marks", "_pattern")

    def __init__(self, secrets: Secrets) -> None:
        self._marks: dict[str, str] = {}
        self.learn(secrets)

    def learn(self, secrets: Secrets) -> None:
        """Replace these too from now on; what was a secret before stays one."""
        marks = dict(self._marks)
        for name, value in secrets.items():
            if len(value) < MIN_LENGTH or value in PLACEHOLDERS:
                continue
            mark = f"***{name}***"
            for form in forms_of(value, MIN_LENGTH):
                marks.setdefault(form, mark)
        unsafe = {mark for mark in marks.values() if any(form in mark for form in marks)}
        self._marks = {form: "***" if mark in unsafe else mark for form, mark in marks.items()}
        self._pattern: re.Pattern[str] | None = None

    def __repr__(self) -> str:
        return f"Redactor({len(set(self._marks.values()))} secrets)"

    def redact(self, text: str) -> str:
        """Return `text` without secrets; long texts are for threads, and gone through in pieces."""
        if self._marks:
            text = _replaced(self._compiled(), self._mark, text)
        return _replaced(_shapes(), _shape_mark, text, _hint())

    def forms(self) -> tuple[str, ...]:
        """Return every text that is replaced by its value. For `RedactedStream` only."""
        return tuple(self._marks)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return where secrets stand in `text` and what is to be shown instead, in order."""
        found: list[tuple[int, int, str]] = []
        if self._marks:
            pattern = self._compiled()
            found = [(m.start(), m.end(), self._mark(m)) for m in pattern.finditer(text)]
        if self.hints_at_one(text):
            shapes = [(m.start(), m.end(), _shape_mark(m)) for m in _shapes().finditer(text)]
            found = sorted([*found, *shapes])
        return found

    def hints_at_one(self, text: str) -> bool:
        """Tell whether `text` may hold a credential of a known shape."""
        return _hint().search(text) is not None

    def redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {key: self.redact_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_value(item) for item in value]
        return value

    def _compiled(self) -> re.Pattern[str]:
        # With the first use: most commands never write a line.
        if self._pattern is None:
            self._pattern = re.compile(pattern_of(self._marks))
        return self._pattern

    def _mark(self, match: re.Match[str]) -> str:
        return self._marks[match[0]]


class AgentRedactor(Redactor):
    """Replaces the secrets of the agent that the running code works for, beside the general ones.

    An agent has no way to the secrets of another, so each looks for few values.
    """

    __slots__ = ("_general", "_own")

    def __init__(self, secrets: Secrets) -> None:
        self._general = secrets
        self._own: WeakKeyDictionary[AgentScope, Redactor] = WeakKeyDictionary()
        super().__init__(secrets)

    def learn(self, secrets: Secrets) -> None:
        super().learn(secrets)
        self._general = self._general.merged(secrets)
        self._own.clear()

    def redact(self, text: str) -> str:
        own = self.now()
        return super().redact(text) if own is self else own.redact(text)

    def now(self) -> Redactor:
        """Return what redacts for the agent of the running turn."""
        profile = current_profile()
        scope = profile.scope if profile is not None else None
        if scope is None:
            return self
        found = self._own.get(scope)
        if found is None:
            both = self._general.merged(Secrets(scope.secrets))
            found = self._own[scope] = Redactor(both)
        return found


PIECE = 65_536
OVERLAP = 65_536
"""Longer than any credential: what begins in a piece ends within so much of the next."""


def _replaced(
    pattern: re.Pattern[str],
    mark: Callable[[re.Match[str]], str],
    text: str,
    hint: re.Pattern[str] | None = None,
) -> str:
    """Replace matches of `pattern`, which are only where `hint` is; others run between pieces."""
    if len(text) <= PIECE:
        return text if hint and not hint.search(text) else pattern.sub(mark, text)
    shown, done, begin = list[str](), 0, 0
    while begin < len(text):
        next_piece, end = begin + PIECE, begin + PIECE + OVERLAP
        hinted = hint is None or hint.search(text, begin, end) is not None
        for found in pattern.finditer(text, begin, end) if hinted else ():
            if found.start() >= next_piece:
                break
            whole = pattern.match(text, found.start()) if found.end() >= end else None
            shown += [text[done : found.start()], mark(whole or found)]
            done = (whole or found).end()
            if whole is not None:
                break
        begin = max(next_piece, done)
    return "".join([*shown, text[done:]])


def _shape_mark(match: re.Match[str]) -> str:
    return f"{match['BEARER'] or ''}***{match.lastgroup}***"


def secrets_in_variables(env_file: Mapping[str, str], environ: Mapping[str, str]) -> Secrets:
    """Collect secrets from `.env` (nearly all of it) and the environment (by name).

    A variable of the environment wins over the same name in `.env`.
    """
    values = {name: value for name, value in env_file.items() if _env_value_is_secret(name, value)}
    for name, value in {**env_file, **environ}.items():
        named = name in environ and is_secret_name(name) and not _is_trivial(value)
        if name in values or named:
            values[name] = value
        elif password := _password_of(value):
            values[f"{name}.password"] = password
    return Secrets(values)


def secrets_in_config(data: Mapping[str, Any]) -> Secrets:
    return Secrets(dict(_walk(data, "", "")))


def _walk(value: Any, name: str, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for child, item in value.items():
            yield from _walk(item, str(child), f"{key}.{child}" if key else str(child))
    elif isinstance(value, list | tuple) and not (name == "secrets" and key.startswith("agents.")):
        # (Those of an agent are names of variables.)
        for at, item in enumerate(value):
            yield from _walk(item, name, f"{key}.{at}")
    elif isinstance(value, str) and value and "${" not in value:
        if is_secret_name(name) and not _is_trivial(value):
            yield key, _SCHEME.sub("", value)
        elif password := _password_of(value):
            yield f"{key}.password", password


def _env_value_is_secret(name: str, value: str) -> bool:
    if is_secret_name(name):
        return True
    plain = name.rsplit("_", 1)[-1].upper() in _PLAIN_ENDINGS
    return not plain and not _is_trivial(value) and not value.startswith(("/", "~", "http"))


def _is_trivial(value: str) -> bool:
    """Tell whether a value is a number, a switch or a path, whatever it is called."""
    short = len(value) < MIN_LENGTH
    return (short and (value.isdigit() or value.lower() in _SWITCHES)) or value.endswith(_FILES)


def _password_of(value: str) -> str | None:
    if "://" not in value or "@" not in value:
        return None
    try:
        return urlsplit(value).password
    except ValueError:
        return None


SEED = 4
"""So many characters are recognised as the beginning of a secret; fewer may be shown."""
LONGEST_WORD = 4096
"""A word in the shape of a credential waits for its end, but not for ever."""
LONGEST_BLOCK = 16_384
LOOK_BACK = 32
KEY_BLOCK = "-----BEGIN"
_BLOCK_END = re.compile(r"-----END [A-Z ]*-----")
_BLOCK_EDGE = re.compile(f"{KEY_BLOCK}|{_BLOCK_END.pattern}")
_LONGEST_EDGE = 80
_WORD = string.ascii_letters + string.digits + "._~+/=:-"


class RedactedStream:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._seeds: dict[str, list[str]] = {}
        for form in redactor.forms():
            self._seeds.setdefault(form[:SEED], []).append(form)
        seeds = "|".join(map(re.escape, self._seeds))
        # Looked for ahead, so that one may begin within another.
        self._seed = re.compile(f"(?=({seeds}))") if seeds else None
        self._shown = ""
        """The last of what was shown: a secret may have begun there, before it could be told."""
        self._held = ""
        self._in_word = False
        """Whether it is a word in the shape of a credential, whose end has to come first."""
        self._block: list[str] = []
        """What came of a key that is open, after what is held."""
        self._block_left = 0
        """How much of it is waited for at most."""
        self._block_tail = ""

    def feed(self, piece: str) -> str:
        if self._block_left:
            tail = self._block_tail + piece
            if len(piece) >= self._block_left or _BLOCK_EDGE.search(tail):
                return self._take(self._all_held() + piece, end=False)
            self._block.append(piece)
            self._block_left -= len(piece)
            self._block_tail = tail[-_LONGEST_EDGE:]
            return ""
        goes_on = self._in_word and not piece.strip(_WORD)
        if goes_on and len(self._held) + len(piece) <= LONGEST_WORD:
            self._held += piece
            return ""
        return self._take(self._held + piece, end=False)

    def flush(self) -> str:
        held = self._all_held()
        shown = self._take(held, end=True) if held else ""
        self.clear()
        return shown

    def clear(self) -> None:
        self._all_held()
        self._shown = self._held = ""
        self._in_word = False

    def _all_held(self) -> str:
        held = "".join((self._held, *self._block))
        self._block.clear()
        self._block_left, self._block_tail = 0, ""
        return held

    def _take(self, new: str, *, end: bool) -> str:
        text, begin = self._shown + new, len(self._shown)
        if not self._suspicious(text):
            self._shown, self._held = text[-LOOK_BACK:], ""
            self._in_word = False
            return new
        cut = len(text) if end else max(begin, self._safe_length(text))
        shown, position = [], begin
        for start, stop, mark in self._redactor.spans(text):
            if position < stop and start < cut:
                shown += [text[position : max(start, position)], mark]
                position = stop
        shown.append(text[position:cut])
        cut = max(cut, position)
        self._shown, self._held = text[max(0, cut - LOOK_BACK) : cut], text[cut:]
        word = bool(self._held) and not self._held.strip(_WORD)
        self._in_word = word and self._redactor.hints_at_one(self._held)
        block = None if end else _open_block(text)
        if block is not None and self._held:
            self._block_left = LONGEST_BLOCK - (len(text) - block) + 1
            self._block_tail = text[block + 1 :][-_LONGEST_EDGE:]
        return "".join(shown)

    def _suspicious(self, text: str) -> bool:
        """Tell whether there is anything to look at more closely: mostly there is not."""
        if self._seed is not None and self._seed.search(text):
            return True
        return KEY_BLOCK in text or self._redactor.hints_at_one(text)

    def _safe_length(self, text: str) -> int:
        """Return how much of `text` cannot be part of a secret that is still coming."""
        return min(self._value_start(text), self._shape_start(text))

    def _value_start(self, text: str) -> int:
        """Return where the beginning of a known value stands at the end of `text`."""
        for found in self._seed.finditer(text) if self._seed else ():
            rest = text[found.start() :]
            if any(form.startswith(rest) for form in self._seeds[found.group(1)]):
                return found.start()
        return len(text)

    def _shape_start(self, text: str) -> int:
        """Return where an unfinished word in the shape of a credential begins."""
        block = _open_block(text)
        if block is not None:
            return block
        start = len(text.rstrip(_WORD))
        before = text[:start].rstrip()
        if before[-6:].lower() == "bearer":
            start = len(before) - 6
        word = text[start:]
        held = len(word) <= LONGEST_WORD and self._redactor.hints_at_one(word)
        return start if held else len(text)


def _open_block(text: str) -> int | None:
    """Return where a private key begins whose end has not come, if it may still come."""
    block = text.rfind(KEY_BLOCK)
    if block < 0 or len(text) - block > LONGEST_BLOCK or _BLOCK_END.search(text, block):
        return None
    return block
