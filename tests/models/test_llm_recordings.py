"""Recorded provider streams decode to what the provider meant, however they are split."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.model_client import Heard
from hermes.models.client import protocol_for
from hermes.models.providers import ApiMode
from hermes.models.sse import SseParser
from hermes.models.wire import Decoded, Sink

RECORDINGS = Path(__file__).parents[1] / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.sse"))


def load(name: str) -> tuple[bytes, dict[str, Any]]:
    body = (RECORDINGS / f"{name}.sse").read_bytes()
    expected = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    return body, expected


def decode(body: bytes, mode: str, cuts: list[int]) -> tuple[Decoded, Heard]:
    heard = Heard()
    decoder = protocol_for(ApiMode(mode)).decoder(Sink(heard))
    parser = SseParser()
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for start, end in pairwise(edges):
        for data in parser.feed(body[start:end]):
            decoder.feed(data)
    for data in parser.close():
        decoder.feed(data)
    return decoder.finish(), heard


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_stream_decodes_to_the_expected_reply(name: str) -> None:
    body, expected = load(name)
    decoded, heard = decode(body, expected["protocol"], [])
    message = decoded.message
    assert decoded.complete
    assert message.text == expected["text"]
    assert heard.text.strip() == expected["text"].strip()
    reasoning = message.reasoning
    assert (reasoning.text if reasoning else "") == expected["reasoning"]
    assert heard.reasoning.strip() == expected["reasoning"]
    assert list(reasoning.details if reasoning else ()) == expected["details"]
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    wanted = [{"id": "", **call} for call in expected["calls"]]
    assert calls == wanted
    assert message.finish == expected["finish"]
    assert decoded.model == expected["model"]
    usage = {name: getattr(decoded.usage, name) for name in expected["usage"]}
    assert usage == expected["usage"]
    assert decoded.cost_usd == expected.get("cost_usd")


@given(
    name=st.sampled_from(NAMES),
    cuts=st.lists(st.integers(min_value=0, max_value=10_000), max_size=40),
)
def test_any_split_of_a_stream_gives_the_same_reply(name: str, cuts: list[int]) -> None:
    body, expected = load(name)
    whole, heard_whole = decode(body, expected["protocol"], [])
    split, heard_split = decode(body, expected["protocol"], cuts)
    assert split == whole
    assert heard_split.log == heard_whole.log
