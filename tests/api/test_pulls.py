"""Pulls over HTTP: in flight and past, whose they are, cancelling them; check-and-pull in the background."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.api.conftest import Served
from tests.api.test_sessions import FACTS
from towline.domain.agents import RecordAgent
from towline.domain.ids import new_id
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.progress import PullPhase, PullProgress
from towline.domain.pulling import PullOutcome, PullReport, PullWait, WaitOutcome
from towline.domain.queues import Signal
from towline.domain.records import Place, Record
from towline.store.records import StoreRecords

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def a_pull() -> PullReport:
    return PullReport(pull_id=new_id("pull"), agent_id="a1", image="busybox:latest", started_at=BEGUN)


async def waits(served: Served, session: dict[str, Any], report: PullReport, outcome: WaitOutcome) -> None:
    """The session's workflow writes down its wait."""
    wait = PullWait(report=report, outcome=outcome)
    await StoreRecords(served.database).record(Record(session_id=session["id"], pulls=(wait,)))


async def is_pulling(served: Served, session: dict[str, Any]) -> None:
    records = StoreRecords(served.database)
    await records.record_agent(RecordAgent(facts=FACTS))
    await records.place(Place(session_id=session["id"]))
    step = Transition(kernel=0, from_status=Status.PREPARING, to_status=Status.PULLING)
    await records.record(Record(session_id=session["id"], transitions=(step,)))


async def test_a_pull_in_flight_shows_its_progress_and_who_waits(served: Served) -> None:
    session, report = await served.create(), a_pull()
    await waits(served, session, report, WaitOutcome.WAITING)
    progress = PullProgress(
        pull_id=report.pull_id,
        image="busybox:latest",
        agent_id="a1",
        phase=PullPhase.DOWNLOADING,
        bytes_done=5,
        started_at=BEGUN,
        updated_at=BEGUN,
    )
    served.workflows.progress[session["id"]] = {"a1": progress}
    found = (await served.user.get(f"/v1/pulls/{report.pull_id}")).json()
    assert (found["outcome"], found["progress"]["bytes_done"]) == ("running", 5)
    assert [wait["session_id"] for wait in found["waits"]] == [session["id"]]
    listed = (await served.user.get("/v1/pulls?outcome=running")).json()["pulls"]
    assert report.pull_id in [one["id"] for one in listed]


async def test_a_past_pull_keeps_its_account(served: Served) -> None:
    session, report = await served.create(), a_pull()
    await waits(served, session, report, WaitOutcome.WAITING)
    ended = replace(
        report,
        outcome=PullOutcome.FAILED,
        reason=Reason.RATE_LIMITED,
        message="slower",
        bytes_pulled=70,
        retried_bytes=9,
        attempts=3,
        ended_at=BEGUN + timedelta(seconds=8),
    )
    await waits(served, session, ended, WaitOutcome.FAILED)
    await waits(served, session, report, WaitOutcome.WAITING)  # A message that comes late takes nothing back.
    found = (await served.user.get(f"/v1/pulls/{report.pull_id}")).json()
    assert (found["outcome"], found["reason"], found["attempts"]) == ("failed", "rate-limited", 3)
    assert (found["bytes_pulled"], found["retried_bytes"], found["progress"]) == (70, 9, None)
    assert found["waits"][0]["outcome"] == "failed"
    assert found["waits"][0]["left_at"] is not None


async def test_the_last_one_out_makes_it_aborted(served: Served) -> None:
    first, second, report = await served.create(), await served.create(), a_pull()
    for session in (first, second):
        await waits(served, session, report, WaitOutcome.WAITING)
    await waits(served, first, report, WaitOutcome.LEFT)
    assert (await served.user.get(f"/v1/pulls/{report.pull_id}")).json()["outcome"] == "running"
    await waits(served, second, report, WaitOutcome.LEFT)
    assert (await served.user.get(f"/v1/pulls/{report.pull_id}")).json()["outcome"] == "aborted"


async def test_others_who_share_a_pull_are_counted_and_not_named(served: Served) -> None:
    mine, theirs, report = await served.create(), await served.create(served.admin), a_pull()
    for session in (mine, theirs):
        await waits(served, session, report, WaitOutcome.WAITING)
    found = (await served.user.get(f"/v1/pulls/{report.pull_id}")).json()
    assert [wait["session_id"] for wait in found["waits"]] == [mine["id"]]
    assert found["other_waiters"] == 1
    foreign = a_pull()
    await waits(served, theirs, foreign, WaitOutcome.WAITING)
    assert (await served.user.get(f"/v1/pulls/{foreign.pull_id}")).status_code == 404
    assert foreign.pull_id not in (await served.user.get("/v1/pulls?limit=200")).text


async def test_cancelling_a_pull_ends_every_waiter_with_who_and_why(served: Served) -> None:
    first, second, report = await served.create(), await served.create(), a_pull()
    for session in (first, second):
        await is_pulling(served, session)
        await waits(served, session, report, WaitOutcome.WAITING)
    refused = await served.user.post(f"/v1/pulls/{report.pull_id}/cancel")
    assert refused.status_code == 403
    answer = await served.admin.post(f"/v1/pulls/{report.pull_id}/cancel", json={"why": "wrong image"})
    assert answer.status_code == 202
    assert {(session_id, signal) for session_id, signal, _ in served.workflows.signals} == {
        (first["id"], Signal.FORCE_CANCEL),
        (second["id"], Signal.FORCE_CANCEL),
    }
    request = served.workflows.signals[0][2]
    assert request.actor.name == "admin"
    assert request.why == f"pull {report.pull_id} cancelled: wrong image"


class TestCheckAndPull:
    async def test_answers_task_ids_at_once(self, served: Served) -> None:
        await StoreRecords(served.database).record_agent(RecordAgent(facts=FACTS))
        answer = await served.admin.post("/v1/images/check-and-pull", json={"agents": ["a1"], "image": "busybox"})
        assert answer.status_code == 202
        [task_id] = answer.json()["task_ids"]
        assert (await served.user.get(f"/v1/tasks/{task_id}")).json()["status"] == "started"

    async def test_refuses_agents_that_do_not_exist(self, served: Served) -> None:
        body = {"agents": ["a1", "nobody"], "image": "busybox"}
        await StoreRecords(served.database).record_agent(RecordAgent(facts=FACTS))
        answer = await served.admin.post("/v1/images/check-and-pull", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "agents.1")
        assert not served.tasks.tasks

    async def test_is_the_superadmins(self, served: Served) -> None:
        body = {"agents": ["a1"], "image": "busybox"}
        assert (await served.user.post("/v1/images/check-and-pull", json=body)).status_code == 403
        assert (await served.user.get("/v1/tasks/pull/a1/none")).status_code == 404
