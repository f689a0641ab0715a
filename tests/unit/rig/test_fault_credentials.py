"""What opens the doors of a fault registry."""

import base64

from tests.rig.faults import RequireBasic, RequireBearer
from tests.rig.faults.credentials import TokenDesk, basic_refusal

_FAULT = RequireBearer(user="u", password="p", repositories=("team/*",))
_HOST = "127.0.0.1:5000"


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _token(desk: TokenDesk, fault: RequireBearer, scope: str) -> str:
    status, body = desk.give(fault, {"scope": scope}, _basic("u", "p"))
    assert status == 200
    return f"Bearer {body['token']}"


def test_basic_takes_the_one_account() -> None:
    fault = RequireBasic(user="u", password="p:q")
    assert basic_refusal(fault, _basic("u", "p:q")) is None
    for wrong in ("", "Basic !!!", "Bearer x", _basic("u", "p"), _basic("x", "p:q")):
        refusal = basic_refusal(fault, wrong)
        assert refusal is not None
        assert (refusal.status, refusal.headers["WWW-Authenticate"][:5]) == (401, "Basic")


def test_the_challenge_names_endpoint_and_scope() -> None:
    refusal = TokenDesk().refusal(_FAULT, "", host=_HOST, path="/v2/team/app/manifests/1")
    assert refusal is not None
    challenge = refusal.headers["WWW-Authenticate"]
    assert f'realm="http://{_HOST}/_faults/token"' in challenge
    assert 'scope="repository:team/app:pull"' in challenge


def test_another_realm_may_be_named() -> None:
    refusal = TokenDesk().refusal(RequireBearer(realm="http://127.0.0.1:9/t"), "", host=_HOST, path="/v2/")
    assert refusal is not None
    assert 'realm="http://127.0.0.1:9/t"' in refusal.headers["WWW-Authenticate"]


def test_a_token_opens_its_repository_and_the_ping_alone() -> None:
    desk = TokenDesk()
    token = _token(desk, _FAULT, "repository:team/app:pull")
    assert desk.refusal(_FAULT, token, host=_HOST, path="/v2/team/app/blobs/sha256:0") is None
    assert desk.refusal(_FAULT, token, host=_HOST, path="/v2/") is None
    assert desk.refusal(_FAULT, token, host=_HOST, path="/v2/team/other/blobs/sha256:0") is not None


def test_a_repository_outside_the_globs_gets_a_token_that_does_not_open_it() -> None:
    desk = TokenDesk()
    token = _token(desk, _FAULT, "repository:secret/app:pull")
    assert desk.refusal(_FAULT, token, host=_HOST, path="/v2/secret/app/manifests/1") is not None


def test_a_token_ends() -> None:
    desk, brief = TokenDesk(), RequireBearer(user="u", password="p", token_seconds=0)
    token = _token(desk, brief, "repository:team/app:pull")
    assert desk.refusal(brief, token, host=_HOST, path="/v2/team/app/manifests/1") is not None


def test_a_wrong_password_gets_no_token() -> None:
    assert TokenDesk().give(_FAULT, {"scope": "repository:team/app:pull"}, _basic("u", "x"))[0] == 401
    assert TokenDesk().give(_FAULT, {"scope": "repository:team/app:pull"}, "")[0] == 401


def test_the_oauth_form_carries_the_account_in_its_fields() -> None:
    fields = {"username": "u", "password": "p", "scope": "repository:team/app:pull"}
    assert TokenDesk().give(_FAULT, fields, "")[0] == 200
    assert TokenDesk().give(_FAULT, {**fields, "password": "x"}, "")[0] == 401


def test_anybody_gets_a_token_where_no_account_is_asked_for() -> None:
    assert TokenDesk().give(RequireBearer(), {"scope": "repository:a:pull"}, "")[0] == 200
