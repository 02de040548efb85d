"""fanout: outcomes in order, errors as values, and bugs that are not hidden."""

from __future__ import annotations

import pytest

from muster.errors import MusterError
from muster.fanout import Crew, each


def test_outcomes_are_in_the_order_of_the_items_and_an_error_stands_beside_its_item() -> None:
    def work(number: int) -> int:
        if number == 2:
            raise MusterError("two is refused")
        return number * 10

    outcomes = each(work, [3, 2, 1])
    assert [(one.item, one.value, one.error and one.error.message) for one in outcomes] == [
        (3, 30, None),
        (2, None, "two is refused"),
        (1, 10, None),
    ]
    assert outcomes[0].get() == 30
    with pytest.raises(MusterError, match="two is refused"):
        outcomes[1].get()


@pytest.mark.parametrize("items", [[1], [1, 2, 3]])
def test_an_error_that_is_no_muster_error_is_raised_after_the_rest_has_ended(items: list[int]) -> None:
    ended = []

    def work(number: int) -> None:
        if number == 1:
            raise ValueError("a bug")
        ended.append(number)

    with pytest.raises(ValueError, match="a bug"):
        each(work, items)
    assert sorted(ended) == items[1:]


def test_a_crew_raises_a_bug_and_hands_over_an_error() -> None:
    crew: Crew[str] = Crew()

    def refuse() -> None:
        raise MusterError("refused")

    def stumble() -> None:
        raise ValueError("a bug")

    crew.start("x", refuse)
    (outcome,) = crew.done(30)
    assert outcome.item == "x" and outcome.error and outcome.error.message == "refused"
    crew.start("y", stumble)
    with pytest.raises(ValueError, match="a bug"):
        crew.done(30)
