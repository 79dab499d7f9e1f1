"""Files that go out to a chat: those of its own session, through a whole gateway."""

import asyncio
from pathlib import Path

import pytest

from fakes.gateway import running_gateway, unpaced
from fakes.model import Call, FakeModelServer, Rule, Script, Step
from fakes.telegram import FakeTelegram
from hermes.execution.backends.sandbox import backend as sandbox

ANN, BEN = 777, 778
REFUSED = "there is no such file in this conversation"


def command(text: str) -> Step:
    return Step(calls=[Call(name="terminal", arguments={"command": text})])


def ends(telegram: FakeTelegram, chat: int) -> list[str]:
    """Return what became of each file: how it was sent, or that it was refused."""
    seen = telegram.replies(chat)
    return [
        REFUSED if REFUSED in each.text else each.method
        for each in seen
        if REFUSED in each.text or each.method == "sendDocument"
    ]


async def sent(telegram: FakeTelegram, chat: int, text: str) -> str:
    """Say something and return what became of the file of the answer."""
    before = len(ends(telegram, chat))
    telegram.say(chat, chat, text)
    async with asyncio.timeout(30):
        await telegram.until(lambda: len(ends(telegram, chat)) > before, 30)
    return ends(telegram, chat)[-1]


@pytest.mark.skipif(bool(sandbox.unavailable()), reason="no sandboxes here")
async def test_a_chat_gets_files_of_its_own_sandbox_and_of_no_other(tmp_path: Path) -> None:
    script = Script(default=Step(text="Done."))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        # A folder of the machine with the same name as one of the sandbox is in nobody's way.
        more = {"gateway": {"media_delivery_allow_dirs": ["/tmp/"]}}
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, unpaced(tmp_path), **more
        ) as gateway:
            home = gateway.hermes.home
            (home / "notes.txt").write_text("of the home")

            def rule(word: str, *steps: Step) -> None:
                script.rules.append(Rule(contains=word, steps=list(steps)))

            rule(
                "make",
                command(
                    f"echo of Ann > a.txt; ln -s {home}/notes.txt b.txt; ln -s a.txt c.txt;"
                    " ln -s /etc/passwd d.txt; echo A=1 > .env.txt; echo of Ann > /tmp/e.txt;"
                    " echo of Ann > ~/f.txt"
                ),
                Step(text="Made.\nMEDIA:/workspace/a.txt"),
            )
            assert await sent(telegram, ANN, "make it") == "sendDocument"
            (made,) = home.glob("sandboxes/**/workspace/a.txt")
            files = {
                "link": "/workspace/b.txt",
                "inside": "/workspace/c.txt",
                "home": f"{home}/notes.txt",
                "system": "/proc/self/environ.txt",
                "outside": str(made),
                "machine": "/usr/share/common-licenses/GPL-2",
                "etc": "/workspace/d.txt",
                "variables": "/workspace/.env.txt",
                "temporary": "/tmp/e.txt",
                "tilde": "~/f.txt",
                "named": "/home/hermes/f.txt",
                "relative": "a.txt",
            }
            for word, path in files.items():
                rule(word, *[Step(text=f"Here.\nMEDIA:{path}")] * 2)
            for word in ("inside", "temporary", "tilde", "named", "relative"):
                assert await sent(telegram, ANN, f"{word} please") == "sendDocument", word
            for word in ("link", "home", "system", "machine", "etc", "variables"):
                assert await sent(telegram, ANN, f"{word} please") == REFUSED, word
            for word in ("outside", "inside", "temporary", "tilde"):
                assert await sent(telegram, BEN, f"{word} please") == REFUSED, word
            assert len(telegram.called("sendDocument")) == 6


async def test_on_this_machine_files_come_from_the_workspace_and_not_through_links(
    tmp_path: Path,
) -> None:
    local = {"backend": "local"}
    script = Script(default=Step(text="Done."))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, unpaced(tmp_path), terminal=local
        ) as gateway:
            home = gateway.hermes.home
            place = home / "workspace"
            place.mkdir(exist_ok=True)
            (home / "notes.txt").write_text("of the home")
            (place / "good.txt").write_text("good")
            (place / "link.txt").symlink_to(home / "notes.txt")
            (place / "folder").symlink_to(home)
            other = home / "cache" / "media" / "telegram" / "778_1_0_passport.txt"
            other.parent.mkdir(parents=True)
            other.write_text("of another chat")
            foreign = home / "sandboxes" / "sandbox" / "main" / "other" / "workspace"
            foreign.mkdir(parents=True)
            (foreign / "a.txt").write_text("of another session")
            files = {
                "good": place / "good.txt",
                "link": place / "link.txt",
                "folder": place / "folder" / "notes.txt",
                "dots": f"{place}/../notes.txt",
                "home": home / "notes.txt",
                "system": "/etc/hosts.allow.txt",
                "passport": other,
                "foreign": foreign / "a.txt",
                "environment": place / ".env.txt",
            }
            (place / ".env.txt").write_text("A_TOKEN=1")
            script.rules.extend(
                Rule(contains=word, steps=[Step(text=f"Here.\nMEDIA:{path}")])
                for word, path in files.items()
            )
            assert await sent(telegram, ANN, "good please") == "sendDocument"
            for word in [each for each in files if each != "good"]:
                assert await sent(telegram, ANN, f"{word} please") == REFUSED, word
            assert len(telegram.called("sendDocument")) == 1


async def test_a_file_that_came_with_a_message_goes_back_to_its_own_session_only(
    tmp_path: Path,
) -> None:
    script = Script(default=Step(text="Thank you."))
    async with FakeModelServer(script) as model, FakeTelegram() as telegram:
        async with running_gateway(
            tmp_path, model.base_url, telegram.base_url, terminal={"backend": "local"}
        ) as gateway:
            file_id = telegram.world.store(b"of Ann", "note.txt")
            telegram.say(ANN, ANN, "", document={"file_id": file_id, "file_name": "note.txt"})
            await telegram.until(lambda: telegram.replies(ANN), 30)
            (kept,) = gateway.hermes.home.glob("cache/media/telegram/*note.txt")
            answer = Step(text=f"Here.\nMEDIA:{kept}")
            script.rules.append(Rule(contains="again", steps=[answer, answer]))
            assert await sent(telegram, BEN, "again please") == REFUSED
            assert await sent(telegram, ANN, "again please") == "sendDocument"
