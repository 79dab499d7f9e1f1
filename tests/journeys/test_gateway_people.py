"""A group on a real gateway: a member, a stranger and an administrator around one command."""

from pathlib import Path

from fakes.gateway import gateway_config, running_gateway
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram

ANN, BEN, SID, ADA = 777, 778, 779, 780
GROUP = -1001
LONG = "rm -rf tmp; echo " + "x" * 9_000 + " tail"


def ask(command: str) -> Step:
    return Step(calls=[Call(name="terminal", arguments={"command": command})])


async def toast(telegram: FakeTelegram, user: int, message: int, data: str) -> str:
    """Press a button and return what whoever pressed is told."""
    query = telegram.press(GROUP, user, message, data)
    await telegram.until(lambda: telegram.world.queries[query], 30)
    return telegram.world.queries[query] or ""


async def shown(telegram: FakeTelegram, text: str) -> None:
    await telegram.until(lambda: any(text in seen.text for seen in telegram.replies(GROUP)), 30)


async def test_one_asks_others_press_and_an_administrator_decides(tmp_path: Path) -> None:
    rules = [
        Rule(contains="clean", steps=[ask("rm -rf tmp"), Step(text="All clean.")]),
        Rule(contains="at length", steps=[ask(LONG), Step(text="At last.")]),
    ]
    platform = gateway_config("")["platforms"]["telegram"] | {
        "allow_all_users": False,
        "allowed_users": [ANN, BEN],
        "group_policy": "open",
        "allow_admin_from": [ADA],
    }
    script = Script(rules=rules, default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        platform["extra"]["base_url"] = telegram.base_url
        local = {"terminal": {"backend": "local"}, "platforms": {"telegram": platform}}
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, **local):
            telegram.say(GROUP, ANN, "@hermes_bot clean up")
            await shown(telegram, "or an administrator decides within 5 minutes")
            prompt = telegram.replies(GROUP)[-1]
            data = {label: value for row in prompt.buttons for label, value in row}
            always = next(value for label, value in data.items() if "Always allow: rm" in label)
            for other in (BEN, SID):
                assert "or an administrator" in await toast(
                    telegram, other, prompt.message_id, always
                )
            told = await toast(telegram, ADA, prompt.message_id, data["✅ Allow once"])
            assert told == "Noted."
            await shown(telegram, "All clean.")
            await telegram.until(lambda: not prompt.buttons, 30)

            telegram.say(GROUP, SID, "@hermes_bot clean up")
            await shown(telegram, "\nAn administrator decides")
            prompt = next(each for each in telegram.replies(GROUP) if each.buttons)
            (once, *_), *_ = prompt.buttons
            assert "on a list" in await toast(telegram, SID, prompt.message_id, once[1])

            telegram.say(GROUP, BEN, "@hermes_bot at length")
            await shown(telegram, "all of it is in the file above")
            assert telegram.called("sendDocument")
            telegram.say(GROUP, BEN, "/sessions@hermes_bot")
            await shown(telegram, "/resume ID")
            listing = next(s.text for s in telegram.replies(GROUP) if "/resume ID" in s.text)
            assert listing.count("message") == 1


async def test_an_open_group_without_administrators(tmp_path: Path) -> None:
    rules = [Rule(contains="clean", steps=[ask("rm -rf tmp"), Step(text="So be it.")])]
    access = {"allow_all_users": False, "allowed_users": [ANN], "group_allowed_chats": [GROUP]}
    platform = gateway_config("")["platforms"]["telegram"] | access
    script = Script(rules=rules, default=Step(echo=True))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        platform["extra"]["base_url"] = telegram.base_url
        local = {"terminal": {"backend": "local"}, "platforms": {"telegram": platform}}
        async with running_gateway(tmp_path, model.base_url, telegram.base_url, **local):
            telegram.say(GROUP, SID, "/restart@hermes_bot")
            await shown(telegram, "Only people on the list of this bot can use /restart here.")
            telegram.say(GROUP, SID, "@hermes_bot clean up")
            await shown(telegram, "Denied: nobody here may allow it")
            await shown(telegram, "So be it.")

            telegram.say(GROUP, ANN, "@hermes_bot clean it again")
            await shown(telegram, "or an administrator decides")
            for user, text in ((ANN, "yes we can"), (SID, "yes"), (ANN, "yes")):
                telegram.say(GROUP, user, text)
            await shown(telegram, "Approved (once) by")
    assert not any("yes" in str(each.body.get("messages", "")) for each in model.requests)


async def test_why_the_model_fails_is_told_in_private_and_no_key_anywhere(tmp_path: Path) -> None:
    refusal = Step(status=401, body={"error": {"message": "bad key sk-secret123"}})
    platform = gateway_config("")["platforms"]["telegram"] | {"allow_admin_from": [ADA]}
    async with FakeModelServer(Script(default=refusal)) as model, FakeTelegram() as telegram:
        platform["extra"]["base_url"] = telegram.base_url
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, platforms={"telegram": platform}
        ) as gateway:
            telegram.say(GROUP, ADA, "@hermes_bot hello")
            await shown(telegram, "The model gives no answer at the moment. Try again in a minute")
            telegram.say(ADA, ADA, "hello")
            await telegram.until(lambda: telegram.replies(ADA), 30)
            told = telegram.replies(ADA)[0].text
            assert "bad key [redacted]" in told
            assert "secret123" not in gateway.log()
