"""The second opinion of smart mode: only a clear word counts."""

from hypothesis import given
from hypothesis import strategies as st

from hermes.agent.side_calls import WORDS, opinion_of
from hermes.domain.approvals import Gate


def test_the_three_words_are_understood() -> None:
    assert opinion_of("APPROVE") is Gate.ALLOW
    assert opinion_of(" deny.\n") is Gate.BLOCK
    assert opinion_of("Escalate") is Gate.ASK


@given(st.text().filter(lambda text: text.strip().strip(".!\"'`*").upper() not in WORDS))
def test_anything_else_means_ask(answer: str) -> None:
    assert opinion_of(answer) is Gate.ASK


def test_a_yes_hidden_in_a_sentence_is_not_a_yes() -> None:
    assert opinion_of("I would APPROVE this") is Gate.ASK
