"""An agent's images: is it there, and bring it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, assert_never

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_exponential

from towline.domain.images import ImageRef
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullProgress
from towline.domain.pulling import CheckAndPull, CheckImage, ImageCheck, PulledImage, PullReport
from towline.domain.sessions import PullPolicy
from towline.engine.client import Engine
from towline.engine.credentials import HostCredentials
from towline.engine.local_images import LocalImage, find_local, tag_local
from towline.engine.pull_attempts import Pull, PullSettings, PullWork
from towline.engine.pull_plans import PullPlanner
from towline.engine.registry import Registries
from towline.engine.shared_pulls import SharedPull, SharedPulls, Waiter
from towline.errors import EngineError, PullError

_log = logging.getLogger(__name__)

T = TypeVar("T")

_ENGINE_PATIENCE_SECONDS: Final = 120.0
_AWAY: Final = frozenset({Reason.ENGINE_UNAVAILABLE, Reason.ENGINE_UNRESPONSIVE})


class EngineImages:
    """Satisfies the Protocol `Images` of the activities, for one engine."""

    def __init__(
        self,
        *,
        engine: Engine,
        agent_id: str,
        registries: Registries,
        settings: PullSettings,
        unique_pulls_max: int,
        credentials: HostCredentials | None = None,
    ) -> None:
        self._engine = engine
        self._agent_id = agent_id
        self._planner = PullPlanner(engine, registries, credentials or HostCredentials())
        self._settings = settings
        self._shared: SharedPulls[Pull, PullProgress] = SharedPulls(limit=unique_pulls_max, view=self._view)

    async def check(self, request: CheckImage) -> ImageCheck:
        """Look at the engine, and at the registry where the policy asks for it. Raises `EngineError`."""
        ref = ImageRef.parse(request.image)
        match request.policy:
            case PullPolicy.NEVER:
                return _present(await self._held(ref, request.platform, _absent_under_never(ref)), ref.digest)
            case PullPolicy.ALWAYS:
                return await self._check_newest(ref, await self._fitting(ref, request.platform), request)
            case PullPolicy.IF_NOT_PRESENT:
                local = await self._fitting(ref, request.platform)
                return _present(local, ref.digest) if local is not None else await self._absent(ref, request.platform)
            case _:
                assert_never(request.policy)

    async def pull(self, request: CheckAndPull, on_progress: Callable[[PullProgress], None]) -> PulledImage:
        """Return once the image is there, joining the pull of the same content if one is under way.

        Raises `EngineError` with a typed reason; what can be tried again has been. Cancelled: leaves the pull; the last one to
        leave aborts it.
        """
        deadline = asyncio.timeout(request.deadline_seconds)
        try:
            async with deadline:
                return await self._pull(request, on_progress)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise PullError(
                f"{request.image}: not pulled within the session's own deadline of {request.deadline_seconds:g} s",
                reason=Reason.PULL_DEADLINE,
                retryable=False,
            ) from error

    def running_pulls(self) -> int:
        """How many transfers are under way."""
        return len(self._shared.running())

    async def _pull(
        self, request: CheckAndPull, on_progress: Callable[[PullProgress], None], *, again: bool = True
    ) -> PulledImage:
        """`again`: an image that vanishes as soon as it has come is brought once more."""
        asked = ImageRef.parse(request.image)
        ref = asked.pinned(request.digest) if request.digest else asked
        if request.policy is PullPolicy.ALWAYS:
            ref = await self._pinned(ref)
        if ref.digest is not None or request.policy is not PullPolicy.ALWAYS:
            local = await _patiently(lambda: self._fitting(ref, request.platform))
            if local is not None:
                await self._name(local, asked)
                return _pulled(local, ref.digest, None)
        if request.policy is PullPolicy.NEVER:
            raise _absent_under_never(asked)
        if request.policy is PullPolicy.IF_NOT_PRESENT:
            ref = await self._pinned(ref)
        work = PullWork(
            ref=ref,
            shown_as=asked.familiar,
            platform=request.platform,
            store=await _patiently(self._engine.store_kind),
        )
        end = await self._shared.join(
            (str(work.ref), work.platform),
            Waiter(name=request.waiter, priority=request.priority, on_change=on_progress),
            lambda: Pull(self._engine, self._planner, self._agent_id, work, self._settings),
        )
        assert isinstance(end, PullReport)
        try:
            return await self._verified(asked, work, end)
        except PullError as error:
            if error.reason is not Reason.IMAGE_VANISHED or not again:
                raise
        return await self._pull(request, on_progress, again=False)

    def _view(self, shared: SharedPull[Pull, PullProgress]) -> PullProgress:
        # What holds the engine's slots comes first; what only unpacks is in nobody's way.
        others = sorted(
            (pull.job for pull in self._shared.running() if pull is not shared), key=lambda job: not job.bytes_move
        )
        return shared.job.progress(
            waiters=len(shared.names),
            queue_position=shared.queue_position,
            behind=", ".join(job.image for job in others[:3]) or None,
        )

    async def _pinned(self, ref: ImageRef) -> ImageRef:
        """By digest, where it can be known: a tag that moves from here on changes nothing."""
        newest = await self._planner.newest(ref)
        return ref.pinned(newest.digest) if newest.digest else ref

    async def _verified(self, asked: ImageRef, work: PullWork, end: PullReport) -> PulledImage:
        """Success is an image that is there, whatever the stream said."""
        digest = work.ref.digest or end.digest
        vanished = PullError(
            f"{asked.familiar}: pulled, and gone again at once; something on the agent removes images",
            reason=Reason.IMAGE_VANISHED,
            retryable=False,
        )
        ref = asked.pinned(digest) if digest else asked
        found = await _patiently(lambda: self._held(ref, work.platform, vanished))
        await self._name(found, asked)
        return _pulled(found, digest, end)

    async def _name(self, image: LocalImage, asked: ImageRef) -> None:
        """What was found or pulled by its digest is looked for by its tag the next time."""
        if asked.tag is not None and image.tags.isdisjoint({asked.familiar, str(asked)}):
            await _patiently(lambda: tag_local(self._engine, image, asked))

    async def _fitting(self, ref: ImageRef, platform: str | None) -> LocalImage | None:
        """The image on the engine, if it is for the wanted platform."""
        found = await find_local(self._engine, ref)
        return found if found and _fits(found.platform, platform or await self._engine.platform()) else None

    async def _held(self, ref: ImageRef, platform: str | None, if_absent: PullError) -> LocalImage:
        """The image that has to be on the engine, for the wanted platform."""
        found = await find_local(self._engine, ref)
        if found is None:
            raise if_absent
        wanted = platform or await self._engine.platform()
        if not _fits(found.platform, wanted):
            raise PullError(
                f"{ref.familiar}: the image on the agent is for {found.platform}, not for {wanted}",
                reason=Reason.PLATFORM_MISMATCH,
                retryable=False,
            )
        return found

    async def _check_newest(self, ref: ImageRef, local: LocalImage | None, request: CheckImage) -> ImageCheck:
        newest = await self._planner.newest(ref)
        if newest.failure is not None and local is not None and request.allow_stale:
            _log.warning("using the image that is present: %s", newest.failure.message)
            return ImageCheck(present=True, digest=local.digest_for(ref.digest), image_id=local.image_id, stale=True)
        if newest.digest is None:
            return ImageCheck(present=False)  # The engine may know another way to the registry; the pull will say.
        if local is not None and newest.digest in (*local.digests, local.image_id):
            return _present(local, newest.digest)
        return await self._absent(ref.pinned(newest.digest), request.platform)

    async def _absent(self, ref: ImageRef, platform: str | None) -> ImageCheck:
        plan = await self._planner.plan(ref, platform or await self._engine.platform())
        if plan is None:
            return ImageCheck(present=False, digest=ref.digest)
        return ImageCheck(
            present=False,
            digest=plan.digest,
            bytes_to_pull=plan.bytes_to_pull,
            bytes_present=plan.bytes_present,
            total_is_final=plan.total_is_final,
        )


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again while the engine is away, within bounds: it may be restarting. After that the error is final."""
    retrying = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, EngineError) and error.reason in _AWAY),
        wait=wait_exponential(multiplier=0.5, max=5.0),
        stop=stop_after_delay(_ENGINE_PATIENCE_SECONDS),
        reraise=True,
    )
    try:
        async for attempt in retrying:
            with attempt:
                return await ask()
    except EngineError as error:
        error.retryable = error.retryable and error.reason not in _AWAY
        raise
    raise AssertionError("a retry ends with a result or an error")


def _absent_under_never(ref: ImageRef) -> PullError:
    return PullError(
        f"{ref.familiar}: not on the agent, and the pull policy is `never`; preload it, or allow a pull",
        reason=Reason.IMAGE_ABSENT,
        retryable=False,
    )


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
