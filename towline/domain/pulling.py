"""What is asked of an agent about images, and what it answers."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from towline.domain.lifecycle import Reason
from towline.domain.progress import Verdict
from towline.domain.sessions import PullPolicy


class PullOutcome(StrEnum):
    """How a pull ended, or that it has not. `aborted`: all who waited have left."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


class WaitOutcome(StrEnum):
    """How the wait of one waiter for a pull ended, or that it has not."""

    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LEFT = "left"


@dataclass(frozen=True, kw_only=True)
class PullReport:
    """The account of one pull. Bytes are compressed, as the registry serves them; `ended_at` None: it runs."""

    pull_id: str
    agent_id: str
    image: str
    started_at: datetime
    digest: str | None = None
    ended_at: datetime | None = None
    outcome: PullOutcome = PullOutcome.RUNNING
    reason: Reason | None = None
    message: str = ""
    bytes_pulled: int = 0
    bytes_present: int = 0
    retried_bytes: int = 0
    attempts: int = 1


@dataclass(frozen=True, kw_only=True)
class PullWait:
    """A session's wait for a pull, as far as both are known."""

    report: PullReport
    outcome: WaitOutcome


@dataclass(frozen=True, kw_only=True)
class CheckImage:
    """Is `image` on this agent? `platform` as `os/arch[/variant]`, None for the agent's own.

    With `always`, or when it is absent and the policy allows a pull, the registry is asked for the digest.
    """

    session_id: str
    image: str
    policy: PullPolicy
    platform: str | None = None
    allow_stale: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageCheck:
    """`present`: the wanted content is on the agent, and `digest` (sha256:…) names it, or None where the engine knows no
    digest (a hand-made local image: `image_id` then names it). Absent: `digest` is what the registry resolved, None if it
    could not be asked (the pull will say why). `bytes_to_pull` and `bytes_present` are exact where `total_is_final`."""

    present: bool
    digest: str | None = None
    image_id: str | None = None
    stale: bool = False
    bytes_to_pull: int | None = None
    bytes_present: int = 0
    total_is_final: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckAndPull:
    """Bring `image` to this agent if it is not there, pinned to `digest` where that is given.

    `waiter` names who waits (a session's id or a task's id): joining the same pull twice with one name counts once.
    """

    waiter: str
    image: str
    digest: str | None = None
    platform: str | None = None
    policy: PullPolicy = PullPolicy.IF_NOT_PRESENT
    priority: int = 10
    deadline_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class PulledImage:
    """The image is there. `image_ref` is what to create containers from (by digest, or by id where there is no digest);
    `pulled` False: it was there already, and there is no `report` of a pull."""

    image_ref: str
    digest: str | None
    image_id: str
    pulled: bool
    report: PullReport | None = None


@dataclass(frozen=True, kw_only=True)
class PullStarted:
    """Payload of the signal `pull_started`: this agent has begun to pull, or has joined a pull, for the session."""

    agent_id: str
    pull_id: str
    image: str
    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class PullVerdict:
    """Payload of the signal `pull_verdict`: what is thought of the pull on this agent has changed."""

    agent_id: str
    verdict: Verdict
    reason: str = ""
