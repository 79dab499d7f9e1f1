"""What slash commands can do with the full screen."""

from collections.abc import Sequence

from prompt_toolkit.buffer import Buffer

from hermes.domain.inbound import Attachment
from hermes.entry.terminal.canvas import Canvas
from hermes.entry.terminal.chat_session import Talk
from hermes.entry.terminal.input import PasteShelf
from hermes.entry.terminal.questions import Questions
from hermes.entry.terminal.skins import SkinShelf
from hermes.entry.terminal.tty import clipboard_image, copy_sequence, edit, image_file, run_program

__all__ = ["ChatScreen"]


class ChatScreen:
    """The `Screen` of the interactive chat."""

    def __init__(
        self,
        talk: Talk,
        canvas: Canvas,
        questions: Questions,
        *,
        buffer: Buffer,
        pastes: PasteShelf,
    ) -> None:
        self.status_shown = talk.parts.settings.status_bar
        self.attachments: list[Attachment] = []
        """What goes with the next message."""
        self._talk = talk
        self._canvas = canvas
        self._questions = questions
        self._input = buffer
        self._pastes = pastes
        self._shelf = SkinShelf(talk.parts.paths.skins_dir)

    def take_attachments(self) -> tuple[Attachment, ...]:
        """Return what goes with the message that is being sent."""
        taken, self.attachments = tuple(self.attachments), []
        return taken

    def leave(self) -> None:
        """End the chat."""
        self._canvas.close()

    def redraw(self) -> None:
        """Paint the screen anew."""
        self._canvas.clear()

    def clear(self) -> None:
        """Empty the screen."""
        self._canvas.clear()

    def prefill(self, text: str) -> None:
        """Put text into the input, unless something is being written there."""
        if not self._input.text:
            self._input.text = text
            self._input.cursor_position = len(text)

    async def compose(self, text: str) -> None:
        """Open the external editor and take what was written into the input."""
        folder = self._talk.parts.paths.cache_dir / "messages"
        async with self._canvas.outside():
            written = await edit(self._pastes.expand(text), self._talk.parts.environ, folder)
        self._input.text = written
        self._input.cursor_position = len(written)

    def set_status_bar(self, *, shown: bool | None) -> bool:
        """Show or hide the status bar (None toggles); return whether it shows."""
        self.status_shown = not self.status_shown if shown is None else shown
        return self.status_shown

    def skins(self) -> Sequence[str]:
        """Return the names of the skins there are."""
        return self._shelf.names()

    def set_skin(self, name: str) -> None:
        """Change the look."""
        self._talk.skin = self._shelf.load(name)
        self._canvas.wear(self._talk.skin)

    def copy(self, text: str) -> None:
        """Put text onto the clipboard of the terminal."""
        self._canvas.write(copy_sequence(text))

    async def attach_image(self, path: str | None) -> str:
        """Attach a picture from a file or the clipboard; return what to say."""
        parts = self._talk.parts
        picture = (
            await image_file(path, parts.profile.workspace)
            if path
            else await clipboard_image(parts.environ, parts.paths.cache_dir, run_program)
        )
        self.attachments.append(picture)
        self._canvas.repaint()
        return f"Attached {picture.name} to the next message."

    async def pick(self, title: str, options: Sequence[str]) -> int | None:
        """Let the person choose one; None if they chose nothing."""
        return await self._questions.pick(title, options)
