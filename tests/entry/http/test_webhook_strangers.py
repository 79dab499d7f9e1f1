"""The webhook receiver against strangers: web pages, other names, replays, bodies without proof."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest

from fakes.webhook_door import SECRET, WebhookDoor, webhook_door
from hermes.control.webhooks.signatures import NO_AUTH, sign_v2
from hermes.domain.webhooks import HookState
from hermes.testing import FakeClock
from hermes.testing.model import ScriptedModel, say

GH = {"gh": {"secret": SECRET, "prompt": "Look at {title}"}}
OPEN = {"open": {"secret": NO_AUTH, "prompt": "Look at {title}"}}
BODY = b'{"title": "it"}'


def model() -> ScriptedModel:
    return ScriptedModel(default=say("Looked at it."))


async def send(door: WebhookDoor, headers: dict[str, str], body: bytes = BODY) -> dict[str, Any]:
    answer = await door.client.post("/webhooks/gh", content=body, headers=headers)
    return {"code": answer.status_code, **answer.json()}


async def test_a_delivery_under_a_strangers_host_name_is_refused_with_the_key_to_set(
    tmp_path: Path,
) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        refused = await door.post("gh", {"title": "it"}, host="rebound.example")
        assert refused.status_code == 403
        assert "platforms.webhook.extra.allowed_hosts" in refused.json()["error"]
        assert await door.ledger.hooks(tuple(HookState)) == []
        assert (await door.post("gh", {"title": "it"}, host="localhost:1")).status_code == 202


@pytest.mark.parametrize("allowed", [["Hooks.Example"], "a.example, hooks.example", ["*"]])
async def test_a_tunnel_is_let_in_under_its_name(tmp_path: Path, allowed: Any) -> None:
    async with webhook_door(tmp_path, model(), GH, allowed_hosts=allowed) as door:
        taken = await door.post("gh", {"title": "it"}, host="hooks.example")
        assert taken.status_code == 202


async def test_a_page_of_a_stranger_is_refused_also_with_a_signature(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        for path in ("/webhooks/gh", "/health"):
            answer = await door.client.get(path, headers={"origin": "https://evil.example"})
            assert answer.status_code == 403
        refused = await door.post("gh", {"title": "it"}, origin="https://evil.example")
        assert refused.status_code == 403
        assert not any(name.startswith("access-control") for name in refused.headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "text/plain;charset=UTF-8"},
        {"content-type": "Multipart/Form-Data; boundary=x"},
        {"host": "hooks.example"},
        {"x-forwarded-for": "203.0.113.5"},
        {"X-Forwarded-Host": "hooks.example"},
        {"forwarded": "for=203.0.113.5"},
        {"cf-connecting-ip": "203.0.113.5"},
        {"x-real-ip": "127.0.0.1"},
        {"via": "1.1 tunnel"},
    ],
)
async def test_without_authentication_nothing_is_taken_that_a_browser_or_a_tunnel_could_bring(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with webhook_door(tmp_path, model(), OPEN, allowed_hosts=["hooks.example"]) as door:
        sent = {"content-type": "application/json", **headers}
        refused = await door.client.post("/webhooks/open", content=BODY, headers=sent)
        assert refused.status_code == 403
        assert await door.ledger.hooks(tuple(HookState)) == []


@pytest.mark.parametrize(
    "headers", [{}, {"content-type": "application/json"}, {"sec-fetch-site": "none"}]
)
async def test_without_authentication_programs_on_this_machine_are_taken(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with webhook_door(tmp_path, model(), OPEN) as door:
        taken = await door.client.post("/webhooks/open", content=BODY, headers=headers)
        assert taken.status_code == 202


async def test_a_body_without_a_signature_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        url = door.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = "POST /webhooks/gh HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(10):
            status = (await reader.readline()).split()[1]
        assert status == b"401"
        writer.close()


# -- replays -------------------------------------------------------------------------------------


def github(delivery_id: str) -> dict[str, str]:
    signature = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={signature}", "x-github-delivery": delivery_id}


def plain(delivery_id: str) -> dict[str, str]:
    signature = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    return {"x-webhook-signature": signature, "x-request-id": delivery_id}


def timed(delivery_id: str, at: float) -> dict[str, str]:
    return {**sign_v2(SECRET, int(at), BODY), "x-request-id": delivery_id}


def standard(delivery_id: str, at: float, name: str = "webhook") -> dict[str, str]:
    signed = f"{delivery_id}.{int(at)}.".encode() + BODY
    mac = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    sent = {"id": delivery_id, "timestamp": str(int(at)), "signature": f"v1,{mac}"}
    return {f"{name}-{key}": value for key, value in sent.items()}


@pytest.mark.parametrize("signed", [github, plain, lambda name: timed(name, 1000.0)])
async def test_what_was_signed_and_comes_again_under_another_id_is_a_replay(
    tmp_path: Path, signed: Any
) -> None:
    scripted, clock = model(), FakeClock(1000.0)
    async with webhook_door(tmp_path, scripted, GH, clock=clock) as door:
        assert (await send(door, signed("first")))["status"] == "accepted"
        await door.quiet()
        for made_up in ("second", "third"):
            again = await send(door, signed(made_up))
            assert (again["status"], again["delivery_id"]) == ("duplicate", "first")
        bare = {name: value for name, value in signed("x").items() if not name.endswith("-id")}
        bare.pop("x-github-delivery", None)
        assert (await send(door, bare))["status"] == "duplicate"
        await door.quiet()
    assert len(scripted.requests) == 1


@pytest.mark.parametrize("header", ["x-webhook-signature", "x-hub-signature-256"])
async def test_a_delivery_with_a_time_does_not_come_again_under_a_scheme_without_one(
    tmp_path: Path, header: str
) -> None:
    body = b'{"title": "kubectl rollout restart web?x=1"}'
    clock, scripted = FakeClock(10.0**9), model()
    async with webhook_door(tmp_path, scripted, GH, clock=clock) as door:
        sent = sign_v2(SECRET, int(clock.now()), body)
        assert (await send(door, sent, body))["status"] == "accepted"
        await door.quiet()
        clock.advance(3600.0)
        signed = sent["x-webhook-timestamp"].encode() + b"." + body
        replay = {header: sent["x-webhook-signature-v2"]}
        assert (await send(door, sent, body))["code"] == 401
        assert (await send(door, replay, signed))["code"] == 401
        await door.quiet()
    assert len(scripted.requests) == 1


async def test_copies_under_many_ids_at_once_are_one_run(tmp_path: Path) -> None:
    scripted = model()
    async with webhook_door(tmp_path, scripted, GH, rate_limit=0) as door:
        answers = await asyncio.gather(*[send(door, github(f"id-{n}")) for n in range(50)])
        await door.quiet()
    words = [answer["status"] for answer in answers]
    assert words.count("accepted") == 1
    assert words.count("duplicate") == 49
    assert len(scripted.requests) == 1


async def test_a_sender_that_signs_its_repetition_anew_is_recognised_by_its_id(
    tmp_path: Path,
) -> None:
    clock = FakeClock(1000.0)
    async with webhook_door(tmp_path, model(), GH, clock=clock) as door:
        assert (await send(door, timed("d-1", 1000.0)))["status"] == "accepted"
        repeated = timed("d-1", 1060.0)
        assert (await send(door, repeated))["status"] == "duplicate"
        replay = await send(door, {**repeated, "x-request-id": "made-up"})
        assert (replay["status"], replay["delivery_id"]) == ("duplicate", "d-1")
        assert (await send(door, timed("d-2", 1061.0)))["status"] == "accepted"


@pytest.mark.parametrize("name", ["webhook", "svix"])
async def test_an_id_that_is_signed_keeps_events_with_one_body_apart(
    tmp_path: Path, name: str
) -> None:
    clock = FakeClock(1000.0)
    async with webhook_door(tmp_path, model(), GH, clock=clock) as door:
        assert (await send(door, standard("m-1", 1000.0, name)))["status"] == "accepted"
        assert (await send(door, standard("m-2", 1000.0, name)))["status"] == "accepted"
        assert (await send(door, standard("m-1", 1050.0, name)))["status"] == "duplicate"


async def test_an_id_beside_the_signed_one_does_not_make_a_replay_new(tmp_path: Path) -> None:
    clock = FakeClock(1000.0)
    async with webhook_door(tmp_path, model(), GH, clock=clock) as door:
        signed = standard("m-1", 1000.0)
        assert (await send(door, signed))["status"] == "accepted"
        replay = await send(door, {**signed, "svix-id": "made-up", "x-request-id": "made-up"})
        assert (replay["status"], replay["delivery_id"]) == ("duplicate", "m-1")


async def test_a_failed_delivery_is_run_again_under_its_first_id(tmp_path: Path) -> None:
    routes = {"gh": {"secret": SECRET, "deliver": "telegram:1", "deliver_only": True}}
    async with webhook_door(tmp_path, model(), routes) as door:
        door.chats.fails = True
        assert (await send(door, github("first")))["code"] == 502
        door.chats.fails = False
        again = await send(door, github("second"))
        assert (again["status"], again["delivery_id"]) == ("delivered", "first")
        assert await door.ledger.hook("gh", "second") is None
