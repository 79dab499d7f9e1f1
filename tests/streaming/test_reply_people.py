"""What a reply tells people who are not the operator."""

import pytest
from msgspec.structs import replace

from hermes.domain.errors import NOT_FOR_PEOPLE, BudgetExhausted, failure_text
from hermes.domain.events import Notice, NoticeLevel
from hermes.domain.ports.model import FailureKind, ModelFailure
from hermes.domain.settings import Settings
from hermes.domain.turn import TurnError
from hermes.streaming.chat.reply import TurnReply
from hermes.streaming.chat.settings import presentation

URL = "http://10.0.0.7:8080/v1"


@pytest.mark.parametrize("kind", list(FailureKind))
def test_no_kind_of_model_failure_names_an_address_or_a_hint(kind: FailureKind) -> None:
    failure = ModelFailure(kind, f"acme at {URL} is down", hint="Check base_url in config.yaml")
    told = failure_text(failure, operator=False)
    assert told
    assert URL not in told
    assert "acme" not in told
    assert "config" not in told
    assert failure_text(failure, operator=True) == f"{failure.message}\n{failure.hint}"


@pytest.mark.parametrize("code", ["internal", "config", "store", "missing_extra", "model_server"])
def test_how_hermes_is_set_up_is_not_for_people(code: str) -> None:
    error = TurnError(code=code, message="/home/op/.hermes/x", hint="Edit it.")
    assert failure_text(error, operator=False) == NOT_FOR_PEOPLE


def test_what_concerns_people_is_told_them() -> None:
    error = TurnError(code="resume_limit", message="Given up.", hint="Ask again.")
    assert failure_text(error, operator=False) == "Given up.\nAsk again."
    spent = BudgetExhausted("The day used $5.", hint="Raise it with: hermes config set x")
    assert "hermes" not in failure_text(spent, operator=False)


@pytest.mark.parametrize("operator", [True, False])
def test_warnings_about_providers_are_for_the_operator(operator: bool) -> None:
    settings = presentation(Settings(), "telegram")
    reply = TurnReply(replace(settings, tool_progress="all", operator=operator))
    reply.take(Notice(code="retry", text=f"{URL} again", level=NoticeLevel.WARNING))
    assert len(reply.items) == int(operator)
