"""`hermes pairing`, as a person uses it beside a running gateway."""

from pathlib import Path

import pytest

from fakes.hermes_cli import hermes
from hermes.control.admission.pairing import Pairing
from hermes.domain.inbound import Sender
from hermes.execution.clock import SystemClock
from hermes.state.pairing import PairingFiles


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


async def code_for(home: Path, sender: Sender) -> str:
    pairing = Pairing(PairingFiles(home / "platforms" / "pairing"), SystemClock())
    code = await pairing.request("telegram", sender)
    assert code is not None
    return code


def test_without_a_home_nobody_waits_and_nothing_is_made(home: Path) -> None:
    done = hermes(home, "pairing", "list")
    assert done.returncode == 0, done.stderr
    assert "No pending" in done.stdout
    assert not home.exists()


async def test_a_code_is_approved_listed_and_revoked(home: Path) -> None:
    code = await code_for(home, Sender(id="42", name="Anna\x1b[31m"))
    listed = hermes(home, "pairing", "list")
    assert "42  Anna[31m" in listed.stdout
    assert code not in listed.stdout
    approved = hermes(home, "pairing", "approve", "telegram", code.lower())
    assert approved.returncode == 0, approved.stderr
    assert "42 (Anna" in approved.stdout
    pairing = Pairing(PairingFiles(home / "platforms" / "pairing"), SystemClock())
    await pairing.refresh()
    assert pairing.is_paired("telegram", Sender(id="42"))
    assert "Paired:" in hermes(home, "pairing", "list").stdout
    assert hermes(home, "pairing", "revoke", "telegram", "42").returncode == 0
    again = hermes(home, "pairing", "revoke", "telegram", "42")
    assert again.returncode == 4
    assert "not paired" in again.stderr


async def test_a_wrong_code_is_refused_with_a_next_step(home: Path) -> None:
    await code_for(home, Sender(id="42"))
    done = hermes(home, "pairing", "approve", "telegram", "WRONGONE")
    assert done.returncode == 4
    assert "hermes pairing list" in done.stderr


async def test_pending_codes_can_be_cleared(home: Path) -> None:
    code = await code_for(home, Sender(id="42"))
    assert "1 pending code cleared" in hermes(home, "pairing", "clear-pending").stdout
    assert hermes(home, "pairing", "approve", "telegram", code).returncode == 4


def test_a_platform_is_a_name_and_not_a_path(home: Path) -> None:
    done = hermes(home, "pairing", "approve", "../../etc/passwd", "ABCDEFGH")
    assert done.returncode == 2
    assert "not the name of a platform" in done.stderr
