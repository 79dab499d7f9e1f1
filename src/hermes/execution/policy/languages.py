"""Interpreters of other languages, and where their code stands."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Source
from hermes.execution.policy.inner import SHELLS, CodeText, Inner

__all__ = ["language_of", "programs"]

_LANGUAGES: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (re.compile(r"(?:python|pypy|micropython|ipython)[\d.]*$"), "python", ("-c",)),
    (re.compile(r"perl[\d.]*$"), "perl", ("-e", "-E")),
    (re.compile(r"(?:ruby|jruby)[\d.]*$"), "ruby", ("-e",)),
    (re.compile(r"(?:node|nodejs|bun|deno)$"), "node", ("-e", "-p", "--eval", "--print", "eval")),
    (re.compile(r"php[\d.]*$"), "php", ("-r", "-B", "-R", "-E")),
    (re.compile(r"(?:lua|luajit|texlua)[\d.]*$"), "lua", ("-e",)),
    (re.compile(r"[gmn]?awk$|busybox-awk$"), "awk", ()),
    (re.compile(r"(?:tclsh|expect|wish)[\d.]*$"), "tcl", ("-c",)),
    (re.compile(r"(?:Rscript|R)$"), "r", ("-e",)),
    (re.compile(r"osascript$"), "osascript", ("-e",)),
    (re.compile(r"(?:powershell|pwsh)(?:\.exe)?$", re.IGNORECASE), "powershell",
     ("-Command", "-command", "-c", "-C", "/c", "-EncodedCommand", "-enc", "-e", "-ec")),
    (re.compile(r"(?:guile|emacs|sbcl|ghci|ghc|julia|groovy|scala|elixir|erl)$"), "other",
     ("-e", "-c", "--eval", "-eval", "-E")),
)  # fmt: skip


def language_of(call: Call) -> str:
    """Return the language of the files that `call` runs, or nothing."""
    if call.name in SHELLS or call.name in {"source", "."}:
        return "shell"
    for names, language, _ in _LANGUAGES:
        if names.match(call.name) and language != "awk":
            return language
    return ""


def programs(call: Call) -> Iterator[Inner]:
    """Yield the programs that an interpreter is given."""
    for names, language, options in _LANGUAGES:
        if not names.match(call.name):
            continue
        if language == "awk":
            operands = call.operands()
            yield from (CodeText("awk", operand) for operand in operands[:2])
            return
        codes = list(call.values_of(*options))
        codes += [
            call.args[i + 1]
            for i, a in enumerate(call.args[:-1])
            if re.match(r"-[A-Za-z0-9]{1,6}$", a) and a[-1] in "ceE" and a not in options
        ]
        yield from (CodeText(language, code) for code in codes)
        # Powershell runs its operands; every other one names a file there.
        if language == "powershell" and not codes:
            yield CodeText(language, " ".join(call.args))
        if not codes and call.source is not Source.NONE and call.stdin is not None:
            yield CodeText(language, call.stdin)
