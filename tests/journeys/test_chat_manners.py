"""What people expect of a bot, seen in a chat: greetings, acknowledgements, replies, notices."""

import asyncio
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from fakes.command import Hermes
from fakes.gateway import GatewayProcess, gateway_config, running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram

ANN = 777
ECHO = Script(default=Step(echo=True))
SLOW = Script(
    rules=[Rule(contains="slowly", steps=[Step(text="the old answer", stall="first")])],
    default=Step(echo=True),
)


def said(telegram: FakeTelegram, chat: int = ANN) -> list[str]:
    return [seen.text for seen in telegram.replies(chat)]


async def until_said(telegram: FakeTelegram, *texts: str, chat: int = ANN) -> list[str]:
    """Wait until all these texts can be seen in the chat, and nothing grows any more."""

    def there() -> bool:
        shown = said(telegram, chat)
        growing = any("▉" in each or each == "…" for each in shown)
        return not growing and all(any(text in each for each in shown) for text in texts)

    try:
        await telegram.until(there, 30)
    except TimeoutError:
        raise AssertionError(said(telegram, chat)) from None
    return said(telegram, chat)


async def until_shown(telegram: FakeTelegram, chat: int, number: int) -> None:
    await telegram.until(lambda: len(telegram.replies(chat)) == number, 30)


def asked(model: FakeModelServer) -> list[str]:
    messages = model.requests[-1].body["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


async def test_start_greets_and_two_slashes_send_one(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "/start")
            (greeting,) = await until_said(telegram, "Hermes")
            assert "/help" in greeting
            assert not model.requests
            telegram.say(ANN, ANN, "//etc is a folder")
            await until_said(telegram, "/etc is a folder")
            assert asked(model)[0].startswith("/etc is a folder")
            telegram.say(ANN, ANN, "//help me")
            await until_said(telegram, "/help me")
            assert asked(model)[1].startswith("/help me")


async def test_messages_during_a_turn_are_acknowledged_now_and_then(tmp_path: Path) -> None:
    quick = {"display": {"busy_input_mode": "queue"}}
    async with FakeModelServer(SLOW) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, **quick):
            telegram.say(ANN, ANN, "slowly please")
            await model.arrived.wait()
            telegram.say(ANN, ANN, "one more")
            await until_said(telegram, "next in line")
            telegram.say(ANN, ANN, "another")
            telegram.say(ANN, ANN, "/steer be brief")
            await until_said(telegram, "Passed on")
            telegram.say(ANN, ANN, "/queue and then this")
            async with asyncio.timeout(20):
                await telegram.until(lambda: sum("next in line" in t for t in said(telegram)) == 2)
            model.release()
            shown = await until_said(telegram, "the old answer", "one more", "and then this")
            assert sum("next in line" in text for text in shown) == 2


async def test_new_works_while_a_turn_runs_and_its_answer_stays_behind(tmp_path: Path) -> None:
    async with FakeModelServer(SLOW) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "slowly please")
            await model.arrived.wait()
            telegram.say(ANN, ANN, "/new")
            await until_said(telegram, "I stopped what I was doing. New conversation.")
            telegram.say(ANN, ANN, "hello again")
            model.release()
            shown = await until_said(telegram, "hello again")
            assert "the old answer" not in "\n".join(shown)
            assert len(asked(model)) == 1
            telegram.say(ANN, ANN, "/sessions")
            listing = (await until_said(telegram, "/resume ID"))[-1]
            other = next(line for line in listing.splitlines() if "slowly please" in line)
            telegram.say(ANN, ANN, f"/resume {other.split()[0]}")
            await until_said(telegram, "Back in “slowly please”")


async def test_verbose_and_reasoning_show_what_they_say_and_outlast_new(tmp_path: Path) -> None:
    look = Step(calls=[Call(name="read_file", arguments={"path": "notes.txt"})])
    answer = Step(text="Nothing there.", reasoning="Let me think about it.")
    script = Script(rules=[Rule(contains="look", steps=[look, answer])])
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "look")
            assert await until_said(telegram, "Nothing there.") == ["Nothing there."]
            for command, reply in (
                ("/verbose", "different tool"),
                ("/reasoning show", "Thoughts are shown"),
                ("/new", "New conversation."),
            ):
                telegram.say(ANN, ANN, command)
                await until_said(telegram, reply)
            before = len(said(telegram))
            telegram.say(ANN, ANN, "look again")
            await until_said(telegram, "notes.txt", "Let me think about it.")
            *_, tools, last = (await until_said(telegram, "Nothing there."))[before:]
            assert "notes.txt" in tools
            assert last.index("Let me think") < last.index("Nothing there.")
            telegram.say(ANN, ANN, "/reasoning")
            await until_said(telegram, "thoughts are shown")
            telegram.say(ANN, ANN, "/verbose off")
            telegram.say(ANN, ANN, "/reasoning hide")
            await until_said(telegram, "Thoughts are hidden", "Tool calls are not shown")
            before = len(said(telegram))
            telegram.say(ANN, ANN, "look once more")
            await telegram.until(lambda: said(telegram)[before:] == ["Nothing there."], 30)


async def test_answers_are_replies_as_reply_to_mode_says(tmp_path: Path) -> None:
    group, ben = -1007, 778
    wipe = Step(calls=[Call(name="terminal", arguments={"command": "rm -rf tmp"})])
    long = Step(text="a long answer " * 500)
    rules = [
        Rule(contains="clean", steps=[wipe, Step(text="All clean.")]),
        Rule(contains="at length", steps=[long]),
    ]
    script = Script(rules=rules, default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path,
            model.base_url,
            telegram.base_url,
            terminal={"backend": "local"},
            gateway={"allowed_users": [str(ben)]},
        ) as gateway:
            question = telegram.say(group, ben, "@hermes_bot at length please")
            await until_shown(telegram, group, 2)
            assert [seen.reply_to for seen in telegram.replies(group)] == [question, None]
            asked_for = telegram.say(group, ben, "@hermes_bot clean up")
            await until_said(telegram, "Approval needed", chat=group)
            prompt = telegram.replies(group)[-1]
            assert prompt.reply_to == asked_for
            telegram.press(group, ben, prompt.message_id, prompt.buttons[0][0][1])
            await until_said(telegram, "All clean.", chat=group)
            assert telegram.replies(group)[-1].reply_to == asked_for
            queued = telegram.say(group, ben, "/queue@hermes_bot and then this")
            await until_said(telegram, "and then this", chat=group)
            assert telegram.replies(group)[-1].reply_to == queued
            for mode, expected in (("all", [True, True]), ("off", [False, False])):
                config = gateway.hermes.home / "config.yaml"
                config.write_text(config.read_text() + f"\ntelegram: {{reply_to_mode: {mode!r}}}\n")
                await gateway.stop()
                await gateway.start()
                before = len(telegram.replies(group))
                telegram.say(group, ben, "@hermes_bot at length again")
                await until_shown(telegram, group, before + 2)
                shown = telegram.replies(group)[before:]
                assert [seen.reply_to is not None for seen in shown] == expected
                config.write_text(config.read_text().rpartition("\ntelegram:")[0])


async def test_progress_makes_no_sound_and_the_answer_does(tmp_path: Path) -> None:
    look = Step(text="One moment.", calls=[Call(name="read_file", arguments={"path": "notes.txt"})])
    script = Script(rules=[Rule(contains="look", steps=[look, Step(text="Nothing there.")])])
    shown = {"display": {"tool_progress": "all", "interim_assistant_messages": False}}
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, **shown):
            telegram.say(ANN, ANN, "look")
            await until_said(telegram, "notes.txt", "Nothing there.")
            silent = {seen.text[:7]: seen.silent for seen in telegram.replies(ANN)}
            assert silent.pop("Nothing") is False
            assert list(silent.values()) == [True]


async def test_somebody_who_is_let_in_is_welcomed_once(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url))
        config = hermes.home / "config.yaml"
        config.write_text(config.read_text().replace("allow_all_users: true", ""))
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            telegram.say(ANN, ANN, "let me in")
            (offer,) = await until_said(telegram, "hermes pairing approve")
            code = offer.split("pairing approve telegram ")[1].split()[0]
            approved = await hermes.run("pairing", "approve", "telegram", code)
            assert approved.code == 0, approved.err
            await until_said(telegram, "Welcome, you're in!")
            await gateway.kill()
            await gateway.start()
            telegram.say(ANN, ANN, "hello")
            shown = await until_said(telegram, "hello")
            assert sum("Welcome" in text for text in shown) == 1
        finally:
            await gateway.kill()


async def test_restart_starts_again_and_says_once_that_it_is_back(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url) as gateway:
            telegram.say(ANN, ANN, "/restart")
            await until_said(telegram, "Restarting.", "♻️ I'm back.")
            assert gateway.process is not None
            assert gateway.process.returncode is None
            await gateway.kill()
            await gateway.start()
            telegram.say(ANN, ANN, "hello")
            shown = await until_said(telegram, "hello")
            assert sum("♻️" in text for text in shown) == 1


async def test_a_supervised_gateway_ends_with_75_and_is_back_also_after_a_crash(
    tmp_path: Path,
) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url))
        hermes.environ["HERMES_SUPERVISED"] = "1"
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            telegram.say(ANN, ANN, "/restart")
            await until_said(telegram, "Restarting.")
            assert gateway.process is not None
            async with asyncio.timeout(30):
                assert await gateway.process.wait() == 75
            assert said(telegram) == ["Restarting. I'll tell you when I'm back."]
            await gateway.start()
            await until_said(telegram, "♻️ I'm back.")
            await gateway.kill()
            await gateway.start()
            telegram.say(ANN, ANN, "hello")
            shown = await until_said(telegram, "hello")
            assert sum("♻️" in text for text in shown) == 1
        finally:
            await gateway.kill()


async def test_an_empty_answer_is_not_silence(tmp_path: Path) -> None:
    script = Script(
        rules=[Rule(contains="hush", steps=[Step(text="NO_REPLY")])], default=Step(text="\u200b")
    )
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "hush now")
            await model.arrived.wait()
            telegram.say(ANN, ANN, "/queue well?")
            (shown,) = await until_said(telegram, "without an answer")
            assert "Ask again" in shown


async def test_the_end_of_a_background_process_is_told_in_its_chat(tmp_path: Path) -> None:
    arguments = {
        "command": "sleep 0.5; echo finished-it",
        "background": True,
        "notify_on_complete": True,
    }
    begin = Step(calls=[Call(name="terminal", arguments=arguments)])
    rules = [
        Rule(contains="finished-it", steps=[Step(text="The build is done.")]),
        Rule(contains="build", steps=[begin, Step(text="It is building.")]),
    ]
    script = Script(rules=rules, default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path,
            model.base_url,
            telegram.base_url,
            terminal={"backend": "local"},
            approvals={"mode": "off"},
        ):
            telegram.say(ANN, ANN, "build it")
            await until_said(telegram, "It is building.", "The build is done.")
            telegram.say(ANN, ANN, "/new")
            await until_said(telegram, "New conversation.")


async def test_times_are_those_of_the_configured_zone(tmp_path: Path) -> None:
    far = ZoneInfo("Pacific/Kiritimati")
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        hermes = Hermes(tmp_path, model.base_url, gateway_config(telegram.base_url))
        hermes.environ |= {"HERMES_TIMEZONE": "Pacific/Kiritimati", "TZ": "Pacific/Pago_Pago"}
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            before = datetime.now(far)
            telegram.say(ANN, ANN, "hello")
            await until_said(telegram, "hello")
            prompt = str(model.requests[-1].body["messages"][0]["content"])
            assert before.strftime("%Y-%m-%d") in prompt
            telegram.say(ANN, ANN, "/status")
            status = (await until_said(telegram, "started"))[-1]
            assert before.strftime("%Y-%m-%d %H:") in status
        finally:
            await gateway.kill()


async def test_a_route_to_an_agent_that_is_not_there_is_refused_and_named(tmp_path: Path) -> None:
    group, ben = -1008, 779
    routes = [
        {"platform": "telegram", "chat_id": str(group), "user_id": ANN, "agent": "main"},
        {"match": {"platform": "telegram", "chat_id": [str(group)]}, "agent": "coder"},
    ]
    idle = [{"name": "dev", "platform": "discord", "chat_id": "2", "profile": "reviewer"}]
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path,
            model.base_url,
            telegram.base_url,
            routes=routes,
            gateway={"profile_routes": idle},
        ) as gateway:
            telegram.say(group, ben, "@hermes_bot hello")
            (told,) = await until_said(telegram, "Nobody can answer here", chat=group)
            assert "coder" not in told
            assert "is for the agent `coder`" in gateway.log()
            telegram.say(group, ANN, "@hermes_bot hello from Ann")
            await until_said(telegram, "hello from Ann", chat=group)
            telegram.say(ANN, ANN, "in private")
            assert await until_said(telegram, "in private") == ["in private"]
            assert not any("coder" in str(each.body) for each in model.requests)
            checked = await gateway.hermes.run("config", "check")
            assert "routes: there is no agent `coder`; messages for it are refused" in checked.err
            assert "profile_routes: there is no agent `reviewer`" in checked.err
            assert "there is no agent `coder`" in gateway.log()


async def test_keys_without_effect_are_named_by_the_check_and_at_the_start(tmp_path: Path) -> None:
    async with FakeModelServer(ECHO) as model, FakeTelegram() as telegram:
        config = gateway_config(telegram.base_url)
        config["platforms"]["telegram"] |= {"require_mentoin": True, "typing_indicator": False}
        config["platforms"]["matrix"] = {"enabled": True}
        config["telegram"] = {"fallback_ips": ["1.2.3.4"], "channel_overrides": {"1": {}}}
        hermes = Hermes(tmp_path, model.base_url, config)
        hermes.environ |= {
            "TELEGRAM_GUEST_MOOD": "1",
            "TELEGRAM_GUEST_MODE": "1",
            "GATEWAY_PROXY_URL": "http://127.0.0.1:9",
        }
        named = (
            "platforms.telegram.extra.require_mentoin is not a known key",
            "did you mean `require_mention`?",
            "platforms.telegram.extra.fallback_ips has no effect here",
            "platforms.telegram.extra.channel_overrides has no effect here",
            "platforms.matrix has no effect",
            "TELEGRAM_GUEST_MOOD is not a known key",
            "GATEWAY_PROXY_URL has no effect here",
        )
        checked = await hermes.run("config", "check")
        gateway = GatewayProcess(hermes)
        await gateway.start()
        try:
            telegram.say(ANN, ANN, "hello")
            await until_said(telegram, "hello")
            for text in named:
                assert text in checked.err
                assert text in gateway.log()
            for text in (checked.err, gateway.log()):
                assert "GUEST_MODE" not in text
                assert "typing_indicator" not in text
                assert "extra.base_url" not in text
            assert not telegram.called("sendChatAction")
        finally:
            await gateway.kill()


async def test_tables_are_aligned_in_a_fixed_font_and_wide_ones_are_lists(tmp_path: Path) -> None:
    narrow = "| Fruit | Qty |\n|---|---|\n| Apple | 3 |\n| Banana | 12 |"
    wide = (
        "| Database | For | Against |\n|---|---|---|\n"
        "| PostgreSQL | mature, powerful, extensible | needs a server and some care |\n"
        "| SQLite | one file, no setup | one writer at a time |"
    )
    rules = [Rule(contains="narrow", steps=[Step(text=narrow)])]
    script = Script(rules=rules, default=Step(text=wide))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(tmp_path, model.base_url, telegram.base_url):
            telegram.say(ANN, ANN, "a narrow one")
            await until_said(telegram, "Banana")
            assert "<pre>Fruit   Qty" in telegram.replies(ANN)[-1].markup
            telegram.say(ANN, ANN, "a large one")
            await until_said(telegram, "SQLite")
            shown = telegram.replies(ANN)[-1].markup
            assert "<pre>" not in shown
            assert "<b>Database: SQLite</b>\nFor: one file, no setup" in shown
            telegram.say(ANN, ANN, "/status")
            await until_said(telegram, "busy mode")
            assert telegram.replies(ANN)[-1].markup.startswith("<pre>session ")
            telegram.say(ANN, ANN, "/help")
            await until_said(telegram, "/new [title] – Start a new conversation")
