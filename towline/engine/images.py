"""An agent's images: is it there, and bring it."""

import asyncio
import logging
from collections.abc import Callable

from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, PullReport
from towline.domain.pulls.plan import PullPlan, plan_pull
from towline.domain.sessions import PullPolicy
from towline.engine.client import Engine
from towline.engine.local_images import LocalImage, find_pinned, local_chains, tag_local
from towline.engine.pull_attempts import Pull, PullSettings, PullWork
from towline.engine.registry import Registries
from towline.engine.shared_pulls import SharedPull, SharedPulls, Waiter
from towline.errors import PullError

_log = logging.getLogger(__name__)


class EngineImages:
    """Satisfies the Protocol `Images` of the activities, for one engine."""

    def __init__(
        self, *, engine: Engine, agent_id: str, registries: Registries, settings: PullSettings, unique_pulls_max: int
    ) -> None:
        self._engine = engine
        self._agent_id = agent_id
        self._registries = registries
        self._settings = settings
        self._shared: SharedPulls[Pull] = SharedPulls(limit=unique_pulls_max)

    async def check(self, request: CheckImage) -> ImageCheck:
        """Look at the engine, and at the registry where the policy asks for it. Raises `EngineError`."""
        ref = ImageRef.parse(request.image)
        local = await self._fitting(ref, None, request.platform, policy=request.policy)
        match request.policy:
            case PullPolicy.NEVER:
                if local is None:
                    raise PullError(
                        f"{ref.familiar}: not on the agent, and the pull policy is `never`; preload it, or allow a pull",
                        reason=Reason.IMAGE_ABSENT,
                        retryable=False,
                    )
            case PullPolicy.ALWAYS:
                return await self._check_newest(ref, local, request)
            case PullPolicy.IF_NOT_PRESENT:
                pass
        return _present(local, ref.digest) if local is not None else await self._absent(ref, request.platform)

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        """Return once the image is there, joining the pull of the same content if one is under way.

        Raises `EngineError` with a typed reason. Cancelled: leaves the pull; the last one to leave aborts it.
        """
        try:
            async with asyncio.timeout(request.deadline_seconds):
                return await self._pull(request, on_progress)
        except TimeoutError as error:
            raise PullError(
                f"{request.image}: not pulled within the session's own deadline of {request.deadline_seconds:g} s",
                reason=Reason.PULL_DEADLINE,
                retryable=False,
            ) from error

    def running_pulls(self) -> int:
        """How many transfers are under way."""
        return len(self._shared.running())

    async def _pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        ref = ImageRef.parse(request.image)
        if request.digest is not None or request.policy is not PullPolicy.ALWAYS:
            local = await self._fitting(ref, request.digest, request.platform)
            if local is not None:
                return _pulled(local, request.digest or ref.digest, None)
        plan = await self._plan(ref, request.digest, request.platform)
        store = await self._engine.store_kind()
        work = PullWork(
            ref=ref,
            digest=request.digest,
            platform=request.platform,
            plan=plan,
            ask_retry_after=lambda: self._retry_after(ref),
        )

        def show(shared: SharedPull[Pull]) -> None:
            on_progress(
                shared.job.progress(
                    waiters=len(shared.names), queue_position=shared.queue_position, behind=self._behind(shared)
                )
            )

        end = await self._shared.join(
            (ref.name, request.digest or str(ref), request.platform),
            Waiter(name=request.waiter, priority=request.priority, on_change=show),
            lambda: Pull(self._engine, self._agent_id, work, store, self._settings),
        )
        assert isinstance(end, PullReport)
        return await self._verified(ref, request, end)

    async def _retry_after(self, ref: ImageRef) -> float | None:
        try:
            await self._registries.digest_of(ref)
        except PullError as error:
            return error.retry_after_seconds
        return None

    async def _verified(self, ref: ImageRef, request: CheckAndPull, end: PullReport) -> PulledImage:
        """Success is an image that is there, whatever the stream said."""
        digest = request.digest or ref.digest or end.digest
        found = await self._fitting(ref, digest, request.platform)
        if found is None:
            raise PullError(
                f"{ref.familiar}: pulled, and gone again at once; something on the agent removes images",
                reason=Reason.IMAGE_VANISHED,
                retryable=True,
            )
        if ref.tag is not None and request.digest is not None:
            # Pulled by its digest, so that a tag that moves meanwhile changes nothing; people look for it by its tag.
            await tag_local(self._engine, found, ref)
        return _pulled(found, digest, end)

    async def _fitting(
        self, ref: ImageRef, digest: str | None, platform: str | None, *, policy: PullPolicy | None = None
    ) -> LocalImage | None:
        """The image on the engine, if it is for the wanted platform. Under `never` another platform is an error."""
        found = await find_pinned(self._engine, ref, digest)
        wanted = platform or await self._engine.platform()
        if found is None or _fits(found.platform, wanted):
            return found
        if policy is PullPolicy.NEVER:
            raise PullError(
                f"{ref.familiar}: the image on the agent is for {found.platform}, not for {wanted}",
                reason=Reason.PLATFORM_MISMATCH,
                retryable=False,
            )
        return None

    async def _check_newest(self, ref: ImageRef, local: LocalImage | None, request: CheckImage) -> ImageCheck:
        try:
            newest = await self._registries.digest_of(ref)
        except PullError as error:
            if local is not None and request.allow_stale:
                _log.warning("using the image that is present: %s", error.message)
                return ImageCheck(
                    present=True, digest=local.digest_for(ref.digest), image_id=local.image_id, stale=True
                )
            return ImageCheck(present=False)  # The engine may know another way to the registry; the pull will say.
        if local is not None and newest in (*local.digests, local.image_id):
            return _present(local, newest)
        return await self._absent(ref.pinned(newest), request.platform)

    async def _absent(self, ref: ImageRef, platform: str | None) -> ImageCheck:
        plan = await self._plan(ref, None, platform)
        if plan is None:
            return ImageCheck(present=False, digest=ref.digest)
        return ImageCheck(
            present=False,
            digest=plan.digest,
            bytes_to_pull=plan.bytes_to_pull,
            bytes_present=plan.bytes_present,
            total_is_final=plan.total_is_final,
        )

    async def _plan(self, ref: ImageRef, digest: str | None, platform: str | None) -> PullPlan | None:
        """What the pull will bring; None where the registry cannot be asked from here (the stream will have to do)."""
        wanted = platform or await self._engine.platform()
        try:
            resolved = await self._registries.resolve(ref.pinned(digest) if digest else ref, wanted)
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
            local_chains=await local_chains(self._engine),
            store=await self._engine.store_kind(),
        )

    def _behind(self, shared: SharedPull[Pull]) -> str | None:
        """Which pulls hold what this one waits for."""
        others = [pull.job.image for pull in self._shared.running() if pull is not shared]
        return ", ".join(others[:3]) or None


def _present(local: LocalImage, digest: str | None) -> ImageCheck:
    return ImageCheck(present=True, digest=local.digest_for(digest), image_id=local.image_id)


def _pulled(local: LocalImage, digest: str | None, end: PullReport | None) -> PulledImage:
    return PulledImage(
        image_ref=local.image_id,
        digest=local.digest_for(digest),
        image_id=local.image_id,
        pulled=end is not None,
        report=end,
    )


def _fits(has: str, wanted: str) -> bool:
    """Whether platforms agree; a variant counts only where both name one, and an unknown platform is not refused."""
    pairs = zip(has.split("/"), wanted.split("/"), strict=False)
    return not has or all(ours == theirs for ours, theirs in pairs)
