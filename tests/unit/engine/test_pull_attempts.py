"""Attempts: which failures are tried again, how often, and what is said meanwhile. The engine is scripted, the store's kind too."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.scripted_engine import CLASSIC, PODMAN, Conversation, ScriptedEngine
from towline.domain.lifecycle import Reason
from towline.domain.progress import PullProgress, Verdict
from towline.domain.pulling import CheckAndPull, PulledImage
from towline.domain.pulls.thresholds import Thresholds
from towline.domain.sessions import PullPolicy
from towline.engine.client import Engine
from towline.engine.images import EngineImages
from towline.engine.pull_attempts import PullSettings
from towline.engine.registry import Registries
from towline.errors import EngineError

R = Reason
LAYER = "aaaaaaaaaaaa"
FOUND = {"Id": "sha256:" + "1" * 64, "RepoTags": ["x:1"], "RepoDigests": [], "Os": "linux", "Architecture": "amd64"}
DONE = {"status": "Status: Downloaded newer image for x:1"}


def unreachable(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


class Script:
    """One answer per attempt; `image` is there once the last of them has been given."""

    def __init__(
        self, socket: Path, *answers: Callable[[Conversation], None], info: Mapping[str, Any] = CLASSIC
    ) -> None:
        self.answers = list(answers)
        self.engine = ScriptedEngine(socket=socket, pull=self._pull, info=info)
        self.seen: list[PullProgress] = []

    def _pull(self, talk: Conversation) -> None:
        self.answers.pop(0)(talk)
        if not self.answers:
            self.engine.image = FOUND

    async def pull(self, *, policy: PullPolicy = PullPolicy.IF_NOT_PRESENT) -> PulledImage:
        settings = PullSettings(thresholds=Thresholds(stall_seconds=1.0), attempts_max=3)
        with self.engine:
            engine, registries = Engine(self.engine.url), Registries(transport=httpx.MockTransport(unreachable))
            images = EngineImages(
                engine=engine, agent_id="a", registries=registries, settings=settings, unique_pulls_max=1
            )
            try:
                request = CheckAndPull(waiter="w", image="x:1", policy=policy)
                return await images.pull(request, self.seen.append)
            finally:
                await registries.close()
                engine.close()

    async def fails(self) -> EngineError:
        with pytest.raises(EngineError) as caught:
            await self.pull()
        return caught.value


def says(*messages: object) -> Callable[[Conversation], None]:
    def talk(to: Conversation) -> None:
        to.say(*messages)
        to.end_well()

    return talk


def failing(text: str) -> Callable[[Conversation], None]:
    return says({"status": "Pulling fs layer", "id": LAYER}, {"errorDetail": {"message": text}, "error": text})


def dying(talk: Conversation) -> None:
    talk.say({"status": "Pulling fs layer", "id": LAYER})
    talk.hang_up()


def stalling(talk: Conversation) -> None:
    talk.say({"status": "Pulling fs layer", "id": LAYER})
    talk.be_silent()


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "d.sock"


async def test_a_failure_that_may_pass_is_tried_again_visibly(socket: Path) -> None:
    script = Script(socket, failing("unexpected EOF"), dying, says(DONE))
    assert (await script.pull()).pulled
    assert {progress.attempt for progress in script.seen} == {1, 2, 3}
    waits = [progress for progress in script.seen if progress.verdict is Verdict.RETRYING]
    assert {progress.verdict_reason.partition(".")[0] for progress in waits} == {
        "Attempt 1 of 3 failed",
        "Attempt 2 of 3 failed",
    }
    assert all(progress.retry_in_seconds is not None for progress in waits)


async def test_a_stall_is_cut_and_tried_again(socket: Path) -> None:
    script = Script(socket, stalling, says(DONE))
    assert (await script.pull()).pulled
    verdicts = [progress.verdict for progress in script.seen]
    assert verdicts.index(Verdict.STALLED) < verdicts.index(Verdict.RETRYING)
    assert script.seen[-1].percent == 100


async def test_it_ends_when_the_attempts_are_used_up_and_nobody_tries_again(socket: Path) -> None:
    error = await Script(socket, *[failing("connection reset by peer")] * 3).fails()
    assert (error.reason, error.retryable) == (R.NETWORK, False)
    assert "given up after 3 attempts" in error.message
    assert error.report is not None
    assert error.report.attempts == 3


@pytest.mark.parametrize("text", ["denied: no", "manifest unknown", "no space left on device"])
async def test_a_final_failure_is_not_tried_again(socket: Path, text: str) -> None:
    error = await Script(socket, failing(text)).fails()
    assert not error.retryable
    assert error.report is not None
    assert error.report.attempts == 1


async def test_the_engines_own_tries_are_not_multiplied(socket: Path) -> None:
    tries = [{"status": f"Retrying in {left} seconds", "id": LAYER} for _ in range(5) for left in (2, 1)]
    text = "received unexpected HTTP status: 500 Internal Server Error"
    error = await Script(
        socket, says({"status": "Pulling fs layer", "id": LAYER}, *tries, {"errorDetail": {"message": text}})
    ).fails()
    assert (error.reason, error.retryable) == (R.REGISTRY_ERROR, False)
    assert "1 attempt and 5 more of the engine's own" in error.message


async def test_a_token_that_expires_on_the_way_is_no_wrong_password(socket: Path) -> None:
    text = "unauthorized: authentication required"
    moved = {"status": "Downloading", "id": LAYER, "progressDetail": {"current": 1000, "total": 5000}}
    script = Script(
        socket,
        says({"status": "Pulling fs layer", "id": LAYER}, moved, {"errorDetail": {"message": text}}),
        says(DONE),
    )
    assert (await script.pull()).pulled
    error = await Script(socket.with_name("e.sock"), failing(text)).fails()
    assert error.reason is R.UNAUTHORIZED


async def test_an_end_without_the_last_line_is_no_success(socket: Path) -> None:
    silent_end = says({"status": "Pulling fs layer", "id": LAYER}, {"status": "Pull complete", "id": LAYER})
    error = await Script(socket, *[silent_end] * 3).fails()
    assert error.reason is R.ENGINE_UNAVAILABLE


async def test_podman_has_no_last_line_and_what_counts_is_the_image(socket: Path) -> None:
    lines = ({"status": "Pulling fs layer", "id": LAYER}, {"status": "Download complete", "id": LAYER})
    image = await Script(socket, says(*lines), info=PODMAN).pull(policy=PullPolicy.ALWAYS)
    assert (image.pulled, image.image_id) == (True, FOUND["Id"])


async def test_a_truncated_stream_of_podman_is_tried_again(socket: Path) -> None:
    script = Script(socket, dying, says({"status": "Download complete", "id": LAYER}), info=PODMAN)
    image = await script.pull(policy=PullPolicy.ALWAYS)
    assert image.report is not None
    assert image.report.attempts == 2


async def test_an_image_that_vanishes_at_once_is_brought_once_more_and_then_given_up(socket: Path) -> None:
    script = Script(socket, says(DONE), says(DONE), says(DONE))
    error = await script.fails()
    assert (error.reason, error.retryable) == (R.IMAGE_VANISHED, False)
    assert len(script.engine.pulls) == 2


async def test_an_image_for_another_platform_is_named_as_such(socket: Path) -> None:
    script = Script(socket, says(DONE))
    script.engine.image = FOUND | {"Architecture": "arm64"}
    script.answers.append(says(DONE))
    error = await script.fails()
    assert (error.reason, error.retryable) == (R.PLATFORM_MISMATCH, False)
    assert "linux/arm64" in error.message
    assert "linux/amd64" in error.message


async def test_under_never_nothing_is_pulled(socket: Path) -> None:
    script = Script(socket, says(DONE))
    with pytest.raises(EngineError) as caught:
        await script.pull(policy=PullPolicy.NEVER)
    assert caught.value.reason is R.IMAGE_ABSENT
    assert script.engine.pulls == []
