"""What harmless commands print, when that is known without running them."""

import base64
import binascii
import posixpath
from collections.abc import Callable

from hermes.execution.policy.calls import Call
from hermes.execution.policy.escapes import decode_escapes, render_printf
from hermes.execution.policy.scope import is_unknown

__all__ = ["static_output"]


def static_output(call: Call) -> str | None:
    """Return what `call` prints, or None if only running it would tell."""
    printer = _PRINTERS.get(call.name)
    if printer is None or call.writes:
        return None
    text = printer(call)
    return None if text is None or len(text) > 65_536 else text


def _echo(call: Call) -> str | None:
    words = list(call.args)
    escapes = False
    newline = "\n"
    while words and words[0][:1] == "-" and words[0][1:] and set(words[0][1:]) <= set("neE"):
        option = words.pop(0)
        escapes = "e" in option
        newline = "" if "n" in option else newline
    text = " ".join(words)
    return (decode_escapes(text) if escapes else text) + newline


def _printf(call: Call) -> str | None:
    words = list(call.args)
    if words[:1] == ["-v"]:
        return None
    if words[:1] == ["--"]:
        words.pop(0)
    return render_printf(words[0], words[1:]) if words else None


def _cat(call: Call) -> str | None:
    return call.stdin if set(call.args) <= {"-", "-u"} else None


def _base64(call: Call) -> str | None:
    decodes = bool(call.letters() & {"d", "D"}) or call.has_long("decode")
    if call.stdin is None or not decodes or is_unknown(call.stdin):
        return None
    try:
        return base64.b64decode("".join(call.stdin.split())).decode()
    except (binascii.Error, ValueError):
        return None


def _xxd(call: Call) -> str | None:
    if call.stdin is None or not {"r", "p"} <= call.letters():
        return None
    try:
        return bytes.fromhex("".join(call.stdin.split())).decode()
    except ValueError:
        return None


def _rev(call: Call) -> str | None:
    if call.stdin is None or call.args or is_unknown(call.stdin):
        return None
    return "\n".join(line[::-1] for line in call.stdin.split("\n"))


def _tr(call: Call) -> str | None:
    if call.stdin is None or is_unknown(call.stdin) or len(call.args) != 2:
        return None
    first, second = (_ranges(arg) for arg in call.args)
    if call.args[0] == "-d":
        return "".join(c for c in call.stdin if c not in second)
    if not first or not second or call.args[0].startswith("-"):
        return None
    second += second[-1] * (len(first) - len(second))
    return call.stdin.translate(str.maketrans(first, second[: len(first)]))


def _ranges(text: str) -> str:
    out = ""
    index = 0
    while index < len(text):
        if index + 2 < len(text) and text[index + 1] == "-":
            out += "".join(map(chr, range(ord(text[index]), ord(text[index + 2]) + 1)))
            index += 3
        else:
            out += text[index]
            index += 1
    return out[:512]


def _which(call: Call) -> str | None:
    operands = call.operands()
    if len(operands) != 1 or (call.name == "command" and not call.letters() & {"v", "V"}):
        return None
    return operands[0] + "\n"


def _basename(call: Call) -> str | None:
    operands = call.operands()
    if len(operands) != 1 or is_unknown(operands[0]):
        return None
    change = posixpath.basename if call.name == "basename" else posixpath.dirname
    return (change(operands[0].rstrip("/")) or ".") + "\n"


def _mktemp(_call: Call) -> str | None:
    return "/tmp/tmp.made\n"  # noqa: S108


def _nothing(call: Call) -> str | None:
    return None if call.reads or call.assigns else ""


def _pwd(call: Call) -> str | None:
    return None if call.cwd is None else call.cwd + "\n"


_PRINTERS: dict[str, Callable[[Call], str | None]] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "base64": _base64,
    "xxd": _xxd,
    "rev": _rev,
    "tr": _tr,
    "which": _which,
    "command": _which,
    "basename": _basename,
    "dirname": _basename,
    "mktemp": _mktemp,
    "pwd": _pwd,
    "true": _nothing,
    "false": _nothing,
    ":": _nothing,
}
