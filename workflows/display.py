"""What people see of a session in Temporal's UI: search attributes and the current details."""

from collections.abc import Iterable
from typing import Any, Final

from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from towline.domain.progress import Verdict
from towline.domain.queues import SearchAttribute
from towline.domain.sessions import SessionSpec
from workflows.state import SessionState

STATUS: Final = SearchAttributeKey.for_keyword(SearchAttribute.STATUS)
OWNER: Final = SearchAttributeKey.for_keyword(SearchAttribute.OWNER)
IMAGE: Final = SearchAttributeKey.for_keyword(SearchAttribute.IMAGE)
AGENTS: Final = SearchAttributeKey.for_keyword_list(SearchAttribute.AGENTS)
VERDICT: Final = SearchAttributeKey.for_keyword(SearchAttribute.VERDICT)


def attributes_at_start(spec: SessionSpec) -> TypedSearchAttributes:
    """What can be queried from the first moment on."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(STATUS, "PENDING"),
            SearchAttributePair(OWNER, spec.owner),
            SearchAttributePair(IMAGE, spec.image),
        ]
    )


def summary_of(spec: SessionSpec) -> str:
    """One line that never changes: what runs, and whose it is. Temporal takes 200 bytes."""
    command = " ".join(spec.command or ())
    line = f"{spec.image} {command}".strip()
    room = 190 - len(spec.owner.encode())
    return f"{line.encode()[:room].decode(errors='ignore')} · {spec.owner}"


class Display:
    """What has been shown, so that only changes are sent (each costs an event in the history)."""

    def __init__(self) -> None:
        self._shown: dict[str, object] = {}

    def changes(self, state: SessionState) -> list[SearchAttributeUpdate[Any]]:
        """The updates that bring the search attributes up to the state."""
        worst = worst_verdict(verdict.verdict for verdict in state.verdicts.values())
        wanted: list[tuple[str, object, SearchAttributeUpdate[Any]]] = [
            (STATUS.name, state.status.value, STATUS.value_set(state.status.value))
        ]
        if state.agents:
            wanted.append((AGENTS.name, tuple(state.agents), AGENTS.value_set(state.agents)))
        if worst is not None:
            wanted.append((VERDICT.name, worst.value, VERDICT.value_set(worst.value)))
        elif VERDICT.name in self._shown:
            wanted.append((VERDICT.name, None, VERDICT.value_unset()))
        changed = [update for name, value, update in wanted if self._shown.get(name) != value]
        self._shown.update({name: value for name, value, _ in wanted})
        return changed


_WORST_FIRST: Final = (
    Verdict.DAEMON_UNRESPONSIVE,
    Verdict.STALLED,
    Verdict.CRAWLING,
    Verdict.RETRYING,
    Verdict.WAITING,
    Verdict.HEALTHY,
)


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict that needs attention most, None where there is none."""
    given = set(verdicts)
    return next((verdict for verdict in _WORST_FIRST if verdict in given), None)


def details_of(state: SessionState) -> str:
    """The current details, in Markdown: where the session is, kernel by kernel, and what is thought of its pulls."""
    lines = [f"**{state.status}** · `{state.spec.image}` · {state.spec.owner}", ""]
    for index, kernel in enumerate(state.kernels):
        where = f" on `{kernel.agent_id}`" if kernel.agent_id else ""
        lines.append(f"- kernel {index}: {kernel.status}{where}")
    if state.waits_for and state.ending is None:
        lines.append(f"- waits: {state.waits_for}")
    lines += [f"- pull on `{v.agent_id}`: {v.verdict} {v.reason}".rstrip() for v in state.verdicts.values()]
    if state.ending is not None:
        by = f" by {state.ending.actor.name}" if state.ending.actor else ""
        lines.append(f"- ends: {state.ending.reason}{by} {state.ending.why or state.ending.message}".rstrip())
    return "\n".join(lines)
