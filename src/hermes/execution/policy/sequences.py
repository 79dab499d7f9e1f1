"""Dangers that only show in the order of commands: fetch or write a file, then run it."""

import posixpath
from collections.abc import Iterator, Sequence

from hermes.execution.policy.calls import Call, Danger, Ground
from hermes.execution.policy.inner import SHELLS
from hermes.execution.policy.places import absolute
from hermes.execution.policy.rules.exfiltration import NETWORK, reads_secret
from hermes.execution.policy.scope import COMPUTED
from hermes.execution.policy.targets import written_paths

__all__ = ["sequence_dangers"]

_FETCHERS = frozenset({"curl", "wget", "wget2", "aria2c", "scp", "fetch", "http", "rsync", "ftp"})
_INTERPRETERS = frozenset(
    {"source", ".", "python", "python3", "perl", "ruby", "node", "php", "make"}
)
_DECODERS = frozenset({"base64", "xxd", "openssl", "gunzip", "gzip", "tar", "unzip", "uudecode"})


def sequence_dangers(calls: Sequence[Call], ground: Ground) -> Iterator[Danger]:
    """Yield dangers of running what the same script has just made."""
    fetched: set[str] = set()
    executable: set[str] = set()
    secret = False
    for call in calls:
        if call.name == "chmod" and ("x" in call.line.split(" ")[0] or "7" in call.line[:4]):
            executable |= {_path(o, call) for o in call.operands()[1:]}
        ran = _runs(call)
        if ran and ran & fetched:
            yield Danger(
                "remote-code", "it runs a file that it has just downloaded", "download, run"
            )
        elif ran and ran & executable:
            yield Danger("remote-code", "it makes a file executable and runs it", "chmod +x, run")
        fetched |= set(_made(call))
        secret = secret or (bool(call.assigns) and any(reads_secret(c, ground) for c in call.inner))
        if secret and call.name in NETWORK and any(COMPUTED in a for a in call.args):
            yield Danger("exfiltration", "it sends secrets over the network")


def _path(text: str, call: Call) -> str:
    return absolute(text, call.cwd)


def _runs(call: Call) -> set[str]:
    if "/" in call.path:
        return {_path(call.path, call)}
    if call.name in SHELLS or call.name in _INTERPRETERS:
        return {_path(a, call) for a in (*call.operands(), *call.reads)}
    if call.path.startswith(".") or call.path == call.name:
        return set()
    return {_path(call.path, call)}


def _made(call: Call) -> Iterator[str]:
    chain = {call.name, *(u.name for u in call.upstream)}
    if not chain & (_FETCHERS | _DECODERS):
        return
    for path in written_paths(call):
        yield _path(path, call)
    remote_name = call.name == "wget" or "O" in call.letters() or "J" in call.letters()
    if call.name in _FETCHERS and remote_name:
        for operand in call.operands():
            if "/" in operand:
                yield _path(posixpath.basename(operand.split("?")[0]), call)
