"""Secrets in text that comes in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.cpu import least_cpu
from hermes.config.secrets import RedactedStream, Redactor, Secrets

VALUES = {
    "A_TOKEN": "correct-horse-battery",
    "B_TOKEN": "correct-horse-battery-staple",
    "C_TOKEN": "horsehorse",
}
REDACTOR = Redactor(Secrets(VALUES))
SHAPED = "sk-abcdefghijklmnop0123456789ABCDEF"
BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"

PIECES = st.lists(
    st.sampled_from([*VALUES.values(), SHAPED, BLOCK, "corr", "correct", "horse", "sk-", " "])
    | st.text("correct-hsab \n", max_size=12),
    max_size=8,
)


def streamed(text: str, cuts: list[int]) -> list[str]:
    """Return what a stream shows when `text` comes in pieces that end at `cuts`."""
    stream = RedactedStream(REDACTOR)
    ends = [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    begins = [0, *ends[:-1]]
    shown = [stream.feed(text[a:b]) for a, b in zip(begins, ends, strict=True)]
    return [*shown, stream.flush()]


@given(PIECES, st.lists(st.integers(0, 400), max_size=30))
def test_no_secret_is_shown_however_the_text_is_cut(pieces: list[str], cuts: list[int]) -> None:
    text = " ".join(pieces)
    shown = "".join(streamed(text, cuts))
    for secret in (*VALUES.values(), SHAPED, "MIIE"):
        assert secret not in shown


@given(st.text("abc defg.", max_size=80), st.lists(st.integers(0, 80), max_size=20))
def test_ordinary_text_is_never_held_up(text: str, cuts: list[int]) -> None:
    shown = streamed(text, cuts)
    assert "".join(shown) == text
    assert shown[-1] == ""


@pytest.mark.parametrize("secret", [*VALUES.values(), SHAPED, BLOCK])
def test_a_secret_that_comes_letter_by_letter_is_replaced(secret: str) -> None:
    stream = RedactedStream(REDACTOR)
    said = "It is " + secret + ", keep it."
    shown = "".join([stream.feed(letter) for letter in said]) + stream.flush()
    assert secret not in shown
    assert "***" in shown
    assert shown.endswith(", keep it.")


def test_what_only_begins_like_a_secret_comes_out_after_all() -> None:
    stream = RedactedStream(REDACTOR)
    assert stream.feed("a correct") == "a "
    assert stream.feed(" answer") == "correct answer"
    assert stream.feed(" corr") == " "
    assert stream.flush() == "corr"


def test_a_key_that_never_ends_is_waited_for_at_the_price_of_its_length() -> None:
    def show(size: int) -> None:
        stream = RedactedStream(REDACTOR)
        stream.feed(BLOCK[:32])
        for _ in range(size):
            stream.feed("a")

    assert least_cpu(lambda: show(16_000)) < 24 * least_cpu(lambda: show(2000))


def test_a_key_that_is_longer_than_any_comes_out_after_all() -> None:
    stream, said = RedactedStream(REDACTOR), BLOCK[:32] + "a b" * 6000
    shown = [stream.feed(letter) for letter in said]
    assert "".join(shown[10:10_000]) == ""
    assert "".join(shown) + stream.flush() == said


def test_a_text_that_starts_over_forgets_what_waited() -> None:
    stream = RedactedStream(REDACTOR)
    stream.feed("correct-horse")
    stream.clear()
    assert stream.feed("new") == "new"
    assert stream.flush() == ""
