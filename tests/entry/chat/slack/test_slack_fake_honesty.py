"""The fake, looked at by Slack's own SDK."""

import asyncio
import logging
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from fakes.slack import APP_TOKEN, BOT, TOKEN, FakeSlack


def client_of(slack: FakeSlack, token: str = TOKEN) -> AsyncWebClient:
    return AsyncWebClient(token, base_url=slack.base_url, retry_handlers=[])


async def test_the_sdk_receives_acknowledges_and_gets_again_what_it_did_not() -> None:
    async with FakeSlack() as slack:
        client = SocketModeClient(
            APP_TOKEN, web_client=client_of(slack), logger=logging.getLogger("test.slack")
        )
        seen: list[SocketModeRequest] = []

        async def take(socket: Any, request: SocketModeRequest) -> None:
            seen.append(request)
            if request.retry_attempt:
                response = SocketModeResponse(envelope_id=request.envelope_id)
                await socket.send_socket_mode_response(response)

        client.socket_mode_request_listeners.append(take)
        await client.connect()  # type: ignore[no-untyped-call]
        try:
            await slack.until(lambda: slack.sockets)
            slack.say("C1", "U1", f"<@{BOT}> hi")
            for _ in range(200):
                if len(seen) == 2:
                    break
                await asyncio.sleep(0.01)
            assert [each.payload["event"]["type"] for each in seen] == ["app_mention", "message"]
            assert len({each.payload["event"]["ts"] for each in seen}) == 1
            for envelope_id in list(slack.unacked):
                slack.redeliver(envelope_id)
            await slack.until(lambda: len(slack.acks) == 2 and not slack.unacked)
            assert [each.retry_attempt for each in seen] == [0, 0, 1, 1]
            slack.disconnect("refresh_requested")
            await slack.until(lambda: slack.opened == 2 and len(slack.sockets) == 1)
            slack.redeliver(slack.slash("D1", "U1", "/new"))
            await slack.until(lambda: not slack.unacked)
        finally:
            await client.close()  # type: ignore[no-untyped-call]


async def test_the_sdk_posts_edits_reacts_uploads_and_is_refused() -> None:
    async with FakeSlack() as slack:
        client = client_of(slack)
        assert (await client.auth_test())["bot_id"]
        posted = await client.chat_postMessage(channel="C1", text="hi", blocks=[])
        await client.chat_update(channel="C1", ts=posted["ts"], text="there")
        found = await client.conversations_history(channel="C1")
        assert [each["text"] for each in found["messages"]] == ["there"]
        await client.reactions_add(channel="C1", timestamp=posted["ts"], name="eyes")
        with pytest.raises(SlackApiError, match="already_reacted"):
            await client.reactions_add(channel="C1", timestamp=posted["ts"], name="eyes")
        await client.files_upload_v2(channel="C1", filename="a.txt", content="text")
        assert [file["title"] for file in slack.replies("C1")[-1].files] == ["a.txt"]
        with pytest.raises(SlackApiError, match="thread_not_found"):
            await client.chat_postMessage(channel="C1", text="x", thread_ts="1.1")
        with pytest.raises(SlackApiError, match="msg_too_long"):
            await client.chat_update(channel="C1", ts=posted["ts"], text="x" * 4001)
        slack.fault("429", "chat.postMessage")
        with pytest.raises(SlackApiError) as told:
            await client.chat_postMessage(channel="C1", text="x")
        assert told.value.response.headers["Retry-After"] == "1"
        with pytest.raises(SlackApiError, match="invalid_auth"):
            await client_of(slack, "xoxb-wrong").auth_test()
