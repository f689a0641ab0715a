"""A session's own network on a real engine: its kernels find one another by name, nobody else does, and it is gone with them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.container_subjects import AGENT_ID, Images, RealSubject, push_images, real_subject
from tests.rig.eventually import eventually
from tests.rig.registry import RegistryProcess
from towline.domain.containers import EndContainer
from towline.domain.ids import LABEL_AGENT, LABEL_FLEET, LABEL_SESSION, network_name, new_session_id
from towline.domain.lifecycle import Reason
from towline.domain.sessions import ClusterMode, Network, Resources, SessionSpec
from towline.engine.failures import container_failure
from towline.engine.orphans import remove_orphans
from towline.errors import ContainerError

TALK = (
    "while :; do hostname | nc -l -p 7000; done & "
    "case $TOWLINE_KERNEL_INDEX in 0) peer=worker-1;; *) peer=main;; esac; "
    "until nc -w 2 $peer 7000 < /dev/null 2> /dev/null | grep .; do usleep 100000; done; wait"
)
"""Says its name to who asks, and writes what its peer says."""

LISTEN = "timeout 3 nc -w 2 main 7000 < /dev/null 2> /dev/null | grep . || echo nobody"


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest, registry: RegistryProcess) -> AsyncIterator[RealSubject]:
    images: Images = push_images(registry)
    async with real_subject(request.getfixturevalue(request.param), images, watching=False) as ready:
        before = networks(ready)
        yield ready
        assert networks(ready) == before


def networks(subject: RealSubject) -> set[str]:
    return {str(found["Name"]) for found in subject.client.networks()}


def cluster(subject: RealSubject, *command: str, **changes: object) -> SessionSpec:
    return subject.spec(*(command or ("sh", "-c", TALK)), kernels=2, network=Network.BRIDGE, **changes)


async def end(subject: RealSubject, spec: SessionSpec, kernel: int) -> None:
    request = EndContainer(session_id=spec.session_id, kernel=kernel, grace_seconds=0)
    await subject.containers.end(request)


async def end_all(subject: RealSubject, spec: SessionSpec) -> None:
    await asyncio.gather(*(end(subject, spec, kernel) for kernel in range(spec.kernels)))


async def heard(subject: RealSubject, container_id: str) -> str:
    """What the container's peer has said to it."""

    def written() -> str:
        log = bytes(subject.client.logs(container_id)).decode()
        assert log
        return log

    said: str = await eventually(written, timeout=20)
    return said


async def test_kernels_find_one_another_by_name_and_are_found_by_no_other_session(subject: RealSubject) -> None:
    one, other = cluster(subject), cluster(subject, "sh", "-c", LISTEN)
    main, worker = await asyncio.gather(*(subject.start(one, kernel=kernel) for kernel in (0, 1)))
    stranger = await subject.start(other, kernel=1)
    assert await heard(subject, worker.container_id) == "main\n"
    assert await heard(subject, main.container_id) == "worker-1\n"
    assert await heard(subject, stranger.container_id) == "nobody\n"
    found = subject.client.inspect_container(worker.container_id)
    assert found["Config"]["Hostname"] == "worker-1"
    variables = dict(entry.split("=", 1) for entry in found["Config"]["Env"])
    said = ("TOWLINE_PEERS", "TOWLINE_KERNEL_ROLE", "TOWLINE_KERNEL_INDEX")
    assert [variables[name] for name in said] == ["main,worker-1", "worker", "1"]
    await end_all(subject, one)
    await end_all(subject, other)


async def test_it_stays_until_the_last_kernel_is_gone(subject: RealSubject) -> None:
    spec = cluster(subject)
    for kernel in (0, 1):
        await subject.start(spec, kernel=kernel)
    await end(subject, spec, 0)
    assert network_name(spec.session_id) in networks(subject)
    await end(subject, spec, 1)
    assert network_name(spec.session_id) not in networks(subject)


async def test_a_start_that_fails_leaves_none_unless_a_peer_uses_it(subject: RealSubject) -> None:
    spec = cluster(subject)
    broken = replace(spec, command=("no-such-command",))
    with pytest.raises(ContainerError):
        await subject.start(broken)
    assert network_name(spec.session_id) not in networks(subject)
    await subject.start(spec, kernel=1)
    with pytest.raises(ContainerError):
        await subject.start(broken)
    assert network_name(spec.session_id) in networks(subject)
    await end_all(subject, spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"kernels": 1},
        {"network": Network.NONE},
        {"network": Network.HOST},
        {"cluster_mode": ClusterMode.MULTI_AGENT},
    ],
)
def test_others_have_none(changes: dict[str, Any]) -> None:
    spec = SessionSpec(
        **{
            "session_id": new_session_id(),
            "owner_id": "usr-1",
            "owner": "ann",
            "image": "i",
            "resources": Resources(cpu=1.0, memory_bytes=64 << 20),
            "kernels": 2,
            **changes,
        }
    )
    assert not spec.has_own_network


async def test_a_strangers_network_of_the_same_name_is_left_alone(subject: RealSubject) -> None:
    spec = cluster(subject)
    stranger = subject.client.create_network(network_name(spec.session_id))["Id"]
    try:
        with pytest.raises(ContainerError) as raised:
            await subject.start(spec)
        assert (raised.value.reason, raised.value.retryable) == (Reason.NO_NETWORK, False)
        assert "is not ours" in raised.value.message
        assert subject.host.names() == set()
        named = [found["Id"] for found in subject.client.networks(names=[network_name(spec.session_id)])]
        assert named == [stranger]
    finally:
        subject.client.remove_network(stranger)


async def test_what_a_killed_agent_left_is_removed_and_nobody_elses(subject: RealSubject) -> None:
    alive = cluster(subject)
    await subject.start(alive)
    mine = subject.containers.labels
    left, of_another = new_session_id(), new_session_id()
    subject.client.create_network(network_name(left), labels={**mine, LABEL_SESSION: left})
    labels = {LABEL_FLEET: mine[LABEL_FLEET], LABEL_AGENT: f"not-{AGENT_ID}", LABEL_SESSION: of_another}
    stranger = subject.client.create_network(network_name(of_another), labels=labels)["Id"]

    async def is_wanted(session_id: str, kernel: int) -> bool:
        return session_id == alive.session_id

    try:
        await remove_orphans(subject.containers, is_wanted)
        assert network_name(left) not in networks(subject)
        assert {network_name(alive.session_id), network_name(of_another)} <= networks(subject)
    finally:
        subject.client.remove_network(stranger)
        await end_all(subject, alive)


async def test_many_at_once_come_and_go(subject: RealSubject) -> None:
    async def round_(seconds: float) -> None:
        spec = cluster(subject)
        await asyncio.gather(*(subject.start(spec, kernel=kernel) for kernel in (0, 1)))
        await asyncio.sleep(seconds)
        await end_all(subject, spec)

    await asyncio.gather(*(round_(number / 50) for number in range(8)))
    assert subject.host.names() == set()


@pytest.mark.parametrize(
    "said",
    [
        "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network",
        "all predefined address pools have been fully subnetted",
    ],
)
def test_an_engine_without_an_address_range_left_is_told_apart(said: str) -> None:
    failure = container_failure(said)
    assert (failure.reason, failure.retryable) == (Reason.NO_NETWORK, False)
