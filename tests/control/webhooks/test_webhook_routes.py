"""Routes: what is refused at the start, and what is taken over while running."""

from pathlib import Path
from typing import Any

import pytest

from hermes.config.environment import is_loopback
from hermes.config.paths import HermesHome
from hermes.control.webhooks.effects import chat_of, is_silent
from hermes.control.webhooks.routes import HookRoutes, RouteRules, read_routes
from hermes.domain.errors import ConfigError, HermesError
from hermes.domain.outbound import Target
from hermes.execution.webhook_effects import HookScripts
from hermes.state.webhook_routes import HookRouteFile


def rules(home: Path, **more: Any) -> RouteRules:
    scripts = HookScripts(home / "scripts", {})
    return RouteRules(home=home, check_script=scripts.check, **more)


def test_a_configuration_that_people_have_today_loads(tmp_path: Path) -> None:
    raw = {
        "gh": {
            "events": ["pull_request"],
            "secret": "X",
            "prompt": "Review {pull_request.html_url}",
            "deliver": "github_comment",
            "deliver_extra": {"repo": "{repository.full_name}", "pr_number": 7},
        }
    }
    route = read_routes(raw, rules(tmp_path))["gh"]
    assert route.events == {"pull_request"}
    assert route.deliver_extra == {"repo": "{repository.full_name}", "pr_number": "7"}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({}, "no secret"),
        ({"secret": "s", "filter": {}}, "filter"),
        ({"secret": "s", "events": "push"}, "events"),
        ({"secret": "s", "filters": {"field": "x", "equals": 1}}, "filter"),
        ({"secret": "s", "script": "../up.sh"}, "script"),
        ({"secret": "s", "script": "none.sh"}, "script"),
        ({"secret": "s", "deliver": "github_comment"}, "GitHub"),
        ({"secret": "whsec_?"}, "whsec_"),
        ("text", "correctly"),
    ],
)
def test_a_mistake_names_its_route_and_what_to_do(tmp_path: Path, written: Any, says: str) -> None:
    with pytest.raises(ConfigError, match="`broken`") as refused:
        read_routes({"ok": {"secret": "s"}, "broken": written}, rules(tmp_path))
    assert says in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("name", ["", "a/b", "a b", "../x", "-x", "a:b", "x" * 65, "ü"])
def test_a_name_that_does_not_fit_an_address_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        read_routes({name: {"secret": "s"}}, rules(tmp_path))


def test_routes_share_the_secret_of_the_section(tmp_path: Path) -> None:
    assert read_routes({"a": {}}, rules(tmp_path, secret="all"))["a"].secret == "all"


def test_only_this_machine_can_be_believed_without_a_secret(tmp_path: Path) -> None:
    raw = {"a": {"secret": "INSECURE_NO_AUTH"}}
    assert read_routes(raw, rules(tmp_path))["a"].secret == "INSECURE_NO_AUTH"
    with pytest.raises(ConfigError, match="INSECURE_NO_AUTH"):
        read_routes(raw, rules(tmp_path, loopback=False))
    with pytest.raises(ConfigError, match="INSECURE_NO_AUTH"):
        read_routes({"a": {}}, rules(tmp_path, loopback=False, secret="INSECURE_NO_AUTH"))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("box", False),
    ],
)
def test_loopback_addresses_are_told_apart(host: str, local: bool) -> None:
    assert is_loopback(host) is local


async def test_the_file_is_read_again_when_it_changes_and_the_configuration_wins(
    tmp_path: Path,
) -> None:
    file = HookRouteFile(HermesHome(root=tmp_path))
    fixed = read_routes({"a": {"secret": "fixed"}}, rules(tmp_path))
    routes = HookRoutes(fixed, file, rules(tmp_path))
    assert await routes.find("b") is None
    file.change(lambda _: {"a": {"secret": "added"}, "b": {"secret": "added"}})
    for name, secret in (("a", "fixed"), ("b", "added")):
        route = await routes.find(name)
        assert route is not None
        assert route.secret == secret
    file.change(lambda routes: {"b": {"secret": "newer"}})
    route = await routes.find("b")
    assert route is not None
    assert route.secret == "newer"
    file.change(lambda routes: {})
    assert await routes.find("b") is None
    assert (tmp_path / "webhook_subscriptions.json").stat().st_mode & 0o777 == 0o600


async def test_one_broken_route_takes_only_itself_out_of_service(tmp_path: Path) -> None:
    file = HookRouteFile(HermesHome(root=tmp_path))
    routes = HookRoutes({}, file, rules(tmp_path))
    file.change(lambda _: {"bad": {}, "../x": {"secret": "s"}, "good": {"secret": "s"}})
    assert await routes.find("bad") is None
    assert await routes.find("../x") is None
    assert await routes.find("good") is not None


async def test_a_file_that_cannot_be_read_leaves_the_routes_as_they_are(tmp_path: Path) -> None:
    file = HookRouteFile(HermesHome(root=tmp_path))
    routes = HookRoutes({}, file, rules(tmp_path))
    file.change(lambda _: {"good": {"secret": "s"}})
    assert await routes.find("good") is not None
    (tmp_path / "webhook_subscriptions.json").write_text("{ broken", encoding="utf-8")
    assert await routes.find("good") is not None
    with pytest.raises(HermesError):
        file.change(lambda routes: {**routes, "other": {"secret": "s"}})


@pytest.mark.parametrize(
    ("target", "extra", "address"),
    [
        ("telegram", {}, ("telegram", None, None)),
        ("telegram:5", {}, ("telegram", "5", None)),
        ("telegram:-100:7", {}, ("telegram", "-100", "7")),
        ("telegram", {"chat_id": "5", "thread_id": "7"}, ("telegram", "5", "7")),
        ("telegram", {"chat_id": "5", "message_thread_id": "7"}, ("telegram", "5", "7")),
        ("matrix:!room:server.org", {}, ("matrix", "!room:server.org", None)),
    ],
)
def test_a_target_names_a_chat(
    target: str, extra: dict[str, str], address: tuple[str, str | None, str | None]
) -> None:
    platform, chat, thread = address
    expected = Target(platform=platform, account="", chat_id=chat or "", thread_id=thread)
    assert chat_of(target, extra) == expected


def test_a_target_that_is_none_is_an_error() -> None:
    for target in ("", "{x}", "../etc", ":5"):
        with pytest.raises(HermesError):
            chat_of(target, {})


@pytest.mark.parametrize(
    "text", ["[SILENT]", " NO_REPLY\n", "", "[SILENT]\nnothing", "x\n[SILENT]"]
)
def test_some_results_are_not_delivered(text: str) -> None:
    assert is_silent(text)
    assert not is_silent(f"He said {text or 'so'} and left.")
