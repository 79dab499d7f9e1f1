"""Decides about commands: allow, ask or block.

The order is fixed: floor and sudo passwords, then `approvals.deny`, then mode
`off`, then allowlist and grants, then the detectors. Every danger in a script
needs its own grant; what cannot be read or known asks.
"""

import hashlib
import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from msgspec import Struct

from hermes.domain.approvals import Gate, Verdict
from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.code import inspect_code
from hermes.execution.policy.floor import COMPACT_BOMB, FORK_BOMB, floor_dangers
from hermes.execution.policy.follow import TOO_COMPLICATED, UNREADABLE
from hermes.execution.policy.grammar import ShellSyntaxError, parse, read_scripts
from hermes.execution.policy.inner import CodeText
from hermes.execution.policy.paths import write_verdict
from hermes.execution.policy.rules import CHECKS
from hermes.execution.policy.sanitize import Cleaned, clean
from hermes.execution.policy.sequences import sequence_dangers
from hermes.execution.policy.syntax import Script
from hermes.execution.policy.walk import Walk, walk

__all__ = ["CommandPolicy", "PolicySettings"]

MAX_LENGTH = 32_768
"""Longer commands are not read: they ask."""
JOINER = " + "
"""Between the patterns of a script that has several dangers."""
EXACT = "= "
"""In front of a pattern that stands for one whole script."""

_OPERATORS = re.compile(r"[;&|`\n<>]|\$\(")
_ODD = Danger("invisible", "it contains characters that nobody can see")


class PolicySettings(Struct, frozen=True, kw_only=True):
    """What a person has decided about commands in general."""

    mode: str = "manual"
    """`manual`, `smart` or `off`; only `off` changes a judgement."""
    deny: tuple[str, ...] = ()
    allowlist: tuple[str, ...] = ()
    user_home: str = "/root"
    hermes_home: str = "/root/.hermes"
    protected_paths: tuple[str, ...] = ()


class CommandPolicy:
    """Judges commands, file writes and programs; runs nothing and reads no files but links."""

    def __init__(self, settings: PolicySettings) -> None:
        self._settings = settings
        self._deny = tuple(_squeeze(d) for d in settings.deny if d.strip())

    def judge(
        self, script: str, *, cwd: str | None = None, grants: Collection[str] = ()
    ) -> Verdict:
        """Decide about one command line or script."""
        if not script.strip():
            return Verdict(gate=Gate.ALLOW)
        readings = clean(script)
        dangers = self._dangers(readings, self._ground(cwd))
        return self._decide(readings.text, dangers, grants)

    def judge_write(
        self, path: str, *, cwd: str | None = None, grants: Collection[str] = ()
    ) -> Verdict:
        """Decide about writing one file."""
        verdict = write_verdict(path, self._ground(cwd))
        granted = verdict.pattern in {*grants, *self._settings.allowlist}
        if verdict.gate is Gate.ASK and (granted or self._settings.mode == "off"):
            return Verdict(gate=Gate.ALLOW)
        return verdict

    def judge_code(
        self, language: str, source: str, *, cwd: str | None = None, grants: Collection[str] = ()
    ) -> Verdict:
        """Decide about a whole program in `language`."""
        if language in {"bash", "sh", "shell"}:
            return self.judge(source, cwd=cwd, grants=grants)
        if len(source) > MAX_LENGTH * 4:
            return self._decide(source, [TOO_COMPLICATED], grants)
        ground = self._ground(cwd)
        found = Walk(ground)
        found.code(CodeText(language, source))
        if not found.dangers and language == "python" and inspect_code("python", source).unreadable:
            found.dangers.append(UNREADABLE)
        return self._decide(source, _judge_walk(found, ground), grants)

    def _ground(self, cwd: str | None) -> Ground:
        settings = self._settings
        return Ground(
            user_home=settings.user_home.rstrip("/") or "/",
            hermes_home=settings.hermes_home.rstrip("/"),
            cwd=cwd,
            protected=settings.protected_paths,
        )

    def _dangers(self, readings: Cleaned, ground: Ground) -> list[Danger]:
        if len(readings.text) > MAX_LENGTH:
            return [*_read(readings.text[:MAX_LENGTH], ground, whole=False), TOO_COMPLICATED]
        dangers = _read(readings.text, ground)
        if readings.folded != readings.text:
            dangers += [d for d in _read(readings.folded, ground) if d is not UNREADABLE]
        if readings.odd:
            dangers.append(_ODD)
        return list(dict.fromkeys(dangers))

    def _decide(self, text: str, dangers: list[Danger], grants: Collection[str]) -> Verdict:
        for danger in dangers:
            if danger.gate is Gate.BLOCK:
                return Verdict(gate=Gate.BLOCK, reason=_sentence(danger.reason))
        denied = self._denied(text)
        if denied:
            return Verdict(gate=Gate.BLOCK, reason=f"approvals.deny has {denied!r}")
        if not dangers or self._settings.mode == "off" or self._allowlisted(text):
            return Verdict(gate=Gate.ALLOW)
        return _ask(text, dangers, (*self._settings.allowlist, *grants))

    def _denied(self, text: str) -> str:
        if not self._deny:
            return ""
        whole = _squeeze(text)
        pieces = [whole, *(_squeeze(p) for p in re.split(r"[;&|\n]+", text))]
        lines = [*pieces, *_lines(text)]
        for pattern in self._deny:
            if any(fnmatchcase(line, pattern) for line in lines):
                return pattern
        return ""

    def _allowlisted(self, text: str) -> bool:
        text = text.strip()
        operators = _OPERATORS.search(text) is not None
        for entry in self._settings.allowlist:
            if text == entry.strip():
                return True
            if (
                not operators
                and any(c in entry for c in "*?[")
                and fnmatchcase(text, entry.strip())
            ):
                return True
        return False


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _lines(text: str) -> list[str]:
    """Return every command of a script the way it would be typed."""
    ground = Ground(user_home="/root", hermes_home="/root/.hermes")
    try:
        calls = walk(parse(text), ground).calls
    except ShellSyntaxError:
        return []
    return [_typed(c) for c in calls] + [_typed(c, path=True) for c in calls]


def _typed(call: Call, *, path: bool = False) -> str:
    return _squeeze(" ".join((call.path if path else call.name, *call.args)))


def _read(text: str, ground: Ground, *, whole: bool = True) -> list[Danger]:
    scripts, readable = read_scripts(text)
    dangers = [] if readable or not whole else [UNREADABLE]
    if not readable and COMPACT_BOMB.search(text):
        dangers.append(FORK_BOMB)
    for script in scripts:
        dangers += _judge_script(script, ground)
    return dangers


def _judge_script(script: Script, ground: Ground) -> list[Danger]:
    try:
        return _judge_walk(walk(script, ground), ground)
    except RecursionError:
        return [TOO_COMPLICATED]


def _judge_walk(found: Walk, ground: Ground) -> list[Danger]:
    dangers = list(found.dangers)
    for call in found.calls:
        dangers.extend(floor_dangers(call, ground))
        for check in CHECKS:
            dangers.extend(check(call, ground))
    dangers.extend(sequence_dangers(found.calls, ground))
    return list(dict.fromkeys(dangers))


def _ask(text: str, dangers: list[Danger], grants: Collection[str]) -> Verdict:
    exact = _exact(text)
    granted = {piece for g in grants for piece in ([g] if g.startswith(EXACT) else g.split(JOINER))}
    if exact in granted:
        return Verdict(gate=Gate.ALLOW)
    open_ = [d for d in dangers if not d.pattern or d.pattern not in granted]
    if not open_:
        return Verdict(gate=Gate.ALLOW)
    reasons = list(dict.fromkeys(d.reason for d in open_))
    patterns = sorted({d.pattern for d in open_})
    pattern = exact if "" in patterns else JOINER.join(patterns)
    return Verdict(gate=Gate.ASK, reason=_sentence("; ".join(reasons[:4])), pattern=pattern)


def _exact(text: str) -> str:
    text = text.strip()
    if len(text) <= 200 and "\n" not in text:
        return EXACT + text
    return EXACT + "sha256:" + hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _sentence(reason: str) -> str:
    shown = "".join(c if c.isprintable() else "…" for c in reason)
    return shown[:1].upper() + shown[1:]
