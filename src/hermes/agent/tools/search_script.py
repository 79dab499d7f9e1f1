"""Builds the shell scripts behind `search_files`.

They use ripgrep where it is installed, else GNU grep, else any grep and find,
so that searching works on every backend. File names are separated by NUL in
the output; everything that comes from the model is quoted.
"""

import re
import shlex

from msgspec import Struct

__all__ = ["Search", "content_script", "files_script"]

# Exit code 1 means "nothing found", so the options are known.
_PROBE = "grep -q {} --null --include=x -e x /dev/null 2>/dev/null || [ $? = 1 ]"

_SKIPPED = (".git", ".hg", ".venv", "__pycache__", "node_modules")


class Search(Struct, frozen=True, kw_only=True):
    """What to look for, and where (an absolute path)."""

    pattern: str
    root: str
    glob: str | None
    mode: str
    context: int
    max_lines: int


def content_script(search: Search) -> str:
    """Return a script that prints matching lines, files or counts.

    Output that is not a result is a message; the exit code is that of the search.
    """
    pattern, root = shlex.quote(search.pattern), shlex.quote(search.root)
    rg = ["rg", "--no-config", "--color=never", "--no-messages", "--null", "--sort=path", "-H"]
    rg += _MODE[search.mode]["rg"]
    gnu = [
        "grep",
        "-rHIs",
        "--null",
        "--color=never",
        *(f"--exclude-dir={name}" for name in _SKIPPED),
    ]
    gnu += _MODE[search.mode]["grep"]
    plain = ["grep", "-HsE", *_MODE[search.mode]["grep"]]
    if search.glob:
        rg.append(f"--glob={shlex.quote(search.glob)}")
        gnu.append(f"--include={shlex.quote(search.glob)}")
    if search.context and search.mode == "content":
        for command in (rg, gnu, plain):
            command += ["-C", str(search.context)]
    rest = f"-e {pattern} -- {root}"
    found = f"{_find(root)} -type f -name {shlex.quote(search.glob or '*')}"
    return (
        "if command -v rg >/dev/null 2>&1; then"
        f" {' '.join(rg)} {rest};"
        f" elif {_PROBE.format('-P')}; then {' '.join(gnu)} -P {rest};"
        f" elif {_PROBE.format('-E')}; then {' '.join(gnu)} -E {rest};"
        f" else {found} -exec {' '.join(plain)} -e {pattern} {{}} +; fi 2>&1"
        f" | head -n {search.max_lines}; exit ${{PIPESTATUS[0]}}"
    )


_MODE = {
    "content": {"rg": ["-n", "--no-heading"], "grep": ["-n"]},
    "files_only": {"rg": ["-l"], "grep": ["-l"]},
    "count": {"rg": ["-c"], "grep": ["-c"]},
}


def files_script(search: Search) -> str:
    """Return a script that prints the files whose name matches a glob, NUL-terminated."""
    glob = re.sub(r"^(\*\*/)+", "", search.pattern).replace("**/", "*")
    test = f"-path {shlex.quote('*/' + glob)}" if "/" in glob else f"-name {shlex.quote(glob)}"
    return f"{_find(shlex.quote(search.root))} -type f {test} -print0 2>/dev/null"


def _find(root: str) -> str:
    pruned = " -o ".join(f"-name {shlex.quote(name)}" for name in _SKIPPED)
    return f"find {root} \\( -type d \\( {pruned} \\) -prune \\) -o"
