"""Engines that are killed, frozen, full, or answered for by a proxy; and nothing of them is left."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import docker
import httpx
import pytest

from tests.rig.engines import Engine, EngineOptions, ProxySocket, classic_engine, containerd_engine
from tests.rig.engines.remains import mounts_below, processes_naming
from tests.rig.eventually import eventually_sync
from tests.rig.faults import Cut, FaultRegistry, NeverAnswer, Stall
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.pulling import pull, pulling
from tests.rig.registry import TESTER, RegistryProcess

EngineMaker = Callable[[Path, EngineOptions], Engine]
_BOTH = pytest.mark.parametrize("make", [classic_engine, containerd_engine], ids=["classic", "containerd"])


@pytest.fixture
def image(registry: RegistryProcess) -> PushedImage:
    layers = (Layer.busybox(), Layer.random(mb=3, seed=500))
    return push(
        registry.host, "rig/engines", "1", ImageRecipe(layers=layers, cmd=("sleep", "600"), stop_signal="SIGKILL")
    )


def _assert_nothing_left(engine: Engine) -> None:
    assert processes_naming(f"{engine.paths.run}/") == set()
    assert mounts_below(engine.paths.run) + mounts_below(engine.paths.data) == []
    assert not engine.paths.run.exists()
    assert not engine.paths.data.exists()


@_BOTH
def test_a_killed_engine_starts_again_and_an_engine_that_ends_leaves_nothing(
    make: EngineMaker, tmp_path: Path, image: PushedImage
) -> None:
    with make(tmp_path, EngineOptions()) as engine:
        assert pull(engine.socket, image.reference).succeeded
        engine.client().containers.run(image.reference, network_mode="none", detach=True, name="sleeper")
        engine.kill()
        with pytest.raises(httpx.TransportError):
            pull(engine.socket, image.reference)
        engine.start()
        assert [one["Names"] for one in engine.client().api.containers(all=True)] == [["/sleeper"]]
        engine.client().containers.get("sleeper").start()
    _assert_nothing_left(engine)


def test_nothing_is_left_of_an_engine_that_died_with_a_container_running(tmp_path: Path, image: PushedImage) -> None:
    with classic_engine(tmp_path, EngineOptions(live_restore=True)) as engine:
        assert pull(engine.socket, image.reference).succeeded
        container = engine.client().containers.run(image.reference, network_mode="host", detach=True)
        container.reload()
        process = container.attrs["State"]["Pid"]
        engine.kill()
        assert Path(f"/proc/{process}").exists()
    _assert_nothing_left(engine)
    eventually_sync(lambda: not Path(f"/proc/{process}/exe").exists(), timeout=5)


def test_nothing_is_left_when_the_test_itself_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), classic_engine(tmp_path) as engine:
        assert 1 // 0
    _assert_nothing_left(engine)


def test_two_engines_have_two_identities(classic_engine: Engine, tmp_path: Path) -> None:
    from tests.rig.engines import classic_engine as make

    with make(tmp_path) as other:
        assert other.client().info()["ID"] != classic_engine.client().info()["ID"]


def test_the_stores_are_the_two_kinds(classic_engine: Engine, containerd_engine: Engine) -> None:
    assert classic_engine.client().info()["Driver"] == "overlay2"
    assert ["driver-type", "io.containerd.snapshotter.v1"] in containerd_engine.client().info()["DriverStatus"]


def test_a_frozen_engine_accepts_and_says_nothing(tmp_path: Path) -> None:
    with classic_engine(tmp_path) as engine:
        client = engine.client(timeout_seconds=1)
        engine.freeze()
        with pytest.raises((docker.errors.DockerException, OSError)):
            client.ping()
        engine.thaw()
        eventually_sync(client.ping, timeout=10)
        engine.freeze()
    _assert_nothing_left(engine)


@_BOTH
def test_a_small_disk_is_full_in_mid_pull(make: EngineMaker, tmp_path: Path, registry: RegistryProcess) -> None:
    recipe = ImageRecipe(layers=(Layer.busybox(), Layer.random(mb=60, seed=501)), cmd=("true",))
    large = push(registry.host, "rig/large", "1", recipe)
    with make(tmp_path, EngineOptions(data_tmpfs_mb=40)) as engine:
        pulled = pull(engine.socket, large.reference)
        assert not pulled.succeeded
        assert "no space left on device" in pulled.error
    _assert_nothing_left(engine)


@pytest.mark.parametrize("limit", [1, 3])
def test_the_number_of_downloads_at_once_can_be_set(
    tmp_path: Path, registry: RegistryProcess, fault_registry: Callable[[], FaultRegistry], limit: int
) -> None:
    layers = [Layer.random(mb=1, seed=seed) for seed in range(510, 514)]
    push(registry.host, "rig/many", "1", ImageRecipe(layers=layers, cmd=("true",)))
    faults = fault_registry()
    stall = faults.on(Stall(), path="re:.*/blobs/.*", method="GET")
    reference = f"{faults.host}/rig/many:1"
    options = EngineOptions(max_concurrent_downloads=limit)
    with classic_engine(tmp_path, options) as engine, pulling(engine.socket, reference):
        # The config is asked for, too, outside the limit.
        eventually_sync(lambda: len(faults.stats().of(method="GET", path_part="/blobs/")) >= limit + 1, timeout=10)
        assert stall.struck == limit + 1


def test_an_answer_is_lost_after_the_engine_has_acted(classic_engine: Engine, image: PushedImage) -> None:
    assert pull(classic_engine.socket, image.reference).succeeded
    with ProxySocket(classic_engine.socket) as proxy, closing(docker.DockerClient(base_url=proxy.url)) as client:
        lost = proxy.on(Cut(), path="*/containers/create", method="POST", last=1)
        with pytest.raises((docker.errors.DockerException, OSError)):
            client.containers.create(image.reference, name="rig-lost")
        assert lost.struck == 1
        with pytest.raises(docker.errors.APIError, match="already in use"):
            client.containers.create(image.reference, name="rig-lost")
        client.containers.get("rig-lost").remove()


def test_an_answer_is_held_until_released(classic_engine: Engine) -> None:
    with ProxySocket(classic_engine.socket) as proxy, closing(docker.DockerClient(base_url=proxy.url)) as client:
        held = proxy.on(NeverAnswer(), path="*/info")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.info)
            eventually_sync(lambda: held.struck == 1, timeout=5)
            with closing(docker.DockerClient(base_url=proxy.url)) as other:
                assert other.ping()
            assert not answer.done()
            proxy.remove(held)
            assert answer.result(10)["ServerVersion"]


def test_a_socket_goes_away_and_comes_back(classic_engine: Engine) -> None:
    with ProxySocket(classic_engine.socket) as proxy, closing(docker.DockerClient(base_url=proxy.url)) as client:
        assert client.ping()
        proxy.stop()
        with pytest.raises((docker.errors.DockerException, OSError)):
            client.ping()
        proxy.start()
        assert client.ping()


def test_pushing_again_sends_nothing(registry: RegistryProcess, fault_registry: Callable[[], FaultRegistry]) -> None:
    recipe = ImageRecipe(layers=(Layer.random(mb=1, seed=520),), cmd=("true",))
    faults = fault_registry()
    first = push(faults.host, "rig/again", "1", recipe)
    faults.forget()
    assert push(faults.host, "rig/again", "1", recipe) == first
    assert [exchange.method for exchange in faults.stats().exchanges] == ["HEAD"]
    push(faults.host, "rig/again", "2", recipe)
    assert faults.stats().of(method="POST") == ()


def test_a_registry_with_an_account_asks_for_it(tmp_path: Path, classic_engine: Engine) -> None:
    recipe = ImageRecipe(layers=(Layer.random(mb=0.1, seed=530),), cmd=("true",))
    with RegistryProcess(tmp_path, account=TESTER) as guarded:
        with pytest.raises(httpx.HTTPStatusError, match="401"):
            push(guarded.host, "rig/guarded", "1", recipe)
        pushed = push(guarded.host, "rig/guarded", "1", recipe, auth=TESTER.auth)
        assert "no basic auth credentials" in pull(classic_engine.socket, pushed.reference).error
        assert pull(classic_engine.socket, pushed.reference, auth=TESTER.auth).succeeded
        guarded.stop()
        assert "connection refused" in pull(classic_engine.socket, pushed.reference, auth=TESTER.auth).error
        guarded.start()
        assert pull(classic_engine.socket, pushed.pinned, auth=TESTER.auth).succeeded
