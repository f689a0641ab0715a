"""Changing rules and reading counts over HTTP, by hand: below `/_faults/` on the proxy's own port."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from tests.rig.faults.credentials import TOKEN_PATH
from tests.rig.faults.kinds import RequireBearer
from tests.rig.faults.proxy import FaultProxy
from tests.rig.faults.rules import ActiveRule, Rule
from tests.rig.faults.traffic import Traffic

ADMIN_PATH: Final = "/_faults/"


def rule_from_json(text: str | bytes) -> Rule:
    """A rule such as `{"path": "*/blobs/*", "last": 1, "fault": {"kind": "stall", "after_bytes": 1000}}`.

    Raises `pydantic.ValidationError`, which says what is wrong.
    """
    return TypeAdapter(Rule).validate_json(text)


async def administer(proxy: FaultProxy, request: web.BaseRequest) -> web.Response:
    """`GET`, `POST` and `DELETE` (all, or `?number=N`) of `/_faults/rules`; `GET` and `DELETE` of `/_faults/stats`; the token endpoint."""
    match request.method, request.path:
        case "GET", "/_faults/rules":
            return web.json_response([_shown(active) for active in proxy.book.active])
        case "POST", "/_faults/rules":
            return await _add(proxy, request)
        case "DELETE", "/_faults/rules":
            return _remove(proxy, request.query.get("number"))
        case "GET", "/_faults/stats":
            return web.json_response(Traffic.of_all(proxy.exchanges).as_json())
        case "DELETE", "/_faults/stats":
            proxy.exchanges.clear()
            return web.Response(status=204)
        case "GET" | "POST", path if path == TOKEN_PATH:
            return await _token(proxy, request)
        case _:
            return web.Response(
                status=404, text="there are /_faults/rules (GET, POST, DELETE) and /_faults/stats (GET, DELETE)\n"
            )


def _shown(active: ActiveRule) -> dict[str, object]:
    return {"number": active.number, "met": active.met, "struck": active.struck, "rule": asdict(active.rule)}


async def _add(proxy: FaultProxy, request: web.BaseRequest) -> web.Response:
    try:
        rule = rule_from_json(await request.read())
    except ValidationError as error:
        return web.Response(status=400, text=f"{error}\n")
    return web.json_response(_shown(proxy.book.add(rule)), status=201)


def _remove(proxy: FaultProxy, number: str | None) -> web.Response:
    try:
        if number is None:
            proxy.book.clear()
        else:
            proxy.book.remove(int(number))
    except (LookupError, ValueError) as error:
        return web.Response(status=404, text=f"{error}\n")
    return web.Response(status=204)


async def _token(proxy: FaultProxy, request: web.BaseRequest) -> web.Response:
    faults = (active.rule.fault for active in proxy.book.active)
    fault = next((fault for fault in faults if isinstance(fault, RequireBearer)), None)
    if fault is None:
        return web.Response(status=404, text="no rule asks for tokens\n")
    fields: Mapping[str, str] = request.query
    if request.method == "POST":
        fields = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
    status, body = proxy.tokens.give(fault, fields, request.headers.get("Authorization", ""))
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")
