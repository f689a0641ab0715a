"""Images on an agent: is it there, and bring it."""

from collections.abc import Callable
from typing import Protocol

from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage


class Images(Protocol):
    """An agent's images. Raises `towline.errors.PullError` with a typed reason."""

    async def check(self, request: CheckImage) -> ImageCheck:
        """Look at the engine, and at the registry where the policy asks for it."""
        ...

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        """Return once the image is there. `on_progress` is called from the event loop, at most about twice a second.

        A cancelled caller leaves the pull; the last one to leave aborts the transfer, and this returns only once the abort
        is acknowledged.
        """
        ...
