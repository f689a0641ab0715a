"""What a pull says of itself against what the registry counts, on a real engine of each image store."""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean

import pytest

from tests.contract.pull_subjects import BLOBS, Pulling, pulling_on
from tests.rig.engines import Engine
from tests.rig.faults import Cut, FaultRegistry, Throttle
from tests.rig.images import ImageRecipe, Layer, PushedImage, push
from tests.rig.registry import RegistryProcess
from towline.domain.progress import PullPhase, PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage
from towline.domain.sessions import PullPolicy

_BYTES_PER_SECOND = 8_000_000
"""What an engine says is a tenth of a second old, and comes in steps of up to 1 MiB a layer: that must be little of the image."""

_ERROR_MAX_POINTS = 2.0


@pytest.fixture
def engines(classic_engine: Engine, containerd_engine: Engine) -> tuple[Engine, Engine]:
    """One of each store; both pull at once, to save time."""
    return classic_engine, containerd_engine


def _random(*sizes_mb: float, seed: int) -> tuple[Layer, ...]:
    return tuple(Layer.random(mb=mb, seed=seed + number) for number, mb in enumerate(sizes_mb))


_SIX = _random(15, 45, 20, 35, 45, 30, seed=41_000)
SHAPES: dict[str, tuple[Layer, ...]] = {
    "six layers": _SIX,
    "one layer": _random(150, seed=41_200),
    "empty layers between": (Layer.empty(), *_SIX[1:3], Layer.empty(), *_SIX[3:], Layer.empty()),
    "two of equal size": _random(80, 80, seed=41_400),
    "a layer that is there": _SIX,
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


def _check_soundness(sampler: Sampler) -> None:
    percents = [progress.percent for progress in sampler.seen if progress.percent is not None]
    assert len(sampler.errors) >= 3
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert all((progress.percent == 100) == (progress.phase is PullPhase.DONE) for progress in sampler.seen)


async def test_the_percentage_is_what_the_registry_has_served(
    engines: tuple[Engine, Engine], registry: RegistryProcess
) -> None:
    """On the mean of all samples of all pulls, for each store by itself."""
    images = {shape: _push(registry, shape, layers) for shape, layers in SHAPES.items()}
    base = _push(registry, "base", _SIX[:1])

    async def pull(engine: Engine, shape: str) -> list[float]:
        async with pulling_on(engine) as pulling:
            if shape == "a layer that is there":
                await pulling.pull(base.reference)
            with FaultRegistry(registry.host) as faults:
                faults.on(Throttle(total_bytes_per_second=_BYTES_PER_SECOND), path=BLOBS)
                sampler = await _sampled(pulling, faults, images[shape], registry.host)
                assert sampler.total == pytest.approx(sampler.served(), rel=0.01)
        _check_soundness(sampler)
        return sampler.errors

    async def check(engine: Engine) -> None:
        errors = {shape: await pull(engine, shape) for shape in SHAPES}
        means = {shape: mean(found) for shape, found in errors.items()}
        assert mean(itertools.chain.from_iterable(errors.values())) <= _ERROR_MAX_POINTS, (engine.flavour.name, means)

    await asyncio.gather(*map(check, engines))


async def test_the_percentage_holds_over_a_cut(engines: tuple[Engine, Engine], registry: RegistryProcess) -> None:
    """Whatever is served twice is announced as a restart; what is taken up where it was is not."""
    image = _push(registry, "cut", _random(60, 20, seed=41_600))

    async def check(engine: Engine) -> None:
        with FaultRegistry(registry.host) as faults:
            faults.on(Throttle(total_bytes_per_second=_BYTES_PER_SECOND), path=BLOBS)
            faults.on(Cut(after_bytes=30_000_000), path=f"*/blobs/{image.layers[0][0]}", method="GET", last=1)
            async with pulling_on(engine) as pulling:
                sampler = await _sampled(pulling, faults, image, registry.host)
                last = sampler.seen[-1]
                assert last.percent == 100
                assert sampler.served() == pytest.approx(sampler.total + last.retried_bytes, rel=0.05)
        for earlier, later in itertools.pairwise(sampler.seen):
            assert (later.percent or 0) >= (earlier.percent or 0) or later.restarts > earlier.restarts

    await asyncio.gather(*map(check, engines))
