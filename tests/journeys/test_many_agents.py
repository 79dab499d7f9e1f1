"""One gateway, many agents: routes, homes, secrets, models and keys, seen from outside."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import yaml

from fakes.api_gateway import ApiGateway, api_config, running_api
from fakes.command import Hermes
from fakes.discord import FakeDiscord
from fakes.gateway import GatewayProcess, gateway_config
from fakes.model import FakeModelServer, RecordedRequest, Script, Step
from fakes.slack import FakeSlack
from fakes.slack_kit import slack_platform
from fakes.telegram import FakeTelegram

ANN, BEN, GROUP = 777, 778, -1008
ECHO = Script(default=Step(echo=True))
AGENTS: dict[str, dict[str, Any]] = {
    "coder": {
        "description": "Writes code.",
        "model": {"provider": "custom", "default": "code-1", "base_url": "${CODE_URL}"},
        "settings": {"agent": {"max_turns": 3}},
        "toolsets": ["todo"],
    },
    "writer": {"home": "main", "prompt": "You are the writer.", "model": "prose-1"},
    "hidden": {"expose": False},
    "broken": {"home": "nowhere/at/all"},
    "typo": {"tolsets": []},
}
ROUTES = [
    {"match": {"platform": "telegram", "chat_id": str(GROUP)}, "agent": "coder"},
    {"match": {"platform": "telegram", "user_id": [str(BEN)]}, "agent": "broken"},
    {
        "match": {"platform": "api_server", "chat_id": "dev-*"},
        "agent": "coder",
        "prompt": "In dev.",
    },
]


def give_home(home: Path, model_url: str) -> None:
    own = home / "agents" / "coder"
    (own / "memories").mkdir(parents=True)
    (own / "SOUL.md").write_text("You are the coder.")
    (own / "memories" / "MEMORY.md").write_text("The coder remembers tabs.")
    (own / ".env").write_text(f"OPENAI_API_KEY=sk-of-the-coder-1234\nCODE_URL={model_url}\n")
    (home / "SOUL.md").write_text("You are main.")
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("Main remembers spaces.")
    (home / ".env").write_text("OPENAI_API_KEY=sk-of-main-5678901\n")


def system(request: RecordedRequest) -> str:
    return str(request.body["messages"][0]["content"])


async def ask(client: httpx2.AsyncClient, model: str | None, text: str, **more: Any) -> Any:
    body = {"messages": [{"role": "user", "content": text}]} | ({"model": model} if model else {})
    answer = await client.post(more.pop("path", "/v1/chat/completions"), json=body, **more)
    return answer.status_code, answer.json()


async def reply(client: httpx2.AsyncClient, model: str | None, text: str, **more: Any) -> str:
    status, body = await ask(client, model, text, **more)
    assert status == 200, body
    return str(body["choices"][0]["message"]["content"])


async def test_agents_behind_one_api_server_are_models_with_homes_and_keys_of_their_own(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(ECHO) as model:
        Hermes(tmp_path)
        give_home(tmp_path / "home", model.base_url)
        async with (
            running_api(tmp_path, model.base_url, agents=AGENTS, routes=ROUTES) as gateway,
            gateway.client() as client,
        ):
            listed = (await client.get("/v1/models")).json()["data"]
            assert [each["id"] for each in listed] == ["hermes", "coder", "writer"]
            assert str(tmp_path) not in str(listed)

            both = await asyncio.gather(
                reply(client, "coder", "to the coder"),
                reply(client, "hermes", "to main"),
                reply(client, "hermes/coder", "to the coder again"),
                reply(client, "writer", "to the writer"),
            )
            assert list(both) == ["to the coder", "to main", "to the coder again", "to the writer"]
            seen = seen_texts(model)
            coder, main, writer = seen["to the coder"], seen["to main"], seen["to the writer"]
            assert coder.body["model"] == "code-1"
            assert coder.key == "sk-of-the-coder-1234"
            assert "You are the coder." in system(coder)
            assert "tabs" in system(coder)
            assert [tool["function"]["name"] for tool in coder.body["tools"]] == ["todo"]
            assert main.body["model"] == "fake-1"
            assert main.key == "sk-of-main-5678901"
            assert "You are main." in system(main)
            assert "tabs" not in system(main)
            assert writer.body["model"] == "prose-1"
            assert "You are the writer." in system(writer)
            assert "spaces" in system(writer)

            # Routes decide where no agent is named.
            headers = {"X-Hermes-Chat-Id": "dev-7", "X-Hermes-User-Id": "ann"}
            assert await reply(client, "hermes", "by route", headers=headers) == "by route"
            assert "In dev." in system(model.requests[-1])
            assert model.requests[-1].body["model"] == "code-1"
            assert await reply(client, None, "in its path", path="/p/coder/v1/chat/completions")
            assert model.requests[-1].body["model"] == "code-1"
            listed = (await client.get("/p/coder/v1/models")).json()["data"]
            assert [each["id"] for each in listed] == ["coder"]

            for name in ("hidden", "nobody", "hermes/nobody", "typo2"):
                status, body = await ask(client, name, "hello")
                assert (status, body["error"]["code"]) == (404, "model_not_found")
            status, body = await ask(client, "broken", "hello")
            assert (status, body["error"]["code"]) == (503, "agent_unavailable")
            assert str(tmp_path) not in str(body)
            status, body = await ask(client, "writer", "x", path="/p/coder/v1/chat/completions")
            assert (status, body["error"]["code"]) == (404, "model_not_found")

            made = await gateway.hermes.run("keys", "create", "only-coder", "--agent", "coder")
            assert made.code == 0, made.err
            key = made.out.strip()
            async with gateway.client(key) as bound:
                listed = (await bound.get("/v1/models")).json()["data"]
                assert [each["id"] for each in listed] == ["coder"]
                assert await reply(bound, "coder", "with its key") == "with its key"
                for other in ("hermes", "main", "writer", None):
                    status, body = await ask(bound, other, "hello")
                    assert (status, body["error"]["code"]) == (404, "model_not_found")

            state = await gateway.hermes.run("status")
            assert "broken" in state.out
            assert "nowhere/at/all is missing" in state.out
            assert "unknown field `tolsets`" in state.out or "tolsets" in state.out
            await change_agents(gateway, client, model)


async def change_agents(
    gateway: ApiGateway, client: httpx2.AsyncClient, model: FakeModelServer
) -> None:
    """Change the configuration: agents come, change and go while others are used."""
    path = gateway.hermes.home / "config.yaml"
    document = yaml.safe_load(path.read_text())
    del document["agents"]["writer"], document["agents"]["typo"]
    document["agents"]["coder"]["model"]["default"] = "code-2"
    document["agents"]["fresh"] = {"prompt": "You are fresh.", "model": "fresh-1"}
    path.write_text(yaml.safe_dump(document))
    async with asyncio.timeout(20):
        while "fresh" not in (await client.get("/v1/models")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await reply(client, "fresh", "hello fresh") == "hello fresh"
    assert model.requests[-1].body["model"] == "fresh-1"
    assert model.requests[-1].key == ""
    assert (await ask(client, "writer", "hello"))[0] == 404
    assert await reply(client, "coder", "hello coder") == "hello coder"
    assert model.requests[-1].body["model"] == "code-2"


HOOK = """
async def handle(event, context):
    if context["text"] == "a bug":
        raise RuntimeError("oops")
    text = context["text"]
    return "writer" if text.startswith("write") or "/webhooks/any" in text else None
"""


def seen_texts(model: FakeModelServer) -> dict[str, RecordedRequest]:
    return {str(each.body["messages"][-1]["content"]): each for each in model.requests}


async def test_messages_go_to_the_agent_of_their_route_their_bot_or_their_hook(
    tmp_path: Path,
) -> None:
    own = FakeTelegram(token="77:the-bot-of-the-coder", username="coder_bot")
    typo = FakeTelegram(token="78:the-bot-of-the-typo", username="typo_bot")
    late = FakeTelegram(token="79:a-bot-that-comes-later", username="late_bot")
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram, own, typo, late:
        home = Hermes(tmp_path).home
        give_home(home, model.base_url)
        (home / "hooks" / "pick").mkdir(parents=True)
        (home / "hooks" / "pick" / "HOOK.yaml").write_text("name: pick\nevents: [select_agent]\n")
        (home / "hooks" / "pick" / "handler.py").write_text(HOOK)
        platforms = gateway_config(telegram.base_url)["platforms"]
        platforms["webhook"] = {
            "enabled": True,
            "extra": {"port": 0, "routes": {"ci": {"agent": "coder", **HOOKED}, "any": HOOKED}},
        }
        coder = {**AGENTS["coder"], "settings": bot_at(own.base_url)}
        wrong = {**AGENTS["typo"], "settings": bot_at(typo.base_url)}
        (home / "agents" / "typo").mkdir()
        (home / "agents" / "typo" / ".env").write_text("TELEGRAM_BOT_TOKEN=78:the-bot-of-the-typo")
        hermes = Hermes(
            tmp_path,
            model.base_url,
            api_config(
                agents={**AGENTS, "coder": coder, "typo": wrong}, routes=ROUTES, platforms=platforms
            ),
        )
        await hermes.run("hooks", "enable", "pick")
        gateway = ApiGateway(hermes)
        await gateway.start()
        try:
            telegram.say(GROUP, ANN, "@hermes_bot for the coder")
            telegram.say(ANN, ANN, "for main")
            telegram.say(BEN, BEN, "for nobody")
            typo.say(ANN, ANN, "for one who is broken")
            accounts = {"later": {"token": late.token, "extra": {"base_url": late.base_url}}}
            change(home, lambda all_of: all_of["telegram"]["extra"].update(accounts=accounts))
            late.say(ANN, ANN, "for a bot that came later")
            await telegram.until(lambda: len(telegram.replies(GROUP)) == 1, 30)
            # The bot of an agent is connected when its token is there, also later.
            with (home / "agents" / "coder" / ".env").open("a") as file:
                file.write("TELEGRAM_BOT_TOKEN=77:the-bot-of-the-coder\n")
            own.say(ANN, ANN, "for the coder in private")
            await telegram.until(lambda: len(telegram.replies(ANN)) == 1, 30)
            await telegram.until(lambda: len(telegram.replies(BEN)) == 1, 30)
            await own.until(lambda: len(own.replies(ANN)) == 1, 30)
            await typo.until(lambda: len(typo.replies(ANN)) == 1, 30)
            await late.until(lambda: len(late.replies(ANN)) == 1, 30)
            (refusal,) = telegram.replies(BEN)
            assert "The agent `broken` cannot answer" in refusal.text
            assert "Its home is missing." in refusal.text
            (refusal,) = typo.replies(ANN)
            assert "The agent `typo` cannot answer" in refusal.text
            assert "Its configuration has a mistake." in refusal.text
            await late.until(lambda: connected(home, "telegram:later"), 30)
            state = (await hermes.run("status")).out
            assert "Agent typo cannot answer: agents.typo cannot be read" in state
            assert "Fix it with: hermes config edit" in state
            assert "telegram:typo: connected" in state
            assert "telegram:later: connected" in state
            assert "only after a restart" not in state
            seen = seen_texts(model)
            for text, name in AT_FIRST:
                (request,) = [each for said, each in seen.items() if said.endswith(text)]
                assert request.body["model"] == name
            assert len(model.requests) == 4

            telegram.say(ANN, ANN, "write a poem")
            await telegram.until(lambda: len(telegram.replies(ANN)) == 2, 30)
            assert model.requests[-1].body["model"] == "prose-1"
            telegram.say(ANN, ANN, "a bug")
            await telegram.until(lambda: len(telegram.replies(ANN)) == 3, 30)
            assert "Nobody can answer here" in telegram.replies(ANN)[2].text
            async with gateway.client() as client:
                assert await reply(client, None, "write an ode") == "write an ode"
                assert model.requests[-1].body["model"] == "prose-1"
                part = {"type": "input_text", "text": "write a song"}
                said = {"input": [{"role": "user", "content": [part]}]}
                assert (await client.post("/v1/responses", json=said)).status_code == 200
                assert model.requests[-1].body["model"] == "prose-1"
                status, body = await ask(client, "hermes", "a bug")
                assert (status, body["error"]["code"]) == (503, "agent_unavailable")
            assert len(model.requests) == 7

            async with httpx2.AsyncClient(base_url=gateway.listening("webhook")) as service:
                for path, status in WEBHOOKS:
                    answer = await service.post(path, json={"path": path})
                    assert answer.status_code == status, answer.text
            await telegram.until(lambda: len(model.requests) == 10, 30)
            asked = {text: each.body["model"] for text, each in seen_texts(model).items()}
            taken = [path for path, status in WEBHOOKS if status == 202]
            models = [next(m for text, m in asked.items() if path in text) for path in taken]
            assert models == ["code-1", "code-1", "prose-1"]
        finally:
            await gateway.kill()


def bot_at(base_url: str) -> dict[str, Any]:
    return {"platforms": {"telegram": {"extra": {"base_url": base_url}}}}


def change(home: Path, platforms: Callable[[dict[str, Any]], object]) -> None:
    path = home / "config.yaml"
    document = yaml.safe_load(path.read_text())
    platforms(document["platforms"])
    path.write_text(yaml.safe_dump(document))


def connected(home: Path, name: str) -> bool:
    told = json.loads((home / "gateway_state.json").read_text())["platforms"]
    return bool(told.get(name, {}).get("state") == "connected")


AT_FIRST = (
    *(("the coder", "code-1"), ("main", "fake-1")),
    *(("private", "code-1"), ("came later", "fake-1")),
)
HOOKED = {"secret": "INSECURE_NO_AUTH", "prompt": "Event {path}"}
WEBHOOKS = [
    ("/webhooks/ci", 202),
    ("/p/coder/webhooks/ci", 202),
    ("/webhooks/any", 202),
    ("/p/writer/webhooks/ci", 404),
    ("/p/coder/webhooks/any", 404),
]


async def test_agents_have_bots_of_their_own_on_discord_and_slack(tmp_path: Path) -> None:
    own = FakeDiscord(token="the-bot-of-the-coder", bot="900000000000000077")
    apart = FakeSlack({"T2": "xoxb-2222222222-coder"}, "xapp-1-3333333333-coder")
    async with (
        FakeModelServer(ECHO) as model,
        FakeDiscord() as discord,
        FakeSlack() as slack,
        own,
        apart,
    ):
        home = Hermes(tmp_path).home
        give_home(home, model.base_url)
        with (home / "agents" / "coder" / ".env").open("a") as file:
            file.write(f"DISCORD_BOT_TOKEN={own.token}\nSLACK_APP_TOKEN={apart.app_token}\n")
            file.write(f"SLACK_BOT_TOKEN={apart.teams['T2']}\n")
        there = {
            name: {"extra": {"base_url": each.base_url}}
            for name, each in (("discord", own), ("slack", apart))
        }
        agents = {
            "coder": {**AGENTS["coder"], "settings": {"platforms": there}},
            "writer": AGENTS["writer"],
        }
        at = {"enabled": True, "token": discord.token, "allow_all_users": True}
        at["extra"] = {"base_url": discord.base_url}
        # The older shape of routes, in which the most specific one counts.
        older = [
            {"platform": "slack", "profile": "default"},
            {"platform": "slack", "chat_id": "C9", "profile": "writer"},
        ]
        config = {
            "platforms": {"discord": at, "slack": slack_platform(slack)},
            "auxiliary": {"title_generation": {"enabled": False}},
            "agents": agents,
            "gateway": {"profile_routes": older},
        }
        gateway = GatewayProcess(Hermes(tmp_path, model.base_url, config))
        await gateway.start()
        try:
            for fake in (discord, own):
                await fake.until(partial(getattr, fake, "connected"))
                fake.say(fake.private("701"), "701", f"hello {fake.bot}")
            await slack.until(lambda: slack.sockets)
            await apart.until(lambda: apart.sockets)
            slack.say("D1", "U1", "hello main")
            slack.say("C9", "U1", "<@UBOT> hello writer")
            apart.say("D2", "U1", "hello coder")
            for fake in (discord, own):
                await fake.until(partial(fake.replies, fake.private("701")))
            await slack.until(lambda: slack.replies("D1") and slack.replies("C9"), 30)
            await apart.until(lambda: apart.replies("D2"), 30)
            seen = seen_texts(model)
            words = ("main", "writer", "coder", discord.bot, own.bot)
            asked = [next(seen[text] for text in seen if f"hello {word}" in text) for word in words]
            models = ["fake-1", "prose-1", "code-1", "fake-1", "code-1"]
            assert [each.body["model"] for each in asked] == models
        finally:
            await gateway.kill()


async def test_the_terminal_talks_to_the_agent_that_is_named(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model:
        config = api_config(agents=AGENTS, routes=ROUTES)
        hermes = Hermes(tmp_path, model.base_url, config)
        give_home(hermes.home, model.base_url)
        asked = await hermes.run("-a", "coder", "-q", "hello")
        assert (asked.code, asked.out.strip()) == (0, "hello"), asked.err
        assert model.requests[-1].body["model"] == "code-1"
        assert "You are the coder." in system(model.requests[-1])
        assert asked.err.count("agents.typo cannot be read") == 1, asked.err
        nobody = await hermes.run("-a", "nobody", "-q", "hello")
        assert nobody.code != 0
        assert "There is no agent `nobody`" in nobody.err
        broken = await hermes.run("-a", "broken", "-q", "hello")
        assert broken.code != 0
        assert "nowhere/at/all is missing" in broken.err

        tested = await hermes.run(
            *("agent", "route", "test", "--platform", "telegram", "--chat-id", str(GROUP))
        )
        assert tested.code == 0, tested.err
        assert f"routes[0] -> coder: yes: platform is telegram and chat_id is {GROUP}" in tested.out
        assert "Agent: coder, by routes[0]" in tested.out
        refused = await hermes.run(
            *("agent", "route", "test", "--platform", "telegram", "--user-id", str(BEN), "--json")
        )
        assert refused.code == 4
        told = json.loads(refused.out)
        assert (told["agent"], told["rule"]) == ("broken", "routes[1]")
        assert "is missing" in told["problem"]

        (session,) = [line.split()[-1] for line in asked.err.splitlines() if "· session" in line]
        script = "/agent\n/agent coder\nhello again\n/agent\n/agent nobody\n"
        typed = await hermes.run("chat", stdin=f"/resume {session}\n{script}/quit\n")
        assert "This is a conversation of the agent `coder`." in typed.out + typed.err
        assert "* main" in typed.out
        assert "* coder" in typed.out
        assert "There is no agent `nobody`" in typed.out + typed.err
        assert model.requests[-1].body["model"] == "code-1"
