"""Voice messages: what was said becomes the text of the message, marked as spoken.

A recording that cannot be transcribed stays with the message as a file, and the person is told why
in a sentence. What was understood is kept beside the recording, so that a message that is
taken up again is not transcribed twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hermes.domain.errors import HermesError
from hermes.domain.inbound import Attachment, InboundMessage
from hermes.domain.settings.live import LiveSettings

MARK = "[Voice message]"


class VoiceMessages(Struct, frozen=True, kw_only=True):
    transcribe: Callable[[Path, str], Awaitable[str]]
    """(recording, media type) -> what is said; `HermesError` says why it cannot be told."""
    settings: LiveSettings

    async def heard(self, message: InboundMessage) -> tuple[InboundMessage, str]:
        """Return the message with what was said, and what to tell the person about it."""
        texts, kept, told = [message.text], list[Attachment](), list[str]()
        for each in message.attachments:
            if each.kind != "voice" or not each.path:
                kept.append(each)
                continue
            try:
                said = await self._said(each)
            except HermesError as error:
                texts.append(f"{MARK} [It was not transcribed: {error.message}.]")
                told.append(
                    f"🎙️ I could not transcribe your voice message ({error.message});"
                    " I have the recording as a file only."
                )
                kept.append(each)
            else:
                texts.append(f"{MARK} {said}")
                told += [f"🎙️ “{said}”"] if self.settings().stt.echo_transcripts else []
        text = "\n".join(filter(None, texts))
        return replace(message, text=text, attachments=tuple(kept)), "\n".join(told)

    async def _said(self, recording: Attachment) -> str:
        path = Path(recording.path)
        known = path.with_name(f"{path.name}.transcript")
        if await asyncio.to_thread(known.is_file):
            return await asyncio.to_thread(known.read_text, "utf-8")
        said = await self.transcribe(path, recording.media_type or "")
        await asyncio.to_thread(known.write_text, said, "utf-8")
        return said
