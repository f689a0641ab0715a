"""What a pull survives, and what it must not take for a fault, on a real engine of each image store."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.pull_subjects import BLOBS, Pulling, pulling_on
from tests.rig.engines import Engine, EngineOptions, classic_engine, containerd_engine
from tests.rig.faults import Answer, Cut, FaultRegistry, IgnoreRange, RequireBearer, Throttle
from tests.rig.faults.rules import Rule
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullPhase, PullProgress, Verdict
from towline.domain.pulling import CheckAndPull

_SEEDS = itertools.count(43_000)
_CALM = {Verdict.HEALTHY, Verdict.WAITING}


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def pulling(request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    async with pulling_on(request.getfixturevalue(request.param)) as ready:
        yield ready


def _image(registry: RegistryProcess, *layers: Layer) -> PushedImage:
    return push(registry.host, "patience", str(next(_SEEDS)), ImageRecipe(layers=layers))


async def _pull(pulling: Pulling, faults: FaultRegistry, image: PushedImage, host: str) -> list[PullProgress]:
    """Under the default settings."""
    seen: list[PullProgress] = []
    request = CheckAndPull(waiter="w", image=image.reference.replace(host, faults.host))
    await pulling.by_default.pull(request, seen.append)
    assert seen[-1].phase is PullPhase.DONE
    return seen


_THROTTLE = Rule(fault=Throttle(total_bytes_per_second=2_000_000), path=BLOBS)
SURVIVED: dict[str, tuple[Rule, ...]] = {
    "a 500, once": (Rule(fault=Answer(status=500, body="boom"), path=BLOBS, method="GET", first=2, last=2),),
    "a cut, and ranges ignored": (
        Rule(fault=Cut(after_bytes=1_000_000), path=BLOBS, method="GET", first=2, last=2),
        Rule(fault=IgnoreRange(), path=BLOBS),
    ),
    "a token that expires on the way": (Rule(fault=RequireBearer(token_seconds=1.0)), _THROTTLE),
    "a token for nothing else": (Rule(fault=RequireBearer(repositories=("patience",))),),
}


@pytest.mark.parametrize("what", list(SURVIVED))
async def test_a_passing_fault_is_survived(pulling: Pulling, registry: RegistryProcess, what: str) -> None:
    image = _image(registry, Layer.random(mb=3, seed=next(_SEEDS)), Layer.random(mb=2, seed=next(_SEEDS)))
    with FaultRegistry(registry.host) as faults:
        for rule in SURVIVED[what]:
            faults.add(rule)
        seen = await _pull(pulling, faults, image, registry.host)
    for earlier, later in itertools.pairwise(seen):
        assert later.bytes_done >= earlier.bytes_done or later.restarts > earlier.restarts


async def test_a_long_extraction_is_not_stuck(pulling: Pulling, registry: RegistryProcess) -> None:
    image = _image(registry, Layer.zeros(mb=1_000, seed=next(_SEEDS)))
    with FaultRegistry(registry.host) as faults:
        seen = await _pull(pulling, faults, image, registry.host)
    assert {progress.verdict for progress in seen} <= _CALM
    assert {progress.attempt for progress in seen} == {1}


async def test_a_link_of_20_kb_per_second_is_not_stuck(
    classic_engine: Engine, containerd_engine: Engine, registry: RegistryProcess
) -> None:
    """Longer than the shortest silence that counts as a stall, and on both stores at once."""
    image = _image(registry, Layer.random(mb=1.4, seed=next(_SEEDS)))

    async def check(real: Engine) -> None:
        with FaultRegistry(registry.host) as faults:
            faults.on(Throttle(total_bytes_per_second=20_000), path=BLOBS)
            async with pulling_on(real) as pulling:
                seen = await _pull(pulling, faults, image, registry.host)
        assert {progress.verdict for progress in seen} <= _CALM
        assert {progress.attempt for progress in seen} == {1}

    await asyncio.gather(check(classic_engine), check(containerd_engine))


@pytest.fixture(params=[classic_engine, containerd_engine], ids=["classic_engine", "containerd_engine"])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine with little room."""
    with request.param(tmp_path, EngineOptions(data_tmpfs_mb=120)) as engine:
        yield engine


@pytest.mark.parametrize("layer", [Layer.zeros(mb=400, seed=43_900), Layer.random(mb=150, seed=43_901)], ids=str)
async def test_a_full_disk_has_its_reason_and_leaves_no_image(
    small: Engine, registry: RegistryProcess, layer: Layer
) -> None:
    """The first is small on the wire, and is found out while it is unpacked; the second before a byte is pulled."""
    image = _image(registry, layer)
    async with pulling_on(small) as pulling:
        error = await pulling.fails(image.reference)
        assert (error.reason, error.retryable) == (Reason.NO_SPACE, False)
        assert pulling.real.client().api.images() == []
