"""Helper calls of web interfaces are told from conversations."""

from typing import Any

import msgspec
import pytest

from hermes.domain.messages import AssistantMessage, UserMessage
from hermes.domain.patterns import SafePattern
from hermes.entry.http.api.chat import ChatRequest, helper_of
from hermes.entry.http.api.helper_calls import HelperCall
from hermes.entry.http.endpoint import CallHeaders
from hermes.entry.http.errors import Problem

TALK = "USER: How do I bake bread?\nASSISTANT: With flour and patience."

OPEN_WEBUI_TITLE = f"""### Task:
Generate a concise, 3-5 word title with an emoji summarizing the chat history.
### Guidelines:
- Be short.
### Output:
JSON format: {{ "title": "your concise title here" }}
### Chat History:
<chat_history>
{TALK}
</chat_history>"""

OPEN_WEBUI_TAGS = f"""### Task:
Generate 1-3 broad tags categorizing the main themes of the chat history.

### Output:
JSON format: {{ "tags": ["tag1", "tag2", "tag3"] }}

### Chat History:
<chat_history>
{TALK}
</chat_history>"""

OPEN_WEBUI_FOLLOW_UPS = f"""### Task:
Suggest 3-5 relevant follow-up questions or prompts that the user might naturally ask next.
### Output:
JSON format: {{ "follow_ups": ["Question 1?", "Question 2?"] }}
### Chat History:
<chat_history>
{TALK}
</chat_history>"""

OPEN_WEBUI_QUERIES = f"""### Task:
Analyze the chat history to determine the necessity of generating search queries.

### Output:
Strictly return in JSON format:
{{
  "queries": ["query1", "query2"]
}}

### Chat History:
<chat_history>
{TALK}
</chat_history>
"""

OPEN_WEBUI_IMAGE = f"""### Task:
Generate a detailed prompt for am image generation task based on the given language and context.

### Output:
{{
    "prompt": "Your detailed description here."
}}

### Chat History:
<chat_history>
{TALK}
</chat_history>"""

OPEN_WEBUI_AUTOCOMPLETE = f"""### Task:
You are an autocompletion system. Continue the text in `<text>` based on the **completion type**.

### Context:
<chat_history>
{TALK}
</chat_history>
<type>General</type>
<text>How much wa</text>
#### Output:
"""

OPEN_WEBUI_EMOJI = (
    "Your task is to reflect the speaker's likely facial expression through a fitting emoji. "
    "Interpret emotions from the message.\n\nMessage: ```It rose!```"
)

LIBRECHAT_TITLE = (
    "Provide a concise, 5-word-or-less title for the conversation, using its same language, "
    "with no punctuation. Only return the title itself.\n\nConversation:\nUser: Hi\nAI: Hello"
)

CHATBOX_TITLE = """Based on the chat history, give this conversation a name.
Keep it short - 10 characters max, no quotes.

Here's the conversation:

```
How do I bake bread?
```

The name is:"""

NEXTCHAT_TITLE = (
    "Please generate a four to five word title summarizing our conversation without any lead-in, "
    "punctuation, quotation marks, periods, symbols, bold text, or additional text. "
    "Remove enclosing quotation marks."
)
NEXTCHAT_SUMMARY = (
    "Summarize the discussion briefly in 200 words or less to use as a prompt for future context."
)

N8N_TITLE = (
    "Generate a concise, descriptive title for this conversation based on the user's message.\n\n"
    "Requirements:\n- Only output the title, nothing else"
)


def request(*messages: tuple[str, Any], **fields: Any) -> ChatRequest:
    body = {"messages": [{"role": role, "content": text} for role, text in messages], **fields}
    return msgspec.convert(body, ChatRequest)


def recognised(
    *messages: tuple[str, Any],
    headers: CallHeaders | None = None,
    patterns: tuple[str, ...] = (),
    **fields: Any,
) -> HelperCall | None:
    own = tuple(SafePattern(pattern) for pattern in patterns)
    return helper_of(request(*messages, **fields), headers or CallHeaders(), own)


def task(*messages: tuple[str, Any], **fields: Any) -> str | None:
    found = recognised(*messages, **fields)
    return found.task if found else None


PROMPTS = [
    (OPEN_WEBUI_TITLE, "title"),
    (OPEN_WEBUI_TAGS, "tags"),
    (OPEN_WEBUI_FOLLOW_UPS, "follow_ups"),
    (OPEN_WEBUI_QUERIES, "queries"),
    (OPEN_WEBUI_IMAGE, "image_prompt"),
    (OPEN_WEBUI_AUTOCOMPLETE, "autocomplete"),
    (OPEN_WEBUI_EMOJI, "emoji"),
    (LIBRECHAT_TITLE, "title"),
    (CHATBOX_TITLE, "title"),
]


@pytest.mark.parametrize(("prompt", "expected"), PROMPTS)
def test_known_prompts_are_recognised(prompt: str, expected: str) -> None:
    assert task(("user", prompt)) == expected
    assert task(("user", [{"type": "text", "text": prompt}])) == expected
    assert task(("user", prompt.replace("\n", "\r\n"))) == expected
    assert task(("system", "You are Hermes."), ("user", prompt), stream=True) == expected


@pytest.mark.parametrize(
    "system",
    [
        "You are a professional conversation summarizer. Generate a concise title that fits.",
        "You are an assistant skilled in conversation. Summarize it into a title within 10 words.",
        "You are an assistant skilled at conversations. Summarize it as a title within 10 letters",
        "You need to summarize the user's conversation into a title of no more than 10 words",
        "You are an AI conversation titles assistant who specializes in creating titles.",
        "You are a title generator. You output ONLY a thread title. Nothing else.\n\n<task>",
        "Write a concise title for this conversation in the given language.\nUser: Hi",
        N8N_TITLE,
    ],
)
def test_known_system_prompts_are_recognised_as_long_as_only_the_user_speaks(system: str) -> None:
    assert task(("system", system), ("user", TALK)) == "title"
    assert task(("developer", system), ("user", "Generate:"), ("user", TALK)) == "title"
    assert task(("system", system), ("user", "a"), ("assistant", "b"), ("user", "c")) is None


def test_a_title_asked_for_after_the_conversation_is_recognised() -> None:
    talk = (("user", "How do I bake bread?"), ("assistant", "With flour."))
    found = recognised(*talk, ("user", NEXTCHAT_TITLE))
    assert found is not None
    assert found.messages == (
        UserMessage(content="How do I bake bread?"),
        AssistantMessage(text="With flour."),
        UserMessage(content=NEXTCHAT_TITLE),
    )
    assert task(*talk, ("system", NEXTCHAT_SUMMARY)) == "summary"


def test_the_model_is_told_everything_as_the_user() -> None:
    found = recognised(("system", "Be brief."), ("user", OPEN_WEBUI_TITLE))
    assert found is not None
    assert found.messages == (UserMessage(content=f"Be brief.\n\n{OPEN_WEBUI_TITLE}"),)


ORDINARY = [
    "Hello",
    "### Task: write a poem",
    '### Task:\nWrite a parser for { "title": "x" }',
    '### Task:\nReturn { "tags": [] } for it.\n<chat_history>\n</chat_history>\nThanks!',
    "Generate a title for my blog post about bread.",
    "Please generate a four to five word title for my book.",
    "Suggest 3-5 relevant follow-up questions for my interview.",
    "Summarize our discussion.",
    "Based on the chat history, what did I ask first?",
    "Your task is to fix the tests.",
    "Provide a concise, 5-word-or-less title for the conversation.",
    "What does `<chat_history>` mean in Open WebUI?",
    f"Open WebUI sends me this prompt. What is it for?\n\n{OPEN_WEBUI_TITLE}",
    f"> {OPEN_WEBUI_TAGS}\n\nImprove this prompt.",
    f"{OPEN_WEBUI_TITLE}\n\nWhy does this prompt give me bad titles?",
    f"{OPEN_WEBUI_AUTOCOMPLETE}\nExplain.",
    f"{NEXTCHAT_TITLE} And then write the conversation to a file named after it. " + "x" * 400,
    "",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_prompts_go_to_the_agent(text: str) -> None:
    assert task(("user", text)) is None
    assert task(("system", "You are a helpful assistant."), ("user", text)) is None


@pytest.mark.parametrize("prompt", [prompt for prompt, _ in PROMPTS])
def test_a_prompt_within_a_conversation_is_talk(prompt: str) -> None:
    assert task(("user", prompt), ("assistant", "Bread"), ("user", "Why that?")) is None
    assert task(("user", "Hi"), ("assistant", "Hello"), ("user", prompt)) is None


def test_who_brings_tools_pictures_or_a_session_wants_the_agent() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert task(("user", OPEN_WEBUI_TITLE), tools=tools) is None
    assert task(("user", OPEN_WEBUI_TITLE), response_format={"type": "json_object"}) is None
    assert task(("user", OPEN_WEBUI_TITLE), headers=CallHeaders(session_id="s")) is None
    assert task(("user", OPEN_WEBUI_TITLE), headers=CallHeaders(session_key="k")) is None
    shown = [
        {"type": "text", "text": OPEN_WEBUI_TITLE},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    assert task(("user", shown)) is None


def test_a_client_can_say_that_it_is_a_helper_call() -> None:
    assert task(("user", "Name it."), headers=CallHeaders(task="Title")) == "title"
    assert task(("user", "Name it."), metadata={"task": "title_generation"}) == "title_generation"


def test_metadata_of_the_clients_own_means_nothing() -> None:
    assert task(("user", "Pay it."), metadata={"task": "invoice-42"}) is None
    assert task(("user", "Pay it."), metadata={"task": {"a": 1}}) is None


def test_a_task_needs_a_proper_name_and_something_to_answer() -> None:
    with pytest.raises(Problem) as caught:
        task(("user", "x"), headers=CallHeaders(task="rm -rf /"))
    assert caught.value.param == "X-Hermes-Task"
    with pytest.raises(Problem) as caught:
        task(("user", "x"), ("assistant", "y"), headers=CallHeaders(task="title"))
    assert caught.value.param == "messages"


def test_the_owner_can_add_patterns() -> None:
    mine = ("(?i)^name this chat",)
    assert task(("user", "Name this chat: bread"), patterns=mine) == "helper"
    assert task(("user", "Please name this chat"), patterns=mine) is None
    talk = (("user", "Hi"), ("assistant", "Hello"))
    assert task(*talk, ("user", "Name this chat: bread"), patterns=mine) is None
