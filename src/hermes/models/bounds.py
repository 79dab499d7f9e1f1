"""Bounds of an answer: how much of one is taken, whoever sends it.

What decodes an answer has the event loop to itself meanwhile, and what it keeps is kept several
times over on the way to a person. So each part of the way counts what it takes, and an answer
that goes beyond a bound has failed. Nobody means so much: it is not asked for again there.
"""

from msgspec import Struct


class Bound(Struct, frozen=True):
    most: int
    said: str

    def hold(self, count: int) -> None:
        """Raise `AnswerTooLarge` if `count` is too much."""
        if count > self.most:
            raise AnswerTooLarge(f"it has more than {self.said}")


class AnswerTooLarge(Exception):
    """An answer has more in it than anybody means; the text says more of what."""


BYTES = Bound(64 * 1024 * 1024, "64 MB")
"""As they come, unpacked: around each token there are some 300 bytes that nobody keeps."""
EVENT_BYTES = Bound(32 * 1024 * 1024, "32 MB in one event")
PROBABLE_BYTES = Bound(320 * 1024 * 1024, "320 MB")
PROBABLE_EVENT_BYTES = Bound(64 * 1024 * 1024, "64 MB in one event")
"""The same where it was asked how probable the tokens are: that is 2 kB for each, and Responses
say it five times."""
LOGPROBS = Bound(48 * 1024 * 1024, "48 MB of probabilities")
"""What is kept of that: some 24,000 tokens with 20 alternatives each."""
CHARS = Bound(4_000_000, "4 million characters")
"""Of text, reasoning and calls together."""
CALLS = Bound(128, "128 tool calls")
PARTS = Bound(10_000, "10,000 parts")
"""Blocks, items or pieces of reasoning that belong together."""
VALUES = Bound(500_000, "500,000 values")
"""Numbers, texts and the like in the JSON of large events; how probable tokens are is not read."""

ARGUMENT_VALUES = 100_000
"""So many values all calls of one answer may have; of others there is the beginning, as a text."""
REPAIRED_CHARS = 200_000
"""So much of the broken calls of one answer is mended; the model is told of the others."""
COMPARED_CHARS = 16_000_000
"""So much is read to find out where calls without a number end."""
NAME_CHARS = 200
