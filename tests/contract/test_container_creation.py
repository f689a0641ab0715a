"""What the engine has really been asked to create."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from tests.contract.container_subjects import AGENT_ID, Images, RealSubject, push_images, real_subject
from tests.rig.registry import RegistryProcess
from towline.domain.ids import LABEL_AGENT, LABEL_KERNEL, LABEL_OWNER, LABEL_PREFIX, LABEL_SESSION, container_name
from towline.domain.lifecycle import Reason
from towline.domain.sessions import Mount, Resources, SessionSpec
from towline.errors import ContainerError


@pytest.fixture(scope="module")
def images(registry: RegistryProcess) -> Images:
    return push_images(registry)


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest, images: Images) -> AsyncIterator[RealSubject]:
    async with real_subject(request.getfixturevalue(request.param), images, watching=False) as ready:
        yield ready


@pytest.fixture
def volumes(subject: RealSubject) -> Iterator[list[str]]:
    """Names of volumes to remove after the test."""
    made: list[str] = []
    yield made
    for container in subject.client.containers(all=True):
        subject.client.remove_container(container["Id"], force=True)
    for name in made:
        subject.client.remove_volume(name)


async def test_limits_labels_and_log_are_as_asked(subject: RealSubject) -> None:
    resources = Resources(cpu=0.5, memory_bytes=128 << 20, shm_bytes=32 << 20)
    spec = subject.spec("sleep", "60", resources=resources, labels={"team": "red"}, working_dir="/tmp", tty=True)
    started = await subject.start(spec, kernel=1)
    found = subject.client.inspect_container(started.container_id)
    host = found["HostConfig"]
    assert found["Name"] == f"/{container_name(spec.session_id, 1)}"
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (500_000_000, 128 << 20, 128 << 20)
    assert (host["ShmSize"], host["NetworkMode"], host["LogConfig"]["Type"]) == (32 << 20, "none", "local")
    assert host["LogConfig"]["Config"] == {"max-size": "50m", "max-file": "5", "compress": "false"}
    assert not host["Ulimits"]
    assert not host["Binds"]
    assert (found["Config"]["Tty"], found["Config"]["WorkingDir"]) == (True, "/tmp")
    labels = found["Config"]["Labels"]
    assert {name for name in labels if name.startswith(LABEL_PREFIX)} >= {LABEL_AGENT, LABEL_OWNER}
    assert (labels["team"], labels[LABEL_SESSION], labels[LABEL_KERNEL]) == ("red", spec.session_id, "1")
    assert labels[LABEL_AGENT] == AGENT_ID


async def test_an_agent_may_lend_more_cores_than_it_has(subject: RealSubject) -> None:
    started = await subject.start(subject.spec("sleep", "60", resources=Resources(cpu=500, memory_bytes=64 << 20)))
    host = subject.client.inspect_container(started.container_id)["HostConfig"]
    assert host["NanoCpus"] == subject.client.info()["NCPU"] * 1_000_000_000


async def test_a_named_volume_outlives_its_containers(subject: RealSubject, volumes: list[str]) -> None:
    volumes.append("contract-kept")
    mount = Mount(volume="contract-kept", target="/kept")
    for command, code in (("echo x > /kept/file", 0), ("test -s /kept/file && touch /kept/two", 0)):
        spec = subject.spec("sh", "-c", command, mounts=(mount,))
        started = await subject.start(spec)
        subject.client.wait(started.container_id)
        assert (await subject.end(spec)).exit_code == code
    read_only = subject.spec("touch", "/kept/three", mounts=(replace(mount, read_only=True),))
    started = await subject.start(read_only)
    assert subject.client.wait(started.container_id)["StatusCode"] == 1


def _with_gpu(spec: SessionSpec) -> SessionSpec:
    return replace(spec, resources=replace(spec.resources, gpu=1))


def _mounted(spec: SessionSpec, *mounts: Mount) -> SessionSpec:
    return replace(spec, mounts=mounts)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("gpu", Reason.NO_DEVICE),
        ("mount below a read-only one", Reason.MOUNT_INVALID),
        ("mount on a file", Reason.MOUNT_INVALID),
        ("not executable", Reason.COMMAND_NOT_FOUND),
        ("working directory is a file", Reason.CONTAINER_START_FAILED),
    ],
)
async def test_what_cannot_start_is_typed_and_leaves_nothing(
    subject: RealSubject, volumes: list[str], case: str, reason: Reason
) -> None:
    plain = subject.spec("true")
    match case:
        case "gpu":
            spec = _with_gpu(plain)
        case "mount below a read-only one":
            volumes += ["contract-one", "contract-two"]
            outer = Mount(volume="contract-one", target="/d", read_only=True)
            spec = _mounted(plain, outer, Mount(volume="contract-two", target="/d/sub"))
        case "mount on a file":
            volumes.append("contract-one")
            spec = _mounted(plain, Mount(volume="contract-one", target="/text"))
        case "not executable":
            spec = replace(plain, entrypoint=("/text",))
        case _:
            spec = replace(plain, working_dir="/text")
    with pytest.raises(ContainerError) as raised:
        await subject.start(spec)
    assert (raised.value.reason, raised.value.retryable) == (reason, False)
    assert "said: " in raised.value.message
    assert subject.host.names() == set()


async def test_twenty_rounds_leave_the_engine_as_it_was(subject: RealSubject) -> None:
    def inventory() -> tuple[set[str], int, int]:
        volumes = subject.client.volumes()["Volumes"] or []
        return subject.host.names(), len(volumes), len(subject.client.networks())

    async def round_() -> None:
        spec = subject.spec("sleep", "60")
        await subject.start(spec)
        await subject.end(spec, grace_seconds=0)

    before = inventory()
    await asyncio.gather(*(round_() for _ in range(20)))
    assert inventory() == before
