"""What a pull will bring, found out before it: the registry's word against what the engine holds."""

import logging
from dataclasses import dataclass

from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.pulls.plan import PullPlan, plan_pull
from towline.engine.client import Engine
from towline.engine.credentials import Credential, HostCredentials
from towline.engine.local_images import LayerChains
from towline.engine.registry import Registries
from towline.errors import PullError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class NewestDigest:
    """What a reference names now; `digest` None where the registry could not be asked, and `failure` says why."""

    digest: str | None
    failure: PullError | None = None


class PullPlanner:
    """Asks registries with the agent's own credentials. What it cannot find out, the engine still may: it has its own ways."""

    def __init__(self, engine: Engine, registries: Registries, credentials: HostCredentials) -> None:
        self._engine = engine
        self._registries = registries
        self._credentials = credentials
        self._chains = LayerChains(engine)

    async def credential(self, ref: ImageRef) -> Credential | None:
        """The agent's own for the reference's registry."""
        return await self._credentials.of(ref.registry)

    async def newest(self, ref: ImageRef) -> NewestDigest:
        """The digest of the reference; a reference by digest is not asked about."""
        if ref.digest is not None:
            return NewestDigest(digest=ref.digest)
        try:
            return NewestDigest(digest=await self._registries.digest_of(ref, await self.credential(ref)))
        except PullError as error:
            return NewestDigest(digest=None, failure=error)

    async def plan(self, ref: ImageRef, platform: str) -> PullPlan | None:
        """None where the registry cannot be asked from here: then the engine's stream has to do.

        Raises `PullError` for an image that is not for this platform, `EngineError` when the engine does not answer.
        """
        try:
            resolved = await self._registries.resolve(ref, platform, await self.credential(ref))
        except PullError as error:
            if error.reason is Reason.PLATFORM_MISMATCH:
                raise
            _log.info("no totals before the pull: %s", error.message)
            return None
        return plan_pull(
            digest=resolved.digest,
            platform=resolved.platform,
            layers=resolved.layers,
            diff_ids=resolved.diff_ids,
            local_chains=await self._chains.all(),
            store=await self._engine.store_kind(),
        )

    async def retry_after(self, ref: ImageRef) -> float | None:
        """How many seconds the registry wants to be left alone. Engines do not pass that on."""
        failure = (await self.newest(ref)).failure
        return failure.retry_after_seconds if failure else None
