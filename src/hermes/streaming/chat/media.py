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


def _line(line: str, paths: list[str]) -> str | None:
    """Return what is left of `line`; None if it was nothing but tags."""
    whole = _WHOLE_LINE.match(line)
    if whole is not None:
        paths.append(whole["path"].strip())
        return None
    kept, at = "", 0
    for found in _INLINE.finditer(line):
        kept += line[at : found.start()]
        at = found.end()
        path = found["image"] or found["quoted"] or found["path"]
        if path:
            paths.append(path.strip())
    if at == 0:
        return line
    kept += line[at:]
    return kept if kept.strip(_BEFORE_TAG) else None


def _certain(line: str) -> int:
    """Return up to where `line` cannot become part of a tag any more."""
    if not line.strip(_BEFORE_TAG):
        return 0
    for pattern in (_HALF, _HALF_WORD):
        found = pattern.search(line, max(0, len(line) - _LONGEST_HALF))
        if found is not None:
            at = _outside_of_tags(line, found.start())
            return at if line[:at].strip(_BEFORE_TAG) else 0
    return len(line)


def _outside_of_tags(line: str, at: int) -> int:
    """Return `at`, or where the complete tag begins that it lies in."""
    return min([at, *(tag.start() for tag in _INLINE.finditer(line) if tag.end() > at)])
