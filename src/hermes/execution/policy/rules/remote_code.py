"""Code that nobody has seen: downloaded, decoded or computed, then run."""

import re
from collections.abc import Iterator

from hermes.execution.policy.calls import Call, Danger, Ground, Source
from hermes.execution.policy.inner import SHELLS
from hermes.execution.policy.scope import is_unknown
from hermes.execution.policy.unwrap import shell_code
from hermes.execution.policy.vocabulary import words

__all__ = ["check"]

_FETCHERS = words(
    "curl wget wget2 fetch http https xh aria2c lynx w3m links nc ncat netcat socat ftp iwr irm "
    "Invoke-WebRequest scp rsync ssh gh telnet dig nslookup lwp-request GET"
)
_DECODERS = words(
    "base64 base32 xxd openssl gunzip zcat gzip bunzip2 bzcat unxz xzcat xz rev tr uudecode od gpg "
    "zstd zstdcat uncompress basenc ascii85 jq sed awk perl python python3 tac fold cut paste"
)
_HOOKS = words(
    "ssh-agent direnv pyenv rbenv nodenv jenv goenv brew starship conda mamba micromamba zoxide "
    "fnm "
    "dircolors kubectl helm pip pipenv poetry register-python-argcomplete fzf mise asdf rustup gh "
    "docker thefuck atuin mcfly keychain gpg-connect-agent lesspipe opam luarocks npm uv hermes "
    "resize tput stty getopt"
)
_SCRIPTED = frozenset({"make", "gmake", "awk", "gawk", "sed", "crontab", "at", "psql", "mysql"})
_INTERPRETERS = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|perl|ruby|node|nodejs|php|lua|osascript|tclsh|deno|bun|Rscript|"
    r"powershell|pwsh|iex|Invoke-Expression)$"
)


def check(call: Call, _ground: Ground) -> Iterator[Danger]:
    """Yield dangers of running code from elsewhere."""
    if call.name in SHELLS or call.name in {"source", ".", "eval"}:
        yield from _shell(call)
    elif _INTERPRETERS.match(call.name):
        yield from _interpreter(call)
    elif call.name in {"at", "batch", "crontab"} and call.source is not Source.NONE:
        yield Danger("schedule", "it schedules commands", call.name)
    elif call.name == "make" and _piped(call) and re.search(r"-f\s*(?:-|/dev/)", call.line):
        yield Danger("remote-code", "it runs a makefile from a pipe", "| make")
    if call.name in _SCRIPTED and call.inner and "/dev/fd/63" in call.line:
        yield _danger(call.inner, call.name)
    if call.name in {"xargs", "parallel"} and _piped(call):
        inner = [a for a in call.operands() if a.rsplit("/", 1)[-1] in SHELLS]
        if inner and call.stdin is None:
            yield _danger(call.upstream, "shell")


def _piped(call: Call) -> bool:
    return call.source is Source.PIPE


def _danger(sources: tuple[Call, ...], runner: str) -> Danger:
    names = {c.name for c in sources}
    fetchers = sorted(names & _FETCHERS)
    if fetchers:
        return Danger("remote-code", "it runs code straight from the network", "curl | sh")
    decoders = sorted(names & _DECODERS)
    if decoders:
        return Danger("remote-code", f"it decodes and runs hidden code ({decoders[0]})")
    return Danger("remote-code", f"the {runner} runs code that nobody can see beforehand")


def _shell(call: Call) -> Iterator[Danger]:
    inner = tuple(c for c in call.inner if c.name != ":")
    if _is_hook(call, inner):
        return
    if any(c.name in _FETCHERS | {"base64", "xxd", "openssl"} for c in inner):
        yield _danger(inner, "shell")
    elif _hidden_code(call):
        yield _danger(inner or call.upstream, "shell")


def _hidden_code(call: Call) -> bool:
    """Return whether a shell would run something that is not known."""
    code = shell_code(call) if call.name in SHELLS else None
    if call.name == "eval":
        return _computed_text(" ".join(call.args))
    if code is not None:
        decoded = {c.name for c in call.upstream} & _DECODERS - {"tr", "sed", "awk"}
        return _computed_text(code.text) or (_piped(call) and bool(decoded))
    if any(a.startswith("/dev/fd/63") for a in (*call.args, *call.reads)):
        return True
    if _reads_input(call) and _piped(call):
        return True
    return bool(call.operands()) and is_unknown(call.operands()[0]) and bool(call.inner)


def _reads_input(call: Call) -> bool:
    if call.name in {"source", "."}:
        return call.args[:1] in (("/dev/stdin",), ("-",), ("/dev/fd/0",))
    return not call.operands() or "s" in call.letters() or call.operands()[0] in {"-", "/dev/stdin"}


def _computed_text(text: str) -> bool:
    """Return whether a script begins with something that is not known."""
    return any(is_unknown(piece.strip()[:1]) for piece in re.split(r"[;&|\n]+", text))


def _is_hook(call: Call, inner: tuple[Call, ...]) -> bool:
    """Return whether it only loads the shell settings that a well-known tool prints."""
    names = {c.name for c in inner if c.via.count("$(") == call.via.count("$(") + 1}
    return bool(names) and names <= _HOOKS


def _interpreter(call: Call) -> Iterator[Danger]:
    has_code = any(
        re.match(r"-[a-zA-Z]*[ceEr]$", a) or a in {"-m", "--eval", "eval"} for a in call.args
    )
    operands = call.operands()
    reads = not operands or operands[0] in {"-", "/dev/stdin"}
    if _piped(call) and reads and not has_code and call.stdin is None:
        yield _danger(call.upstream, call.name)
    fetched = tuple(c for c in call.inner if c.name in _FETCHERS)
    if fetched and (has_code or any("/dev/fd/63" in a for a in call.args)):
        yield _danger(fetched, call.name)
    codes = [
        a for i, a in enumerate(call.args) if i and re.match(r"-[a-zA-Z]*[ceE]$", call.args[i - 1])
    ]
    if any(is_unknown(c[:1]) and len(c) == 1 for c in codes):
        yield _danger(call.inner, call.name)
