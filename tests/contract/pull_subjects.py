"""Pulls to try: one agent's images on a real engine of either store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.rig.engines import Engine as RealEngine
from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, PulledImage
from towline.domain.pulls.thresholds import Thresholds
from towline.engine.client import Engine
from towline.engine.images import EngineImages
from towline.engine.pull_attempts import PullSettings
from towline.engine.registry import Registries
from towline.errors import EngineError

QUICK = Thresholds(stall_seconds=2.0, connecting_seconds=3.0)
BLOBS = "*/blobs/*"
MANIFESTS = "*/manifests/*"


@dataclass(frozen=True, kw_only=True)
class Pulling:
    """One agent's images on one real engine: in haste for a verdict, and with the limits of the default settings."""

    images: EngineImages
    by_default: EngineImages
    real: RealEngine
    seen: list[PullProgress]

    async def pull(self, image: str, waiter: str = "w", digest: str | None = None) -> PulledImage:
        request = CheckAndPull(waiter=waiter, image=image, digest=digest)
        return await self.images.pull(request, self.seen.append)

    async def fails(self, image: str) -> EngineError:
        with pytest.raises(EngineError) as caught:
            await self.pull(image)
        return caught.value

    def forget_images(self) -> None:
        """Whatever is pulled next is brought whole."""
        client = self.real.client().api
        for found in client.images():
            client.remove_image(found["Id"], force=True)


@asynccontextmanager
async def pulling_on(real: RealEngine) -> AsyncIterator[Pulling]:
    """An agent that has nothing yet."""
    engine, registries = Engine(real.url), Registries()

    def images(thresholds: Thresholds) -> EngineImages:
        settings = PullSettings(thresholds=thresholds, attempts_max=2)
        return EngineImages(engine=engine, agent_id="a1", registries=registries, settings=settings, unique_pulls_max=3)

    pulling = Pulling(images=images(QUICK), by_default=images(Thresholds()), real=real, seen=[])
    pulling.forget_images()
    try:
        yield pulling
    finally:
        await registries.close()
        engine.close()
