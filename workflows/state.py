"""A session's whole state: given at start, handed on at continue-as-new, and nothing beside it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from towline.domain.agents import Leave
from towline.domain.containers import ContainerExit
from towline.domain.lifecycle import FINAL, Reason, Status, Transition, advance, session_status_of
from towline.domain.pulling import PullReport, PullVerdict, PullWait, WaitOutcome
from towline.domain.records import KernelFacts, Note
from towline.domain.sessions import Actor, SessionSpec


@dataclass(kw_only=True)
class KernelState:
    """One kernel. `started`: its container exists on `agent_id`, or did. `exit`: how it ended, by itself unless `stopped`."""

    status: Status = Status.PENDING
    agent_id: str = ""
    image_ref: str = ""
    started: bool = False
    exit: ContainerExit | None = None
    stopped: bool = False


@dataclass(kw_only=True)
class Ending:
    """Why and how the session ends. `forced`: the final status is shown before the clean-up is done."""

    reason: Reason
    message: str = ""
    actor: Actor | None = None
    why: str = ""
    forced: bool = False
    failed: bool = False
    """The end is an ERROR: nobody asked for it, and no command exited."""


@dataclass(kw_only=True)
class Unwritten:
    """What has happened and is not yet in the records."""

    transitions: list[Transition] = field(default_factory=list)
    facts: list[KernelFacts] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    pulls: list[PullWait] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.transitions or self.facts or self.notes or self.pulls)


@dataclass(kw_only=True)
class SessionState:
    """The state of the session workflow. `apply` is the only setter of a kernel's status."""

    spec: SessionSpec
    kernels: list[KernelState] = field(default_factory=list)
    ending: Ending | None = None
    finished: bool = False
    verdicts: dict[str, PullVerdict] = field(default_factory=dict)
    open_pulls: dict[str, PullReport] = field(default_factory=dict)
    """The pulls that the session waits for, by agent."""
    waits_for: str = ""
    """What there is no room for yet, as a sentence."""
    notes_made: int = 0
    running_since: datetime | None = None
    moves: int = 0
    """How often the session has left its agents before it ran."""
    leaving: dict[str, Leave] = field(default_factory=dict)
    """The agents that the session has been told to leave, by agent and reason."""
    unwritten: Unwritten = field(default_factory=Unwritten)

    def __post_init__(self) -> None:
        if not self.kernels:
            self.kernels = [KernelState() for _ in range(self.spec.kernels)]

    @property
    def status(self) -> Status:
        """The session's status, folded from its kernels."""
        return session_status_of(kernel.status for kernel in self.kernels)

    @property
    def agents(self) -> list[str]:
        """The agents of the session, each once, in the kernels' order."""
        return list(dict.fromkeys(kernel.agent_id for kernel in self.kernels if kernel.agent_id))

    @property
    def must_move(self) -> Leave | None:
        """Why an agent of the session is to be left, as long as the session does not run."""
        if self.running_since is not None:
            return None
        return next((leave for leave in self.leaving.values() if leave.agent_id in self.agents), None)

    def is_lost(self, agent_id: str) -> bool:
        """Nothing can be asked of that agent now."""
        return any(leave.agent_id == agent_id and leave.reason is Reason.AGENT_LOST for leave in self.leaving.values())

    def due(self) -> tuple[datetime, Ending] | None:
        """When a session that runs is to end, and why; None: when it ends by itself."""
        ends: list[tuple[datetime, Ending]] = []
        limit = self.spec.time_limit_seconds
        if limit is not None and self.running_since is not None:
            ending = Ending(reason=Reason.TIME_LIMIT, message=f"ran for its limit of {limit:g} s")
            ends.append((self.running_since + timedelta(seconds=limit), ending))
        ends += [(leave.deadline, _ending_by(leave)) for leave in self.leaving.values() if leave.deadline is not None]
        return min(ends, key=lambda end: end[0], default=None)

    def apply(self, index: int, to: Status, reason: Reason | None = None, message: str = "") -> None:
        """Take a step with one kernel, to be written down later. After the end, a step is dropped."""
        kernel = self.kernels[index]
        if kernel.status is to or not advance(kernel.status, to):
            return
        step = Transition(kernel=index, from_status=kernel.status, to_status=to, reason=reason, message=message)
        self.unwritten.transitions.append(step)
        kernel.status = to

    def apply_to_all(self, to: Status, reason: Reason | None = None, message: str = "") -> None:
        """Take a step with every kernel that has not ended."""
        for index, kernel in enumerate(self.kernels):
            if kernel.status not in FINAL:
                self.apply(index, to, reason, message)

    def note(self, kind: str, message: str) -> None:
        """Keep an event that is not a transition."""
        self.notes_made += 1
        self.unwritten.notes.append(Note(key=f"{kind}-{self.notes_made}", kind=kind, message=message))

    def open_pull(self, report: PullReport) -> None:
        """The session waits for this pull now. An earlier one on the same agent died with its worker."""
        self.close_pull(report.agent_id, WaitOutcome.LEFT)
        self.open_pulls[report.agent_id] = report
        self.unwritten.pulls.append(PullWait(report=report, outcome=WaitOutcome.WAITING))

    def close_pull(self, agent_id: str, outcome: WaitOutcome, report: PullReport | None = None) -> None:
        """The session does not wait any more on that agent; `report` is the pull's last account, where there is one."""
        opened = self.open_pulls.pop(agent_id, None)
        final = report or opened
        if final is not None:
            self.unwritten.pulls.append(PullWait(report=final, outcome=outcome))

    def take_unwritten(self) -> Unwritten:
        """Hand over what has to be written, and begin anew."""
        taken, self.unwritten = self.unwritten, Unwritten()
        return taken


def _ending_by(leave: Leave) -> Ending:
    """A lost agent cannot be waited for: the end is shown, and its containers go when it is back."""
    lost = leave.reason is Reason.AGENT_LOST
    return Ending(
        reason=leave.reason, message=leave.message, actor=leave.actor, why=leave.why, forced=lost, failed=lost
    )
