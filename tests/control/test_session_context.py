"""What the model is told about its place, and what other people cannot make of it."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fakes.ledgers import session
from hermes.control.delivery.home_channel import HomeChannel, home_channel, set_home_channel
from hermes.control.lanes.batches import batch_entry, batch_inputs, is_shared
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, InboxEntry, Sender
from hermes.domain.messages import content_text
from hermes.domain.settings import Settings
from hermes.domain.settings.doors import HomeChannelSettings, Platform
from hermes.entry.chat.context import hashed_id, observed, place, speaker
from hermes.state.sqlite.ledger import SqliteLedger

ANN = Sender(id="777", name="Ann")
GROUP = Chat(kind=ChatKind.GROUP, id="-5", name="Builders", topic="Roof")
MESSAGE = InboundMessage(
    platform="telegram", account="1", native_id="m1", chat=GROUP, sender=ANN, text="hi", sent_at=0.0
)


def told(
    message: InboundMessage = MESSAGE,
    key: str = "agent:main:telegram:group:-5:777",
    homes: Sequence[HomeChannel] = (),
    salt: str = "",
) -> str:
    return place(entry(message, key), (), homes, salt)


def entry(message: InboundMessage, key: str) -> InboxEntry:
    return InboxEntry(
        id=1, agent_id="main", session_key=key, session_id="s1", message=message, admitted_at=0.0
    )


def test_it_tells_the_platform_the_chat_the_topic_and_who_speaks() -> None:
    text = told()
    assert 'Platform: telegram; a group, named "Builders", topic "Roof"' in text
    assert 'You talk with: "Ann" (id 777)' in text
    assert "[name of the sender]" not in text


def test_a_shared_session_is_explained() -> None:
    shared = "agent:main:telegram:group:-5"
    assert "[name of the sender]" in told(key=shared)
    assert "Ann" not in told(key=shared)
    assert speaker(entry(MESSAGE, shared), "") == 'Now speaks: "Ann" (id 777)'
    assert speaker(entry(MESSAGE, f"{shared}:777"), "") == ""


def test_ids_are_hashed_alike_each_time_and_differently_for_each_salt() -> None:
    text = told(
        salt="salt",
        homes=(HomeChannel(platform="telegram", chat_id="777"),),
    )
    assert "777" not in text
    assert text.count(hashed_id("salt", "777")) == 2
    assert hashed_id("salt", "777") != hashed_id("other", "777")


@given(st.text())
def test_a_name_never_leaves_its_line_and_its_quotes(name: str) -> None:
    plain = told(replace(MESSAGE, sender=Sender(id="777", name="x")))
    text = told(replace(MESSAGE, sender=Sender(id="777", name=name)))
    assert len(text.splitlines()) == len(plain.splitlines())
    (line,) = [line for line in text.splitlines() if line.startswith("- You talk with:")]
    assert line.count('"') in (0, 2)


@given(st.text(min_size=1))
def test_what_others_said_is_quoted_line_by_line(said: str) -> None:
    rest = observed(said)
    if said.strip():
        head, *quoted = rest.splitlines()
        assert "Untrusted" in head
        assert all(line.startswith("> ") for line in quoted)
    else:
        assert rest == ""


def test_what_others_said_is_never_part_of_what_is_stored() -> None:
    message = replace(MESSAGE, context="secret plans")
    first = entry(message, "agent:main:telegram:group:-5")
    second = entry(replace(MESSAGE, context="more plans"), first.session_key)
    assert "plans" not in content_text(batch_inputs([first, second])[0].content)
    whole = batch_entry([first, second])
    assert whole is not None
    assert whole.message.context == "secret plans\nmore plans"


def test_a_session_is_shared_when_its_key_names_nobody() -> None:
    assert is_shared(entry(MESSAGE, "agent:main:telegram:group:-5"))
    assert not is_shared(entry(MESSAGE, "agent:main:telegram:group:-5:777"))
    private = replace(MESSAGE, chat=Chat(kind=ChatKind.PRIVATE, id="777"))
    assert not is_shared(entry(private, "agent:main:telegram:dm:777"))


async def test_the_chosen_home_channel_goes_before_the_configured_one(tmp_path: Path) -> None:
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    await ledger.create_session(session())
    configured = Platform(home_channel=HomeChannelSettings(chat_id="1"))
    settings = Settings(platforms={"telegram": configured})
    default = HomeChannel(platform="telegram", chat_id="1")
    assert await home_channel(ledger, settings, "telegram") == default
    assert await home_channel(ledger, settings, "slack") is None
    chosen = HomeChannel(platform="telegram", account="9", chat_id="2", thread_id="3", name="Ops")
    await set_home_channel(ledger, chosen)
    await ledger.close()
    ledger = await SqliteLedger.open(tmp_path / "state.db", backups=tmp_path)
    assert await home_channel(ledger, settings, "telegram") == chosen
    assert chosen.thread_id == "3"
    await ledger.close()
