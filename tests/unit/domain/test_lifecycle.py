"""The life cycle: every pair of statuses, the ends, and the fold from kernels to a session."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.domain.lifecycle import (
    BEFORE_RUNNING,
    FINAL,
    QUOTA_COUNTED,
    TRANSITIONS,
    Status,
    advance,
    may_advance,
    session_status_of,
)

S = Status
ENDS_BEFORE_RUNNING = "CANCELLED ERROR TERMINATING"
TABLE = {
    "PENDING": f"SCHEDULED {ENDS_BEFORE_RUNNING}",
    "SCHEDULED": f"PREPARING PENDING {ENDS_BEFORE_RUNNING}",
    "PREPARING": f"PULLING PREPARED PENDING {ENDS_BEFORE_RUNNING}",
    "PULLING": f"PREPARED PREPARING PENDING {ENDS_BEFORE_RUNNING}",
    "PREPARED": f"CREATING PREPARING PENDING {ENDS_BEFORE_RUNNING}",
    "CREATING": f"RUNNING PREPARING PENDING {ENDS_BEFORE_RUNNING}",
    "RUNNING": "TERMINATING TERMINATED ERROR",
    "TERMINATING": "TERMINATED CANCELLED ERROR",
    "TERMINATED": "",
    "CANCELLED": "",
    "ERROR": "",
}
"""The whole table, written out a second time: a changed transition is changed here, too, or it is a mistake."""


@pytest.mark.parametrize(("current", "to"), list(product(Status, Status)))
def test_every_pair_of_statuses(current: Status, to: Status) -> None:
    allowed = to.value in TABLE[current.value].split()
    assert may_advance(current, to) is allowed
    if current in FINAL:
        assert advance(current, to) is False
    elif allowed:
        assert advance(current, to) is True
    else:
        with pytest.raises(ValueError, match=f"from {current} to {to}"):
            advance(current, to)


def test_the_table_has_each_status_once() -> None:
    assert set(TRANSITIONS) == set(Status)
    assert {onward for targets in TRANSITIONS.values() for onward in targets} <= set(Status)


def test_the_final_statuses_are_those_without_a_way_out() -> None:
    assert {S.TERMINATED, S.CANCELLED, S.ERROR} == FINAL


@pytest.mark.parametrize("status", [status for status in Status if status not in FINAL])
def test_from_everywhere_there_is_a_way_to_an_end(status: Status) -> None:
    reached, frontier = {status}, {status}
    while frontier:
        frontier = {onward for one in frontier for onward in TRANSITIONS[one]} - reached
        reached |= frontier
    assert FINAL & reached
    assert S.ERROR in TRANSITIONS[status]


def test_force_cancel_works_in_every_status_before_running() -> None:
    assert set(BEFORE_RUNNING) == set(Status) - FINAL - {S.RUNNING, S.TERMINATING}
    assert all(may_advance(status, S.CANCELLED) for status in BEFORE_RUNNING)
    assert not may_advance(S.RUNNING, S.CANCELLED)


def test_a_kernel_that_is_being_brought_its_image_costs_its_user_nothing() -> None:
    assert not {S.PENDING, S.SCHEDULED, S.PREPARING, S.PULLING} & QUOTA_COUNTED
    assert not FINAL & QUOTA_COUNTED
    assert {S.CREATING, S.RUNNING, S.TERMINATING} == QUOTA_COUNTED


@given(st.lists(st.sampled_from(Status), max_size=30))
def test_the_first_end_wins_whatever_comes_later(asked: list[Status]) -> None:
    current = S.PENDING
    ends = []
    for to in asked:
        if current in FINAL or may_advance(current, to):
            current = to if advance(current, to) else current
        if current in FINAL:
            ends.append(current)
    assert len(set(ends)) <= 1


@pytest.mark.parametrize(
    ("kernels", "session"),
    [
        ("PENDING", "PENDING"),
        ("RUNNING", "RUNNING"),
        ("RUNNING RUNNING", "RUNNING"),
        ("RUNNING PENDING", "PENDING"),
        ("PULLING PENDING", "PENDING"),
        ("PULLING SCHEDULED", "SCHEDULED"),
        ("PULLING PREPARING", "PULLING"),
        ("PREPARING PREPARED", "PREPARING"),
        ("PULLING PREPARED RUNNING", "PULLING"),
        ("CREATING PREPARED", "CREATING"),
        ("CREATING RUNNING", "CREATING"),
        ("PREPARED RUNNING", "PREPARED"),
        ("TERMINATING RUNNING", "TERMINATING"),
        ("TERMINATED RUNNING", "RUNNING"),
        ("TERMINATED PULLING", "PULLING"),
        ("CANCELLED RUNNING", "TERMINATING"),
        ("ERROR RUNNING", "TERMINATING"),
        ("TERMINATED TERMINATING", "TERMINATING"),
        ("ERROR PULLING", "TERMINATING"),
        ("CANCELLED PENDING", "TERMINATING"),
        ("TERMINATED TERMINATED", "TERMINATED"),
        ("TERMINATED CANCELLED", "CANCELLED"),
        ("CANCELLED ERROR TERMINATED", "ERROR"),
    ],
)
def test_the_session_is_the_fold_of_its_kernels(kernels: str, session: str) -> None:
    assert session_status_of([Status(name) for name in kernels.split()]) is Status(session)


def test_a_session_without_kernels_is_a_fault() -> None:
    with pytest.raises(ValueError, match="at least one"):
        session_status_of([])


kernels = st.lists(st.sampled_from(Status), min_size=1, max_size=6)


@given(kernels)
def test_the_fold_knows_no_order_and_no_number(statuses: list[Status]) -> None:
    session = session_status_of(statuses)
    assert session_status_of(reversed(statuses)) is session
    assert session_status_of(set(statuses)) is session


@given(kernels)
def test_the_fold_is_final_only_when_all_kernels_are(statuses: list[Status]) -> None:
    session = session_status_of(statuses)
    assert (session in FINAL) == all(status in FINAL for status in statuses)
    assert session in statuses or session is S.TERMINATING
    assert (session is S.RUNNING) == (set(statuses) - {S.TERMINATED} == {S.RUNNING})


@given(st.sampled_from(Status), st.integers(1, 8))
def test_kernels_of_one_mind_are_the_session(status: Status, count: int) -> None:
    assert session_status_of([status] * count) is status


@given(kernels, st.data())
def test_a_kernel_that_ends_never_brings_an_ended_session_back(statuses: list[Status], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(statuses) - 1))
    onward = sorted(TRANSITIONS[statuses[index]])
    before = session_status_of(statuses)
    if onward:
        statuses[index] = data.draw(st.sampled_from(onward))
    assert before not in FINAL or session_status_of(statuses) is before
