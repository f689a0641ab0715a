"""Which request a rule strikes."""

import pytest
from pydantic import ValidationError

from tests.rig.faults import Answer, Delay, NeverAnswer, Rule, Stall, Throttle
from tests.rig.faults.admin import rule_from_json
from tests.rig.faults.rules import RuleBook, Struck

_BLOB = "/v2/a/b/blobs/sha256:0"


@pytest.mark.parametrize(
    ("path", "method", "matches"),
    [
        ("*", "*", True),
        (_BLOB, "GET", True),
        ("*/blobs/*", "GET", True),
        ("*/blobs/*", "HEAD", False),
        ("*/manifests/*", "GET", False),
        ("/v2/a/b/blobs", "GET", False),
        (r"re:/v2/a/.*/sha256:\d", "GET", True),
        (r"re:/v2/a/", "GET", False),
    ],
)
def test_path_and_method(path: str, method: str, matches: bool) -> None:
    assert Rule(fault=Delay(seconds=1), path=path, method=method).matches("GET", _BLOB) is matches


@pytest.mark.parametrize(
    ("first", "last", "struck"),
    [(1, None, [1, 2, 3, 4, 5]), (1, 1, [1]), (3, 3, [3]), (2, 4, [2, 3, 4]), (4, None, [4, 5]), (6, 9, [])],
)
def test_the_nth_requests(first: int, last: int | None, struck: list[int]) -> None:
    active = RuleBook().add(Rule(fault=Delay(seconds=1), first=first, last=last))
    assert [nth for nth in range(1, 6) if active.strikes("GET", _BLOB)] == struck
    assert (active.met, active.struck) == (5, len(struck))


def test_requests_that_do_not_match_are_not_counted() -> None:
    active = RuleBook().add(Rule(fault=Delay(seconds=1), path="*/blobs/*", last=1))
    assert not active.strikes("GET", "/v2/")
    assert active.strikes("GET", _BLOB)


def test_counting_per_path_strikes_the_first_request_of_each() -> None:
    active = RuleBook().add(Rule(fault=Delay(seconds=1), last=1, per_path=True))
    assert [active.strikes("GET", path) for path in ("/a", "/a", "/b", "/a", "/b")] == [True, False, True, False, False]


@pytest.mark.parametrize(("first", "last"), [(0, None), (-1, 2), (3, 2)])
def test_a_range_that_holds_nothing_is_refused(first: int, last: int | None) -> None:
    with pytest.raises(ValueError, match="no request"):
        Rule(fault=Delay(seconds=1), first=first, last=last)


def test_a_rule_added_later_joins_a_request_in_flight_and_counts_it_once() -> None:
    book = RuleBook()
    struck = Struck(book, "GET", _BLOB)
    assert struck.now() == []
    active = book.add(Rule(fault=Stall(), last=1))
    assert struck.now() == [active]
    assert struck.now() == [active]
    assert active.met == 1
    assert Struck(book, "GET", _BLOB).now() == []


def test_a_removed_rule_drops_out_and_lets_go() -> None:
    book = RuleBook()
    kept, removed = book.add(Rule(fault=Delay(seconds=1))), book.add(Rule(fault=NeverAnswer()))
    struck = Struck(book, "GET", _BLOB)
    assert struck.now() == [kept, removed]
    book.remove(removed.number)
    assert removed.released.is_set()
    assert struck.now() == [kept]
    with pytest.raises(LookupError):
        book.remove(removed.number)


def test_rules_are_read_from_json() -> None:
    text = '{"path": "*/blobs/*", "method": "GET", "last": 2, "fault": {"kind": "answer", "status": 429, "headers": {"Retry-After": "7"}}}'
    expected = Rule(path="*/blobs/*", method="GET", last=2, fault=Answer(status=429, headers={"Retry-After": "7"}))
    assert rule_from_json(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"fault": {"kind": "nope"}}', "'nope'"),
        ('{"fault": {"seconds": 1}}', "kind"),
        ('{"fault": {"kind": "stall", "after_byte": 1}}', "after_byte"),
        ('{"fault": {"kind": "stall"}, "paht": "*"}', "paht"),
        ('{"fault": {"kind": "stall"}, "first": 0}', "no request"),
        ('{"fault": {"kind": "throttle", "bytes_per_second": 0}}', "above 0"),
        ("{", "Invalid JSON"),
    ],
)
def test_a_mistake_in_json_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        rule_from_json(text)


@pytest.mark.parametrize("rate", [0, -1.0])
def test_a_rate_is_above_zero(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Throttle(total_bytes_per_second=rate)
