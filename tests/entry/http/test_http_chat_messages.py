"""From the messages of a chat request to instructions, history and input."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.domain.errors import UsageError
from hermes.domain.inbound import Attachment
from hermes.domain.messages import (
    AssistantMessage,
    FilePart,
    FinishReason,
    TextPart,
    ToolMessage,
    UserMessage,
)
from hermes.domain.turn import ClientResult
from hermes.entry.http.api.conversation import (
    ChatMessage,
    Conversation,
    history_of,
    read_conversation,
    stored,
)
from hermes.entry.http.api.media import picture
from hermes.entry.http.errors import Problem

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


class Shelf:
    """Keeps pictures in memory."""

    def __init__(self) -> None:
        self.kept: list[tuple[bytes, str]] = []
        self.fetched: list[str] = []

    async def keep(self, data: bytes, media_type: str, name: str = "") -> Attachment:
        if len(data) > 1000:
            raise UsageError("The picture is too large.")
        self.kept.append((data, media_type))
        name = name or f"{len(self.kept)}.png"
        return Attachment(kind="image", path=f"/shelf/{name}", name=name, media_type=media_type)

    async def fetch(self, url: str, name: str = "") -> Attachment:
        if "private" in url:
            raise UsageError("That address is not public.", hint="Send the picture itself.")
        self.fetched.append(url)
        return await self.keep(PNG, "image/png", name)


def data_url(data: bytes = PNG, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def read(*messages: dict[str, Any]) -> Conversation:
    return read_conversation(msgspec.convert(list(messages), list[ChatMessage]))


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None, *calls: str) -> dict[str, Any]:
    made = [
        {"id": call, "type": "function", "function": {"name": f"tool_{call}", "arguments": "{}"}}
        for call in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": made or None}


def tool(call_id: str, content: str = "42") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def refused(*messages: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        read(*messages)
    assert caught.value.status == 400
    return caught.value


def test_system_and_developer_texts_are_instructions_wherever_they_stand() -> None:
    talk = read(
        system("Be brief."), user("Hi"), {"role": "developer", "content": "In French."}, user("Go")
    )
    assert talk.instructions == "Be brief.\n\nIn French."
    assert talk.text == "Hi\n\nGo"
    assert talk.earlier == ()


async def test_what_was_said_before_is_history_and_the_end_is_input() -> None:
    talk = read(user("One"), assistant("1"), user("Two"), user("and three"))
    assert await history_of(talk.earlier, Shelf()) == (
        UserMessage(content="One"),
        AssistantMessage(text="1"),
    )
    assert talk.text == "Two\n\nand three"


async def test_empty_messages_leave_no_trace_in_the_history() -> None:
    talk = read(user(""), assistant(None), user("One"), assistant(""), user("Two"))
    assert await history_of(talk.earlier, Shelf()) == (UserMessage(content="One"),)


def test_text_parts_are_joined_whatever_they_are_called() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert read(user(parts)).text == "a\nb"


def test_parts_that_are_not_understood_are_named() -> None:
    audio = [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]
    problem = refused(system("x"), user("y"), user(audio))
    assert problem.param == "messages[2].content[0].type"
    assert "input_audio" in problem.message
    file = [{"type": "text", "text": "see"}, {"type": "file", "file": {"file_id": "f"}}]
    assert refused(user(file)).param == "messages[0].content[1].file_data"


def test_only_users_show_pictures() -> None:
    shown = [{"type": "image_url", "image_url": {"url": data_url()}}]
    problem = refused(user("a"), {"role": "assistant", "content": shown}, user("b"))
    assert problem.param == "messages[1].content[0].type"


def test_pictures_of_the_input_are_told_with_their_place() -> None:
    shown = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    [seen] = read(user(shown)).pictures
    assert seen.url == "https://example.org/a.png"
    assert seen.param == "messages[0].content[1].image_url"


async def test_pictures_of_the_history_are_files_in_it() -> None:
    shown = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": data_url(), "detail": "high"}},
    ]
    talk = read(user(shown), assistant("Nice."), user("Again"))
    [first, _] = await history_of(talk.earlier, Shelf())
    assert first == UserMessage(
        content=(
            TextPart("Look"),
            FilePart(path="/shelf/1.png", name="1.png", media_type="image/png", detail="high"),
        )
    )


async def test_calls_and_their_results_are_history_in_the_order_of_the_calls() -> None:
    talk = read(user("Go"), assistant("", "a", "b"), tool("b", "B"), tool("a", "A"))
    assert talk.text == ""
    _, calls, first, second = await history_of(talk.earlier, Shelf())
    assert isinstance(calls, AssistantMessage)
    assert [call.id for call in calls.tool_calls] == ["a", "b"]
    assert calls.finish is FinishReason.TOOL_CALLS
    assert first == ToolMessage(call_id="a", name="tool_a", content="A")
    assert second == ToolMessage(call_id="b", name="tool_b", content="B")


async def test_results_at_the_end_are_results_with_or_without_further_words() -> None:
    result = ClientResult(call_id="a", content="42")
    alone = read(user("Go"), assistant(None, "a"), tool("a"))
    assert (await stored(alone, Shelf())).results == (result,)
    more = read(user("Go"), assistant(None, "a"), tool("a"), user("And now?"))
    assert (await stored(more, Shelf())).results == (result,)
    assert more.text == "And now?"
    over = read(user("Go"), assistant(None, "a"), tool("a"), assistant("42."), user("Thanks"))
    assert over.results == ()


async def test_a_call_id_that_is_used_again_gets_a_new_one_with_its_result() -> None:
    talk = read(
        user("Go"), assistant(None, "a"), tool("a", "1"), assistant(None, "a"), tool("a", "2")
    )
    _, _, first, again, second = await history_of(talk.earlier, Shelf())
    assert isinstance(first, ToolMessage)
    assert isinstance(again, AssistantMessage)
    assert isinstance(second, ToolMessage)
    assert first.call_id == "a"
    assert second.call_id == again.tool_calls[0].id != "a"
    assert second.content == "2"


def test_a_result_without_its_call_is_refused() -> None:
    assert refused(user("Go"), tool("a")).param == "messages[1].tool_call_id"
    assert "`b`" in refused(user("Go"), assistant(None, "a"), tool("a"), tool("b")).message
    twice = refused(user("Go"), assistant(None, "a"), tool("a"), tool("a"))
    assert twice.param == "messages[3].tool_call_id"


def test_a_call_without_its_result_is_refused() -> None:
    assert "`b`" in refused(user("Go"), assistant(None, "a", "b"), tool("a")).message
    assert "`a`" in refused(user("Go"), assistant(None, "a"), user("And?")).message


def test_two_calls_under_one_id_are_refused() -> None:
    problem = refused(user("Go"), assistant(None, "a", "a"), tool("a"))
    assert problem.param == "messages[1].tool_calls"


def test_the_last_word_may_be_the_assistants() -> None:
    talk = read(user("Go"), assistant("I am"))
    assert (talk.text, talk.prefill) == ("", "I am")
    assert [said.text for said in talk.earlier] == ["Go", "I am"]


def test_something_has_to_be_said() -> None:
    assert read(system("Be brief.")).instructions == "Be brief."
    assert refused(system("  ")).param == "messages"
    assert refused(user("One"), assistant(" ")).param == "messages[1].content"
    assert refused(user("One"), assistant("1"), user("  ")).param == "messages[2].content"


def test_unknown_roles_and_results_without_an_id_are_refused() -> None:
    assert refused({"role": "function", "content": "x"}).param == "messages[0].role"
    missing = refused(user("Go"), {"role": "tool", "content": "x"})
    assert missing.param == "messages[1].tool_call_id"


roles = st.sampled_from(["system", "user", "assistant", "tool"])
anything = st.builds(
    lambda role, content, call_id: ChatMessage(role=role, content=content, tool_call_id=call_id),
    roles,
    st.none() | st.sampled_from(["", "hello", " "]),
    st.none() | st.sampled_from(["a", "b"]),
)
called = st.builds(
    lambda ids: msgspec.convert(assistant("", *ids), ChatMessage),
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
)


@given(st.lists(st.one_of(anything, called), min_size=1, max_size=10))
async def test_any_conversation_is_refused_or_gives_a_valid_history(
    messages: list[ChatMessage],
) -> None:
    try:
        talk = read_conversation(messages)
    except Problem:
        return
    waiting: list[str] = []
    seen: set[str] = set()
    for message in await history_of(talk.earlier, Shelf()):
        if isinstance(message, ToolMessage):
            assert message.call_id == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
            assert seen.isdisjoint(waiting)
            seen.update(waiting)
    assert not waiting
    assert talk.text or talk.results


async def bad_picture(url: str) -> Problem:
    with pytest.raises(Problem) as caught:
        await picture(url, Shelf(), "messages[0].content[0].image_url")
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[0].image_url"
    return caught.value


async def test_a_picture_is_what_its_first_bytes_say() -> None:
    shelf = Shelf()
    jpeg, webp = b"\xff\xd8\xff\xe0rest", b"RIFF\x00\x00\x00\x00WEBPVP8 "
    await picture(data_url(jpeg), shelf)
    await picture(data_url(webp, "image/webp;charset=x"), shelf)
    await picture("data:image/gif,GIF89a%00", shelf)
    assert shelf.kept == [(jpeg, "image/jpeg"), (webp, "image/webp"), (b"GIF89a\0", "image/gif")]


async def test_pictures_on_the_network_are_fetched_by_the_shelf() -> None:
    shelf = Shelf()
    await picture("HTTPS://example.org/a.png", shelf)
    assert shelf.fetched == ["HTTPS://example.org/a.png"]
    problem = await bad_picture("http://private/a.png")
    assert problem.message == "That address is not public. Send the picture itself."


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64",
        "data:image/png;base64,%%%",
        "data:image/png;base64,aGVsbG8=",
        "data:text/html,<script>",
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "/etc/passwd",
        "",
        data_url(PNG + bytes(2000)),
    ],
)
async def test_what_is_not_a_picture_is_refused(url: str) -> None:
    problem = await bad_picture(url)
    assert problem.problem_code in {"invalid_image_url", "invalid_image"}
