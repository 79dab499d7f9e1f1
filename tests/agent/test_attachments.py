"""Files of messages: pictures for models that can see, paths that the tools find."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.core import message, running_core
from hermes.agent.attachments import MAX_IMAGE_BYTES, MessageFiles
from hermes.domain.errors import HermesError
from hermes.domain.inbound import Attachment
from hermes.domain.messages import FilePart, ImagePart, TextPart, UserMessage
from hermes.domain.ports.model import ModelInfo
from hermes.testing.environment import FakeEnvironment
from hermes.testing.model import ScriptedModel, say

PICTURE = FilePart(path="/p/cat.png", name="cat.png", media_type="image/png")
ASKED = UserMessage(content=(TextPart("what is this?"), PICTURE))


def files(data: bytes | None, environment: FakeEnvironment | None = None) -> MessageFiles:
    async def read(path: str, limit: int) -> bytes | None:
        return data if data is None or len(data) <= limit else None

    async def opened() -> FakeEnvironment:
        return environment or FakeEnvironment()

    return MessageFiles(read, opened)


class Elsewhere(FakeEnvironment):
    """An environment that does not see this machine's files."""

    def received(self, path: str, name: str) -> str:
        return f"/inbox/{name}"


async def test_a_picture_file_becomes_a_picture_and_keeps_its_name() -> None:
    (shown,) = await files(b"png").shown([ASKED], vision=True)
    assert isinstance(shown, UserMessage)
    assert shown.content[1] == ImagePart(url="data:image/png;base64,cG5n", media_type="image/png")
    assert "cat.png" in str(shown.content[2])


@pytest.mark.parametrize("data", [None, b"", b"x" * (MAX_IMAGE_BYTES + 1)])
async def test_a_picture_that_cannot_be_shown_stays_a_file(data: bytes | None) -> None:
    assert await files(data).shown([ASKED], vision=True) == (ASKED,)


async def test_other_messages_are_the_very_same_objects() -> None:
    plain = UserMessage(content="hi")
    document = UserMessage(content=(FilePart(path="/p/a.pdf", name="a.pdf"),))
    shown = await files(None).shown([plain, document], vision=True)
    assert shown[0] is plain
    assert shown[1] is document


class _Letters(str):
    looked_at = 0
    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        _Letters.looked_at += 1
        return super().__iter__()


async def test_a_plain_text_is_not_gone_through_letter_by_letter() -> None:
    plain = UserMessage(content=_Letters("how are you?"))
    shown = await files(None).shown([plain], vision=True)
    assert shown == (plain,)
    assert _Letters.looked_at == 0


async def test_a_file_is_named_and_put_where_the_tools_look_for_it() -> None:
    box = Elsewhere(answers=lambda _: "")
    both = files(b"png", box)
    (shown,) = await both.shown([ASKED], vision=False)
    assert "/inbox/cat.png" in str(shown)
    assert "/p/cat.png" not in str(shown)
    assert box.files == {}, "nothing is started or written before a tool runs"
    await both.place([ASKED])
    assert box.files == {"/inbox/cat.png": b"png"}
    await box.write("/inbox/cat.png", b"changed")
    await files(b"png", box).place([ASKED])
    assert box.files == {"/inbox/cat.png": b"changed"}, "what is there stays as it is"


async def test_a_machine_that_is_out_of_reach_costs_the_path_and_not_the_picture() -> None:
    async def read(path: str, limit: int) -> bytes | None:
        return b"png"

    async def broken() -> FakeEnvironment:
        raise HermesError("no connection")

    unreachable = MessageFiles(read, broken)
    (seen,) = await unreachable.shown([ASKED], vision=True)
    assert "ImagePart" in str(seen)
    (told,) = await unreachable.shown([ASKED], vision=False)
    assert "/p/cat.png" not in str(told)
    await unreachable.place([ASKED])


@pytest.mark.parametrize("vision", [True, False])
async def test_only_models_that_can_see_are_shown_pictures(tmp_path: Path, vision: bool) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"png")
    info = ModelInfo(provider="scripted", model="m", vision=vision)
    model = ScriptedModel([say("a cat")], info=info)
    attachment = Attachment(kind="image", path=str(picture), name="cat.png", media_type="image/png")
    async with running_core(tmp_path, model) as core:
        asked = replace(message("what?", core.session.id), attachments=(attachment,))
        ticket = await core.gateway.submit("main", asked, session_id=core.session.id)
        await (await ticket.stream()).wait()
    assert ("ImagePart" in str(model.requests[0].messages)) is vision
