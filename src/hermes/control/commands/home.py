"""The command that chooses where messages go that nobody asked for."""

from hermes.control.commands.context import CommandContext
from hermes.control.commands.parse import Invocation
from hermes.control.home_channel import HomeChannel, set_home_channel
from hermes.domain.errors import UsageError

__all__ = ["sethome"]


async def sethome(context: CommandContext, _invocation: Invocation) -> None:
    """Make this chat, or this topic of it, the platform's home channel."""
    chat = context.chat
    if chat is None:
        raise UsageError("Only a chat can be a home channel.", hint="Send /sethome there.")
    home = HomeChannel(
        platform=chat.platform,
        account=chat.account,
        chat_id=chat.chat_id,
        thread_id=chat.thread_id,
        name=context.chat_name,
    )
    await set_home_channel(context.ledger, home)
    where = "topic" if chat.thread_id is not None else "chat"
    await context.reply(
        f"This {where} is the home channel of {chat.platform} now: reminders and results"
        " that nobody waits for come here."
    )
