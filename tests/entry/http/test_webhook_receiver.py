"""The webhook receiver through its port: what is let in, in which order, and how it answers."""

import asyncio
import base64
import hmac
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.webhook_door import SECRET, FaultyLedger, webhook_door
from hermes.config.paths import HermesHome
from hermes.control.webhooks.signatures import SCHEMES, sign, sign_v2
from hermes.domain.errors import ConfigError
from hermes.domain.webhooks import HookState
from hermes.entry.http.settings import webhook_settings
from hermes.execution.clock import SystemClock
from hermes.state.webhook_routes import HookRouteFile
from hermes.testing import FakeClock
from hermes.testing.model import ScriptedModel, say

GH = {"gh": {"secret": SECRET, "prompt": "Look at {title}"}}


def model() -> ScriptedModel:
    return ScriptedModel(default=say("Looked at it."))


async def test_a_delivery_is_answered_when_it_is_in_the_ledger_and_then_worked_on(
    tmp_path: Path,
) -> None:
    scripted = model()
    async with webhook_door(tmp_path, scripted, GH) as door:
        answer = await door.post("gh", {"title": "it"}, id="d-1", x_github_event="push")
        assert answer.status_code == 202
        expected = {"status": "accepted", "route": "gh", "event": "push", "delivery_id": "d-1"}
        assert answer.json() == expected
        assert await door.ledger.hook("gh", "d-1") is not None
        await door.quiet()
        delivery = await door.delivery("gh", "d-1")
        assert delivery.state is HookState.DONE
        assert delivery.session_id is not None
        session = await door.ledger.session(delivery.session_id)
        assert session is not None
        assert (session.source, session.end_reason) == ("webhook", "webhook_complete")
        assert session.title is None
        assert await door.entries() == []
    assert "Look at it" in str(scripted.requests[0].messages[-1])


async def test_the_answer_has_security_headers_and_no_way_in_for_browsers(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        answer = await door.client.get("/health")
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/webhooks/none", 404),
        ("POST", "/webhooks/", 404),
        ("POST", "/webhooks/gh/more", 404),
        ("POST", "/p/other/webhooks/gh", 404),
        ("POST", "/", 404),
        ("GET", "/webhooks/gh", 405),
        ("POST", "/health", 405),
        ("POST", "/webhooks/off", 403),
        ("POST", "/webhooks/gh", 401),
        ("POST", "/p/main/webhooks/gh", 401),
    ],
)
async def test_what_is_not_a_delivery_to_a_route_is_turned_away(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    routes = {**GH, "off": {"secret": SECRET, "enabled": False}}
    async with webhook_door(tmp_path, model(), routes) as door:
        answer = await door.client.request(method, path, content=b"{}")
        assert answer.status_code == status
        assert answer.json()["status"] == "error"


async def test_a_wrong_signature_leaves_no_trace(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        answer = await door.post("gh", {"title": "it"}, id="d-1", secret="wrong")
        assert answer.status_code == 401
        assert await door.ledger.hooks(tuple(HookState)) == []


async def test_the_secret_of_one_route_does_not_open_another(tmp_path: Path) -> None:
    routes = {"a": {"secret": "secret of a"}, "b": {"secret": "secret of b"}}
    async with webhook_door(tmp_path, model(), routes) as door:
        assert (await door.post("b", {}, secret="secret of a")).status_code == 401
        assert (await door.post("b", {}, secret="secret of b")).status_code == 202


async def test_the_same_id_on_another_route_is_another_delivery(tmp_path: Path) -> None:
    routes = {"a": {"secret": SECRET}, "b": {"secret": SECRET}}
    async with webhook_door(tmp_path, model(), routes) as door:
        assert (await door.post("a", {}, id="1")).json()["status"] == "accepted"
        assert (await door.post("b", {}, id="1")).json()["status"] == "accepted"
        assert (await door.post("a", {}, id="1")).json()["status"] == "duplicate"


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_also_without_a_length(
    tmp_path: Path, chunked: bool
) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b"x" * 1000

    async with webhook_door(tmp_path, model(), GH, max_body_bytes=10_000) as door:
        content = pieces() if chunked else b"x" * 40_000
        signed = {"x-hub-signature-256": "sha256=0"}
        answer = await door.client.post("/webhooks/gh", content=content, headers=signed)
        assert answer.status_code == 413
        fits = await door.post("gh", {"title": "x" * 9000}, id="1")
        assert fits.status_code == 202


async def test_more_deliveries_than_the_limit_have_to_wait(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), {**GH, "b": GH["gh"]}, rate_limit=2) as door:
        assert (await door.post("gh", {}, id="wrong", secret="x")).status_code == 401
        for number in range(2):
            assert (await door.post("gh", {"n": number}, id=str(number))).status_code == 202
        refused = await door.post("gh", {"n": 3}, id="3")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await door.post("b", {}, id="3")).status_code == 202


async def test_an_old_signature_is_refused_by_the_receivers_own_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    async with webhook_door(tmp_path, model(), GH, clock=clock) as door:
        headers = sign_v2(SECRET, int(clock.now()), b"{}")
        late = sign_v2(SECRET, int(clock.now()) - 301, b"{}")
        for sent, status in ((late, 401), (headers, 202)):
            answer = await door.client.post("/webhooks/gh", content=b"{}", headers=sent)
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("route", "payload", "reason"),
    [
        ({"events": ["push"]}, {"type": "pull"}, "event"),
        ({"filters": {"field": "payload.draft", "equals": False}}, {"draft": True}, "filter"),
    ],
)
async def test_events_that_do_not_matter_are_ignored_and_not_kept(
    tmp_path: Path, route: dict[str, Any], payload: Any, reason: str
) -> None:
    scripted = model()
    async with webhook_door(tmp_path, scripted, {"a": {"secret": SECRET, **route}}) as door:
        answer = await door.post("a", payload, id="1")
        assert answer.status_code == 200
        assert answer.json()["status"] == "ignored"
        assert answer.json()["reason"] == reason
        assert await door.ledger.hook("a", "1") is None
    assert scripted.requests == []


async def test_a_filter_whose_list_cannot_be_read_loses_nothing(tmp_path: Path) -> None:
    routes = {"a": {"secret": SECRET, "filters": {"field": "event", "in_file": "list.txt"}}}
    async with webhook_door(tmp_path, model(), routes) as door:
        assert (await door.post("a", {"type": "x"}, id="1")).status_code == 503
        (tmp_path / "list.txt").write_text("x\n", encoding="utf-8")
        assert (await door.post("a", {"type": "x"}, id="1")).status_code == 202


@pytest.mark.parametrize("verb", ["receive_hook", "admit"])
async def test_a_ledger_that_fails_means_503_and_nothing_is_run(tmp_path: Path, verb: str) -> None:
    scripted = model()
    ledger = await FaultyLedger.at(tmp_path)
    try:
        async with webhook_door(tmp_path, scripted, GH, ledger=ledger) as door:
            ledger.broken = frozenset({verb})
            answer = await door.post("gh", {"title": "it"}, id="1")
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            await door.quiet()
            assert scripted.requests == []
            ledger.broken = frozenset()
            again = await door.post("gh", {"title": "it"}, id="1")
            assert again.json()["status"] == "accepted"
            await door.quiet()
            assert await door.state("gh", "1") is HookState.DONE
            assert len(scripted.requests) == 1
    finally:
        await ledger.close()


async def test_two_hundred_copies_at_once_are_one_run(tmp_path: Path) -> None:
    scripted = model()
    async with webhook_door(tmp_path, scripted, GH, rate_limit=0) as door:
        answers = await asyncio.gather(
            *[door.post("gh", {"title": "it"}, id="1") for _ in range(200)]
        )
        await door.quiet()
        words = [answer.json()["status"] for answer in answers]
        assert words.count("accepted") == 1
        assert words.count("duplicate") == 199
    assert len(scripted.requests) == 1


async def test_a_route_added_while_running_is_served_at_once(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        assert (await door.post("new", {})).status_code == 404
        added = {"new": {"secret": SECRET}, "gh": {"secret": "other"}}
        HookRouteFile(HermesHome(root=tmp_path)).change(lambda _: added)
        assert (await door.post("new", {})).status_code == 202
        assert (await door.post("gh", {}, secret="other")).status_code == 401


async def test_header_games_are_refused(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        assert (await door.post("gh", {}, id="x" * 300)).status_code == 400
        assert (await door.post("gh", {}, x_junk="y" * 9000)).status_code == 431
        twice = [("x-hub-signature-256", "sha256=00"), ("x-hub-signature-256", "sha256=11")]
        answer = await door.client.post("/webhooks/gh", content=b"{}", headers=twice)
        assert answer.status_code == 401


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bodies=st.lists(st.binary(max_size=300) | st.text(max_size=100).map(str.encode), min_size=8),
    event=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=120),
)
async def test_no_signed_body_breaks_the_receiver(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], event: str
) -> None:
    folder = tmp_path_factory.mktemp("door")
    async with webhook_door(folder, model(), GH, rate_limit=0) as door:
        for body in bodies:
            answer = await door.post("gh", body, x_github_event=event)
            assert answer.status_code in (200, 202, 400)
            assert answer.json()["status"] in ("accepted", "duplicate", "error")


def test_settings_that_cannot_work_are_refused() -> None:
    assert webhook_settings({"enabled": True, "token": ""}).port == 8644
    assert webhook_settings({"port": "9000"}).base_url == "http://127.0.0.1:9000"
    assert webhook_settings({"host": "::"}).base_url == "http://127.0.0.1:8644"
    assert not webhook_settings({"host": "0.0.0.0"}).loopback
    for wrong in ({"port": 70_000}, {"rate_limit": -1}, {"max_body_bytes": 0}, {"routes": [1]}):
        with pytest.raises(ConfigError, match="webhook"):
            webhook_settings(wrong)


async def test_while_hermes_stops_deliveries_are_to_be_sent_again(tmp_path: Path) -> None:
    async with webhook_door(tmp_path, model(), GH) as door:
        door.receiver.draining = True
        answer = await door.post("gh", {"title": "it"}, id="d-1")
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert await door.ledger.hook("gh", "d-1") is None


async def test_a_route_takes_the_scheme_that_it_describes(tmp_path: Path) -> None:
    own = {"header": "X-Acme-Sig", "encoding": "base64", "id": "X-Acme-Id"}
    routes = {
        "acme": {"secret": SECRET, "signature": own, "prompt": "Look at {title}"},
        "pay": {"secret": SECRET, "signature": "stripe", "events": ["invoice.paid"]},
    }
    async with webhook_door(tmp_path, model(), routes) as door:
        body = b'{"title": "it"}'
        digest = hmac.new(SECRET.encode(), body, "sha256").digest()
        headers = {"X-Acme-Sig": base64.b64encode(digest).decode(), "X-Acme-Id": "a-1"}
        answer = await door.client.post("/webhooks/acme", content=body, headers=headers)
        assert (answer.status_code, answer.json()["delivery_id"]) == (202, "a-1")
        other = await door.post("acme", {"title": "it"}, id="d-1")
        assert other.status_code == 401
        body, now = b'{"id": "evt_1", "type": "invoice.paid"}', int(SystemClock().now())
        for word, shift in (("accepted", 0), ("duplicate", 1)):
            headers = sign(SCHEMES["stripe"], SECRET, now + shift, body)
            answer = await door.client.post("/webhooks/pay", content=body, headers=headers)
            told = answer.json()
            assert (told["status"], told["event"]) == (word, "invoice.paid")
            assert told["delivery_id"] == "evt_1"
        await door.quiet()


async def test_slack_is_given_back_its_challenge(tmp_path: Path) -> None:
    routes = {"s": {"secret": SECRET, "signature": "slack"}}
    async with webhook_door(tmp_path, model(), routes) as door:
        body = b'{"type": "url_verification", "challenge": "abc"}'
        headers = sign(SCHEMES["slack"], SECRET, int(SystemClock().now()), body)
        answer = await door.client.post("/webhooks/s", content=body, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"challenge": "abc"})
        forged = await door.client.post("/webhooks/s", content=body)
        assert forged.status_code == 401
