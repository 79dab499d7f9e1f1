"""Which paths a command writes, judged by its name and arguments."""

import re
from collections.abc import Callable, Iterator

from hermes.execution.policy.calls import Call

__all__ = ["written_paths"]

_SILENT = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/\d+|zero|full|tcp/|udp/)")


def written_paths(call: Call) -> Iterator[str]:
    """Yield every path that `call` creates, changes or replaces."""
    for path in call.writes:
        if not _SILENT.match(path):
            yield path
    target = _TARGETS.get(call.name)
    if target is not None:
        for path in target(call):
            if path and not _SILENT.match(path):
                yield path


def _operands(call: Call) -> Iterator[str]:
    yield from call.operands()


def _last(call: Call) -> Iterator[str]:
    directory = list(call.values_of("-t", "--target-directory"))
    if directory:
        yield from directory
        return
    operands = call.operands()
    if len(operands) > 1:
        yield operands[-1]
        if call.name in {"mv", "cp", "install", "ln"}:
            # Into a directory: the file keeps its name there.
            yield from (
                operands[-1].rstrip("/") + "/" + o.rstrip("/").rsplit("/", 1)[-1]
                for o in operands[:-1]
            )
    elif call.name == "ln" and operands:
        yield operands[0].rsplit("/", 1)[-1]
    if call.name == "mv":
        yield from operands[:-1]


def _in_place(call: Call) -> Iterator[str]:
    inplace = any(re.match(r"-[a-zA-Z]*i", a) or a.startswith("--in-place") for a in call.args)
    script = call.values_of("-e", "-f", "--expression")
    operands = call.operands()
    if inplace:
        yield from operands if list(script) else (operands[1:] or operands)
    for text in (*call.values_of("-e", "--expression"), *operands[:1]):
        match = re.search(r"(?:^|[;}\d$/gp])\s*[wW]\s+(/?\S+)", text)
        if call.name in {"sed", "gsed"} and match is not None:
            yield match.group(1)


def _dd(call: Call) -> Iterator[str]:
    yield from (a[3:] for a in call.args if a.startswith("of="))


def _tar(call: Call) -> Iterator[str]:
    first = call.args[0] if call.args else ""
    extracts = (
        "x" in call.letters() or call.has_long("extract")
        or (not first.startswith("-") and "x" in first.split("=")[0][:6] and "/" not in first)
    )  # fmt: skip
    if extracts:
        yield from call.values_of("-C", "--directory")
        if "P" in call.letters() or "P" in first.split("=")[0] or call.has_long("absolute-names"):
            yield "/"
    elif "c" in call.letters() or (not first.startswith("-") and "c" in first[:6]):
        operands = call.operands()
        yield from call.values_of("-f", "--file")
        for index, arg in enumerate(call.args[:-1]):
            if re.match(r"-?[a-zA-Z]*f$", arg):
                yield call.args[index + 1]
        del operands


def _curl(call: Call) -> Iterator[str]:
    if call.name in {"wget", "wget2"}:
        yield from call.values_of("-O", "-P", "-o", "--output-document", "--directory-prefix")
    else:
        yield from call.values_of("-o", "--output", "--output-dir", "-D", "-c", "--cookie-jar")


def _unzip(call: Call) -> Iterator[str]:
    yield from call.values_of("-d")


def _truncate(call: Call) -> Iterator[str]:
    sizes = set(call.values_of("-s", "--size", "-r", "--reference"))
    yield from (o for o in call.operands() if o not in sizes)


def _rsync(call: Call) -> Iterator[str]:
    operands = call.operands()
    if len(operands) > 1 and ":" not in operands[-1].split("/")[0]:
        yield operands[-1]


def _git(call: Call) -> Iterator[str]:
    operands = call.operands()
    if operands[:1] in (["clone"], ["init"], ["worktree"]) and len(operands) > 2:
        yield operands[-1]


def _patch(call: Call) -> Iterator[str]:
    yield from call.values_of("-o", "--output", "-d", "--directory")
    yield from call.operands()[:1]


def _editor_scripts(call: Call) -> Iterator[str]:
    for command in [*call.values_of("-c", "--cmd"), *(a[1:] for a in call.args if a[:1] == "+")]:
        if re.search(r"\b(?:wq?|x|s/|g/|normal|%s|d)\b|%s|wq", command):
            yield from call.operands()
    if call.source != "none":
        yield from call.operands()[:1]
        for match in re.finditer(r"^\s*[wW]q?\s+(\S+)", call.stdin or "", re.MULTILINE):
            yield match.group(1)


def _xattr(call: Call) -> Iterator[str]:
    yield from call.operands()[-1:]


def _sort(call: Call) -> Iterator[str]:
    yield from call.values_of("-o", "--output")


_TARGETS: dict[str, Callable[[Call], Iterator[str]]] = {
    "tee": _operands,
    "sponge": _operands,
    "touch": _operands,
    "mkfifo": _operands,
    "mknod": _operands,
    "shred": _operands,
    "truncate": _truncate,
    "fallocate": _operands,
    "cp": _last,
    "gcp": _last,
    "mv": _last,
    "install": _last,
    "ln": _last,
    "link": _last,
    "scp": _rsync,
    "rsync": _rsync,
    "sed": _in_place,
    "gsed": _in_place,
    "perl": _in_place,
    "ruby": _in_place,
    "awk": _in_place,
    "gawk": _in_place,
    "dd": _dd,
    "dcfldd": _dd,
    "tar": _tar,
    "bsdtar": _tar,
    "unzip": _unzip,
    "7z": _unzip,
    "curl": _curl,
    "wget": _curl,
    "wget2": _curl,
    "rm": _operands,
    "unlink": _operands,
    "rmdir": _operands,
    "mkdir": _operands,
    "git": _git,
    "patch": _patch,
    "ed": _editor_scripts,
    "ex": _editor_scripts,
    "vi": _editor_scripts,
    "vim": _editor_scripts,
    "nvim": _editor_scripts,
    "chattr": _xattr,
    "setfacl": _xattr,
    "chmod": _xattr,
    "chown": _xattr,
    "chgrp": _xattr,
    "sort": _sort,
    "badblocks": _operands,
    "sgdisk": _operands,
    "hexedit": _operands,
    "xxd": lambda call: iter(call.operands()[1:]),
    "openssl": lambda call: call.values_of("-out"),
    "gpg": lambda call: call.values_of("-o", "--output"),
    "objcopy": _last,
    "split": lambda call: iter(call.operands()[1:]),
    "pv": lambda call: call.values_of("-o", "--output"),
    "defaults": lambda call: iter(call.operands()[1:2] if call.line.startswith("write") else ()),
    "Set-Content": _operands,
    "Out-File": _operands,
}
