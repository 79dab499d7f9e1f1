"""Files named in a reply, silence, and reasoning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.streaming.chat.media import MediaRef, MediaStream, extract
from hermes.streaming.chat.reply import is_silent, quoted

PIECES = [
    "MEDIA:/tmp/a.png", "MEDIA:", "MED", "\n", " ", "text", "[[audio_as_voice]]", "[[", "]]",
    "![x](/tmp/b.jpg)", "![", "](", ")", "```\n", "[[as_document]]", "/tmp/c.mp3", "!", "`",
    "**", ".", ", ", "MEDIA:c.txt", "file://", "_",
]  # fmt: skip
replies = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@pytest.mark.parametrize(
    ("text", "kept", "paths"),
    [
        ("A\nMEDIA:/tmp/a.png\nB", "A\nB", ["/tmp/a.png"]),
        ("MEDIA:/tmp/my file.pdf", "", ["/tmp/my file.pdf"]),
        ("`MEDIA:/tmp/a.png`", "", ["/tmp/a.png"]),
        ("- MEDIA:~/a.png\n- b", "- b", ["~/a.png"]),
        ("See MEDIA:/tmp/a.png now", "See  now", ["/tmp/a.png"]),
        ("![cat](/tmp/c.png) there", " there", ["/tmp/c.png"]),
        ("![cat](file:///tmp/c.png)", "", ["/tmp/c.png"]),
        ("![cat](https://x.y/c.png)", "![cat](https://x.y/c.png)", []),
        ("```\nMEDIA:/tmp/a.png\n```", "```\nMEDIA:/tmp/a.png\n```", []),
        ("SOCIAL MEDIA: good", "SOCIAL MEDIA: good", []),
        ("MEDIA:/a.png\nMEDIA:/a.png", "", ["/a.png"]),
        ("**MEDIA:/tmp/a.png**", "", ["/tmp/a.png"]),
        ("MEDIA: `/tmp/a.png`", "", ["/tmp/a.png"]),
        ("MEDIA:/tmp/a.png.", "", ["/tmp/a.png"]),
        ("MEDIA:/tmp/a.png, MEDIA:/tmp/b.png", "", ["/tmp/a.png", "/tmp/b.png"]),
        ("Here: MEDIA:/tmp/a.png.", "Here: .", ["/tmp/a.png"]),
        ("MEDIA:file:///tmp/a.png", "", ["/tmp/a.png"]),
        ("MEDIA:out/a.png\nMEDIA:./b.png", "", ["out/a.png", "./b.png"]),
        ("MEDIA: see chapter 3.", "MEDIA: see chapter 3.", []),
        ("MEDIA:https://x.y/a.png", "MEDIA:https://x.y/a.png", []),
    ],
)
def test_files_are_taken_out_of_the_text(text: str, kept: str, paths: list[str]) -> None:
    found = extract(text, complete=True)
    assert (found.text.strip("\n"), [media.path for media in found.media]) == (kept, paths)


def test_tags_say_how_a_file_is_sent() -> None:
    voice = extract("[[audio_as_voice]]\nMEDIA:/a.mp3", complete=True)
    assert voice.media == (MediaRef(path="/a.mp3", kind="voice"),)
    assert voice.text.strip() == ""
    document = extract("[[as_document]]\nMEDIA:/a.png", complete=True)
    assert document.media == (MediaRef(path="/a.png", kind="document"),)
    kinds = {name: extract(f"MEDIA:/{name}", complete=True).media[0].kind
             for name in ("a.mp3", "a.ogg", "a.PNG", "a.mp4", "a.tar.gz")}  # fmt: skip
    assert kinds == {"a.mp3": "audio", "a.ogg": "voice", "a.PNG": "image", "a.mp4": "video",
                     "a.tar.gz": "document"}  # fmt: skip


@given(text=replies)
def test_a_tag_never_flashes_up_while_it_arrives(text: str) -> None:
    final = extract(text, complete=True).text
    before = ""
    for end in range(len(text) + 1):
        now = extract(text[:end], complete=False).text
        assert final.startswith(now.rstrip()), (text[:end], now)
        assert now.startswith(before.rstrip())
        before = now


@given(parts=st.lists(replies, max_size=6), fence=st.sampled_from(["", "```py\n", "~~~\n"]))
def test_a_text_that_grows_tells_what_the_whole_one_says(parts: list[str], fence: str) -> None:
    stream, told = MediaStream(), ""
    whole = extract(fence + "".join(parts), complete=True).text
    for part in (fence, *parts):
        told += stream.feed(part)
        assert whole.startswith(told)
    ended = extract(fence + "".join(parts) + "\n", complete=True).text
    assert told + stream.feed("\n") == ended


@given(text=st.text(st.sampled_from("abc \n.,!*")))
def test_text_without_tags_is_left_alone(text: str) -> None:
    assert extract(text, complete=True).text == text


def test_only_the_whole_reply_asks_for_silence() -> None:
    assert is_silent(" NO_REPLY\n")
    assert not is_silent("NO_REPLY needed")
    assert not is_silent("silent")
    assert is_silent("[SIL", begun=True)
    assert not is_silent("Now", begun=True)


def test_reasoning_is_a_quote_of_bounded_length() -> None:
    assert quoted("a\nb") == "> 💭 a\n> b"
    assert quoted(" ") == ""
    assert len(quoted("x" * 5000)) < 1520
