"""Sending: the look of messages, what failures mean, files both ways, and the lost send."""

import json
import sys
from pathlib import Path

import pytest

from fakes.slack import TOKEN, FakeSlack
from fakes.slack_kit import adapter_for, listening, outgoing
from hermes.domain.errors import MissingExtra
from hermes.domain.inbound import Attachment
from hermes.domain.ports.platform import Button, FailureAction, HandoffThreads, PlatformFailure
from hermes.entry.chat.slack.wire import look
from hermes.streaming.markup import load_dialect


async def test_a_message_is_sent_edited_and_deleted_and_carries_its_key() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        root = slack.say("C1", "U1", "hello")
        sent = await adapter.send(outgoing("C1", "*hi*", "hi", thread_id=root, key="t/reply:0"))
        (posted,) = slack.replies("C1")
        assert (posted.text, posted.thread_ts) == ("*hi*", root)
        assert posted.metadata["event_payload"] == {"key": "t/reply:0"}
        _, fields = slack.calls[-1]
        assert (fields["unfurl_links"], fields["unfurl_media"]) == (False, False)
        await adapter.edit(sent.native_id, outgoing("C1", "*there*", "there"))
        assert posted.text == "*there*"
        await adapter.delete(outgoing("C1").target, sent.native_id)
        await adapter.delete(outgoing("C1").target, sent.native_id)
        assert slack.replies("C1") == []


async def test_plain_text_is_escaped_and_not_taken_for_markup() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        await adapter.send(outgoing("D1", "a < b & *c*"))
        _, fields = slack.calls[-1]
        assert fields["text"] == "a &lt; b &amp; *c*"
        assert fields["mrkdwn"] is False


async def test_buttons_are_blocks_and_go_with_an_edit() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        row = (
            Button(label="Allow", data="a", style="primary"),
            Button(label="Page", url="https://x"),
        )
        asked = outgoing("D1", f"*May I?*\n{'x' * 3500}", "May I?", buttons=(row, row[:1]))
        sent = await adapter.send(asked)
        (posted,) = slack.replies("D1")
        kinds = [block["type"] for block in posted.blocks]
        assert kinds == ["section", "section", "section", "actions", "actions"]
        assert [each.get("value") for each in posted.buttons] == ["a", None, "a"]
        assert posted.buttons[0]["style"] == "primary"
        await adapter.edit(sent.native_id, outgoing("D1", "*Approved*", "Approved"))
        assert posted.blocks == []


async def test_rich_blocks_show_headings_code_and_dividers() -> None:
    markdown = "# Title\n\nsome *text* & more\n\n```py\nif a < b:\n    pass\n```\n\n---\n\nend"
    async with FakeSlack() as slack, adapter_for(slack, rich_blocks=True) as adapter:
        text = load_dialect("slack_mrkdwn").render(markdown)
        await adapter.send(outgoing("D1", text, markdown))
        header, section, code, rule, end = slack.replies("D1")[0].blocks
        assert header["text"]["text"] == "Title"
        assert section["text"] == {"type": "mrkdwn", "text": "some _text_ &amp; more"}
        assert code["elements"][0]["type"] == "rich_text_preformatted"
        assert code["elements"][0]["elements"][0]["text"] == "if a < b:\n    pass"
        assert (rule["type"], end["text"]["text"]) == ("divider", "end")
        await adapter.send(outgoing("D1", "a < b"))
        assert slack.replies("D1")[1].blocks[0]["text"] == {"type": "plain_text", "text": "a < b"}
        many = "\n".join(f"*h{n}*\n```\n{n}\n```" for n in range(60))
        shown = look(outgoing("D1", many, "plain"), rich=True)["blocks"]
        # Slack takes 50 blocks; what is more goes on as text.
        assert [each["type"] for each in shown[-2:]] == ["rich_text", "section"]
        assert shown[-1]["text"]["text"].startswith("*h24*\n```\n24\n```\n*h25*")
        assert (len(shown), shown[-1]["text"]["text"][-11:]) == (49, "\n```\n59\n```")


@pytest.mark.parametrize(
    ("fault", "action"),
    [
        ("429", FailureAction.WAIT),
        ("500", FailureAction.UNKNOWN),
        ("html", FailureAction.UNKNOWN),
        ("fatal_error", FailureAction.UNKNOWN),
        ("reset_before", FailureAction.UNKNOWN),
        ("reset_after", FailureAction.UNKNOWN),
        ("invalid_auth", FailureAction.FATAL),
        ("invalid_blocks", FailureAction.PLAIN),
        ("thread_not_found", FailureAction.DROP_THREAD),
        ("is_archived", FailureAction.GIVE_UP),
    ],
)
async def test_a_failed_send_is_made_once_and_says_what_it_means(
    fault: str, action: FailureAction
) -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        slack.fault(fault, "chat.postMessage")
        before = sum(slack.counted.values())
        with pytest.raises(PlatformFailure) as told:
            await adapter.send(outgoing("D1", "hi", key="k"))
        assert told.value.action is action
        assert sum(slack.counted.values()) == before + 1
        assert told.value.retry_after == (1.0 if fault == "429" else told.value.retry_after)


async def test_other_failures_of_calls() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        for word, action in (
            ("message_not_found", FailureAction.SEND_NEW),
            ("500", FailureAction.RETRY),
            ("reset_before", FailureAction.RETRY),
        ):
            slack.fault(word, "chat.update")
            with pytest.raises(PlatformFailure) as told:
                await adapter.edit("D1:1.1", outgoing("D1", "x"))
            assert told.value.action is action
        with pytest.raises(PlatformFailure, match="does not name"):
            await adapter.edit("nonsense", outgoing("D1", "x"))


async def test_nobody_there_means_that_nothing_happened() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        await slack.__aexit__()
        with pytest.raises(PlatformFailure) as told:
            await adapter.send(outgoing("D1", "hi"))
        assert told.value.action is FailureAction.RETRY


async def test_a_lost_send_is_found_by_its_key_in_channel_and_thread() -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        root = slack.say("C1", "U1", "hello")
        for place in ({}, {"thread_id": root}):
            wanted = outgoing("C1", "same", key=f"k{len(place)}", **place)
            assert await adapter.find_sent(wanted, 0.0) is None
            await adapter.send(outgoing("C1", "same", key="other", **place))
            assert await adapter.find_sent(wanted, 0.0) is None
            slack.fault("reset_after", "chat.postMessage")
            with pytest.raises(PlatformFailure):
                await adapter.send(wanted)
            for _ in range(250):
                slack.messages["C1"].append(slack.messages["C1"][0])
            found = await adapter.find_sent(wanted, 0.0)
            assert found is not None
            posted = next(m for m in slack.replies("C1") if found.native_id == f"C1:{m.ts}")
            assert posted.metadata["event_payload"]["key"] == wanted.key
            slack.messages["C1"] = slack.messages["C1"][:1]
        # Where the metadata is not given back, what it shows decides.
        await adapter.send(outgoing("C1", "words", key="w"))
        slack.replies("C1")[-1].metadata = {}
        assert await adapter.find_sent(outgoing("C1", "words", key="w"), 0.0) is not None
        assert await adapter.find_sent(outgoing("C1", "words", key="w"), 9e12) is None
        earlier, later = f"C1:{root}", f"C1:{slack.say('C1', 'U1', 'again')}"
        for asked, there in ((earlier, True), (later, False)):
            wanted = outgoing("C1", "words", key="w", reply_to=asked)
            assert (await adapter.find_sent(wanted, 9e12) is not None) is there
        slack.history = False
        with pytest.raises(PlatformFailure, match="missing_scope"):
            await adapter.find_sent(outgoing("C1", "words", key="w"), 0.0)


async def test_status_reactions_broadcast_and_the_thread_of_a_handoff() -> None:
    async with FakeSlack() as slack:
        async with adapter_for(slack, reactions=True, reply_broadcast=True) as adapter:
            root = slack.say("C1", "U1", "hello")
            place = outgoing("C1", thread_id=root).target
            await adapter.typing(place)
            await adapter.typing(outgoing("D1").target)
            (status,) = slack.statuses
            assert (status["thread_ts"], status["status"]) == (root, "is thinking…")
            for emoji, names in (("👀", ["eyes"]), ("👀", ["eyes"]), ("✅", ["white_check_mark"])):
                await adapter.react(place, f"C1:{root}", emoji)
                assert slack.reactions[root] == names
            await adapter.react(place, f"C1:{root}", "")
            assert slack.reactions[root] == []
            await adapter.send(outgoing("C1", "a", thread_id=root))
            await adapter.send(outgoing("C1", "b", thread_id=root, continues=True))
            assert [each.broadcast for each in slack.replies("C1")] == [True, False]
            assert isinstance(adapter, HandoffThreads)
            thread = await adapter.create_handoff_thread(place, "Hermes — <title>")
            seed = slack.replies("C1")[-1]
            assert (seed.text, seed.thread_ts) == ("Hermes — &lt;title&gt;", "")
            assert (thread.chat_id, thread.thread_id) == ("C1", seed.ts)
            for title, named in (("", "Hermes"), ("t" * 5000, "t" * 99 + "…")):
                await adapter.create_handoff_thread(place, title)
                assert slack.replies("C1")[-1].text == named


async def test_files_go_out_in_three_steps_alone_and_together(tmp_path: Path) -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        root = slack.say("C1", "U1", "hello")
        paths = [tmp_path / name for name in ("a.png", "b.txt")]
        for path in paths:
            path.write_bytes(path.name.encode() * 3)
        pieces = [outgoing("C1", thread_id=root, attachment=str(path), key="f") for path in paths]
        sent = await adapter.send(pieces[0])
        (posted,) = slack.replies("C1")
        assert posted.thread_ts == root
        assert slack.contents[posted.files[0]["id"]] == b"a.pnga.pnga.png"
        assert await adapter.find_sent(pieces[0], 0.0) is not None
        assert await adapter.find_sent(pieces[1], 0.0) is None
        await adapter.delete(pieces[0].target, sent.native_id)
        assert slack.replies("C1") == []
        assert len(await adapter.send_album(pieces)) == 2
        (album,) = slack.replies("C1")
        assert [file["title"] for file in album.files] == ["a.png", "b.txt"]
        slack.fault("reset_after", "files.completeUploadExternal")
        with pytest.raises(PlatformFailure) as told:
            await adapter.send(pieces[0])
        assert told.value.action is FailureAction.UNKNOWN
        slack.fault("500", "files.getUploadURLExternal")
        with pytest.raises(PlatformFailure) as told:
            await adapter.send(pieces[0])
        assert told.value.action is FailureAction.RETRY
        with pytest.raises(PlatformFailure, match="cannot be sent"):
            await adapter.send(outgoing("C1", attachment=str(tmp_path / "none")))


async def test_files_come_in_with_the_token_and_a_login_page_is_no_file(tmp_path: Path) -> None:
    async with FakeSlack() as slack, listening(slack) as (adapter, sink):
        picture = slack.share("a.png", b"\x89PNG", "image/png")
        clip = slack.share("clip.mp4", b"sound", "video/mp4", subtype="slack_audio")
        elsewhere = slack.share("b.txt", b"text", "text/plain")
        hidden = {"id": elsewhere["id"], "name": "b.txt", "file_access": "check_file_info"}
        files = [picture, clip, hidden, {"id": "F0", "mode": "tombstone"}]
        slack.say("D1", "U1", "look", subtype="file_share", files=files)
        await sink.until(lambda: sink.messages)
        (message,) = sink.messages.values()
        kinds = [(each.kind, each.media_type) for each in message.attachments]
        assert kinds[:2] == [("image", "image/png"), ("voice", "audio/mp4")]
        contents = []
        for each in message.attachments:
            await adapter.fetch(each.remote, tmp_path / "file")
            contents.append((tmp_path / "file").read_bytes())
        assert contents == [b"\x89PNG", b"sound", b"text"]
        slack.login_page = True
        with pytest.raises(PlatformFailure, match="may not read files"):
            await adapter.fetch(message.attachments[0].remote, tmp_path / "none")
        assert not (tmp_path / "none").exists()


async def test_the_token_is_shown_to_slack_only(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeSlack() as stranger, adapter_for(slack) as adapter:
        file = stranger.share("a.txt", b"x", "text/plain")
        url = file["url_private_download"].replace("127.0.0.1", "localhost")
        remote = Attachment(kind="document", name="a", remote=f"T1 F1 text/plain {url}").remote
        stranger.teams = {"T1": TOKEN}
        with pytest.raises(PlatformFailure, match="may not read files"):
            await adapter.fetch(remote, tmp_path / "a")


async def test_no_secret_is_in_what_a_failure_says(tmp_path: Path) -> None:
    async with FakeSlack() as slack, adapter_for(slack) as adapter:
        await slack.__aexit__()
        for call in (adapter.send(outgoing("D1", "hi")), adapter._api.socket()):
            with pytest.raises(PlatformFailure) as told:
                await call
            assert "xox" not in json.dumps([told.value.message, told.value.hint]).replace(
                "xoxb-…", ""
            )


async def test_without_the_extra_the_install_command_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "slack_sdk.errors", None)
    async with FakeSlack() as slack:
        with pytest.raises(MissingExtra) as told:
            async with adapter_for(slack):
                pass
        assert "pip install 'hermes-gateway[slack]'" in told.value.hint
