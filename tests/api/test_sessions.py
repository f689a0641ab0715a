"""Sessions over HTTP: idempotency, whose they are, ending them, lists, events, logs."""

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.api.conftest import Served
from towline.domain.agents import AgentFacts, RecordAgent
from towline.domain.containers import ContainerExit, LogPage, LogTail
from towline.domain.lifecycle import Reason, Status, Transition
from towline.domain.queues import Signal
from towline.domain.records import Finish, Place, Record
from towline.store.records import StoreRecords

FACTS = AgentFacts(agent_id="a1", boot_id="b", cpu=64.0, memory_bytes=1 << 40, platform="linux/amd64")


async def run_to_the_end(served: Served, session_id: str, *, code: int = 3, log: bytes = b"") -> None:
    """The records as the workflow would write them."""
    records = StoreRecords(served.database)
    await records.record_agent(RecordAgent(facts=FACTS))
    await records.place(Place(session_id=session_id))
    path = [Status.PREPARING, Status.PREPARED, Status.CREATING, Status.RUNNING]
    steps = [Transition(kernel=0, from_status=a, to_status=b) for a, b in itertools.pairwise(path)]
    await records.record(Record(session_id=session_id, transitions=tuple(steps)))
    end = Transition(kernel=0, from_status=Status.RUNNING, to_status=Status.TERMINATED, reason=Reason.EXITED)
    exit_ = ContainerExit(kernel=0, exit_code=code, log=LogTail.of(log, total_bytes=len(log)))
    await records.finish(Finish(session_id=session_id, transitions=(end,), reason=Reason.EXITED, exits=(exit_,)))


class TestDependencies:
    async def test_on_ones_own_sessions_that_may_yet_be_done(self, served: Served) -> None:
        first = await served.create()
        done = await served.create()
        await run_to_the_end(served, done["id"], code=0)
        at = "2027-01-31T18:00:00+01:00"
        view = await served.create(depends_on=[first["id"], done["id"]], starts_at=at)
        assert (view["depends_on"], view["starts_at"]) == ([first["id"], done["id"]], "2027-01-31T17:00:00Z")

    async def test_on_what_is_anothers_or_has_failed_is_refused_and_nothing_is_stored(self, served: Served) -> None:
        anothers = await served.create(served.admin)
        failed = await served.create()
        await run_to_the_end(served, failed["id"])
        before = await served.count()
        for id_, why in ((anothers["id"], "there is no session"), (failed["id"], "ended with exit code 3")):
            answer = await served.user.post("/v1/sessions", json={"image": "busybox", "depends_on": [id_]})
            assert answer.status_code == 422, answer.text
            [problem] = answer.json()["errors"]
            assert problem["field"] == "depends_on"
            assert why in problem["problem"]
            assert id_ in problem["problem"]
        assert await served.count() == before
        await served.create(served.admin, depends_on=[(await served.create())["id"]])

    async def test_a_repeated_request_is_answered_whatever_has_become_of_them(self, served: Served) -> None:
        first = await served.create()
        body, key = {"image": "busybox", "depends_on": [first["id"]]}, {"Idempotency-Key": "dependent"}
        made = await served.user.post("/v1/sessions", json=body, headers=key)
        await run_to_the_end(served, first["id"])
        again = await served.user.post("/v1/sessions", json=body, headers=key)
        assert (made.status_code, again.status_code) == (201, 200)
        assert again.json()["id"] == made.json()["id"]


class TestCreating:
    async def test_stores_starts_and_shows(self, served: Served) -> None:
        view = await served.create(image="busybox", command=["echo", "hi"], resources={"cpu": 0.5, "memory": "128m"})
        assert view["status"] == "PENDING"
        assert view["image"] == "docker.io/library/busybox:latest"
        assert view["resources"]["memory_bytes"] == 134217728
        [spec] = served.workflows.started
        assert (spec.session_id, spec.owner, spec.command) == (view["id"], "ann", ("echo", "hi"))

    async def test_values_pass_byte_for_byte(self, served: Served) -> None:
        env = {"A": "b=c", "N": "a\nb", "Q": "\"'", "U": "é漢🙂", "S": " x ", "E": ""}
        await served.create(env=env)
        assert served.workflows.started[0].env == env

    async def test_the_same_key_and_body_make_one_session(self, served: Served) -> None:
        async def post() -> Any:
            body = {"image": "busybox", "name": "once"}
            return await served.user.post("/v1/sessions", json=body, headers={"Idempotency-Key": "k1"})

        answers = await asyncio.gather(*(post() for _ in range(20)))
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len(served.workflows.started) == 1

    async def test_the_same_key_with_another_body_is_a_conflict(self, served: Served) -> None:
        headers = {"Idempotency-Key": "k2"}
        assert (await served.user.post("/v1/sessions", json={"image": "a"}, headers=headers)).status_code == 201
        answer = await served.user.post("/v1/sessions", json={"image": "b"}, headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (409, "conflict")

    async def test_a_key_is_its_owners(self, served: Served) -> None:
        headers = {"Idempotency-Key": "k3"}
        for client in (served.user, served.admin):
            assert (await client.post("/v1/sessions", json={"image": "a"}, headers=headers)).status_code == 201

    async def test_while_temporal_is_away_it_is_stored_and_started_later(self, served: Served) -> None:
        from api.dispatcher import dispatch_once

        served.workflows.away = True
        view = await served.create()
        assert view["status"] == "PENDING"
        served.workflows.away = False
        for _ in range(2):
            await dispatch_once(served.database, served.workflows, older_than=timedelta())
            assert [spec.session_id for spec in served.workflows.started].count(view["id"]) == 1

    async def test_the_host_network_is_for_superadmins(self, served: Served) -> None:
        body = {"image": "busybox", "network": "host"}
        assert (await served.user.post("/v1/sessions", json=body)).status_code == 403
        assert (await served.admin.post("/v1/sessions", json=body)).status_code == 201


class TestWhose:
    @pytest.mark.parametrize("token", [None, "Bearer ", "Bearer twl_nope", "Basic eDp5", "Bearer \ud800"])
    async def test_without_a_valid_token_nothing_is_answered(self, served: Served, token: str | None) -> None:
        headers = {b"Authorization": token.encode("utf-8", "surrogatepass")} if token else {}
        answer = await served.nobody.get("/v1/sessions", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"

    async def test_anothers_session_looks_like_none(self, served: Served) -> None:
        view = await served.create(served.admin)
        for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/events"), ("GET", "/logs")):
            answer = await served.user.request(method, f"/v1/sessions/{view['id']}{path}")
            assert answer.status_code == 404
        ids = [one["id"] for one in (await served.user.get("/v1/sessions?limit=200")).json()["sessions"]]
        assert view["id"] not in ids
        assert not served.workflows.signals

    async def test_a_superadmin_sees_and_force_cancels_anybodys_with_who_and_why(self, served: Served) -> None:
        view = await served.create(served.user)
        body = {"force": True, "why": "stuck"}
        assert (await served.admin.post(f"/v1/sessions/{view['id']}/cancel", json=body)).status_code == 202
        [(session_id, signal, request)] = served.workflows.signals
        assert (session_id, signal) == (view["id"], Signal.FORCE_CANCEL)
        assert (request.actor.name, request.actor.superadmin, request.why) == ("admin", True, "stuck")

    async def test_users_and_tokens_are_the_superadmins(self, served: Served) -> None:
        assert (await served.user.get("/v1/users")).status_code == 403
        made = await served.admin.post("/v1/users", json={"name": "bob"})
        assert made.status_code == 201
        assert (await served.admin.post("/v1/users", json={"name": "bob"})).status_code == 409
        token = (await served.admin.post("/v1/users/bob/tokens", json={"name": "laptop"})).json()
        headers = {"Authorization": f"Bearer {token['token']}"}
        assert (await served.nobody.get("/v1/me", headers=headers)).json()["name"] == "bob"
        listed = (await served.admin.get("/v1/users/bob/tokens")).text
        assert token["token"] not in listed
        assert (await served.admin.delete(f"/v1/tokens/{token['id']}")).status_code == 204
        assert (await served.nobody.get("/v1/me", headers=headers)).status_code == 401


class TestEnding:
    async def test_ending_twice_is_the_same_as_once_and_after_the_end_nothing_is_asked(self, served: Served) -> None:
        view = await served.create()
        for path in ("cancel", "cancel", "terminate"):
            assert (await served.user.post(f"/v1/sessions/{view['id']}/{path}")).status_code == 202
        assert len(served.workflows.signals) == 3
        await run_to_the_end(served, view["id"])
        answer = await served.user.post(f"/v1/sessions/{view['id']}/cancel", json={"force": True})
        assert (answer.status_code, answer.json()["status"]) == (202, "TERMINATED")
        assert len(served.workflows.signals) == 3

    async def test_while_temporal_is_away_it_is_said(self, served: Served) -> None:
        view = await served.create()
        served.workflows.away = True
        answer = await served.user.post(f"/v1/sessions/{view['id']}/cancel")
        assert (answer.status_code, answer.json()["retryable"]) == (503, True)


class TestReading:
    async def test_pages_have_every_session_once(self, served: Served) -> None:
        made = [(await served.create(labels={"page": "yes"}))["id"] for _ in range(7)]
        found: list[str] = []
        cursor = ""
        while True:
            page = (await served.user.get(f"/v1/sessions?label=page=yes&limit=3{cursor}")).json()
            found += [one["id"] for one in page["sessions"]]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == made[::-1]

    async def test_filters(self, served: Served) -> None:
        view = await served.create(image="quay.io/a/b:1")
        await run_to_the_end(served, view["id"])
        for query in ("status=TERMINATED", "image=quay.io/a/b:1", "agent=a1", "owner=ann"):
            ids = [one["id"] for one in (await served.user.get(f"/v1/sessions?{query}")).json()["sessions"]]
            assert view["id"] in ids, query
        assert (await served.user.get("/v1/sessions?status=ERROR")).json()["sessions"] == []

    async def test_events_are_numbered_and_can_be_taken_up(self, served: Served) -> None:
        view = await served.create()
        await run_to_the_end(served, view["id"])
        events = (await served.user.get(f"/v1/sessions/{view['id']}/events")).json()["events"]
        assert [event["seq"] for event in events] == list(range(1, 7))
        assert events[-1]["to_status"] == events[-1]["session_status"] == "TERMINATED"
        headers = {"Accept": "text/event-stream", "Last-Event-ID": "4"}
        stream = await served.user.get(f"/v1/sessions/{view['id']}/events", headers=headers)
        assert [line for line in stream.text.splitlines() if line.startswith("id:")] == ["id: 5", "id: 6"]

    async def test_the_kept_log_is_the_containers_own_with_what_is_no_text_replaced(self, served: Served) -> None:
        view = await served.create()
        await run_to_the_end(served, view["id"], log="é漢🙂\n".encode() * 1000 + b"\xff\xfe\xe9")
        text = (await served.user.get(f"/v1/sessions/{view['id']}/logs")).text
        assert text == "é漢🙂\n" * 1000 + "\ufffd\ufffd\ufffd"
        last = (await served.user.get(f"/v1/sessions/{view['id']}/logs?tail=2")).text
        assert last == "é漢🙂\n\ufffd\ufffd\ufffd"

    async def test_a_character_split_between_live_pages_is_whole(self, served: Served) -> None:
        view = await served.create()
        records = StoreRecords(served.database)
        await records.record_agent(RecordAgent(facts=FACTS))
        await records.place(Place(session_id=view["id"]))
        path = [Status.PREPARING, Status.PREPARED, Status.CREATING, Status.RUNNING]
        steps = [Transition(kernel=0, from_status=a, to_status=b) for a, b in itertools.pairwise(path)]
        await records.record(Record(session_id=view["id"], transitions=tuple(steps)))
        data = "漢".encode()
        for offset, piece in ((0, data[:1]), (1, data[1:])):
            page = LogPage(packed=LogTail.of(piece, total_bytes=9).packed, next_offset=offset + len(piece), ended=False)
            served.workflows.pages[offset] = page
        assert (await served.user.get(f"/v1/sessions/{view['id']}/logs")).text == "漢"

    async def test_an_agent_shows_what_is_free(self, served: Served) -> None:
        facts = replace(FACTS, agent_id="a2")
        await StoreRecords(served.database).record_agent(RecordAgent(facts=facts))
        agent = (await served.user.get("/v1/agents/a2")).json()
        assert (agent["status"], agent["cpu"], agent["cpu_free"]) == ("ONLINE", 64.0, 64.0)
        assert (await served.user.get("/v1/agents/none")).status_code == 404


async def test_health_and_readiness(served: Served) -> None:
    assert (await served.nobody.get("/healthz")).json()["status"] == "ok"
    assert (await served.nobody.get("/readyz")).status_code == 200
    served.workflows.away = True
    answer = await served.nobody.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["temporal"]) == (503, "no answer")
