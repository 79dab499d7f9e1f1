"""Decides about commands, file writes and programs: allow, ask or block.

The order is fixed: floor and sudo passwords, then `approvals.deny`, then mode `off`, then
allowlist and grants, then the rules. Every finding in a script needs its own grant; what
cannot be read or known asks.
"""

import contextlib
import hashlib
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from hermes.domain.approvals import Gate, Verdict
from hermes.domain.ports.execution import Environment
from hermes.domain.settings.live import LiveSettings
from hermes.domain.tools import Intent
from hermes.execution.policy.command import (
    TOO_COMPLICATED,
    UNREADABLE,
    Finding,
    Ground,
    ShellCommand,
    words,
)
from hermes.execution.policy.floor import COMPACT_BOMB, FORK_BOMB, floor_findings
from hermes.execution.policy.reader.expansion import is_unknown
from hermes.execution.policy.reader.grammar import parse, read_scripts
from hermes.execution.policy.reader.lexer import ShellSyntaxError
from hermes.execution.policy.rules import hidden, network, places
from hermes.execution.policy.rules.commands import COMMANDS
from hermes.execution.policy.rules.places import PlaceKind, absolute, place_of
from hermes.execution.policy.walk import Walk, walk

MAX_LENGTH = 32_768
"""Longer commands are not read to their end: they ask."""
JOINER = " + "
"""Between the patterns of a script with several findings."""
EXACT = "= "
"""In front of a pattern that stands for one whole script."""

_ALLOW = Verdict(gate=Gate.ALLOW)
_LOSING = words("rm unlink rmdir find gfind shred wipe srm scrub rsync mv git truncate dd")
_WALLED_OFF = ("write ", "git config", "git ext", "git push")
"""Findings about what a wall keeps from happening."""
_OPERATORS = re.compile(r"[;&|`\n<>]|\$\(")
_ODD = Finding("it contains characters that nobody can see")
_NEVER_WRITTEN = frozenset({PlaceKind.DEVICE, PlaceKind.LEDGER})
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    "\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])\u200d|\u200d(?=[\x20-\x7e])"
)


class PolicySettings(Struct, frozen=True, kw_only=True):
    """What a person has decided about commands in general."""

    mode: str = "manual"
    """`manual`, `smart` or `off`; only `off` changes a judgement."""
    deny: tuple[str, ...] = ()
    allowlist: tuple[str, ...] = ()
    user_home: str = "/root"
    hermes_home: str = "/root/.hermes"
    protected_paths: tuple[str, ...] = ()


class HostPolicy:
    """Judges intents by what the environment exposes of the person's.

    Everything: all rules. Some directories: only what loses files there, the rest is behind
    walls. Nothing: no question. A command that wants out is judged as on the host, and asks.
    """

    def __init__(self, settings: LiveSettings, environ: Mapping[str, str], home: Path) -> None:
        self._settings = settings
        self._user_home = environ.get("HOME") or str(Path.home())
        self._hermes_home = str(home)

    def commands(self, *, trusted: bool = False) -> "CommandPolicy":
        """Return what judges commands with the settings as they are now."""
        now = self._settings()
        return CommandPolicy(
            PolicySettings(
                mode="off" if trusted else "manual",
                deny=now.approvals.deny,
                allowlist=now.command_allowlist,
                user_home=self._user_home,
                hermes_home=self._hermes_home,
            )
        )

    def judge(
        self, intent: Intent, environment: Environment, *, grants: Collection[str], trusted: bool
    ) -> Verdict:
        """Return the strictest verdict on anything the call would do."""
        policy = self.commands(trusted=trusted)
        leaves = bool(intent.escalate) and environment.can_leave
        if environment.exposed != ("/",) and not leaves:
            if not intent.command or not environment.exposed:
                return _ALLOW
            cwd = environment.resolve(intent.workdir or ".")
            return policy.judge_losses(intent.command, environment.exposed, cwd=cwd, grants=grants)
        worst = _ALLOW
        for verdict in _verdicts(policy, intent, environment, () if leaves else grants):
            if verdict.gate is Gate.BLOCK:
                return verdict
            if verdict.gate is Gate.ASK and worst.gate is Gate.ALLOW:
                worst = verdict
        if not leaves or trusted:
            return worst
        reason = f"It leaves the sandbox: {_sentence(intent.escalate)}. {worst.reason}".rstrip()
        return Verdict(gate=Gate.ASK, reason=reason)


def _verdicts(
    policy: "CommandPolicy", intent: Intent, environment: Environment, grants: Collection[str]
) -> Iterator[Verdict]:
    if intent.command:
        cwd = environment.resolve(intent.workdir) if intent.workdir else environment.cwd
        yield policy.judge(intent.command, cwd=cwd, grants=grants)
    for path in intent.writes:
        yield policy.judge_write(environment.resolve(path), cwd=environment.cwd, grants=grants)
    if intent.code:
        yield policy.judge_code("python", intent.code, cwd=environment.cwd, grants=grants)


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
            return _ALLOW
        text, folded, odd = _clean(script)
        ground = self._ground(cwd)
        if len(text) > MAX_LENGTH:
            findings = [*_read(text[:MAX_LENGTH], ground, whole=False), TOO_COMPLICATED]
        else:
            findings = _read(text, ground)
            if folded != text:
                findings += [f for f in _read(folded, ground) if f is not UNREADABLE]
            if odd:
                findings.append(_ODD)
        return self._decide(text, list(dict.fromkeys(findings)), grants)

    def judge_losses(
        self, script: str, exposed: tuple[str, ...], *, cwd: str, grants: Collection[str] = ()
    ) -> Verdict:
        """Decide about a command behind walls, by what it loses in the places that are exposed."""
        text, _, _ = _clean(script[:MAX_LENGTH])
        findings: list[Finding] = []
        for part in read_scripts(text)[0]:
            with contextlib.suppress(RecursionError):
                ground = self._ground(cwd)
                findings += _losses(walk(part, ground), ground, exposed)
        return self._decide(text, list(dict.fromkeys(findings)), grants)

    def judge_write(
        self, path: str, *, cwd: str | None = None, grants: Collection[str] = ()
    ) -> Verdict:
        """Decide about writing one file; the path and what it links to must both be free."""
        ground = self._ground(cwd)
        if path == "~" or path.startswith("~/"):
            path = ground.user_home + path[1:]
        for candidate in dict.fromkeys((absolute(path, cwd), _real(path, cwd))):
            place = place_of(candidate, cwd, ground)
            if place is not None:
                reason = f"It writes to {place.kind}: {candidate}"
                if place.kind in _NEVER_WRITTEN:
                    return Verdict(gate=Gate.BLOCK, reason=reason)
                pattern = f"write {place.label}"
                granted = pattern in {*grants, *self._settings.allowlist}
                if granted or self._settings.mode == "off":
                    return _ALLOW
                return Verdict(gate=Gate.ASK, reason=reason, pattern=pattern)
        return _ALLOW

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
        found.program(language, source)
        return self._decide(source, _judge_walk(found, ground), grants)

    def _ground(self, cwd: str | None) -> Ground:
        settings = self._settings
        return Ground(
            user_home=settings.user_home.rstrip("/") or "/",
            hermes_home=settings.hermes_home.rstrip("/"),
            cwd=cwd,
            protected=settings.protected_paths,
        )

    def _decide(self, text: str, findings: list[Finding], grants: Collection[str]) -> Verdict:
        for finding in findings:
            if finding.gate is Gate.BLOCK:
                return Verdict(gate=Gate.BLOCK, reason=_sentence(finding.reason))
        denied = self._denied(text)
        if denied:
            return Verdict(gate=Gate.BLOCK, reason=f"approvals.deny has {denied!r}")
        if not findings or self._settings.mode == "off" or self._allowlisted(text):
            return _ALLOW
        return _ask(text, findings, (*self._settings.allowlist, *grants))

    def _denied(self, text: str) -> str:
        if not self._deny:
            return ""
        lines = [text, *re.split(r"[;&|\n]+", text), *_typed_commands(text)]
        lines = [_squeeze(line) for line in lines]
        matching = (p for p in self._deny if any(fnmatchcase(line, p) for line in lines))
        return next(matching, "")

    def _allowlisted(self, text: str) -> bool:
        text = text.strip()
        operators = _OPERATORS.search(text) is not None
        for entry in map(str.strip, self._settings.allowlist):
            is_glob = not operators and any(c in entry for c in "*?[")
            if text == entry or (is_glob and fnmatchcase(text, entry)):
                return True
        return False


def _clean(text: str) -> tuple[str, str, bool]:
    """Return what is visible, the same with look-alikes made plain, and whether they differ."""
    if text.isascii() and text.isprintable():
        return text, text, False
    text = text.replace("\r\n", "\n")
    visible = _INVISIBLE.sub("", _ANSI.sub("", text))
    folded = visible if visible.isascii() else unicodedata.normalize("NFKC", visible)
    return visible, folded.replace("\u00a0", " "), visible != text


def _real(path: str, cwd: str | None) -> str:
    """Return where `path` leads through links; a link before `..` counts first."""
    full = path if path.startswith("/") or cwd is None else f"{cwd}/{path}"
    links = full.startswith("/") and "\x00" not in full
    return os.path.realpath(full) if links else absolute(path, cwd)


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _typed_commands(text: str) -> Iterator[str]:
    """Yield every command of a script the way it would be typed."""
    try:
        commands = walk(
            parse(text), Ground(user_home="/root", hermes_home="/root/.hermes")
        ).commands
    except (ShellSyntaxError, RecursionError):
        return
    for command in commands:
        yield " ".join((command.name, *command.args))
        yield " ".join((command.path, *command.args))


def _read(text: str, ground: Ground, *, whole: bool = True) -> list[Finding]:
    scripts, readable = read_scripts(text)
    findings = [] if readable or not whole else [UNREADABLE]
    if not readable and COMPACT_BOMB.search(text):
        findings.append(FORK_BOMB)
    for script in scripts:
        try:
            findings += _judge_walk(walk(script, ground), ground)
        except RecursionError:
            findings.append(TOO_COMPLICATED)
    return findings


def _judge_walk(found: Walk, ground: Ground) -> list[Finding]:
    findings = list(found.findings)
    for command in found.commands:
        findings.extend(floor_findings(command, ground))
        findings.extend(COMMANDS.check(command))
        for family in (places, hidden, network):
            findings.extend(family.check(command, ground))
    findings.extend(hidden.sequence_findings(found.commands, ground))
    return list(dict.fromkeys(findings))


def _losses(found: Walk, ground: Ground, exposed: tuple[str, ...]) -> Iterator[Finding]:
    for command in found.commands:
        if command.name in _LOSING and _reaches(command, exposed):
            rules = (floor_findings(command, ground), COMMANDS.check(command))
            for finding in (*rules[0], *rules[1], *places.check(command, ground)):
                if not finding.grant.startswith(_WALLED_OFF):
                    yield finding


def _reaches(command: ShellCommand, exposed: tuple[str, ...]) -> bool:
    """Tell whether a command works on an exposed place, as far as its words say."""
    operands = command.operands() if command.name != "git" else []
    for path in operands or ["."]:
        full = absolute(path, command.cwd)
        if is_unknown(path) or not full.startswith("/"):
            return True
        stem = full.split("*")[0]
        for place in exposed:
            if f"{full}/".startswith(f"{place}/") or f"{place}/".startswith(f"{stem.rstrip('/')}/"):
                return True
    return False


def _ask(text: str, findings: list[Finding], grants: Collection[str]) -> Verdict:
    exact = _exact(text)
    granted = {piece for g in grants for piece in ([g] if g.startswith(EXACT) else g.split(JOINER))}
    open_ = [f for f in findings if not f.grant or f.grant not in granted]
    if exact in granted or not open_:
        return _ALLOW
    reasons = list(dict.fromkeys(f.reason for f in open_))
    patterns = sorted({f.grant for f in open_})
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
