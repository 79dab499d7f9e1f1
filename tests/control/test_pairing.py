"""Pairing codes, on real files, seen from two processes' sides."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from hermes.control.admission.pairing import ALPHABET, Pairing, offer_text
from hermes.domain.errors import Conflict, NotFound, StoreError, UsageError
from hermes.domain.inbound import Sender
from hermes.state.pairing import PairingFiles
from hermes.testing import FakeClock

ANNA = Sender(id="1", name="Anna")


class Sides:
    """The gateway and a person's command, each with its own view of the same files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.gateway = Pairing(PairingFiles(folder), self.clock)
        self.person = Pairing(PairingFiles(folder), self.clock)

    async def code(self, sender: Sender = ANNA, platform: str = "telegram") -> str:
        code = await self.gateway.request(platform, sender)
        assert code is not None
        return code


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path / "platforms" / "pairing")


async def test_a_stranger_gets_a_code_a_person_confirms_it_and_the_gateway_notices(
    sides: Sides, caplog: pytest.LogCaptureFixture
) -> None:
    await sides.gateway.refresh()
    code = await sides.code()
    assert not sides.gateway.is_paired("telegram", ANNA)
    newcomer = await sides.person.approve("telegram", code)
    assert (newcomer.user_id, newcomer.user_name) == ("1", "Anna")
    with caplog.at_level("INFO"):
        await sides.gateway.refresh()
        await sides.gateway.refresh()
    assert [record.getMessage() for record in caplog.records] == ["paired: telegram 1"]
    assert sides.gateway.is_paired("telegram", ANNA)
    assert not sides.gateway.is_paired("discord", ANNA)


async def test_the_bot_of_an_agent_has_pairings_of_its_own(sides: Sides) -> None:
    code = await sides.gateway.request("telegram:coder", ANNA)
    assert code is not None
    assert f"approve telegram:coder {code}" in offer_text("telegram:coder", code)
    assert (await sides.person.approve("telegram", code)).platform == "telegram:coder"
    await sides.gateway.refresh()
    assert sides.gateway.is_paired("telegram:coder", ANNA)
    assert not sides.gateway.is_paired("telegram", ANNA)


async def test_a_code_has_eight_characters_that_cannot_be_confused(sides: Sides) -> None:
    code = await sides.code()
    assert len(code) == 8
    assert len(set(ALPHABET)) == 32
    assert set(code) <= set(ALPHABET)
    assert not set("01IO") & set(ALPHABET)
    assert code in offer_text("telegram", code)


async def test_a_code_may_be_typed_in_small_letters_and_groups(sides: Sides) -> None:
    code = await sides.code()
    await sides.person.approve("telegram", f" {code[:4].lower()}-{code[4:].lower()} ")
    assert [each.user_id for each in await sides.person.paired()] == ["1"]


async def test_files_are_private_and_hold_no_code(sides: Sides) -> None:
    code = await sides.code()
    pending = sides.folder / "telegram-pending.json"
    for path in sides.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert code not in path.read_text(encoding="utf-8")
    (entry,) = json.loads(pending.read_text(encoding="utf-8")).values()
    assert set(entry) == {"hash", "salt", "user_id", "user_name", "created_at"}
    limits = json.loads((sides.folder / "_rate_limits.json").read_text(encoding="utf-8"))
    assert set(limits) == {"telegram:1"}


async def test_a_code_counts_once_and_only_on_its_platform(sides: Sides) -> None:
    code = await sides.code()
    with pytest.raises(NotFound):
        await sides.person.approve("discord", code)
    await sides.person.approve("telegram", code)
    with pytest.raises(NotFound):
        await sides.person.approve("telegram", code)


async def test_a_code_dies_after_an_hour(sides: Sides) -> None:
    code = await sides.code()
    sides.clock.advance(3601)
    assert await sides.person.waiting() == []
    with pytest.raises(NotFound):
        await sides.person.approve("telegram", code)


async def test_one_request_in_ten_minutes_and_the_newer_code_replaces_the_older(
    sides: Sides,
) -> None:
    first = await sides.code()
    assert await sides.gateway.request("telegram", ANNA) is None
    sides.clock.advance(601)
    second = await sides.code()
    assert len(await sides.person.waiting()) == 1
    with pytest.raises(NotFound):
        await sides.person.approve("telegram", first)
    await sides.person.approve("telegram", second)


async def test_at_most_three_wait_on_a_platform(sides: Sides) -> None:
    for number in range(3):
        await sides.code(Sender(id=str(number)))
    assert await sides.gateway.request("telegram", Sender(id="99")) is None
    await sides.code(Sender(id="99"), platform="discord")
    assert await sides.person.clear_pending("telegram") == 3
    await sides.code(Sender(id="99"))


async def test_five_wrong_codes_lock_pairing_for_an_hour(sides: Sides) -> None:
    code = await sides.code()
    for _ in range(4):
        with pytest.raises(NotFound):
            await sides.person.approve("telegram", "AAAAAAAA")
    with pytest.raises(Conflict, match="locked for 60 minutes"):
        await sides.person.approve("telegram", "AAAAAAAA")
    with pytest.raises(Conflict):
        await sides.person.approve("telegram", code)
    assert await sides.gateway.request("telegram", Sender(id="5")) is None
    sides.clock.advance(3601)
    await sides.person.approve("telegram", await sides.code())


async def test_a_right_code_forgives_the_wrong_ones(sides: Sides) -> None:
    for round_ in range(3):
        code = await sides.code(Sender(id=str(round_)))
        for _ in range(4):
            with pytest.raises(NotFound):
                await sides.person.approve("telegram", "AAAAAAAA")
        await sides.person.approve("telegram", code)


async def test_one_platforms_limits_leave_a_similar_name_alone(sides: Sides) -> None:
    for _ in range(4):
        with pytest.raises(NotFound):
            await sides.person.approve("whatsapp_cloud", "AAAAAAAA")
    await sides.code(platform="whatsapp")
    with pytest.raises(Conflict):
        await sides.person.approve("whatsapp_cloud", "AAAAAAAA")


async def test_who_is_revoked_is_out_at_the_next_look(sides: Sides) -> None:
    await sides.person.approve("telegram", await sides.code())
    await sides.gateway.refresh()
    assert sides.gateway.is_paired("telegram", ANNA)
    assert await sides.person.revoke("telegram", "1")
    assert not await sides.person.revoke("telegram", "1")
    await sides.gateway.refresh()
    assert not sides.gateway.is_paired("telegram", ANNA)


async def test_files_of_the_existing_system_are_understood(sides: Sides) -> None:
    sides.folder.mkdir(parents=True)
    now = sides.clock.now()
    approved = {"7": {"user_name": "Old", "approved_at": 1.5}}
    old = {"ABCD2345": {"user_id": "8", "user_name": "Older", "created_at": now}}
    (sides.folder / "telegram-approved.json").write_text(json.dumps(approved))
    (sides.folder / "telegram-pending.json").write_text(json.dumps(old))
    await sides.gateway.refresh()
    assert sides.gateway.is_paired("telegram", Sender(id="7"))
    await sides.person.approve("telegram", "abcd2345")
    assert {each.user_id for each in await sides.person.paired()} == {"7", "8"}


async def test_a_broken_file_is_an_error_and_is_not_overwritten(sides: Sides) -> None:
    code = await sides.code()
    path = sides.folder / "telegram-approved.json"
    path.write_text("{broken")
    with pytest.raises(StoreError):
        await sides.person.approve("telegram", code)
    assert path.read_text() == "{broken"


async def test_a_platform_name_cannot_lead_out_of_the_folder(sides: Sides) -> None:
    with pytest.raises(UsageError):
        await sides.person.approve("../../etc/x", "AAAAAAAA")


async def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "pairing"
    clock = FakeClock()
    stores = [Pairing(PairingFiles(folder), clock) for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        for number, store in enumerate(stores):
            for platform in ("a", "b", "c"):
                group.create_task(store.request(f"{platform}{number % 2}", Sender(id=str(number))))
    assert len(await stores[0].waiting()) == 12
