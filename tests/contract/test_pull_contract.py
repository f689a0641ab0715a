"""What images promise, on the fake and on real engines of both stores."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from activities.images import Images
from tests.fakes.engine_images import FakeEngineImages, Offered
from tests.rig.engines import Engine as RealEngine
from tests.rig.eventually import eventually
from tests.rig.faults import FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, push
from tests.rig.registry import RegistryProcess
from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage, PulledImage
from towline.domain.sessions import PullPolicy
from towline.engine.client import Engine
from towline.engine.images import EngineImages
from towline.engine.pull_attempts import PullSettings
from towline.engine.registry import Registries
from towline.errors import EngineError

P = PullPolicy
_SEEDS = itertools.count(9000)


@dataclass(kw_only=True)
class Subject:
    """Images, and the registry that they pull from: `image` is absent there is `slow` enough to be left in mid-pull."""

    images: Images
    image: str
    digest: str
    nothing: str
    seen: list[PullProgress] = field(default_factory=list)

    async def check(self, policy: PullPolicy, image: str | None = None) -> object:
        return await self.images.check(CheckImage(session_id="s", image=image or self.image, policy=policy))

    def pull(self, waiter: str = "w", image: str | None = None, **more: object) -> "asyncio.Task[PulledImage]":
        request = CheckAndPull(waiter=waiter, image=image or self.image, **more)  # type: ignore[arg-type]  # a test's shorthand
        return asyncio.create_task(self.images.pull(request, self.seen.append))


@pytest.fixture(params=["fake", "classic_engine", "containerd_engine"])
async def subject(request: pytest.FixtureRequest, registry: RegistryProcess) -> AsyncIterator[Subject]:
    if request.param == "fake":
        digest = f"sha256:{next(_SEEDS):064x}"
        offered = {"127.0.0.1:1/x:1": Offered(digest=digest, size_bytes=3_000_000)}
        fake = FakeEngineImages(registry=offered, bytes_per_second=1_500_000)
        yield Subject(images=fake, image="127.0.0.1:1/x:1", digest=digest, nothing="127.0.0.1:1/x:nope")
        return
    real: RealEngine = request.getfixturevalue(request.param)
    seed = next(_SEEDS)
    pushed = push(registry.host, "contract/pulls", str(seed), ImageRecipe(layers=(Layer.random(mb=3, seed=seed),)))
    with FaultRegistry(registry.host) as slow:
        slow.on(Throttle(total_bytes_per_second=1_500_000), path="*/blobs/*")
        engine, registries = Engine(real.url), Registries()
        images = EngineImages(
            engine=engine, agent_id="a", registries=registries, settings=PullSettings(), unique_pulls_max=3
        )
        name = pushed.reference.replace(registry.host, slow.host)
        nothing = str(ImageRef.parse(name)).rpartition(":")[0] + ":nope"
        yield Subject(images=images, image=name, digest=pushed.manifest_digest, nothing=nothing)
        await registries.close()
        engine.close()


async def test_absent_then_pulled_then_present(subject: Subject) -> None:
    before = await subject.images.check(CheckImage(session_id="s", image=subject.image, policy=P.IF_NOT_PRESENT))
    assert (before.present, before.digest, before.total_is_final) == (False, subject.digest, True)
    assert (before.bytes_to_pull or 0) >= 3_000_000
    pulled = await subject.pull(digest=before.digest)
    assert (pulled.pulled, pulled.digest) == (True, subject.digest)
    assert pulled.report is not None
    assert (pulled.report.outcome, pulled.report.digest) == ("succeeded", subject.digest)
    for policy in P:
        after = await subject.images.check(CheckImage(session_id="s", image=subject.image, policy=policy))
        assert (after.present, after.digest) == (True, subject.digest)
    again = await subject.pull()
    assert (again.pulled, again.image_ref, again.report) == (False, pulled.image_ref, None)
    _check_soundness(subject.seen)


def _check_soundness(seen: list[PullProgress]) -> None:
    percents = [progress.percent or 0 for progress in seen]
    assert percents == sorted(percents)
    assert len(set(percents)) > 3
    assert percents[-1] == 100
    assert all(progress.percent != 100 for progress in seen if progress.phase != "done")


async def test_under_never_nothing_is_brought(subject: Subject) -> None:
    for ask in (subject.check(P.NEVER), subject.pull(policy=P.NEVER)):
        with pytest.raises(EngineError) as caught:
            await ask
        assert (caught.value.reason, caught.value.retryable) == (Reason.IMAGE_ABSENT, False)


async def test_an_image_that_does_not_exist(subject: Subject) -> None:
    with pytest.raises(EngineError) as caught:
        await subject.pull(image=subject.nothing)
    assert (caught.value.reason, caught.value.retryable) == (Reason.IMAGE_NOT_FOUND, False)
    assert caught.value.report is not None
    assert caught.value.report.outcome == "failed"


async def test_waiters_share_leave_and_end_together(subject: Subject) -> None:
    tasks = [subject.pull(f"w{number}") for number in range(6)]
    await eventually(lambda: bool(subject.seen) and subject.seen[-1].waiters == 6, timeout=20)
    for task in tasks[:4]:
        task.cancel()
    await asyncio.wait(tasks[:4])
    results = await asyncio.gather(*tasks[4:])
    assert {result.digest for result in results} == {subject.digest}
    assert len({result.report.pull_id for result in results if result.report}) == 1


async def test_the_last_one_out_aborts_and_a_new_one_begins_anew(subject: Subject) -> None:
    task = subject.pull()
    await eventually(lambda: bool(subject.seen) and subject.seen[-1].bytes_done > 0, timeout=20)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    first = subject.seen[-1].pull_id
    result = await subject.pull()
    assert result.report is not None
    assert result.report.pull_id != first
