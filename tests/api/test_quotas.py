"""Quotas over HTTP: set, shown, refused by, and who is woken."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from tests.api.conftest import Served
from tests.api.test_sessions import FACTS
from towline.domain.agents import RecordAgent
from towline.domain.lifecycle import Status, Transition
from towline.domain.records import Admit, Place, Record
from towline.store.records import StoreRecords

ANN = "/v1/quotas/user/ann"


@pytest.fixture(autouse=True)
async def _unlimited(served: Served) -> AsyncIterator[None]:
    yield
    for quota in (await served.admin.get("/v1/quotas")).json()["quotas"]:
        await served.admin.delete(f"/v1/quotas/{quota['kind']}/{quota['name']}")
    for session in (await served.admin.get("/v1/sessions?limit=200")).json()["sessions"]:
        async with served.database.transaction() as tx:
            await tx.execute(text("DELETE FROM sessions WHERE id = :id"), {"id": session["id"]})


async def put(served: Served, path: str = ANN, **limits: Any) -> dict[str, Any]:
    answer = await served.admin.put(path, json=limits)
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view


async def refused(served: Served, **fields: Any) -> list[str]:
    """The limits that a session breaks; nothing is stored."""
    before = await served.count()
    answer = await served.user.post("/v1/sessions", json={"image": "busybox", **fields})
    assert (answer.status_code, answer.json()["reason"]) == (403, "quota"), answer.text
    assert await served.count() == before
    return [error["field"] for error in answer.json()["errors"]]


class TestSetting:
    async def test_shows_what_was_set_and_replaces_it_whole(self, served: Served) -> None:
        first = await put(served, cpu=2, memory="1g", lifetime=60)
        assert (first["kind"], first["name"], first["limits"]["memory_bytes"]) == ("user", "ann", 1 << 30)
        assert first["limits"]["lifetime"] == 60
        second = await put(served, sessions=0)
        assert (second["limits"]["sessions"], second["limits"]["cpu"]) == (0, None)
        assert (await served.user.get("/v1/me/quotas")).json()["quotas"] == [second]

    async def test_is_the_superadmins(self, served: Served) -> None:
        assert (await served.user.put(ANN, json={})).status_code == 403
        assert (await served.user.get("/v1/quotas")).status_code == 403
        assert (await served.user.delete(ANN)).status_code == 403

    @pytest.mark.parametrize(
        ("path", "body", "status"),
        [
            ("/v1/quotas/user/nobody", {}, 404),
            ("/v1/quotas/project/*", {}, 422),
            ("/v1/quotas/fleet/x", {}, 422),
            (ANN, {"cpu": -1}, 422),
            (ANN, {"cores": 1}, 422),
            (ANN, {"priority": 101}, 422),
        ],
    )
    async def test_nonsense_is_refused(self, served: Served, path: str, body: dict[str, Any], status: int) -> None:
        assert (await served.admin.put(path, json=body)).status_code == status
        assert (await served.admin.get("/v1/quotas")).json()["quotas"] == []

    async def test_lifting_what_is_not_there_says_so(self, served: Served) -> None:
        assert (await served.admin.delete(ANN)).status_code == 404


class TestCreating:
    async def test_names_every_limit_that_is_broken(self, served: Served) -> None:
        await put(served, cpu=1, memory="1g", kernels=1, priority=20, lifetime=60)
        fields = {"resources": {"cpu": 1, "memory": "1g"}, "kernels": 2, "priority": 30, "time_limit": 61}
        assert await refused(served, **fields) == ["cpu", "memory_bytes", "kernels", "lifetime_seconds", "priority"]

    async def test_counts_those_that_wait(self, served: Served) -> None:
        await put(served, pending=1)
        await served.create()
        assert await refused(served) == ["pending"]

    async def test_gives_the_time_limit_of_the_quota(self, served: Served) -> None:
        await put(served, "/v1/quotas/user/*", lifetime=3600)
        assert (await served.create())["time_limit"] == 3600
        assert (await served.create(time_limit=60))["time_limit"] == 60

    async def test_made_before_it_is_answered_whatever_the_quota_is_now(self, served: Served) -> None:
        headers = {"Idempotency-Key": "before-the-quota"}
        first = await served.user.post("/v1/sessions", json={"image": "busybox"}, headers=headers)
        await put(served, sessions=0)
        again = await served.user.post("/v1/sessions", json={"image": "busybox"}, headers=headers)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])

    async def test_a_project_limits_its_users(self, served: Served) -> None:
        moved = await served.admin.patch("/v1/users/ann", json={"project": "vision"})
        assert moved.json()["project"] == "vision"
        await put(served, "/v1/quotas/project/vision", gpu=0)
        assert await refused(served, resources={"gpu": 1}) == ["gpu"]
        await served.admin.patch("/v1/users/ann", json={"project": None})
        await served.create(resources={"gpu": 1})


async def test_more_quota_wakes_who_waits_for_it(served: Served) -> None:
    await put(served, cpu=1)
    records = StoreRecords(served.database)
    await records.record_agent(RecordAgent(facts=FACTS))
    brought = Transition(kernel=0, from_status=Status.PREPARING, to_status=Status.PREPARED)
    ids = [(await served.create(resources={"cpu": 1}))["id"] for _ in range(2)]
    for session_id in ids:
        await records.place(Place(session_id=session_id))
        await records.admit(Admit(record=Record(session_id=session_id, transitions=(brought,))))
    view = (await served.user.get(f"/v1/sessions/{ids[1]}")).json()
    assert (view["status"], view["reason"]) == ("PREPARED", "quota")
    assert "cpu of user ann: 2, and 1 is the limit" in view["message"]
    assert (await put(served, cpu=2))["used"]["cpu"] == 1
    assert served.workflows.woken == [ids[1]]
