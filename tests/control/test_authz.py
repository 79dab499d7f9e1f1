"""Who is let in: nobody, unless something allows it."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes.control.admission.authz import (
    Access,
    Authorizer,
    AuthzSettings,
    BotPolicy,
    ChatPolicy,
    authz_settings,
    may_run,
)
from hermes.control.commands.builtin import builtin_registry
from hermes.control.commands.registry import SlashCommand
from hermes.domain.errors import ConfigError
from hermes.domain.inbound import Chat, ChatKind, InboundMessage, ReplyRef, Sender

ANNA = Sender(id="1", name="Anna")
BEN = Sender(id="2", name="Ben")
BOT = Sender(id="9", name="other bot", is_bot=True)
PRIVATE = Chat(kind=ChatKind.PRIVATE, id="1")
GROUP = Chat(kind=ChatKind.GROUP, id="-100")


def said(
    sender: Sender = ANNA, chat: Chat = PRIVATE, *, text: str = "hello", internal: bool = False
) -> InboundMessage:
    return InboundMessage(
        platform="telegram",
        account="hermes_bot",
        native_id="m1",
        chat=chat,
        sender=sender,
        text=text,
        sent_at=0.0,
        internal=internal,
    )


def settings(
    section: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    variables: Mapping[str, str] | None = None,
    **more: str,
) -> AuthzSettings:
    return authz_settings(
        "telegram", section or {}, gateway=gateway or {}, variables={**(variables or {}), **more}
    )


def check(message: InboundMessage, found: AuthzSettings, paired: str | None = None) -> Access:
    authorizer = Authorizer(
        {"telegram": found}, paired=lambda _platform, sender: sender.id == paired
    )
    return authorizer.check(message)


def command(name: str) -> SlashCommand:
    found = builtin_registry().find(name, terminal=False)
    assert found is not None
    return found


def test_nobody_is_allowed_by_default() -> None:
    assert not check(said(), settings()).allowed
    assert not check(said(chat=GROUP), settings()).allowed


def test_a_platform_that_is_not_configured_lets_nobody_in() -> None:
    access = Authorizer({}).check(said())
    assert not access.allowed
    assert not access.pair


def test_what_hermes_itself_says_needs_no_list() -> None:
    assert Authorizer({}).check(said(internal=True)).allowed


@pytest.mark.parametrize(
    ("section", "variables"),
    [
        ({"allowed_users": ("1", "3")}, {}),
        ({"allowed_users": [1]}, {}),
        ({"allowed_users": "3, 1"}, {}),
        ({"allowed_users": ["*"]}, {}),
        ({"allow_all_users": True}, {}),
        ({"dm_policy": "open"}, {}),
        ({}, {"TELEGRAM_ALLOWED_USERS": "3,1"}),
        ({}, {"TELEGRAM_ALLOW_ALL_USERS": "true"}),
        ({}, {"GATEWAY_ALLOWED_USERS": "1"}),
        ({}, {"GATEWAY_ALLOW_ALL_USERS": "1"}),
    ],
)
def test_every_way_to_let_somebody_in_works(
    section: dict[str, Any], variables: dict[str, str]
) -> None:
    assert check(said(), settings(section, variables=variables)).allowed


def test_a_list_lets_in_only_who_is_on_it() -> None:
    found = settings({"allowed_users": ["1"]})
    assert check(said(ANNA), found).allowed
    assert not check(said(BEN), found).allowed


def test_the_lists_of_file_and_environment_are_put_together() -> None:
    found = settings({"allowed_users": ["1"]}, TELEGRAM_ALLOWED_USERS="2")
    assert check(said(ANNA), found).allowed
    assert check(said(BEN), found).allowed


def test_a_name_is_not_an_id() -> None:
    impostor = Sender(id="666", name="1")
    assert not check(said(impostor), settings({"allowed_users": ["1"]})).allowed


def test_a_second_id_of_the_same_person_counts() -> None:
    found = settings({"allowed_users": ["+49123"]})
    assert check(said(Sender(id="uuid", alt_id="+49123")), found).allowed


def test_users_of_groups_are_heard_in_groups_only() -> None:
    found = settings(TELEGRAM_GROUP_ALLOWED_USERS="1")
    assert check(said(chat=GROUP), found).allowed
    assert not check(said(chat=PRIVATE), found).allowed


def test_in_a_listed_group_everybody_is_heard_and_nowhere_else() -> None:
    found = settings(TELEGRAM_GROUP_ALLOWED_CHATS="-100")
    assert check(said(BEN, GROUP), found).allowed
    assert not check(said(BEN, Chat(kind=ChatKind.GROUP, id="-200")), found).allowed
    assert not check(said(BEN, Chat(kind=ChatKind.PRIVATE, id="-100")), found).allowed
    topic = Chat(kind=ChatKind.THREAD, id="7", parent_id="-100")
    assert check(said(BEN, topic), found).allowed


def test_paired_people_are_heard_everywhere_on_their_platform() -> None:
    assert check(said(), settings(), paired="1").allowed
    assert check(said(chat=GROUP), settings(), paired="1").allowed
    assert not check(said(BEN), settings(), paired="1").allowed


def test_a_role_lets_in_when_the_platform_confirms_it() -> None:
    found = settings({"allowed_roles": ["staff"]})
    assert check(said(replace(ANNA, roles=("staff", "x"))), found).allowed
    assert not check(said(replace(ANNA, roles=("x",))), found).allowed


def test_a_listed_server_lets_in_all_of_its_channels() -> None:
    found = settings(TELEGRAM_GROUP_ALLOWED_CHATS="guild")
    channel = Chat(kind=ChatKind.CHANNEL, id="7", scope_id="guild")
    assert check(said(BEN, channel), found).allowed
    assert not check(said(BEN, replace(channel, scope_id="other")), found).allowed


def test_a_disabled_kind_of_chat_is_closed_to_everybody() -> None:
    found = settings(
        {"group_policy": "disabled", "allowed_users": ["*"], "allow_all_users": True},
        TELEGRAM_GROUP_ALLOWED_CHATS="-100",
    )
    assert not check(said(chat=GROUP), found, paired="1").allowed
    assert check(said(), found).allowed


def test_a_policy_of_the_platform_is_stronger_than_the_open_gateway() -> None:
    found = settings({"dm_policy": "allowlist"}, GATEWAY_ALLOW_ALL_USERS="true")
    assert not check(said(), found).allowed
    assert check(said(chat=GROUP), found).allowed


def test_platforms_that_prove_their_messages_are_heard() -> None:
    found = authz_settings("webhook", {}, gateway={}, variables={})
    message = replace(said(), platform="webhook")
    assert Authorizer({"webhook": found}).check(message).allowed


# -- bots --------------------------------------------------------------------


def test_bots_are_refused_even_where_all_people_are_allowed() -> None:
    found = settings({"allow_all_users": True, "allowed_users": ["*"]})
    assert not check(said(BOT, GROUP), found).allowed


@pytest.mark.parametrize("word", ["all", "true", True])
def test_bots_can_be_allowed(word: Any) -> None:
    assert check(said(BOT, GROUP), settings({"allow_bots": word})).allowed


@pytest.mark.parametrize("key", ["allowed_users", "group_allowed_chats", "group_allowed_users"])
def test_a_list_alone_lets_no_bot_in(key: str) -> None:
    listed = {key: ["9", GROUP.id]}
    assert not check(said(BOT, GROUP), settings(listed)).allowed
    assert check(said(BOT, GROUP), settings(listed | {"allow_bots": "all"})).allowed


def test_bots_can_be_heard_only_when_they_address_us() -> None:
    found = settings(TELEGRAM_ALLOW_BOTS="mentions")
    assert found.allow_bots is BotPolicy.MENTIONS
    assert not check(said(BOT, GROUP), found).allowed
    assert check(replace(said(BOT, GROUP), mentioned=True), found).allowed
    answer = replace(said(BOT, GROUP), reply_to=ReplyRef(native_id="5", own=True))
    assert check(answer, found).allowed


# -- what strangers see ------------------------------------------------------


def test_a_stranger_is_offered_a_code_in_private_and_silence_in_groups() -> None:
    assert check(said(), settings()).pair
    assert not check(said(chat=GROUP), settings()).pair
    assert not check(said(BOT), settings()).pair


@pytest.mark.parametrize(
    ("section", "gateway", "pair"),
    [
        ({"allowed_users": ["7"]}, {}, False),
        ({"allowed_users": ["7"], "unauthorized_dm_behavior": "pair"}, {}, True),
        ({"unauthorized_dm_behavior": "ignore"}, {}, False),
        ({}, {"unauthorized_dm_behavior": "ignore"}, False),
        ({"unauthorized_dm_behavior": "pair"}, {"unauthorized_dm_behavior": "ignore"}, True),
        ({"dm_policy": "pairing", "allowed_users": ["7"]}, {}, True),
        ({"dm_policy": "allowlist"}, {}, False),
        ({"dm_policy": "disabled", "unauthorized_dm_behavior": "pair"}, {}, False),
        ({}, {"allowed_users": ("7",)}, False),
    ],
)
def test_whether_strangers_are_offered_a_code_follows_the_settings(
    section: dict[str, Any], gateway: dict[str, Any], pair: bool
) -> None:
    access = check(said(), settings(section, gateway))
    assert not access.allowed
    assert bool(access.pair) is pair


# -- commands and approvals --------------------------------------------------


def test_where_access_is_not_divided_everybody_who_may_talk_may_do_everything() -> None:
    access = check(said(), settings({"allow_all_users": True}))
    assert access.admin
    assert may_run(command("model"), access)


def test_where_access_is_divided_users_have_only_their_commands() -> None:
    found = settings(
        {
            "allow_all_users": True,
            "allow_admin_from": ["1"],
            "user_allowed_commands": ["/new", "stop"],
        }
    )
    anna, ben = check(said(ANNA), found), check(said(BEN), found)
    assert anna.admin
    assert not ben.admin
    assert may_run(command("model"), anna)
    assert may_run(command("new"), ben)
    assert may_run(command("stop"), ben)
    assert may_run(command("help"), ben)
    assert not may_run(command("model"), ben)


def test_an_alias_of_an_allowed_command_is_allowed() -> None:
    found = settings({"allow_all_users": True, "user_allowed_commands": ["reset"]})
    assert may_run(command("new"), check(said(), found))
    assert not may_run(command("title"), check(said(), found))


def test_an_empty_list_of_administrators_means_nobody() -> None:
    access = check(said(), settings({"allow_all_users": True, "allow_admin_from": []}))
    assert access.allowed
    assert not access.admin


def test_groups_divide_access_as_private_chats_do_unless_they_say_otherwise() -> None:
    both = settings({"allow_all_users": True, "allow_admin_from": ["1"]})
    assert not check(said(BEN, GROUP), both).admin
    own = settings(
        {"allow_all_users": True, "allow_admin_from": ["1"], "group_allow_admin_from": ["2"]}
    )
    assert check(said(BEN, GROUP), own).admin
    assert not check(said(ANNA, GROUP), own).admin
    assert not check(said(BEN, PRIVATE), own).admin


def test_who_is_not_allowed_runs_nothing() -> None:
    access = check(said(), settings())
    assert not may_run(command("help"), access)


def test_a_press_is_judged_as_a_message_would_be() -> None:
    found = settings({"allowed_users": ["1"]})
    authorizer = Authorizer({"telegram": found})
    assert authorizer.check_person("telegram", GROUP, ANNA).allowed
    assert not authorizer.check_person("telegram", GROUP, BEN).allowed


def test_new_lists_count_at_once() -> None:
    authorizer = Authorizer({"telegram": settings()})
    assert not authorizer.check(said()).allowed
    authorizer.update({"telegram": settings({"allowed_users": ["1"]})})
    assert authorizer.check(said()).allowed


# -- settings ----------------------------------------------------------------


@pytest.mark.parametrize(
    "section", [{"dm_policy": "opne"}, {"allow_all_users": "ture"}, {"allow_bots": "some"}]
)
def test_a_word_that_means_nothing_is_an_error_and_not_a_guess(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(section)


IDS = st.sampled_from(["", "1", "2", "9", "*"])


@given(
    users=st.frozensets(IDS),
    group_users=st.frozensets(IDS),
    gateway_users=st.frozensets(IDS),
    dm=st.sampled_from([None, *ChatPolicy]),
    group=st.sampled_from([None, *ChatPolicy]),
    sender=st.sampled_from([ANNA, BEN, BOT, Sender(id="")]),
    chat=st.sampled_from([PRIVATE, GROUP]),
)
def test_nobody_gets_in_whom_no_list_or_policy_names(
    users: frozenset[str],
    group_users: frozenset[str],
    gateway_users: frozenset[str],
    dm: ChatPolicy | None,
    group: ChatPolicy | None,
    sender: Sender,
    chat: Chat,
) -> None:
    found = AuthzSettings(
        platform="telegram",
        allowed_users=users,
        group_allowed_users=group_users,
        gateway_users=gateway_users,
        dm_policy=dm,
        group_policy=group,
    )
    access = check(said(sender, chat), found)
    private = chat is PRIVATE
    policy = dm if private else group
    listed = users | gateway_users | (frozenset() if private else group_users)
    named = bool(sender.id) and sender.id in listed
    everybody = ("*" in listed or policy is ChatPolicy.OPEN) and not sender.is_bot
    if access.allowed:
        assert policy is not ChatPolicy.DISABLED
        assert named or everybody
        assert not access.pair
    if access.pair:
        assert private
