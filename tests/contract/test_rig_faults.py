"""The fault registry against a real registry: each fault does what it says, and the counts are true."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.rig.eventually import eventually_sync
from tests.rig.faults import (
    Cut,
    Delay,
    Ending,
    FaultRegistry,
    Flip,
    Garbage,
    IgnoreRange,
    NeverAnswer,
    Stall,
    Throttle,
    Trickle,
    WrongLength,
    registry_error,
)
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess

_LAYER = Layer.random(mb=20, seed=100)
_SIZE = _LAYER.blob().size_bytes
_BLOB_PATH = f"/v2/rig/faults/blobs/{_LAYER.blob().digest}"
_MANIFEST_PATH = "/v2/rig/faults/manifests/1"


@pytest.fixture
def faults(registry: RegistryProcess, fault_registry: Callable[[], FaultRegistry]) -> FaultRegistry:
    push(registry.host, "rig/faults", "1", ImageRecipe(layers=(_LAYER,), cmd=("true",)))
    return fault_registry()


@pytest.fixture
def http(faults: FaultRegistry) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=faults.url, timeout=30, trust_env=False) as client:
        yield client


def test_without_rules_it_is_the_registry(http: httpx.Client, faults: FaultRegistry, registry: RegistryProcess) -> None:
    accept = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    direct = httpx.get(f"{registry.url}{_MANIFEST_PATH}", headers=accept, trust_env=False)
    answer = http.get(_MANIFEST_PATH, headers=accept)
    assert (answer.status_code, answer.content) == (200, direct.content)
    assert answer.headers["Docker-Content-Digest"] == direct.headers["Docker-Content-Digest"]
    assert int(http.head(_BLOB_PATH).headers["Content-Length"]) == _SIZE
    assert http.get(_BLOB_PATH).content == _LAYER.blob().data
    part = http.get(_BLOB_PATH, headers={"Range": "bytes=1000-1999"})
    assert (part.status_code, part.content) == (206, _LAYER.blob().data[1000:2000])
    assert faults.stats().bytes_by_path() == {_MANIFEST_PATH: len(direct.content), _BLOB_PATH: _SIZE + 1000}
    assert [(exchange.method, exchange.range) for exchange in faults.stats().of(digest=_LAYER.blob().digest)] == [
        ("HEAD", ""),
        ("GET", ""),
        ("GET", "bytes=1000-1999"),
    ]


@pytest.mark.parametrize("rate", [20_000, 1_000_000, 10_000_000])
def test_a_throttle_keeps_its_rate_smoothly(http: httpx.Client, faults: FaultRegistry, rate: int) -> None:
    faults.on(Throttle(bytes_per_second=rate), path=_BLOB_PATH)
    received, start = 0, time.monotonic()
    with http.stream("GET", _BLOB_PATH) as answer:
        for piece in answer.iter_raw():
            received += len(piece)
            elapsed = time.monotonic() - start
            if elapsed > 1.5:
                break
    assert received / elapsed == pytest.approx(rate, rel=0.2)


def test_a_total_throttle_is_shared(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Throttle(total_bytes_per_second=6_000_000), path=_BLOB_PATH)
    wanted = {"Range": "bytes=0-2999999"}
    start = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: http.get(_BLOB_PATH, headers=wanted), range(3)))
    elapsed = time.monotonic() - start
    received = sum(len(answer.content) for answer in answers)
    assert received / elapsed == pytest.approx(6_000_000, rel=0.2)


def test_a_throttle_may_be_lifted_in_mid_answer(http: httpx.Client, faults: FaultRegistry) -> None:
    throttle = faults.on(Throttle(bytes_per_second=20_000), path=_BLOB_PATH)
    with http.stream("GET", _BLOB_PATH) as answer:
        faults.remove(throttle)
        start = time.monotonic()
        assert len(answer.read()) == _SIZE
    assert time.monotonic() - start < 10


def test_a_stall_sends_so_much_and_goes_on_when_released(http: httpx.Client, faults: FaultRegistry) -> None:
    stall = faults.on(Stall(after_bytes=1_000_000), path=_BLOB_PATH)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.get, _BLOB_PATH)
        eventually_sync(lambda: faults.body_bytes == 1_000_000, timeout=10)
        assert not answer.done()
        assert [exchange.ending for exchange in faults.stats().open] == [Ending.OPEN]
        faults.remove(stall)
        assert answer.result(20).content == _LAYER.blob().data


def test_a_stall_can_strike_an_answer_already_under_way(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Throttle(bytes_per_second=2_000_000), path=_BLOB_PATH)
    with http.stream("GET", _BLOB_PATH) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        stall = faults.on(Stall(), path=_BLOB_PATH)
        eventually_sync(lambda: stall.struck == 1, timeout=5)
        stood_at = faults.stats().bytes_by_path()[_BLOB_PATH]
        faults.on(Delay(seconds=0.5), path="/v2/")
        http.get("/v2/")
        assert faults.stats().bytes_by_path()[_BLOB_PATH] == stood_at
    assert stood_at < _SIZE


def test_a_client_that_leaves_a_stall_is_noticed(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Stall(after_bytes=1000), path=_BLOB_PATH)
    with http.stream("GET", _BLOB_PATH) as answer:
        assert answer.status_code == 200
        eventually_sync(lambda: faults.body_bytes == 1000, timeout=10)
    eventually_sync(lambda: faults.stats().exchanges[-1].ending is Ending.CLIENT_LEFT, timeout=2)
    assert faults.body_bytes == 1000


def test_never_answered_until_released(http: httpx.Client, faults: FaultRegistry) -> None:
    silence = faults.on(NeverAnswer(), path=_MANIFEST_PATH, last=1)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.get, _MANIFEST_PATH)
        eventually_sync(lambda: silence.struck == 1, timeout=5)
        assert http.get(_MANIFEST_PATH).status_code == 200
        assert not answer.done()
        faults.remove(silence)
        assert answer.result(10).status_code == 200


def test_a_delay_comes_before_the_headers(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Delay(seconds=0.5), path=_MANIFEST_PATH, first=2)
    assert http.get(_MANIFEST_PATH).elapsed.total_seconds() < 0.5
    assert http.get(_MANIFEST_PATH).elapsed.total_seconds() >= 0.5


def test_a_trickle_is_silence_with_a_few_bytes_between(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Trickle(piece_bytes=3, every_seconds=0.1), path=_BLOB_PATH)
    start = time.monotonic()
    answer = http.get(_BLOB_PATH, headers={"Range": "bytes=0-11"})
    assert answer.content == _LAYER.blob().data[:12]
    assert time.monotonic() - start >= 0.4


@pytest.mark.parametrize(("with_reset", "error"), [(True, httpx.ReadError), (False, httpx.RemoteProtocolError)])
def test_a_cut_ends_the_connection_at_its_byte(
    http: httpx.Client, faults: FaultRegistry, with_reset: bool, error: type[Exception]
) -> None:
    faults.on(Cut(after_bytes=5_000_000, with_reset=with_reset), path=_BLOB_PATH, last=1)
    with pytest.raises(error):
        http.get(_BLOB_PATH)
    assert [(exchange.ending, exchange.body_bytes) for exchange in faults.stats().exchanges] == [
        (Ending.CUT, 5_000_000)
    ]
    rest = http.get(_BLOB_PATH, headers={"Range": "bytes=5000000-"})
    assert rest.content == _LAYER.blob().data[5_000_000:]


def test_a_flipped_byte_stays_flipped_in_a_range(http: httpx.Client, faults: FaultRegistry) -> None:
    expected = bytearray(_LAYER.blob().data)
    expected[7_000_000] ^= 0xFF
    faults.on(Flip(offset=7_000_000), path=_BLOB_PATH)
    assert http.get(_BLOB_PATH).content == expected
    assert http.get(_BLOB_PATH, headers={"Range": "bytes=6999999-7000001"}).content == expected[6_999_999:7_000_002]


def test_ranges_are_ignored_on_demand(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(IgnoreRange(), path=_BLOB_PATH)
    answer = http.get(_BLOB_PATH, headers={"Range": "bytes=100-"})
    assert (answer.status_code, len(answer.content)) == (200, _SIZE)


def test_a_length_declared_too_long_ends_early_and_one_too_short_cuts(
    http: httpx.Client, faults: FaultRegistry
) -> None:
    too_long = faults.on(WrongLength(by=10), path=_BLOB_PATH)
    with pytest.raises(httpx.RemoteProtocolError, match=f"received {_SIZE} bytes, expected {_SIZE + 10}"):
        http.get(_BLOB_PATH)
    faults.remove(too_long)
    faults.on(WrongLength(by=-10), path=_BLOB_PATH)
    assert http.get(_BLOB_PATH).content == _LAYER.blob().data[:-10]


def test_garbage_has_the_length_of_the_truth(http: httpx.Client, faults: FaultRegistry) -> None:
    truth = http.get(_MANIFEST_PATH).content
    faults.on(Garbage(), path=_MANIFEST_PATH)
    garbage = http.get(_MANIFEST_PATH)
    assert (garbage.status_code, len(garbage.content)) == (200, len(truth))
    assert garbage.content != truth


def test_any_status_with_headers_and_body_without_asking_the_registry(
    http: httpx.Client, faults: FaultRegistry
) -> None:
    faults.on(
        registry_error(429, "TOOMANYREQUESTS", "slow down", headers={"Retry-After": "7"}), path=_MANIFEST_PATH, last=1
    )
    refused = http.get(_MANIFEST_PATH)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "7")
    assert refused.json()["errors"][0]["code"] == "TOOMANYREQUESTS"
    assert http.get(_MANIFEST_PATH).status_code == 200


def test_tls_is_refused_at_once_and_http_after_it_is_served(http: httpx.Client, faults: FaultRegistry) -> None:
    host, _, port = faults.host.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        start = time.monotonic()
        connection.sendall(b"\x16\x03\x01\x00\x05hello")
        assert connection.recv(12) == b"HTTP/1.0 400"
    assert time.monotonic() - start < 0.5
    assert http.get("/v2/").status_code == 200


def test_everybody_can_be_cut_off_at_once(http: httpx.Client, faults: FaultRegistry) -> None:
    faults.on(Stall(after_bytes=10), path=_BLOB_PATH)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.get, _BLOB_PATH)
        eventually_sync(lambda: faults.body_bytes == 10, timeout=10)
        faults.drop_connections()
        assert isinstance(answer.exception(5), httpx.TransportError)


def test_a_dead_registry_behind_it_is_a_502(fault_registry: Callable[[], FaultRegistry]) -> None:
    with FaultRegistry("127.0.0.1:1") as orphan:
        assert httpx.get(f"{orphan.url}/v2/", trust_env=False).status_code == 502
        assert orphan.stats().exchanges[0].ending is Ending.UPSTREAM_FAILED


def test_it_starts_again_on_its_port_with_its_rules(registry: RegistryProcess) -> None:
    faults = FaultRegistry(registry.host)
    faults.on(registry_error(503, "UNAVAILABLE", "away"))
    for _ in range(2):
        with faults:
            host = faults.host
            assert httpx.get(f"{faults.url}/v2/", trust_env=False).status_code == 503
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://{host}/v2/", trust_env=False)


def test_rules_and_counts_from_a_shell(http: httpx.Client) -> None:
    rule = {"path": "/v2/", "last": 1, "fault": {"kind": "answer", "status": 418}}
    added = http.post("/_faults/rules", json=rule)
    assert (added.status_code, added.json()["number"]) == (201, 1)
    assert [http.get("/v2/").status_code for _ in range(2)] == [418, 200]
    assert [(shown["met"], shown["struck"]) for shown in http.get("/_faults/rules").json()] == [(2, 1)]
    assert http.delete("/_faults/rules", params={"number": 1}).status_code == 204
    assert http.delete("/_faults/rules", params={"number": 1}).status_code == 404
    assert http.get("/_faults/rules").json() == []
    assert [request["status"] for request in http.get("/_faults/stats").json()["requests"]] == [418, 200]
    assert http.delete("/_faults/stats").status_code == 204
    assert http.get("/_faults/stats").json()["requests"] == []
    assert http.post("/_faults/rules", json={"fault": {"kind": "nope"}}).status_code == 400
