"""Numbers of the ledger that have to agree with others."""

from towline.store.ledger import TURN_KEPT
from workflows import options


def test_a_waiting_session_asks_at_least_twice_before_it_loses_its_turn() -> None:
    assert options.CAPACITY_RECHECK * 2 <= TURN_KEPT
