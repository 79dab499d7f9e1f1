"""The table of rules: names, verbs and flags that need a person, and why.

A row of `commands.txt` is `names ; shape ; reason ; kind`; an indented line continues the row
before it. A reason that begins with `?` asks in every mode, most of them about code that nobody can
see; one with `!` is the floor. The shape is `verbs : flags : unless`, and each part may be missing:

- `verbs`: alternatives separated by commas, each one or more words that the operands
  begin with; `*` and `?` are globs. Global options in front of a verb do not hide it.
  A `!` in front: any verb but these.
- `flags`: words, one of which must be given. `-f` is a letter of a cluster, `--force` a
  long option or an abbreviation of it, `--force*` every long option that begins so,
  `-f,--file~regex` is matched by the value of one of these however it is written,
  `~regex` is searched in the whole line, anything else is a glob over single arguments.
- `unless`: flags that make it harmless.

The kind is the danger's name in `command_allowlist`: by default the command's name and its
verb or flag; `@` is the name alone.

If the verb is not known, or an unquoted argument that is not known could become one of
the flags, the command asks as well.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from itertools import pairwise

from msgspec import Struct

from hermes.execution.policy.command import (
    Finding,
    ShellCommand,
    only_local,
    readings,
    values_of,
    words,
)
from hermes.execution.policy.expansion import UNKNOWN, is_unknown
from hermes.execution.policy.floor import floor_finding
from hermes.execution.policy.syntax import COMPUTED


class _Rule(Struct, frozen=True):
    verbs: tuple[tuple[str, ...], ...]
    negated: bool
    flags: tuple[str, ...]
    unless: tuple[str, ...]
    reason: str
    kind: str


_PASSES_ON = words("cargo dotnet tox")
"""Programs that give what stands behind `--` to another one."""


class RuleTable:
    def __init__(self, text: str) -> None:
        self._rules: dict[str, list[_Rule]] = {}
        for row in text.replace("\n  ", " ").split("\n"):
            if row and row[0] != "#":
                names, rule = _parse(row)
                for name in names:
                    self._rules.setdefault(name, []).append(rule)

    def names(self) -> Iterable[str]:
        return self._rules

    def check(self, command: ShellCommand) -> Iterator[Finding]:
        name, args = command.name, command.spelled
        rules = self._rules.get(name)
        if rules is None:
            return
        found = readings(name, args)
        if found and is_unknown(found[0][0][0][:1]) and any(r.verbs for r in rules):
            yield Finding(f"what {name} would do is computed")
        for rule in rules:
            for operands, rest in (rule.verbs and found) or [([], args)]:
                verb = _verb(rule, operands)
                excuses = rest[: rest.index("--")] if "--" in rest else rest
                looked_at = excuses[:1] if rule.reason[0] == "!" else excuses
                if verb is None or any(_excuses(f, looked_at, command) for f in rule.unless):
                    continue
                own = excuses if name in _PASSES_ON else rest
                flag = next((f for f in rule.flags if _given(f, own)), None)
                if flag is not None or not rule.flags:
                    shown = verb or (flag.partition("~")[0] if flag and flag[0] != "*" else "")
                    kind = rule.kind or f"{name} {shown}".strip()
                    kind = name if kind == "@" else kind
                    if rule.reason[0] == "!":
                        yield floor_finding(rule.reason[1:], command)
                    else:
                        hides = rule.reason[0] == "?"
                        yield Finding(rule.reason.lstrip("?"), kind, opaque=hides)
                elif rule.verbs and may_be_options(rest, UNKNOWN + COMPUTED):
                    yield Finding(f"the options of {name} {verb} are computed")


def may_be_options(args: tuple[str, ...], marks: str) -> bool:
    """Return whether a word that is not known, and is no option's value, may become an option."""
    pairs = pairwise(("", *args))
    return any(a and a[0] in marks and before[:1] != "-" for before, a in pairs)


def _parse(row: str) -> tuple[list[str], _Rule]:
    names, shape, reason, kind = (*(c.strip() for c in row.split(" ;")), "")[:4]
    verbs, flags, unless = (*(p.strip() for p in re.split(r"(?:^|\s):(?=\s|$)", shape)), "", "")[:3]
    if not reason:
        raise ValueError(f"a rule without a reason: {row}")
    negated = verbs.startswith("!")
    paths = tuple(tuple(v.split()) for v in verbs.lstrip("!").split(",") if v)
    return names.split(), _Rule(paths, negated, (*flags.split(),), (*unless.split(),), reason, kind)


def _verb(rule: _Rule, operands: list[str]) -> str | None:
    """Return the verb of the rule that the operands begin with."""
    for path in rule.verbs:
        if len(operands) >= len(path) and all(
            fnmatchcase(o.lower(), v) for o, v in zip(operands, path, strict=False)
        ):
            return None if rule.negated else " ".join(operands[: len(path)])
    return "" if (rule.negated and operands) or not rule.verbs else None


def _given(flag: str, args: tuple[str, ...]) -> bool:
    if flag[0] == "~":
        return (
            _compiled(flag[1:]).search(" ".join(a.replace(" ", "\x03") for a in args)) is not None
        )
    if flag[0] == "-" and "~" in flag:
        options, _, value = flag.partition("~")
        return any(map(_compiled(value).match, values_of(args, *options.split(","))))
    if len(flag) == 2 and flag[0] == "-" and flag != "--":
        return any(a[:1] == "-" and a[1:2] != "-" and flag[1] in a[1:] for a in args)
    if flag[:2] == "--" and len(flag) > 2 and flag[-1] != "*" and "=" not in flag:
        return any(a[:2] == "--" and len(a) > 2 and flag.startswith(a.split("=")[0]) for a in args)
    return any(fnmatchcase(a.lower(), flag.lower()) for a in args)


def _excuses(flag: str, args: tuple[str, ...], command: ShellCommand) -> bool:
    """Return whether a flag makes a command harmless: it has to stand there as it is."""
    if flag == "@local":
        return only_local(command)
    if flag[0] == "-" and "~" in flag:
        return _given(flag, args)
    # The value of an option may be glued to it.
    values = {word for word, value in command.valued() if value}
    plain = (a for a in args if a[1:2] == "-" or not re.match(r"-\w{5}|-.*\W", a))
    return _given(flag, tuple(a for a in plain if a not in values))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile on first use: most runs meet few of the commands in the tables."""
    return re.compile(pattern)


COMMANDS = RuleTable((files("hermes.execution.policy") / "commands.txt").read_text("utf-8"))
