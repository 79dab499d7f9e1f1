"""Pictures: shown to models that can see, named to the others."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from fakes.core import message, running_core
from hermes.agent.images import MAX_IMAGE_BYTES, ImageCache
from hermes.domain.inbound import Attachment
from hermes.domain.messages import FilePart, ImagePart, TextPart, UserMessage
from hermes.domain.ports.model import ModelInfo
from hermes.testing.model import ScriptedModel, say

PICTURE = FilePart(path="/p/cat.png", name="cat.png", media_type="image/png")
ASKED = UserMessage(content=(TextPart("what is this?"), PICTURE))


async def nothing(path: str) -> bytes | None:
    return None


async def test_a_picture_file_becomes_a_picture_and_keeps_its_name() -> None:
    async def read(path: str) -> bytes | None:
        return b"png"

    (shown,) = await ImageCache(read).shown([ASKED])
    assert isinstance(shown, UserMessage)
    assert shown.content[1] == ImagePart(url="data:image/png;base64,cG5n", media_type="image/png")
    assert "cat.png" in str(shown.content[2])


@pytest.mark.parametrize("data", [None, b"", b"x" * (MAX_IMAGE_BYTES + 1)])
async def test_a_picture_that_cannot_be_shown_stays_a_file(data: bytes | None) -> None:
    async def read(path: str) -> bytes | None:
        return data

    assert await ImageCache(read).shown([ASKED]) == (ASKED,)


async def test_other_messages_are_the_very_same_objects() -> None:
    plain = UserMessage(content="hi")
    document = UserMessage(content=(FilePart(path="/p/a.pdf", name="a.pdf"),))
    shown = await ImageCache(nothing).shown([plain, document])
    assert shown[0] is plain
    assert shown[1] is document


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
