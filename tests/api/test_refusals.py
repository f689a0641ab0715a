"""Bad input: a clear 4xx problem document that names the field, and nothing stored or started."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.conftest import Served

HEX63 = "a" * 63
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("unknown field", {"imagee": "x"}, "imagee"),
    ("unknown nested field", {"resources": {"cpus": 1}}, "resources.cpus"),
    ("unknown kind", {"kind": "daemon"}, "kind"),
    ("unknown pull policy", {"pull_policy": "sometimes"}, "pull_policy"),
    ("uppercase repository", {"image": "127.0.0.1:5000/App"}, "image"),
    ("empty tag", {"image": "busybox:"}, "image"),
    ("63-hex digest", {"image": f"busybox@sha256:{HEX63}"}, "image"),
    ("64-hex name", {"image": "a" * 64}, "image"),
    ("image id", {"image": f"sha256:{'a' * 64}"}, "image"),
    ("empty image", {"image": ""}, "image"),
    ("emoji", {"image": "🔥"}, "image"),
    ("a command", {"image": "docker pull busybox"}, "image"),
    ("an address", {"image": "https://127.0.0.1:5000/app"}, "image"),
    ("NUL in the image", {"image": "busy\x00box"}, "image"),
    ("no cpu", {"resources": {"cpu": 0}}, "resources.cpu"),
    ("negative cpu", {"resources": {"cpu": -1}}, "resources.cpu"),
    ("absurd cpu", {"resources": {"cpu": 1e9}}, "resources.cpu"),
    ("text cpu", {"resources": {"cpu": "many"}}, "resources.cpu"),
    ("memory too small", {"resources": {"memory": "5m"}}, "resources.memory"),
    ("memory zero", {"resources": {"memory": 0}}, "resources.memory"),
    ("negative memory", {"resources": {"memory": -1}}, "resources.memory"),
    ("negative memory text", {"resources": {"memory": "-1g"}}, "resources.memory"),
    ("empty memory", {"resources": {"memory": ""}}, "resources.memory"),
    ("word", {"resources": {"memory": "abc"}}, "resources.memory"),
    ("nang", {"resources": {"memory": "nang"}}, "resources.memory"),
    ("infg", {"resources": {"memory": "infg"}}, "resources.memory"),
    ("1e30g", {"resources": {"memory": "1e30g"}}, "resources.memory"),
    ("absurd memory", {"resources": {"memory": "900t"}}, "resources.memory"),
    ("blank in memory", {"resources": {"memory": "128 m"}}, "resources.memory"),
    ("true as memory", {"resources": {"memory": True}}, "resources.memory"),
    ("negative gpu", {"resources": {"gpu": -1}}, "resources.gpu"),
    ("NUL in env", {"env": {"A": "b\x00"}}, "env.A"),
    ("empty env name", {"env": {"": "b"}}, "env"),
    ("= in env name", {"env": {"A=B": "c"}}, "env"),
    ("large env", {"env": {"A": "x" * 300_000}}, "env"),
    ("env value of a number", {"env": {"A": 1}}, "env.A"),
    ("command as text", {"command": "echo hi"}, "command"),
    ("empty command", {"command": []}, "command"),
    ("NUL in command", {"command": ["a\x00b"]}, "command.0"),
    ("no kernels", {"kernels": 0}, "kernels"),
    ("absurd kernels", {"kernels": 10_000}, "kernels"),
    ("priority", {"priority": 101}, "priority"),
    ("host path", {"mounts": [{"volume": "/", "target": "/host"}]}, "mounts.0.volume"),
    ("relative target", {"mounts": [{"volume": "v", "target": "x"}]}, "mounts.0.target"),
    ("port", {"ports": [{"container_port": 70000}]}, "ports.0.container_port"),
    ("reserved label", {"labels": {"io.towline.session": "x"}}, "labels"),
    ("time limit", {"time_limit": -1}, "time_limit"),
    ("name", {"name": "-a"}, "name"),
    ("agent", {"agent": "A B"}, "agent"),
    ("working directory", {"working_dir": "x"}, "working_dir"),
    ("platform", {"platform": "amd64"}, "platform"),
    ("resource group", {"resource_group": "a b"}, "resource_group"),
    ("a time without a zone", {"starts_at": "2026-12-31T18:00:00"}, "starts_at"),
    ("a time in ages", {"starts_at": "2999-01-01T00:00:00Z"}, "starts_at"),
    ("a time before all others", {"starts_at": "0001-01-01T00:00:00+14:00"}, "starts_at"),
    ("a time that is none", {"starts_at": "soon"}, "starts_at"),
    ("what is no session", {"depends_on": ["x"]}, "depends_on.0"),
    ("a session named twice", {"depends_on": ["ses-0123456789abcdef"] * 2}, "depends_on"),
    ("no such session", {"depends_on": ["ses-0123456789abcdef"]}, "depends_on"),
    ("agent labels", {"agent_labels": {"": "x"}}, "agent_labels"),
]


@pytest.mark.parametrize(("what", "fields", "named"), REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_refused_field_is_named_and_nothing_is_stored(
    served: Served, what: str, fields: dict[str, Any], named: str
) -> None:
    answer = await served.user.post("/v1/sessions", json={"image": "busybox", **fields})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["reason"] == "invalid-input"
    assert [found["field"] for found in problem["errors"]] == [named]
    assert problem["errors"][0]["problem"]
    assert await served.count() == 0
    assert not served.workflows.started


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b'{"image": "busybox", "env": {"A": "\\ud800"}}', 422),
        (b'{"image": "\\ud800"}', 422),
        (b'{"image": "busybox", "resources": {"cpu": NaN}}', 422),
        (b'{"image": "busybox", "resources": {"cpu": 1e999}}', 422),
        (b'{"image": "busybox", "env": {"A": "' + b"x" * 3_000_000 + b'"}}', 413),
        (b"\xff\xfe", 400),
    ],
)
async def test_a_body_that_is_none_is_refused(served: Served, body: bytes, status: int) -> None:
    answer = await served.user.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert await served.count() == 0


async def test_a_body_that_is_not_said_to_be_json_is_told_so(served: Served) -> None:
    body, kind = b'{"image": "busybox"}', {"Content-Type": "text/plain"}
    answer = await served.user.post("/v1/sessions", content=body, headers=kind)
    assert (answer.status_code, answer.json()["reason"]) == (415, "unsupported-media-type")
    assert "Content-Type: application/json" in answer.json()["detail"]
    assert await served.count() == 0


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ([], "body: give a JSON object"),
        ({}, "image: it is required"),
        ({"image": ""}, "image: It is empty. Name an image"),
        ({"image": "a", "platform": "x"}, "platform: give os/architecture, such as linux/amd64 or linux/arm64/v8"),
        ({"image": "a", "working_dir": "x"}, "working_dir: give an absolute path, such as /data"),
        ({"image": "a", "name": "b\n"}, "name: up to 63 letters, digits, dots, dashes and underscores"),
        (
            {"image": "a", "ports": [{"container_port": 1, "protocol": "x"}]},
            "ports.0.protocol: Input should be 'tcp' or",
        ),
    ],
)
async def test_a_refusal_says_what_is_wanted(served: Served, body: Any, detail: str) -> None:
    answer = await served.user.post("/v1/sessions", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail), answer.text


@pytest.mark.parametrize("path", ["/v1/sessions?nosuch=1", "/v1/agents?x=", "/v1/sessions?limit=1&Status=RUNNING"])
async def test_an_unknown_parameter_is_refused(served: Served, path: str) -> None:
    answer = await served.admin.get(path)
    assert answer.status_code == 422, answer.text
    assert "there is no such parameter" in answer.json()["detail"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_paths_and_methods_are_problems(served: Served, method: str) -> None:
    unknown = await served.user.request(method, "/v1/nothing")
    assert (unknown.status_code, unknown.json()["reason"]) == (404, "not-found")
    wrong = await served.user.put("/v1/sessions", json={})
    assert (wrong.status_code, wrong.json()["reason"]) == (405, "method-not-allowed")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "status=GONE", "cursor=!!", "cursor=AAAA", "label=x", "image=A:b:c"]
)
async def test_a_refused_query_is_named(served: Served, query: str) -> None:
    answer = await served.user.get(f"/v1/sessions?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].split(".")[0] == query.partition("=")[0]


@pytest.mark.parametrize("path", ["/v1/sessions?owner=%00", "/v1/sessions?label=a%00=b", "/v1/sessions?agent=%00"])
async def test_a_nul_byte_in_a_query_is_refused(served: Served, path: str) -> None:
    answer = await served.user.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.parametrize("path", ["/v1/agents/%00", "/v1/pulls/%00", "/v1/users/%00/tokens"])
async def test_a_nul_byte_in_a_path_names_nothing(served: Served, path: str) -> None:
    assert (await served.admin.get(path)).status_code == 404


@pytest.mark.parametrize("session_id", ["x", "ses-0000000000000000", "%00", "a" * 500, "%F0%9F%94%A5"])
async def test_an_unknown_session_is_404_whatever_is_asked(served: Served, session_id: str) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", "/cancel"),
        ("POST", "/terminate"),
        ("GET", "/events"),
        ("GET", "/logs"),
    ):
        answer = await served.user.request(method, f"/v1/sessions/{session_id}{path}")
        assert answer.status_code == 404, (path, answer.text)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = (
    "image",
    "kind",
    "command",
    "env",
    "resources",
    "kernels",
    "ports",
    "mounts",
    "labels",
    "time_limit",
    "agent",
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=st.dictionaries(st.sampled_from(_FIELDS), _ANY, max_size=4))
async def test_no_body_is_answered_with_an_error_of_ours(served: Served, fields: dict[str, Any]) -> None:
    body = json.dumps({"image": "busybox", **fields}).encode()
    answer = await served.user.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (201, 422), answer.text
