"""Agents over HTTP: who may take one out of use, what is recorded of it, and who is told."""

import pytest

from tests.api.conftest import Served
from towline.domain.agents import AgentFacts, RecordAgent
from towline.domain.ids import new_id
from towline.store.records import StoreRecords


@pytest.fixture
async def agent_id(served: Served) -> str:
    facts = AgentFacts(agent_id=new_id("agent"), boot_id="b", cpu=0.5, memory_bytes=1 << 20, resource_group="gpu")
    await StoreRecords(served.database).record_agent(RecordAgent(facts=facts))
    return facts.agent_id


async def test_cordon_is_recorded_with_who_and_why_until_it_is_taken_back(served: Served, agent_id: str) -> None:
    answer = await served.admin.post(f"/v1/agents/{agent_id}/cordon", json={"why": "new disks"})
    assert (answer.status_code, answer.json()["cordoned"], answer.json()["draining"]) == (200, True, False)
    answer = await served.admin.post(f"/v1/agents/{agent_id}/uncordon")
    assert (answer.status_code, answer.json()["cordoned"]) == (202, False)
    shown = (await served.user.get(f"/v1/agents/{agent_id}")).json()
    events = [(event["kind"], event["actor"], event["message"]) for event in shown["events"]]
    assert events[:2] == [("uncordoned", "admin", ""), ("cordoned", "admin", "new disks")]
    assert shown["resource_group"] == "gpu"
    assert served.workflows.orders == [(agent_id, None)]


async def test_drain_closes_the_agent_and_tells_its_workflow(served: Served, agent_id: str) -> None:
    answer = await served.admin.post(f"/v1/agents/{agent_id}/drain", json={"why": "old", "deadline": 60})
    shown = answer.json()
    assert (answer.status_code, shown["cordoned"], shown["draining"]) == (202, True, True)
    [(told, drain)] = served.workflows.orders
    assert told == agent_id
    assert drain is not None
    assert drain.deadline is not None
    assert shown["drain_deadline"] == drain.deadline.isoformat().replace("+00:00", "Z")
    assert (drain.actor.name, drain.why) == ("admin", "old")
    await served.admin.post(f"/v1/agents/{agent_id}/uncordon")
    shown = (await served.user.get(f"/v1/agents/{agent_id}")).json()
    assert (shown["cordoned"], shown["draining"], shown["drain_deadline"]) == (False, False, None)


async def test_while_temporal_is_away_it_is_recorded_and_said_to_be_half_done(served: Served, agent_id: str) -> None:
    served.workflows.away = True
    answer = await served.admin.post(f"/v1/agents/{agent_id}/drain")
    assert (answer.status_code, answer.json()["retryable"]) == (503, True)
    assert (await served.user.get(f"/v1/agents/{agent_id}")).json()["draining"]


@pytest.mark.parametrize("act", ["cordon", "drain", "uncordon"])
async def test_only_superadmins_may_and_only_with_agents_that_are(served: Served, agent_id: str, act: str) -> None:
    assert (await served.user.post(f"/v1/agents/{agent_id}/{act}")).status_code == 403
    assert (await served.nobody.post(f"/v1/agents/{agent_id}/{act}")).status_code == 401
    assert (await served.admin.post(f"/v1/agents/none/{act}")).status_code == 404
    assert (await served.admin.post(f"/v1/agents/{agent_id}/{act}", json={"when": "now"})).status_code == 422
    assert served.workflows.orders == []
    shown = (await served.user.get(f"/v1/agents/{agent_id}")).json()
    assert [event["kind"] for event in shown["events"]] == ["online"]


async def test_what_the_ledger_has_drifted_by_is_for_superadmins(served: Served) -> None:
    assert (await served.user.get("/v1/ledger/drift")).status_code == 403
    answer = await served.admin.get("/v1/ledger/drift")
    assert (answer.status_code, answer.json()) == (200, {"drift": []})
