"""The methods of the Bot API, as far as bots here use them."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

from fakes.telegram_html import MarkupError, plain_text, utf16_length
from fakes.telegram_world import ApiError, Seen, TelegramChat, World

__all__ = ["METHODS", "SENDS", "chat_of"]

Params = dict[str, Any]
Files = dict[str, tuple[str, bytes]]
REACTIONS = set(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)
SENDS = {
    "sendmessage",
    "sendphoto",
    "senddocument",
    "sendvoice",
    "sendaudio",
    "sendvideo",
    "sendmediagroup",
    "editmessagetext",
    "editmessagecaption",
    "editmessagereplymarkup",
    "deletemessage",
    "sendchataction",
    "setmessagereaction",
}
"""Calls that count against a chat's rate."""
_LIMITS = {"photo": 10_000_000, "document": 50_000_000}


def chat_of(params: Params) -> int | None:
    """Return the chat a call is about."""
    try:
        return int(params["chat_id"])
    except (KeyError, ValueError):
        return None


def nested(params: Params, name: str) -> Any:
    """Return a parameter that forms send as JSON text."""
    value = params.get(name)
    return json.loads(value) if isinstance(value, str) else value


def reachable(world: World, params: Params) -> TelegramChat:
    chat = world.chats.get(chat_of(params) or 0)
    if chat is None:
        raise ApiError(400, "Bad Request: chat not found")
    if chat.migrated_to is not None:
        raise ApiError(
            400,
            "Bad Request: group chat was upgraded to a supergroup chat",
            migrate_to_chat_id=chat.migrated_to,
        )
    if chat.blocked:
        who = "blocked by the user" if chat.type == "private" else "kicked from the group chat"
        raise ApiError(403, f"Forbidden: bot was {who}")
    return chat


def thread_of(chat: TelegramChat, params: Params, *, general: bool = False) -> int | None:
    if params.get("message_thread_id") is None:
        return None
    thread = int(params["message_thread_id"])
    if thread == 1 and general and chat.is_forum:
        return thread
    if thread not in chat.topics:
        raise ApiError(400, "Bad Request: message thread not found")
    if thread in chat.closed_topics:
        raise ApiError(400, "Bad Request: TOPIC_CLOSED")
    return thread


def readable(params: Params, name: str, limit: int) -> tuple[str, str]:
    """Return what a person reads and what was sent."""
    sent = str(params.get(name) or "")
    mode = str(params.get("parse_mode") or "").lower()
    if mode == "html":
        try:
            text = plain_text(sent)
        except MarkupError as error:
            raise ApiError(400, str(error)) from None
    elif mode in {"", "none"}:
        text = sent
    else:
        raise ApiError(400, "Bad Request: unsupported parse_mode")
    text = text.strip()
    if name == "text" and not text:
        raise ApiError(400, "Bad Request: message text is empty")
    if utf16_length(text) > limit:
        what = "message is" if name == "text" else "message caption is"
        raise ApiError(400, f"Bad Request: {what} too long")
    return text, sent


def buttons_of(params: Params) -> list[list[tuple[str, str]]]:
    markup = nested(params, "reply_markup") or {}
    rows: list[list[tuple[str, str]]] = []
    for row in markup.get("inline_keyboard", []):
        for button in row:
            if not 1 <= len(button["callback_data"].encode()) <= 64:
                raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")
            if not button["text"]:
                raise ApiError(400, "Bad Request: BUTTON_TEXT_INVALID")
        rows.append([(button["text"], button["callback_data"]) for button in row])
    return rows


def replied(chat: TelegramChat, params: Params) -> int | None:
    wanted = nested(params, "reply_parameters") or {}
    number = wanted.get("message_id") or params.get("reply_to_message_id")
    if number is None:
        return None
    earlier = chat.messages.get(int(number))
    if earlier is None or earlier.deleted:
        if wanted.get("allow_sending_without_reply"):
            return None
        raise ApiError(400, "Bad Request: message to be replied not found")
    return int(number)


def shown(world: World, method: str, params: Params, **fields: Any) -> Seen:
    chat = reachable(world, params)
    return world.add(
        chat,
        world.bot_id,
        buttons=buttons_of(params),
        thread_id=thread_of(chat, params),
        reply_to=replied(chat, params),
        silent=str(params.get("disable_notification", "")).lower() == "true",
        method=method,
        **fields,
    )


def send_message(world: World, params: Params, files: Files) -> Any:
    reachable(world, params)
    text, sent = readable(params, "text", 4096)
    seen = shown(world, "sendMessage", params, text=text, markup=sent)
    return world.wire(seen) | {"text": text}


def sender_of_files(kind: str) -> Callable[[World, Params, Files], Any]:
    def send(world: World, params: Params, files: Files) -> Any:
        reachable(world, params)
        caption, sent = readable(params, "caption", 1024)
        name, content = attached(params, files, str(params.get(kind, "")), kind)
        file_id = world.store(content, name)
        method = f"send{kind.capitalize()}"
        seen = shown(
            world, method, params, text=caption, markup=sent, file_name=name, file_id=file_id
        )
        return world.wire(seen) | described_file(kind, file_id, name, len(content))

    return send


def attached(params: Params, files: Files, reference: str, kind: str) -> tuple[str, bytes]:
    field = reference.removeprefix("attach://") if reference.startswith("attach://") else kind
    if field not in files:
        raise ApiError(400, f"Bad Request: there is no {kind} in the request")
    name, content = files[field]
    if not content:
        raise ApiError(400, "Bad Request: file must be non-empty")
    if len(content) > _LIMITS.get(kind, 50_000_000):
        raise ApiError(413, "Request Entity Too Large")
    if kind == "photo" and content.startswith(b"NOT A PICTURE"):
        raise ApiError(400, "Bad Request: IMAGE_PROCESS_FAILED")
    return name, content


def described_file(kind: str, file_id: str, name: str, size: int) -> dict[str, Any]:
    body: dict[str, Any] = {"file_id": file_id, "file_unique_id": file_id, "file_size": size}
    if kind == "photo":
        return {"photo": [body | {"width": 10, "height": 10}]}
    if kind in {"voice", "audio", "video"}:
        body |= {"duration": 1, "width": 10, "height": 10} if kind == "video" else {"duration": 1}
    return {kind: body | ({"file_name": name} if kind != "voice" else {})}


def send_media_group(world: World, params: Params, files: Files) -> Any:
    reachable(world, params)
    media = nested(params, "media")
    if not 2 <= len(media) <= 10:
        raise ApiError(400, "Bad Request: wrong number of items in the album")
    checked = []
    for item in media:
        text, sent = readable(item, "caption", 1024)
        checked.append((text, sent, *attached(params, files, item["media"], item["type"])))
    sent_messages = []
    for item, (text, sent, name, content) in zip(media, checked, strict=True):
        file_id = world.store(content, name)
        seen = shown(
            world,
            "sendMediaGroup",
            params,
            text=text,
            markup=sent,
            file_name=name,
            file_id=file_id,
        )
        described = described_file(item["type"], file_id, name, len(content))
        sent_messages.append(world.wire(seen) | described | {"media_group_id": "1"})
    return sent_messages


def own_message(world: World, params: Params) -> Seen:
    chat = reachable(world, params)
    seen = chat.messages.get(int(params["message_id"]))
    if seen is None or seen.deleted:
        raise ApiError(400, "Bad Request: message to edit not found")
    if not seen.from_bot:
        raise ApiError(400, "Bad Request: message can't be edited")
    return seen


def edit(world: World, params: Params, name: str, limit: int) -> Any:
    seen = own_message(world, params)
    if (name == "text") == bool(seen.file_id):
        raise ApiError(400, f"Bad Request: there is no {name} in the message to edit")
    text, sent = readable(params, name, limit)
    buttons = buttons_of(params)
    unchanged(seen, sent, buttons)
    if text != seen.text:
        seen.history.append(seen.text)
        seen.shown_at = time.time()
    seen.text, seen.markup, seen.buttons = text, sent, buttons
    world.touch()
    return world.wire(seen) | {name: text}


def edit_text(world: World, params: Params, files: Files) -> Any:
    return edit(world, params, "text", 4096)


def edit_caption(world: World, params: Params, files: Files) -> Any:
    return edit(world, params, "caption", 1024)


def edit_markup(world: World, params: Params, files: Files) -> Any:
    seen = own_message(world, params)
    buttons = buttons_of(params)
    unchanged(seen, seen.markup, buttons)
    seen.buttons = buttons
    world.touch()
    return world.wire(seen) | {"text": seen.text}


def unchanged(seen: Seen, sent: str, buttons: list[list[tuple[str, str]]]) -> None:
    if sent == seen.markup and buttons == seen.buttons:
        raise ApiError(
            400,
            "Bad Request: message is not modified: specified new message content and reply "
            "markup are exactly the same as a current content and reply markup of the message",
        )


def delete_message(world: World, params: Params, files: Files) -> bool:
    chat = reachable(world, params)
    seen = chat.messages.get(int(params["message_id"]))
    if seen is None or seen.deleted:
        raise ApiError(400, "Bad Request: message to delete not found")
    if not seen.from_bot and chat.type == "private":
        raise ApiError(400, "Bad Request: message can't be deleted")
    seen.deleted = True
    world.touch()
    return True


def chat_action(world: World, params: Params, files: Files) -> bool:
    chat = reachable(world, params)
    thread = thread_of(chat, params, general=True)
    world.actions.append({"chat_id": chat.id, "action": params["action"], "thread": thread})
    world.touch()
    return True


def answer_query(world: World, params: Params, files: Files) -> bool:
    query = str(params["callback_query_id"])
    if query not in world.queries:
        raise ApiError(
            400,
            "Bad Request: query is too old and response timeout expired or query ID is invalid",
        )
    text = str(params.get("text") or "")
    if utf16_length(text) > 200:
        raise ApiError(400, "Bad Request: MESSAGE_TOO_LONG")
    world.queries[query] = text
    world.touch()
    return True


def react(world: World, params: Params, files: Files) -> bool:
    chat = reachable(world, params)
    seen = chat.messages.get(int(params["message_id"]))
    if seen is None or seen.deleted:
        raise ApiError(400, "Bad Request: message to react not found")
    emojis = [reaction.get("emoji", "") for reaction in nested(params, "reaction") or []]
    if any(emoji not in REACTIONS for emoji in emojis):
        raise ApiError(400, "Bad Request: REACTION_INVALID")
    seen.reactions = emojis
    world.touch()
    return True


def set_commands(world: World, params: Params, files: Files) -> bool:
    commands = nested(params, "commands")
    if len(commands) > 100 or len(json.dumps(commands)) > 8000:
        raise ApiError(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if re.fullmatch(r"[a-z0-9_]{1,32}", command["command"]) is None:
            raise ApiError(400, "Bad Request: BOT_COMMAND_INVALID")
        if not 1 <= len(command["description"]) <= 256:
            raise ApiError(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
    world.commands = commands
    world.touch()
    return True


def create_topic(world: World, params: Params, files: Files) -> Any:
    chat = reachable(world, params)
    if not chat.is_forum:
        raise ApiError(400, "Bad Request: the chat is not a forum")
    if not 1 <= len(params["name"]) <= 128:
        raise ApiError(400, "Bad Request: TOPIC_NAME_INVALID")
    thread = chat.next_id
    chat.next_id += 1
    chat.topics[thread] = params["name"]
    return {"message_thread_id": thread, "name": params["name"], "icon_color": 7322096}


def get_file(world: World, params: Params, files: Files) -> Any:
    stored = world.files.get(str(params["file_id"]))
    if stored is None:
        raise ApiError(400, "Bad Request: invalid file_id")
    if len(stored.content) > 20_000_000:
        raise ApiError(400, "Bad Request: file is too big")
    file_id = str(params["file_id"])
    body = {"file_id": file_id, "file_unique_id": file_id, "file_size": len(stored.content)}
    return body | {"file_path": stored.path}


def get_me(world: World, params: Params, files: Files) -> Any:
    return world.me() | {"can_join_groups": True, "supports_inline_queries": False}


def set_webhook(world: World, params: Params, files: Files) -> bool:
    world.webhook = {"url": params["url"], "secret": params.get("secret_token", "")}
    world.allowed = nested(params, "allowed_updates") or world.allowed
    world.touch()
    return True


def delete_webhook(world: World, params: Params, files: Files) -> bool:
    world.webhook = {}
    if str(params.get("drop_pending_updates", "")).lower() == "true":
        world.updates.clear()
    world.touch()
    return True


def webhook_info(world: World, params: Params, files: Files) -> Any:
    info = {
        "url": world.webhook.get("url", ""),
        "has_custom_certificate": False,
        "pending_update_count": len(world.updates),
    }
    return info | ({"last_error_message": world.webhook_error} if world.webhook_error else {})


METHODS: dict[str, Callable[[World, Params, Files], Any]] = {
    "getme": get_me,
    "sendmessage": send_message,
    "sendphoto": sender_of_files("photo"),
    "senddocument": sender_of_files("document"),
    "sendvoice": sender_of_files("voice"),
    "sendaudio": sender_of_files("audio"),
    "sendvideo": sender_of_files("video"),
    "sendmediagroup": send_media_group,
    "editmessagetext": edit_text,
    "editmessagecaption": edit_caption,
    "editmessagereplymarkup": edit_markup,
    "deletemessage": delete_message,
    "sendchataction": chat_action,
    "answercallbackquery": answer_query,
    "setmessagereaction": react,
    "setmycommands": set_commands,
    "createforumtopic": create_topic,
    "getfile": get_file,
    "setwebhook": set_webhook,
    "deletewebhook": delete_webhook,
    "getwebhookinfo": webhook_info,
}
