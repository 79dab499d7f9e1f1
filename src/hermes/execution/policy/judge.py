"""Decides about commands, file writes and programs: allow, ask or block.

The order is fixed: floor and sudo passwords, then `approvals.deny`, then mode `off`, then
allowlist and grants, then the rules. Every finding in a script needs its own grant. What
cannot be read or known beforehand (`Finding.opaque`) asks, also in mode `off`; if its text
mentions the floor it is blocked.

A grant is narrow: one command in one directory, or one path, or one whole script. Names of
whole kinds of danger (`rm -r`) count only in `command_allowlist`, where a person has written
them down.

Time is bounded: the grammar is linear, the walk ends after so many commands or so much
processor time, and no pattern repeats what can match in several ways.
"""

import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import pairwise

from msgspec import Struct, structs

from hermes.domain.approvals import Gate, Verdict
from hermes.execution.policy import reach, rules
from hermes.execution.policy.code import DELETES, RUNS, SQL_CLIENTS, SQL_HARMLESS, language_of, sql
from hermes.execution.policy.command import (
    FORGOT,
    NOTHING,
    TABLES,
    TOO_COMPLICATED,
    UNREADABLE,
    Carried,
    Feed,
    Finding,
    Ground,
    Input,
    ShellCommand,
    absolute,
    listed,
    opaque,
    pattern,
    readings,
    real_path,
    unreadable,
    where,
    words,
)
from hermes.execution.policy.expansion import UNKNOWN, is_unknown
from hermes.execution.policy.floor import (
    COMPACT_BOMB,
    ELSEWHERE,
    FORK_BOMB,
    floor_findings,
    mentions_floor,
)
from hermes.execution.policy.grammar import read_scripts
from hermes.execution.policy.made import RUNS_FETCHED, RUNS_MADE
from hermes.execution.policy.nested import SHELLS
from hermes.execution.policy.places import PlaceKind, place_of
from hermes.execution.policy.syntax import COMPUTED
from hermes.execution.policy.table import COMMANDS
from hermes.execution.policy.walk import Walk, walk

MAX_LENGTH = 32_768
JOINER = " + "
"""Between the patterns of a script with several findings."""
EXACT = "= "
"""In front of a pattern that stands for one whole script."""

_ALLOW = Verdict(gate=Gate.ALLOW)
_REMOTE = words("ssh autossh mosh docker podman nerdctl kubectl")
_LOSING = words("rm unlink rmdir find gfind shred wipe srm scrub rsync mv git truncate dd rimraf")
_LOSES = pattern("loses-files")
"""Reasons of the host that count behind walls too: files of the project are lost."""
_REBUILT = pattern("rebuilt")
_IN_OUTPUT = re.compile(rf"/{_REBUILT.pattern}/[^/]")
_PUTS = words("ln link mv cp install rsync git")
_DATABASES = words("sqlite3 sqlite duckdb")
_WALLED_OFF = ("write ", "git config", "git ext", "git push", "git exec")
"""Findings about what a wall keeps from happening."""
_SEARCHES = words("find gfind")
_ACTIONS = words("-delete -exec -execdir -ok -okdir")
_WIDENS = words("-o -or -not ! , ( -L -follow")
_TYPED_INTO = listed("typed-into").union(TABLES["wrappers"], TABLES["runners"])
_PROMPTS = words("shell console repl dbshell --pdb sh bash")
_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_META = re.compile(r"(?m)^[ \t]*[.!]|\\[a-zA-Z!]")
_OPEN = re.compile(r"cannot be read as a shell script: .* is missing$")
"""The reason of what may only not be complete yet."""
_MAX_PIECES = 50
_OPERATORS = re.compile(r"[;&|`\n<>]|\$\(")
_ODD = opaque("it contains characters that nobody can see")
_PLAIN_WORD = re.compile(r"(?!\+$)[\w@%+=:,./~*?\[\]{}^$!-]+$", re.ASCII)
_HIDDEN_FLOOR = "it hides what it runs, and what it mentions is never run"
_NEVER_WRITTEN = frozenset({PlaceKind.DEVICE, PlaceKind.LEDGER})
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_NAMES = re.compile(r"[^\W\d]\w*")
_Found = tuple[ShellCommand | None, Finding]
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e"
    "\ud800-\udfff\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff"
    "\U000e0000-\U000e007f]"
    "|(?<=[\x20-\x7e])\u200d|\u200d(?=[\x20-\x7e])"
)


class PolicySettings(Struct, frozen=True, kw_only=True):
    mode: str = "manual"
    """`manual`, `smart` or `off`; only `off` changes a judgement."""
    deny: tuple[str, ...] = ()
    allowlist: tuple[str, ...] = ()
    user_home: str = "/root"
    hermes_home: str = "/root/.hermes"


class Judgement(Struct, frozen=True):
    """A verdict, and what the script would leave behind for the next one of its session."""

    verdict: Verdict
    left: Carried = NOTHING


class CommandPolicy:
    """Judges commands, file writes and programs; runs nothing.

    It reads no files but links, and scripts that the same session has written.
    """

    def __init__(self, settings: PolicySettings, longest: int = sys.maxsize) -> None:
        """Raise `TooLong` where a judgement takes reading more than `longest` characters."""
        self._settings = settings
        self._longest = longest
        self._deny = tuple(_squeeze(d) for d in settings.deny if d.strip())

    def judge(
        self, script: str, *, cwd: str | None = None, grants: Collection[str] = ()
    ) -> Verdict:
        return self.examine(script, cwd=cwd, grants=grants).verdict

    def examine(
        self,
        script: str,
        *,
        cwd: str | None = None,
        grants: Collection[str] = (),
        carried: Carried = NOTHING,
    ) -> Judgement:
        """Decide about a script after others of its session."""
        if not script.strip():
            return Judgement(_ALLOW)
        text = _visible(script)
        ground = self._ground(cwd, carried)
        findings, walks = _read(text[:MAX_LENGTH], ground, whole=len(text) <= MAX_LENGTH)
        if len(text) > MAX_LENGTH:
            findings.append(TOO_COMPLICATED)
        elif text != script:
            findings.append(_ODD)
        findings = list(dict.fromkeys([*findings, *([FORGOT] if carried.forgot else [])]))
        return Judgement(self._decide(text, findings, grants, walks, ground), _left(walks))

    def judge_typed(
        self,
        command: str,
        before: str,
        data: str,
        *,
        cwd: str | None = None,
        carried: Carried = NOTHING,
    ) -> Verdict:
        """Decide about text for the input of a running program, after what it has read before.

        What an interpreter reads is judged whole, and what that adds to what it has read counts.
        Of a program that is known to read data and answers only the floor is judged; any other may
        take it for a command. An answer is good for this text alone.
        """
        ground = self._ground(cwd, carried)
        own, walks = _read_each(command, ground)
        running = [c for found in walks for c in found.commands]
        findings = _added(command, before, data, ground, own, running)
        goes_on = any(c.name in SHELLS for c in running) and _goes_on(before + data)
        if goes_on and not mentions_floor(data, ground.user_homes):
            findings = [f for f in findings if not _OPEN.search(f.reason)]
        if not any(c.name in _REMOTE for c in running):
            bare, _ = _read_each(before, ground, whole=False)
            plain, _ = _read_each(before + data, ground, whole=False)
            findings += [f for f in _beyond(plain, bare) if f.gate is Gate.BLOCK]
        findings += _typed_into(running, data)
        return structs.replace(self._decide(data, findings, (), [], ground), pattern="")

    def judge_losses(
        self,
        script: str,
        exposed: tuple[str, ...],
        *,
        cwd: str,
        grants: Collection[str] = (),
        carried: Carried = NOTHING,
    ) -> Judgement:
        """Decide about a command behind walls, by what it loses in the places that are exposed.

        Code that nobody can see may lose anything there.
        """
        text = _visible(script[:MAX_LENGTH])
        ground = self._ground(cwd, carried)
        read, walks = _read(text, ground)
        findings = [structs.replace(f, opaque=False) for f in read if f.kind == UNREADABLE]
        findings += [f for found in walks for f in _losses(found, ground, exposed)]
        verdict = self._decide(text, list(dict.fromkeys(findings)), grants, walks, ground)
        return Judgement(verdict, _left(walks))

    def judge_write(
        self,
        path: str,
        *,
        cwd: str | None = None,
        grants: Collection[str] = (),
        carried: Carried = NOTHING,
    ) -> Verdict:
        """Decide about writing one file; the path and what it links to must both be free."""
        ground = self._ground(cwd, carried)
        if path == "~" or path.startswith("~/"):
            path = ground.user_home + path[1:]
        # A link in front of `..` counts first.
        full = path if path.startswith("/") or cwd is None else f"{cwd}/{path}"
        for candidate in dict.fromkeys((absolute(path, cwd), real_path(full))):
            place = place_of(candidate, ground) or reach.outside(candidate, ground)
            if place is not None:
                reason = f"It writes to {place.kind}: {candidate}"
                if place.kind in _NEVER_WRITTEN:
                    return Verdict(gate=Gate.BLOCK, reason=reason)
                pattern = f"write {candidate}"
                listed = {pattern, f"write {place.label}"} & set(self._settings.allowlist)
                if listed or pattern in grants or self._settings.mode == "off":
                    return _ALLOW
                return Verdict(gate=Gate.ASK, reason=reason, pattern=pattern)
        return _ALLOW

    def _ground(self, cwd: str | None, carried: Carried = NOTHING) -> Ground:
        settings = self._settings
        return Ground(
            user_home=settings.user_home.rstrip("/") or "/",
            hermes_home=settings.hermes_home.rstrip("/"),
            cwd=cwd,
            carried=carried,
            longest=self._longest,
        )

    def _decide(
        self,
        text: str,
        findings: list[Finding],
        grants: Collection[str],
        walks: list[Walk],
        ground: Ground,
    ) -> Verdict:
        for finding in findings:
            if finding.gate is Gate.BLOCK:
                return Verdict(gate=Gate.BLOCK, reason=sentence(finding.reason))
        hiding = any(f.opaque and f.kind != ELSEWHERE for f in findings)
        if hiding and mentions_floor(text, ground.user_homes):
            return Verdict(gate=Gate.BLOCK, reason=sentence(_HIDDEN_FLOOR))
        denied = self._denied(text, walks)
        if denied:
            return Verdict(gate=Gate.BLOCK, reason=f"approvals.deny has {denied!r}")
        if self._settings.mode == "off":
            findings = [f for f in findings if f.opaque]
        if not findings or self._allowlisted(text, exactly=any(f.opaque for f in findings)):
            return _ALLOW
        exact = exact_pattern(text, ground.cwd, _evidence(walks))
        return self._ask(text, findings, grants, exact)

    def _denied(self, text: str, walks: list[Walk]) -> str:
        if not self._deny:
            return ""
        lines = [text, *re.split(r"[;&|\n]+", text), *_typed_commands(walks)]
        lines = [_squeeze(line) for line in lines]
        matching = (p for p in self._deny if any(fnmatchcase(line, p) for line in lines))
        return next(matching, "")

    def _allowlisted(self, text: str, *, exactly: bool) -> bool:
        text = text.strip()
        operators = exactly or _OPERATORS.search(text) is not None
        for entry in map(str.strip, self._settings.allowlist):
            is_glob = not operators and any(c in entry for c in "*?[")
            if text == entry or (is_glob and fnmatchcase(text, entry)):
                return True
        return False

    def _ask(
        self, text: str, findings: list[Finding], grants: Collection[str], exact: str
    ) -> Verdict:
        allowlist = self._settings.allowlist
        pieces = (
            piece
            for g in (*allowlist, *grants)
            for piece in ([g] if g.startswith(EXACT) else g.split(JOINER))
        )
        granted = {*pieces}
        open_ = [
            f
            for f in findings
            if not (f.grant and f.grant in granted)
            and not (f.kind in allowlist and f.kind and not f.opaque)
        ]
        if exact in granted or exact_pattern(text) in allowlist or not open_:
            return _ALLOW
        reasons = list(dict.fromkeys(f.reason for f in open_))
        patterns = sorted({f.grant for f in open_})
        return Verdict(
            gate=Gate.ASK,
            reason=sentence("; ".join(reasons[:4])),
            pattern=exact if "" in patterns else JOINER.join(patterns),
            opaque=any(f.opaque for f in open_),
        )


def _visible(text: str) -> str:
    printable = text.isascii() and text.isprintable()
    return text if printable else _INVISIBLE.sub("", _ANSI.sub("", text))


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _typed_commands(walks: Iterable[Walk]) -> Iterator[str]:
    """Yield every command of a script the way it would be typed, with and without options."""
    for command in (command for found in walks for command in found.commands):
        yield " ".join((command.name, *command.args))
        yield " ".join((command.path, *command.args))
        for operands, rest in readings(command.name, command.args):
            yield " ".join((command.name, operands[0], *rest))
            yield " ".join((command.name, *operands))
            if operands[0] == "container":  # `docker container rm` is `docker rm`
                yield " ".join((command.name, *rest))


def _read(text: str, ground: Ground, *, whole: bool = True) -> tuple[list[Finding], list[Walk]]:
    found, walks = _read_each(text, ground, whole=whole)
    return list(dict.fromkeys(finding for _, finding in found)), walks


def _read_each(
    text: str, ground: Ground, *, whole: bool = True, feed: str = ""
) -> tuple[list[_Found], list[Walk]]:
    """Return every finding, with the command that it is about, and what was walked."""
    scripts, trouble = read_scripts(text)
    findings: list[_Found] = [(None, unreadable(trouble))] if trouble and whole else []
    if trouble and COMPACT_BOMB.search(text):
        findings.append((None, FORK_BOMB))
    walks: list[Walk] = []
    for script in scripts:
        try:
            found = walk(script, ground, Feed(Input.TEXT, feed) if feed else None)
            findings += _judge_walk(found, ground)
            walks.append(found)
        except RecursionError:
            findings.append((None, TOO_COMPLICATED))
    return findings, walks


def _added(
    command: str,
    before: str,
    data: str,
    ground: Ground,
    own: list[_Found],
    running: list[ShellCommand],
) -> list[Finding]:
    """Return what is found in typed text and was not in what was typed before."""
    python = any(language_of(c.name) == "python" for c in running)
    known, _ = _read_each(command, ground, feed=_closed(before) if python else before)
    known = known if before else []
    whole = before + data
    joined, _ = _read_each(command, ground, feed=_closed(whole) if python else whole)
    if not before or not _beyond(known, own):
        return _beyond(joined, known)
    # Something was answered before. Of a shell it is known what each command of the text does.
    # Elsewhere anything that was named before may be what was answered, under another name.
    line = before[before.rfind("\n") + 1 :] + data
    if any(SQL_CLIENTS.match(c.name) for c in running):
        line = before[before.rfind(";") + 1 :] + data
    elif not any(language_of(c.name) for c in running):
        return _beyond(joined, known)
    elif {*_NAMES.findall(line)} & {*_NAMES.findall(before[: len(before) + len(data) - len(line)])}:
        return _beyond(joined, own)
    alone, _ = _read_each(command, ground, feed=line)
    return [*_beyond(joined, known), *_beyond(alone, own)]


def _goes_on(text: str) -> bool:
    """Return whether a text may be the beginning of one whose every line is read already."""
    return text.count("\n") < _MAX_PIECES


def _closed(text: str) -> str:
    """Return Python that may end behind the head of a block with something in that block."""
    last = text.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    return f"{text.rstrip()}\n{indent} pass\n" if last.endswith(":") else text


def _beyond(found: list[_Found], known: list[_Found]) -> list[Finding]:
    """Return what is found more often than it is known; what cannot be read is never known."""
    more = Counter(found) - Counter(k for k in known if k[1].kind != UNREADABLE)
    always = [f for _, f in found if f == TOO_COMPLICATED]
    return list(dict.fromkeys([*always, *(finding for _, finding in more)]))


def _typed_into(running: list[ShellCommand], data: str) -> Iterator[Finding]:
    for command in running:
        reads_code = command.name in SHELLS or language_of(command.name) or command.name in _REMOTE
        queries = SQL_CLIENTS.match(command.name) is not None
        if (reads_code or queries) and _KEYS.search(data):
            yield opaque("keys that edit the line change what is run")
        if queries and any(map(_acts_on_its_own, data.split("\n"))):
            yield opaque(f"`{command.name}` is given a command of its own")
        known = reads_code or queries or command.name in _TYPED_INTO or "/" in command.path
        if not known or _PROMPTS & {*command.args} or rules.prompts(command):
            yield Finding(f"`{command.name}` may take what is typed for a command")


def _acts_on_its_own(line: str) -> bool:
    """Return whether a line for a database is a command to the client that does more than look."""
    bare = line.strip()
    looks = bare[:1] in {".", "\\"} and SQL_HARMLESS.match(bare) and bare.count("\\") < 2
    return _META.search(line) is not None and not looks


def _losses(found: Walk, ground: Ground, exposed: tuple[str, ...]) -> Iterator[Finding]:
    # Of a file whose text nobody has worked out it counts what went into it, or where it is from.
    unseen = {RUNS_MADE, RUNS_FETCHED} if found.made.harms or found.made.fetched else set()
    asked = {DELETES, RUNS} | unseen
    yield from (structs.replace(f, opaque=False) for f in found.findings if f in asked)
    for command in found.commands:
        if not command.path.strip(f"{COMPUTED}{UNKNOWN}") and not command.args:
            yield opaque("what it runs is computed")
        tidies = _tidies(command, found.commands, exposed) and not _fills_outputs(found, ground)
        if command.computed:
            command = command.with_argv(("rm", *command.args))  # noqa: PLW2901
        losing: list[Finding] = []
        if _reaches(command, exposed) and not tidies:
            losing += (*COMMANDS.check(command), *reach.losses(command, ground))
            losing = [f for f in losing if command.name in _LOSING or _LOSES.match(f.reason)]
            # A directory that nobody knows is behind the walls too, a list of files is not.
            listed_here = is_unknown("".join(command.writes))
            losing = [f for f in losing if f.kind != "write computed" or listed_here]
            queries = sql(command) if command.name in _DATABASES else ()
            losing += [f for f in queries if f.kind == "sql"]
            losing += floor_findings(command, ground) if command.name in _LOSING else ()
        if rules.is_interpreter(command.name):
            losing += [f for f in rules.check(command, ground) if f.opaque]
        for finding in losing:
            if _LOSES.match(finding.reason) or not finding.kind.startswith(_WALLED_OFF):
                # The walls hold what cannot be read.
                grant = finding.grant or ("" if finding.opaque else _grant(command))
                yield structs.replace(finding, opaque=False, grant=grant)


def _reaches(command: ShellCommand, exposed: tuple[str, ...]) -> bool:
    """Tell whether a command works on an exposed place, as far as its words say."""
    operands = command.operands() if command.name != "git" else []
    operands = operands[:1] if command.name in _DATABASES else operands
    for full in (full for path in operands or ["."] for full in command.where(path)):
        if is_unknown(full) or not full.startswith("/"):
            return True
        stem = full.split("*")[0]
        for place in exposed:
            if f"{full}/".startswith(f"{place}/") or f"{place}/".startswith(f"{stem.rstrip('/')}/"):
                return True
    return False


def _tidies(command: ShellCommand, others: list[ShellCommand], exposed: tuple[str, ...]) -> bool:
    """Tell whether a command deletes no more than what tools make anew, each by its name."""
    if command.name in _SEARCHES:
        head = command.args[: next((i for i, a in enumerate(command.args) if a in _ACTIONS), None)]
        names = [b for a, b in pairwise(head) if a == "-name"]
        return bool(names) and all(map(_REBUILT.fullmatch, names)) and not _WIDENS & {*command.args}
    if command.name not in {"rm", "rmdir", "rimraf"}:
        return False
    operands = command.operands()
    if operands == [COMPUTED] and command.via[-1:] == ("find",):
        searches = [c for c in others if c.name in _SEARCHES and c.via == command.via[:-1]]
        return bool(searches) and all(_tidies(c, others, exposed) for c in searches)
    fulls = [full for o in operands for full in command.where(o)]
    inside = all(any(_is_really_in(full, place) for place in exposed) for full in fulls)
    return bool(operands) and inside and all(map(_REBUILT.fullmatch, operands))


def _is_really_in(full: str, place: str) -> bool:
    """Tell whether something is in a place, with no link on the way to it or at its end."""
    real = f"{os.path.realpath(place)}{full[len(place) :]}".rstrip("/")
    return full.startswith(f"{place}/") and os.path.realpath(full) == real


def _fills_outputs(found: Walk, ground: Ground) -> bool:
    """Tell whether something else than a tool has put files into a place for outputs."""
    puts = any(c.name in _PUTS for c in found.commands)
    return puts or any(map(_IN_OUTPUT.search, ground.carried.files))


def _judge_walk(found: Walk, ground: Ground) -> Iterator[_Found]:
    yield from ((None, finding) for finding in found.findings)
    for command in found.commands:
        if found.exhausted():
            yield None, TOO_COMPLICATED
            return
        own = [*floor_findings(command, ground), *COMMANDS.check(command)]
        for family in (reach, rules):
            own.extend(family.check(command, ground))
        # What the same words do is the same, whatever their input is and who has looked them up.
        about = structs.replace(command, feed=Feed(), inner=(), look_up=where)
        for f in own:
            yield about, f if f.opaque or f.grant else structs.replace(f, grant=_grant(command))
    yield from ((None, finding) for finding in reach.check_sourced(found.commands, ground))
    yield from (
        (None, finding) for finding in reach.check_remotes(found.commands, found.made.remotes)
    )


def _grant(command: ShellCommand) -> str:
    """Return what an answer about one command allows: the same command in the same place."""
    around = (command.via, command.assigns, command.inner, command.reads, command.writes)
    line = (command.path, *command.args)
    plain = all(_PLAIN_WORD.match(word) for word in line)
    if any(around) or command.feed.kind is not Input.NONE or not plain or len(command.cwds) > 1:
        return ""
    place = f" (in {command.cwd})" if command.cwd is not None else ""
    return " ".join(line) + place


def _left(walks: list[Walk]) -> Carried:
    """Return what scripts leave behind: functions, exported variables and files."""
    left = Carried(functions={}, exports={}, files={})
    for found in walks:
        left.functions.update(found.defined())
        left.files.update(dict.fromkeys(found.made.files, False))
        left.files.update(dict.fromkeys(found.made.fetched, True))
        values = found.variables.values
        names = values if found.exports_all else found.exported
        left.exports.update((name, values[name]) for name in names if name in values)
    return left


def _evidence(walks: list[Walk]) -> str:
    """Return a digest of what a judgement has read that is not in the script; empty if nothing."""
    read = [pair for found in walks for pair in sorted(found.read().items())]
    return _digest(repr(read))[:16] if read else ""


def exact_pattern(text: str, place: str | None = None, evidence: str = "") -> str:
    """Return what stands for a whole script, where it was asked about, and what it read there."""
    text = text.strip()
    short = len(text) <= 200 and "\n" not in text and " (in " not in text
    where = f" (in {place}{evidence and f', having read {evidence}'})" if place else ""
    return f"{EXACT}{text if short else f'sha256:{_digest(text)}'}{where}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def sentence(reason: str) -> str:
    shown = "".join(c if c.isprintable() else "…" for c in reason)
    return shown[:1].upper() + shown[1:]
