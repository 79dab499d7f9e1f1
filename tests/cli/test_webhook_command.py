"""`hermes webhook`, as a person uses it beside a running gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.hermes_cli import hermes
from fakes.webhook_door import SECRET, webhook_door
from hermes.domain.webhooks import HookState
from hermes.testing.model import ScriptedModel, say


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def made_home(home: Path) -> Path:
    home.mkdir()
    return home


def routes(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "webhook_subscriptions.json").read_text("utf-8"))
    return found


def config(home: Path, **extra: Any) -> None:
    home.mkdir(exist_ok=True)
    section = {"platforms": {"webhook": {"enabled": True, "extra": extra}}}
    (home / "config.yaml").write_text(json.dumps(section), encoding="utf-8")


def test_without_a_home_there_are_no_routes_and_nothing_is_made(home: Path) -> None:
    done = hermes(home, "webhook", "list")
    assert done.returncode == 0, done.stderr
    assert "no routes" in done.stdout
    assert not home.exists()


def test_a_receiver_that_is_on_is_not_said_to_be_off(home: Path) -> None:
    config(home)
    done = hermes(home, "webhook", "subscribe", "gh", "--prompt", "Look")
    assert done.returncode == 0, done.stderr
    assert "off" not in done.stdout


def test_a_route_is_added_with_a_secret_that_is_shown_once(home: Path) -> None:
    options = ("--prompt", "Look at {title}", "--events", "push, release", "--skills", "review")
    more = ("--deliver", "telegram", "--deliver-chat-id", "5", "--description", "CI")
    done = hermes(home, "webhook", "subscribe", "gh", *options, *more)
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:8644/webhooks/gh" in done.stdout
    assert "platforms.webhook.enabled" in done.stdout
    assert "name the service's with --signature" in done.stdout
    route = routes(home)["gh"]
    assert route["secret"] in done.stdout
    assert len(route["secret"]) == 64
    assert route["events"] == ["push", "release"]
    assert route["deliver_extra"] == {"chat_id": "5"}
    assert route["created_at"].endswith("Z")
    assert (home / "webhook_subscriptions.json").stat().st_mode & 0o777 == 0o600
    listed = hermes(home, "webhook", "list")
    assert "gh  (added)  push, release, result to telegram  CI" in listed.stdout
    assert route["secret"] not in listed.stdout


def test_a_route_is_changed_without_losing_its_secret(home: Path) -> None:
    first = hermes(home, "webhook", "subscribe", "gh", "--secret", "mine", "--prompt", "A")
    assert "mine" not in first.stdout
    done = hermes(home, "webhook", "subscribe", "gh", "--deliver-only")
    assert done.returncode == 0, done.stderr
    assert "Secret" not in done.stdout
    route = routes(home)["gh"]
    assert (route["secret"], route["prompt"], route["deliver_only"]) == ("mine", "A", True)


@pytest.mark.parametrize(
    "arguments",
    [("a/b",), ("gh", "--script", "../x.sh"), ("gh", "--deliver", "github_comment")],
)
def test_a_route_that_cannot_work_is_not_written(home: Path, arguments: tuple[str, ...]) -> None:
    done = hermes(home, "webhook", "subscribe", *arguments)
    assert done.returncode == 78
    assert "->" in done.stderr
    assert not (home / "webhook_subscriptions.json").exists()


def test_routes_of_the_configuration_are_shown_and_left_alone(home: Path) -> None:
    config(home, routes={"gh": {"secret": "s", "events": ["push"]}, "bad": {}})
    listed = hermes(home, "webhook", "list").stdout
    assert "gh  (config.yaml)  push" in listed
    assert "bad  (config.yaml)  not served" in listed
    assert hermes(home, "webhook", "subscribe", "gh").returncode == 5
    removed = hermes(home, "webhook", "remove", "gh")
    assert removed.returncode == 4
    assert "config.yaml" in removed.stderr


def test_a_route_is_removed(home: Path) -> None:
    hermes(home, "webhook", "subscribe", "gh")
    assert hermes(home, "webhook", "remove", "gh").returncode == 0
    assert routes(home) == {}
    assert hermes(home, "webhook", "remove", "gh").returncode == 4


async def test_a_test_delivery_reaches_the_running_receiver(made_home: Path) -> None:
    home = made_home
    added = {"gh": {"secret": SECRET, "prompt": "{message}"}}
    async with webhook_door(home, ScriptedModel(default=say("Hi.")), added) as door:
        config(home, port=door.client.base_url.port, routes=added)
        done = await asyncio.to_thread(hermes, home, "webhook", "test", "gh")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("202 ")
        answer = json.loads(done.stdout.removeprefix("202 "))
        assert answer["event"] == "test"
        await door.quiet()
        assert await door.state("gh", answer["delivery_id"]) is HookState.DONE
        (home / "p.json").write_text('{"type": "mine"}', encoding="utf-8")
        sent = ("--payload", f"@{home}/p.json")
        done = await asyncio.to_thread(hermes, home, "webhook", "test", "gh", *sent)
        assert '"event":"mine"' in done.stdout


async def test_a_refused_test_delivery_is_an_error(made_home: Path) -> None:
    home = made_home
    served = {"gh": {"secret": "another secret"}}
    async with webhook_door(home, ScriptedModel(), served) as door:
        config(home, port=door.client.base_url.port, routes={"gh": {"secret": SECRET}})
        done = await asyncio.to_thread(hermes, home, "webhook", "test", "gh")
        assert done.returncode == 1
        assert done.stdout.startswith("401 ")


def test_without_a_gateway_the_next_step_is_named(home: Path) -> None:
    config(home, port=9)
    hermes(home, "webhook", "subscribe", "gh")
    done = hermes(home, "webhook", "test", "gh")
    assert done.returncode == 1
    assert "hermes gateway run" in done.stderr
    wrong = hermes(home, "webhook", "test", "gh", "--payload", "{")
    assert wrong.returncode == 2
    assert hermes(home, "webhook", "test", "none").returncode == 4
