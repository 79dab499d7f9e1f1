"""Programs in other languages: allowed in a known harmless shape, asked about otherwise.

Python is read by its names (`python`); of the other languages only the one-liners that people
really type are known, of `sed` the commands that neither run, read nor write, and of SQL the
statements that look, or change no more than they say.
"""

import re
from collections.abc import Iterator

from hermes.execution.policy.command import (
    STDIN_FILES,
    TABLES,
    Finding,
    ShellCommand,
    command_start,
    opaque,
    pattern,
    patterns,
)
from hermes.execution.policy.expansion import is_unknown
from hermes.execution.policy.python import quoted, read_python
from hermes.execution.policy.syntax import COMPUTED

_INTERPRETERS = TABLES["interpreters"]


_FACTS = (("--version",), ("-version",), ("-V",))
_VALUED = "-W -X -I -m -r --require --import --loader -C"
_PROMPTED = re.compile(r"(?:^|\s)(?:-[a-zA-Z]*i|-d\S*|--interactive|inspect|-a)(?:\s|$)")
"""An interpreter that goes on with its input when its program has ended, or before it begins."""


def language_of(name: str) -> str:
    return _interpreter(name)[0]


def _interpreter(name: str) -> tuple[str, list[str]]:
    """Return the language of an interpreter, and its options that take code."""
    found = _INTERPRETERS.get(name.rstrip("0123456789.") or name, "")
    language, _, options = found.partition(" ")
    return language, options.split()


def programs(command: ShellCommand) -> Iterator[str]:
    language, options = _interpreter(command.name)
    if not language or command.args in _FACTS:
        return
    # The value of an option may look like others: `-Itest`.
    args = tuple(a for a in command.args if language not in {"perl", "ruby"} or a[:2] != "-I")
    codes = list(command.with_argv((command.path, *args)).values_of(*options))
    if language == "awk":
        start = command_start(command.args, "-F -v -f -i -l --field-separator --assign --file")
        files = list(command.values_of("-f", "--file"))
        if STDIN_FILES & set(files):
            codes.append(COMPUTED if command.feed.text is None else command.feed.text)
        yield from codes or ([] if files or start is None else [command.args[start]])
        return
    if language == "powershell" and not codes:
        # Its operands are code; those of every other one name a file.
        codes = [" ".join(command.args)]
    if language == "perl":
        loaded = [a[2:] for a in command.args if a[:2] in {"-M", "-m"}]
        codes += [m for m in loaded if not re.fullmatch(r"-?[\w:]*(?:=[\w,:]+)?", m)]
    if command.feed.text is not None and (not codes or _PROMPTED.search(command.line)):
        start = command_start(command.args, _VALUED)
        script = command.args[start] if start is not None else ""
        # The name of a program has a dot or a slash; any other word may be the value of an option.
        if not re.search(r"[./]", script) or _PROMPTED.search(command.line):
            codes.append(command.feed.text)
    yield from codes


def inspect(language: str, text: str, here: str | None = None) -> tuple[list[Finding], list[str]]:
    """Return what in a program is not known to be harmless, and the commands that it is like.

    Modules of the directory that it runs in, `here`, are as good as the project.
    """
    if is_unknown(text):
        return [opaque(f"the {language} program is computed"), RUNS], []
    doubts: list[Finding] = []
    commands: list[str] = []
    if language == "python":
        read = read_python(text, here)
        doubts = [_not_understood("python")] if read is None else list(read.doubts)
        if read is not None:
            commands = read.commands
            doubts += [RUNS] if read.hides else []
    elif language == "sql":
        doubts = list(_query(text))
    elif not _is_harmless(language, text):
        bare = text.replace("`", "") if language == "node" else text  # there it is a string
        doubts = [_not_understood(language), *([RUNS] if _RUNS.search(bare) else [])]
    if language == "awk":
        commands += [f"tee {quoted(match[2])}" for match in _awk_files(text)]
    if language in _FILES_NAMED:
        verb = "tee" if "write" in text else "cat"
        commands += [f"{verb} {quoted(literal[1:-1])}" for literal in _LITERAL.findall(text)]
    if doubts:
        doubts += [DELETES] if _DELETES.search(text) else []
        doubts += [COMPUTED_RUN] if _COMPUTED_RUN.search(text) else []
    return doubts, commands


def _is_harmless(language: str, text: str) -> bool:
    known, odd = _HARMLESS.get(language), _ODD.get(language)
    if language == "node" and "${" in text and not (odd and odd.search(text)):
        # What a template shows is judged as if it were added up.
        text = _TEMPLATE.sub(lambda m: "(" + ")+(".join(["0", *_SHOWN.findall(m[1])]) + ")", text)
    if odd is not None and odd.search(text):
        return False
    bare = _LITERAL.sub("0", text)
    reach = _LOOKED_UP.search(text)
    if language == "awk":
        for match in reversed(_awk_files(text)):
            text = text[: match.end(1)] + text[match.end() :]
        bare = _LITERAL.sub("0", text)
        bare = _AWK_REGEX.sub(r"\1", bare)
        reach = _AWK_OUTPUT.search(bare) or re.search("/inet", text)
    # What stands between slashes may be a pattern with quotes in it.
    slashes = language == "node" and "/" in _DIVISION.sub("", bare)
    return known is not None and not reach and not slashes and not known.sub(" ", bare).strip()


def _awk_files(text: str) -> list[re.Match[str]]:
    """Return where the statements of an awk program write, if that is plain to see."""
    found = list(_AWK_FILE.finditer(text))
    plain = '\\"' not in text and all(text.count('"', 0, m.start()) % 2 == 0 for m in found)
    return found if plain else []


def _not_understood(language: str) -> Finding:
    called = "" if language == "other" else f"{language} "
    return opaque(f"nobody can tell beforehand what the {called}program does")


# --- one-liners ---

_LITERAL = re.compile(r"'(?:[^'\\#]|\\.)*'|\"(?:[^\"\\#$@{]|\\.)*\"")
"""A string in which nothing is interpolated."""
_HARMLESS = {
    language: re.compile(rf"{signs}|\b[A-Za-z_]\d*\b|\$\w+|\d[\w.]*")
    for language, signs in TABLES["one-liners"].items()
}
"""The tokens of harmless programs: what they leave over is not known."""
_FILES_NAMED = frozenset({"node", "ruby", "php", "r"})
"""Languages of which files are read, if their names are written out."""
_ODD = patterns("odd one-liners")
_TEMPLATE = re.compile(r"`((?:[^`\\$]|\$(?!\{)|\$\{[^{}`'\"]*\})*)`")
_SHOWN = re.compile(r"\$\{([^}]*)\}")
_DIVISION = re.compile(
    r"\b(?!(?:return|typeof|of|in|case|do|else|new|void|delete|throw|await|yield|instanceof|default|extends)\b)"
    r"\w+\s?/(?=\s?[\w(])"
)
"""What stands behind a value and in front of one: no pattern begins there."""
_AWK_FILE = re.compile(
    r'(?:^|(?<=[{;\n]))(\s*printf?\b(?:[^;{}\n>|"/]|"[^"\\\n]*")*)>>?\s*"((?![^"]*\.\./)[\w.][^"\\]*)"(?=\s*(?:[;}\n]|$))'
)
"""Where a statement of awk writes, if that is a file below."""
_AWK_REGEX = re.compile(r"(^|[({}!~;&,])\s*/[^/]*/")
_AWK_OUTPUT = re.compile(r"print\w*\b[^;}\n]*>|\|(?!\|)|/inet/|@|\bARG[CV]\b")
_LOOKED_UP = re.compile(
    r"`[^`]*\$|\[\s*['\"`]|(?:\b(?:require|import(?![\w\s{},]{1,200}\bfrom\b))|(?<![.])\bfrom)\b(?!\.resolve\b)[\s(]*(?!\s*\(?\s*['\"](?:\.|(?:node:)?(?:fs|path|os|url|util|crypto)['\"]))"
    r"|(?:readFileSync|writeFileSync|readdirSync|existsSync)(?!\s*\(\s*['\"][^'\"]*['\"]\s*[,)])"
)
"""Something that is run or found by a text: a subshell, `x["name"]`, a module."""
_DELETES = re.compile(
    r"(?i)rmtree|remove|rm_rf|rm_r\b|unlink|recurs|rimraf|\b(?:del|rd)\b|rmSync|rmdir|truncate"
    r"|emptyDir|trash|\b(?:File|Dir)\.delete|\b(?:move|renames?|rename_?sync)\s*\(.*[\"'](?:/|~|\.\.)"
)
_RUNS = re.compile(
    r"(?i)\bsystem\b|subprocess|popen|spawn|\bexec|`|\|\s*[\"']|qx|%x|do shell|getline"
)
DELETES = opaque("the program may delete files", "program deletes")
RUNS = Finding("the program runs others", "program runs")
COMPUTED_RUN = opaque("what the program runs is computed, or the program itself")
_COMPUTED_RUN = re.compile(r"(?i)\b(?:system|popen)\s*\(\s*(?![\"'\s])|\bfork\b")


# --- sed: a script is harmless if it is made of these commands; any other runs, reads or writes ---


def _sed_text(mark: str, brackets: str = "") -> str:
    """Return the pattern of a text up to the delimiter that the group `mark` has found."""
    return rf"(?:{brackets}(?!(?P={mark}))[^\\\n]|\\.)*+(?P={mark})"


def _sed_regex(mark: str) -> str:
    # A delimiter in brackets does not end the expression, and is an error for older makes of sed.
    inside = r"(?:\[:\w+:\]|\[(?![:.=])|\\(?!\])|[^\]\[\\\n])"
    return _sed_text(mark, rf"\[\^?+\]?+{inside}*+\]|(?!\[)")


def _sed_address(mark: str) -> str:
    regex = rf"\\?(?P<{mark}>(?<=\\)[^\w\s\\]|/){_sed_regex(mark)}[IM]*+"
    return rf"(?:\d++(?:~\d++)?|[+~]\d++|\$|{regex})[ \t]*+"


_SED_COMMAND = re.compile(
    rf"[\s;}}]++|#[^\n]*+|:[ \t]*+[\w.-]++(?=[\s;}}]|$)"
    # Addresses, then what stands alone, jumps, `s`, `y`, a text up to the end of its line.
    rf"|(?:{_sed_address('a')}(?:,[ \t]*+{_sed_address('b')})?)?[!\s]*+"
    r"(?:\{|(?:[pPdDnNhHgGxzF=]|[qQlL][ \t]*+\d*+|[btT][ \t]*+[\w.-]*+"
    rf"|s(?P<s>[^\w\s\\]){_sed_regex('s')}{_sed_text('s')}[gpiImM0-9]*+"
    rf"|y(?P<y>[^\w\s\\]){_sed_text('y')}{_sed_text('y')}"
    r")(?=[ \t]*+(?:[;\n}#]|$))|[aic](?:[^\\\n]|\\.)*+)",
    re.DOTALL,
)


def sed_acts(command: ShellCommand) -> bool:
    """Return whether a sed script has more than commands that are known to be harmless."""
    scripts = [*command.values_of("-e", "--expression")]
    files = [*command.values_of("-f", "--file")]
    if STDIN_FILES & {*files}:
        scripts.append(COMPUTED if command.feed.text is None else command.feed.text)
    operands = command.operands()
    if any(re.match(r"-[a-zA-Z]*i\w", a) for a in command.args):
        scripts += operands[:1]  # `-ie` is a suffix, and no script
    if not (scripts or files):
        # Of `-i ''` the second word is a part of the option for some makes of sed.
        scripts = operands[: 2 if operands[:1] == [""] else 1]
    return not sed_harmless("\n".join(scripts))


def sed_harmless(script: str) -> bool:
    position = 0
    while position < len(script):
        found = _SED_COMMAND.match(script, position)
        if found is None:
            return False
        position = found.end()
    return True


# --- SQL ---

SQL_CLIENTS = pattern("sql-clients")
SQL_HARMLESS = pattern("sql-harmless")
_SQL_PROGRAM = pattern("sql-program")
_SQL_TEXT = re.compile(r"\s|^[.\\][a-zA-Z!]+$")
_SQL_STRING = re.compile(r"'[^']*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
"""What is no part of a statement, whichever comes first."""


def sql(command: ShellCommand) -> Iterator[Finding]:
    texts = [a for a in command.args if _SQL_TEXT.search(a) and a[:1] != "-"]
    if command.name in {"sqlite3", "sqlite", "duckdb"}:
        texts += command.operands()[1:]
    else:
        texts += command.values_of("-c", "-e", "-q", "--command", "--execute")
    for text in (*texts, command.feed.text or ""):
        yield from _query(text)
    if command.piped and command.feed.text is None:
        yield Finding("what the database would run is computed", f"| {command.name}")


def _query(text: str) -> Iterator[Finding]:
    bare = _SQL_STRING.sub(" ", text)
    bare = re.sub(r"(?m)^[ \t]*([.\\][^\n]*)$", r";\1;", bare)
    if _SQL_PROGRAM.search(bare):
        yield opaque("the query runs a program, or reads or writes files", "sql program")
    elif not all(SQL_HARMLESS.match(statement) for statement in bare.split(";")):
        yield Finding("the query is not known to be harmless", "sql")
