"""What a pull says of itself against what the registry counts, on a real engine of each image store."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from statistics import mean

import pytest

from tests.contract.pull_subjects import BLOBS, Pulling, pulling_on
from tests.rig.faults import Cut, FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess
from towline.domain.progress import PullPhase, PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage
from towline.domain.sessions import PullPolicy

_BYTES_PER_SECOND = 30_000_000
_ERROR_MAX_POINTS = 2.0


@pytest.fixture(params=["classic_engine", "containerd_engine"])
async def pulling(request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    async with pulling_on(request.getfixturevalue(request.param)) as ready:
        yield ready


def _random(*sizes_mb: float, seed: int) -> tuple[Layer, ...]:
    return tuple(Layer.random(mb=mb, seed=seed + number) for number, mb in enumerate(sizes_mb))


_BASE = _random(20, seed=41_000)
SHAPES: dict[str, tuple[Layer, ...]] = {
    "six layers": _random(5, 45, 10, 20, 15, 5, seed=41_100),
    "one layer": _random(80, seed=41_200),
    "empty layers between": (
        Layer.empty(),
        *_random(40, seed=41_300),
        Layer.empty(),
        *_random(40, seed=41_301),
        Layer.empty(),
    ),
    "two of equal size": _random(45, 45, seed=41_400),
    "a layer that is there": (*_BASE, *_random(50, 30, seed=41_500)),
}


@dataclass(kw_only=True)
class Sampler:
    """Compares each progress with what the registry has served by then, `offset` bytes left out."""

    faults: FaultRegistry
    total: int
    digests: Sequence[str]
    errors: list[float] = field(default_factory=list)
    seen: list[PullProgress] = field(default_factory=list)

    def take(self, progress: PullProgress) -> None:
        self.seen.append(progress)
        if progress.percent is not None and progress.phase is PullPhase.DOWNLOADING:
            self.errors.append(abs(progress.percent - 100 * self.served() / self.total))

    def served(self) -> int:
        by_digest = self.faults.stats().bytes_by_digest()
        return sum(by_digest.get(digest, 0) for digest in self.digests)


def _push(registry: RegistryProcess, name: str, layers: tuple[Layer, ...]) -> PushedImage:
    return push(registry.host, f"accuracy/{name.replace(' ', '-')}", "1", ImageRecipe(layers=layers))


async def _sampled(pulling: Pulling, faults: FaultRegistry, image: PushedImage, host: str) -> Sampler:
    name = image.reference.replace(host, faults.host)
    check = await pulling.images.check(CheckImage(session_id="s", image=name, policy=PullPolicy.IF_NOT_PRESENT))
    assert check.total_is_final
    assert check.bytes_to_pull is not None
    sampler = Sampler(faults=faults, total=check.bytes_to_pull, digests=[digest for digest, _ in image.layers])
    await pulling.by_default.pull(CheckAndPull(waiter="w", image=name, digest=check.digest), sampler.take)
    return sampler


def _check(sampler: Sampler) -> None:
    percents = [progress.percent for progress in sampler.seen if progress.percent is not None]
    assert len(sampler.errors) >= 3
    assert mean(sampler.errors) <= _ERROR_MAX_POINTS, sampler.errors
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert all((progress.percent == 100) == (progress.phase is PullPhase.DONE) for progress in sampler.seen)


@pytest.mark.parametrize("shape", list(SHAPES))
async def test_the_percentage_is_what_the_registry_has_served(
    pulling: Pulling, registry: RegistryProcess, shape: str
) -> None:
    image = _push(registry, shape, SHAPES[shape])
    if SHAPES[shape][0] in _BASE:
        await pulling.pull(_push(registry, "base", _BASE).reference)
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=_BYTES_PER_SECOND), path=BLOBS)
        sampler = await _sampled(pulling, faults, image, registry.host)
        assert sampler.total == pytest.approx(sampler.served(), rel=0.01)
    _check(sampler)


async def test_the_percentage_holds_over_a_cut(pulling: Pulling, registry: RegistryProcess) -> None:
    """Whoever takes up a cut transfer where it was has served every byte once."""
    image = _push(registry, "cut", _random(60, 20, seed=41_600))
    with FaultRegistry(registry.host) as faults:
        faults.on(Throttle(total_bytes_per_second=_BYTES_PER_SECOND), path=BLOBS)
        faults.on(Cut(after_bytes=30_000_000), path=f"*/blobs/{image.layers[0][0]}", method="GET", last=1)
        sampler = await _sampled(pulling, faults, image, registry.host)
        assert sampler.total == pytest.approx(sampler.served(), rel=0.02)
    assert mean(sampler.errors) <= _ERROR_MAX_POINTS, sampler.errors
    assert sampler.seen[-1].percent == 100
    for earlier, later in zip(sampler.seen, sampler.seen[1:], strict=False):
        assert (later.percent or 0) >= (earlier.percent or 0) or later.restarts > earlier.restarts
