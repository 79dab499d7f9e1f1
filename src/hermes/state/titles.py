"""Titles and previews, made from text of unknown quality."""

import re
import unicodedata

from hermes.domain.errors import UsageError

MAX_TITLE = 100
PREVIEW_CHARS = 80

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def clean_title(title: str) -> str:
    """Return `title` as one short line of visible characters."""
    spaced = re.sub(r"\s+", " ", title)
    visible = "".join(c for c in spaced if unicodedata.category(c) not in _UNSEEN)
    cleaned = re.sub(r" +", " ", visible).strip()[:MAX_TITLE].rstrip()
    if not cleaned:
        raise UsageError(
            "A title needs at least one visible character.",
            hint="Give the session a name of 1 to 100 characters.",
        )
    return cleaned


def title_scope(source: str, user_id: str | None) -> str:
    """Return within what a title is unique: the sessions of one API key, or all others.

    A key must not learn from a refusal or a number what others call theirs.
    """
    return (user_id or "") if source == "api_server" else ""


def numbered(title: str, number: int) -> str:
    """Return the continuation title `title #number`, within the length limit."""
    suffix = f" #{number}"
    return title[: MAX_TITLE - len(suffix)].rstrip() + suffix


def preview(text: str) -> str:
    """Return the beginning of `text` on one line."""
    return " ".join(text[: PREVIEW_CHARS * 4].split())[:PREVIEW_CHARS]
