"""Files that a reply names, taken out of its text.

`MEDIA:/abs/path` (on a line of its own also a relative one), Markdown images with a local path,
and the two tags that say how to send them. Code blocks are left alone. While a reply streams, a
tag that has only half arrived is held back, so it never flashes up in a message.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec import Struct

from hermes.streaming.markup.scan import Fence, open_fence

_AS_VOICE, _AS_DOCUMENT = "[[audio_as_voice]]", "[[as_document]]"
_WHOLE_LINE = re.compile(
    r"""[ \t]*(?:[-*+][ \t]+)?[`*_]{0,3}MEDIA:[ \t]*["'`]?(?:file://)?"""
    r"""(?P<path>(?:/|~/)(?:(?!MEDIA:)[^"'`\n])*?\.\w{1,8}|(?:\./)?[\w-][^\s"'`:*]*\.\w{1,8})"""
    r"""["'`]?[`*_]{0,3}[.,;]?[ \t]*$"""
)
_INLINE = re.compile(
    r"""\[\[(?P<tag>audio_as_voice|as_document)\]\]
    |!\[[^\]\n]{0,300}\]\(<?(?:file://)?(?P<image>(?:/(?!/)|~/)[^)>\n]{0,500}?)>?\)
    |(?<![\w`/])MEDIA:(?:"(?P<quoted>(?:/|~/)[^"\n]+)"
        |(?:file://)?(?P<path>(?:/|~/)[^\s"'`)\]]+?)(?=[.,;:!?*_]*(?:[\s"'`)\]]|$)))""",
    re.VERBOSE,
)
_HALF = re.compile(
    r"(?<![\w/])MEDIA:[^\n]*$|!(?:\[[^\]\n]*(?:\](?:\([^)\n]*)?)?)?$|\[\[?[a-z_]*\]?$"
)
_HALF_WORD = re.compile(r"(?<![\w/])(?:M|ME|MED|MEDI|MEDIA)$")
_BEFORE_TAG = " \t-*+`_.,;:"
_LONGEST_HALF = 500
_LONGEST_START = 1000
"""Characters of a line that may be told later, because it may yet be nothing but tags."""
_KINDS = {
    "image": "png jpg jpeg gif webp bmp",
    "voice": "ogg oga opus",
    "audio": "mp3 m4a wav flac aac",
    "video": "mp4 mov mkv webm avi",
}


class MediaRef(Struct, frozen=True, kw_only=True):
    path: str
    kind: str
    """image, voice, audio, video or document."""


class Extracted(Struct, frozen=True, kw_only=True):
    text: str
    media: tuple[MediaRef, ...] = ()


def kind_of(path: str, *, voice: bool = False, document: bool = False) -> str:
    suffix = PurePosixPath(path).suffix.lower().lstrip(".")
    if document:
        return "document"
    for kind, suffixes in _KINDS.items():
        if suffix in suffixes.split():
            return "voice" if voice and kind == "audio" else kind
    return "document"


def extract(text: str, *, complete: bool) -> Extracted:
    """Take the files out of `text`; unless it is `complete`, hold back a half tag at its end."""
    last_line = text[text.rfind("\n") + 1 :]
    certain = complete or last_line.strip(_BEFORE_TAG)
    if certain and not any(sign in text for sign in ("M", "[", "!")):
        return Extracted(text=text)
    paths: list[str] = []
    kept = "".join(_kept(text, paths, complete=complete))
    media = tuple(
        MediaRef(
            path=path,
            kind=kind_of(path, voice=_AS_VOICE in text, document=_AS_DOCUMENT in text),
        )
        for path in dict.fromkeys(paths)
    )
    return Extracted(text=kept, media=media)


def _kept(text: str, paths: list[str], *, complete: bool) -> Iterator[str]:
    fence: Fence | None = None
    lines = text.split("\n")
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        end = "" if last else "\n"
        if fence is not None:
            fence = None if fence.closed_by(line) else fence
            yield line + end
            continue
        fence = open_fence(line)
        if last and not complete:
            line = line[: _certain(line)]  # noqa: PLW2901 (the rest is not certain yet)
        kept = _line(line, paths)
        if kept is None:
            continue
        yield kept + end


def _line(line: str, paths: list[str] | None = None) -> str | None:
    """Return what is left of `line`; None if it was nothing but tags."""
    paths = [] if paths is None else paths
    whole = _WHOLE_LINE.match(line)
    if whole is not None:
        paths.append(whole["path"].strip())
        return None
    tags = list(_tags(line))
    for found in tags:
        path = found["image"] or found["quoted"] or found["path"]
        if path:
            paths.append(path.strip())
    kept = _without_tags(line) if tags else line
    return kept if kept.strip(_BEFORE_TAG) or not tags else None


def _without_tags(line: str, at: int = 0) -> str:
    """Return what stands behind `at` and between the tags there."""
    kept = []
    for found in _tags(line, at):
        kept.append(line[at : found.start()])
        at = found.end()
    return "".join((*kept, line[at:]))


def _certain(line: str) -> int:
    """Return up to where `line` cannot become part of a tag any more."""
    if not line.strip(_BEFORE_TAG):
        return 0
    at = _certain_after(line)
    return at if line[:at].strip(_BEFORE_TAG) else 0


def _outside_of_tags(line: str, at: int) -> int:
    """Return `at`, or where the complete tag begins that it lies in."""
    return min([at, *(tag.start() for tag in _tags(line) if tag.end() > at)])


def _tags(line: str, at: int = 0) -> Iterator[re.Match[str]]:
    """Find the tags behind `at`; without the end of one there is none to look for."""
    ends = any(sign in line for sign in (")", "]]", "MEDIA:"))
    return _INLINE.finditer(line, at) if ends else iter(())


class MediaStream:
    """Takes the files out of a text that grows; what was told of it is not looked at again.

    Feeding a text in pieces tells a beginning of what `extract` makes of the whole.
    """

    def __init__(self) -> None:
        self._fence: Fence | None = None
        self._start = ""
        """The beginning of the line: whether it opens or closes a block of code."""
        self._held = ""
        """What has not been told of the line."""
        self._before = ""
        """The character in front of it, where some of the line has been told."""

    def feed(self, text: str) -> str:
        """Return what can be told now that `text` has come."""
        if "\n" not in text:
            return self._grow(text)
        *ends, last = text.split("\n")
        return "".join([*map(self._end, ends), self._grow(last)])

    def _grow(self, text: str) -> str:
        if len(self._start) < _LONGEST_START:
            self._start += text
        if self._fence is not None or not text:
            return text
        if self._before and not self._held and not any(sign in text for sign in "M[!"):
            self._before = text[-1]
            return text
        self._held += text
        line = self._before + self._held
        if self._before or len(line) > _LONGEST_START:
            at = _certain_after(line)
        else:
            at = _certain(line)
            if _line(line[:at]) is None:
                return ""
        kept = _without_tags(line[:at], len(self._before))
        self._held = line[at:]
        self._before = line[at - 1 : at]
        return kept

    def _end(self, text: str) -> str:
        """Return what is left of a line that ends with `text`."""
        told = self._grow(text)
        begun, fenced = bool(self._before), self._fence is not None
        rest = _without_tags(self._before + self._held, len(self._before))
        kept = rest if begun or fenced else _line(self._held)
        self._turn_page()
        return "" if kept is None else f"{told}{kept}\n"

    def _turn_page(self) -> None:
        line = self._start if len(self._start) < _LONGEST_START else ""
        if self._fence is None:
            self._fence = open_fence(line)
        elif self._fence.closed_by(line):
            self._fence = None
        self._start = self._held = self._before = ""


def _certain_after(line: str) -> int:
    """Return up to where a line of which something was told cannot become part of a tag."""
    for pattern in (_HALF, _HALF_WORD):
        found = pattern.search(line, max(0, len(line) - _LONGEST_HALF))
        if found is not None:
            return _outside_of_tags(line, found.start())
    return len(line)
