"""Settings of git as they are found in a project: which run nothing, and what the others name.

Commands can put anything under the names of git: a pipe that nobody writes to, a file without
end, a line that takes for ever to look at. So little is read of each, and that at once.
"""

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

LONGEST_CONFIG = 65_536
_LONGEST_LINE = 4096
"""No line that is longer is taken for harmless."""
_LINES = 1000
"""A file with more new lines is not taken for harmless."""
_WORDS = 1000
"""Of one value that are taken for paths."""
_INCLUDED = 20
"""Files with settings that name each other."""
_FOLLOWED = 40
_SECTIONS = re.compile(r'(?>[\s\ufeff]*\[(?:[^]"]|"(?:\\.|[^"\\])*")*\])*')
_HARMLESS_SETTING = re.compile(
    r"\s*(?:[#;].*|\[(?:user|init|pull|push|core|remote|branch|submodule|commit|tag|advice|color"
    r"|fetch|rebase|merge|diff|gc|extensions|lfs|index|receive|blame|http)\b[^\]]*\]"
    r"|(?:name|email|url|fetch|remote|merge|rebase|default|description|pushremote|pushdefault"
    r"|promisor|partialclone|partialclonefilter|tagopt|objectformat|refstorage|worktreeconfig"
    r"|mirror|sparsecheckout|sparsecheckoutcone|sparse|sharedrepository|denynonfastforwards"
    r"|denycurrentbranch|ignorerevsfile|longpaths|version|access|locksverify|vscode-merge-base"
    r"|gk-[\w-]+|github-pr-[\w-]+"
    r"|defaultbranch|autosetupremote|repositoryformatversion|filemode|bare|logallrefupdates"
    r"|ignorecase|precomposeunicode|symlinks|active|gpgsign|ff|autocrlf|eol|safecrlf|quotepath"
    r"|prune|autostash|conflictstyle|ui|auto|detachedhead)\s*(?:=.*)?"
    r"|worktree\s*=\s*[\w./-]+)?",
    re.IGNORECASE,
)
_OF_REMOTES = frozenset({"url", "pushurl", "remote", "pushremote", "pushdefault"})
_ELSEWHERE = re.compile(r"(?!file://)[^/]*:")
"""How a remote begins that is no path."""
_STRATEGY = r"(?:ort|recursive|resolve|octopus|ours|subtree)"
"""Ways to merge that git has itself: any other name is that of a program."""
_OPTION = (
    r"(?:ours|theirs|patience|histogram|minimal|(?:no-)?renormalize|no-renames|subtree"
    r"|ignore-(?:space-change|all-space|space-at-eol|cr-at-eol)|diff-algorithm=[a-z]+"
    r"|(?:find-renames|rename-threshold)(?:=\d+%?)?)"
)
"""Of a way to merge; others may name a file that is written."""
OF_NEW_REPOSITORIES = {
    "config": _HARMLESS_SETTING,
    "config.worktree": _HARMLESS_SETTING,
    "commondir": re.compile(r"\.\./\.\."),
    ".git": re.compile(r"gitdir: (?>[^\0]*/\.git/(?:modules|worktrees)/)[\w./-]+"),
    "git-rebase-todo": re.compile(r"(?!\s*(?:x|exec)\b).*"),
    "strategy": re.compile(_STRATEGY),
    "strategy_opts": re.compile(rf"(?:\s|'--{_OPTION}'|--{_OPTION}(?!\S))*"),
    "opts": re.compile(
        rf"\s*(?:\[options\]|strategy\s*=\s*{_STRATEGY}|strategy-option\s*=\s*{_OPTION}"
        r"|(?:mainline|default-msg-cleanup|gpg-sign|(?:no-commit|edit|signoff|record-origin"
        r"|allow-(?:ff|empty|empty-message|rerere-auto)|(?:keep|drop)-redundant-commits))"
        r"\s*=\s*[\w@.+]*)?\s*"
    ),
    "apply-opt": re.compile(
        r"(?:\s|'(?:-[Cp]\d+|--(?:whitespace=[\w-]+|ignore-(?:whitespace|space-change)|reject))')*"
    ),
    "gpg_sign_opt": re.compile(r"(?:-S[\w@.+]*|--no-gpg-sign)?"),
    "MERGE_RR": re.compile(r"[0-9a-f]{40,64}(?:\.\d+)?\t(?!/|(?:.*/)?\.\.(?:/|\Z)).+"),
    "BISECT_NAMES": re.compile(r"(?:\s|'[^']*'|\\['!])*"),
}
"""Files that git makes, and the lines in them that run nothing; where `worktree` leads is for
the guard to see."""


def are_harmless(lines: Collection[str], harmless: re.Pattern[str]) -> bool:
    """Tell whether there is nothing to run in lines, nor so many that it takes long to see."""
    return len(lines) <= _LINES and all(
        len(line) <= _LONGEST_LINE and "\0" not in line and harmless.fullmatch(line)
        for line in lines
    )


def kind(path: str) -> int:
    """Return what is at a path, a link for itself; 0 for nothing, or nothing to be seen."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return 0


def text_of(path: str | Path) -> str:
    """Return what a regular file begins with; of anything else nothing, and without waiting."""
    try:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(at).st_mode):
            return ""
        again = os.open(f"/proc/self/fd/{at}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(again, "rb") as file:
            return os.fsdecode(file.read(LONGEST_CONFIG)).replace("\0", "\n")
    except OSError:
        return ""
    finally:
        os.close(at)


def git_of(path: Path) -> Path:
    """Return where the directory of git is for which a `.git` stands: itself, or named in it."""
    pointed = text_of(path).removeprefix("gitdir:").strip()
    return Path(os.path.realpath(path.parent / pointed if pointed else path))


def common_of(git: Path) -> Path:
    """Return the directory of git whose settings and hooks count in one: itself, mostly."""
    said = text_of(git / "commondir").strip()
    return Path(os.path.realpath(git / said)) if said else git


def work_trees(text: str) -> list[str]:
    """Return where settings say that the work tree is."""
    return [_said(value) for _, key, value in _settings(text) if key == "worktree"]


def remotes(text: str) -> list[str]:
    """Return the remotes that settings name by a path of this machine."""
    named = (_said(value) for _, key, value in _settings(text) if key in _OF_REMOTES)
    return [value.removeprefix("file://") for value in named if not _ELSEWHERE.match(value)]


def way(path: str | Path, project: Path) -> Iterator[str]:
    """Return links on the way to something, and what it is, as far as they are in the project."""
    ahead, at, followed = str(path).split("/")[::-1], "", 0
    while ahead:
        part = ahead.pop()
        above, at = at, at if part in {"", "."} else f"{at}/{part}"
        if part == "..":
            at = above.rpartition("/")[0]
        elif at != above and followed < _FOLLOWED and kind(at) == stat.S_IFLNK:
            followed += 1
            if at.startswith(f"{project}/"):
                yield at
            with contextlib.suppress(OSError):
                target = str(Path(at).readlink())
                ahead += target.split("/")[::-1]
                at = "" if target.startswith("/") else above
    if at.startswith(f"{project}/"):
        yield at


def named_in(
    config: Path,
    project: Path,
    home: Path,
    trees: Collection[Path],
    only: str = "",
    seen: set[str] | None = None,
) -> Iterator[str]:
    """Return what settings of git name in the project: hooks, includes, filters.

    Git reads names relative to the file, or to the work tree that it is about.
    """
    seen = set() if seen is None else seen
    text = "" if os.path.realpath(config) in seen or len(seen) >= _INCLUDED else text_of(config)
    seen.update((os.path.realpath(config),) if text else ())
    for line, key, value in _settings(text):
        if key == "worktree" or not (only in key or key == "path"):
            continue
        if are_harmless((line,), _HARMLESS_SETTING):
            continue
        own = f"{config.parent}/" if config.name == "config" and "path" not in key else "\0"
        for word in islice(dict.fromkeys(_words(value)), _WORDS):
            full = os.fspath(home) + word[1:] if word.startswith("~/") else word
            for base in dict.fromkeys((*trees, config.parent)):
                yield from (at for at in way(base / full, project) if not at.startswith(own))
            if key == "path":
                yield from named_in(config.parent / full, project, home, trees, only, seen)


def _settings(text: str) -> Iterator[tuple[str, str, str]]:
    """Return lines with a value, its name without the section, and the value."""
    plain = text.replace("\r\n", "\n")
    joined = plain.replace("\\\n", "")  # a comment does not go on in the next line
    for line in dict.fromkeys((*plain.splitlines(), *joined.splitlines())):
        begins = _SECTIONS.match(line[: 2 * _LONGEST_LINE])
        key, equals, value = line[begins.end() if begins else 0 : 2 * _LONGEST_LINE].partition("=")
        if equals and not key.lstrip().startswith(("#", ";")):
            yield line, key.strip().lower(), value


def _words(value: str) -> Iterator[str]:
    """Return what may be a path in a value: all of it, or words as a shell reads them."""
    said = _said(value)
    yield said
    for command in dict.fromkeys((value, said)):
        yield from re.findall(r"[^\s\"';&|]+", command)
        shell = shlex.shlex(command, posix=True, punctuation_chars=True)
        shell.whitespace_split, shell.commenters = True, ""
        with contextlib.suppress(ValueError):  # a quote without an end
            yield from shell


def _said(value: str) -> str:
    """Return a value as git reads it: without quotes and what is a comment."""
    said, quoted = "", False
    letters = iter(value.strip())
    for letter in letters:
        if letter == '"':
            quoted = not quoted
        elif letter in "#;" and not quoted:
            break
        else:
            said += next(letters, "") if letter == "\\" else letter
    return said.strip()
