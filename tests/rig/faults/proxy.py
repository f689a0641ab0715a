"""The proxy's handler: an exchange from the request to its end, with the faults in their order."""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from tests.rig.faults.credentials import TokenDesk, basic_refusal
from tests.rig.faults.kinds import (
    Answer,
    Delay,
    Garbage,
    IgnoreRange,
    NeverAnswer,
    RequireBasic,
    RequireBearer,
    WrongLength,
)
from tests.rig.faults.pacing import pause
from tests.rig.faults.rules import RuleBook, Struck
from tests.rig.faults.sending import CutHere, Sender, reset
from tests.rig.faults.traffic import Ending, Exchange

_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_RANGE_START: Final = re.compile(r"bytes (\d+)-")


class FaultProxy:
    """Passes requests on to `upstream` ("127.0.0.1:PORT"), as `book` allows. Belongs to one event loop, from `open` to `close`."""

    def __init__(self, upstream: str) -> None:
        self.book: Final = RuleBook()
        self.exchanges: list[Exchange] = []
        self.tokens: Final = TokenDesk()
        self._upstream: Final = URL(f"http://{upstream}")
        self._numbers = 0
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Get ready to speak to the registry."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Drop all connections to the registry."""
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One exchange. Cancelled, by the server, when the client leaves."""
        exchange = self._begin(request)
        try:
            return await self._exchange(request, exchange)
        except CutHere as cut:
            exchange.end(Ending.CUT)
            return _ended(request, with_reset=cut.with_reset)
        except (asyncio.CancelledError, aiohttp.ClientConnectionResetError, ConnectionError):
            exchange.end(Ending.CLIENT_LEFT)
            raise
        except aiohttp.ClientError as error:
            exchange.end(Ending.UPSTREAM_FAILED)
            return web.Response(status=502, text=f"fault registry: {error}")

    def _begin(self, request: web.BaseRequest) -> Exchange:
        self._numbers += 1
        exchange = Exchange(
            number=self._numbers,
            method=request.method,
            path=request.path,
            range=request.headers.get("Range", ""),
            authorized="Authorization" in request.headers,
            started_at=time.monotonic(),
        )
        self.exchanges.append(exchange)
        return exchange

    async def _exchange(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        struck = Struck(self.book, request.method, request.path)
        answer = await self._before_answer(request, struck)
        if answer is not None:
            response = web.StreamResponse(status=answer.status, headers=answer.headers)
            response.content_length = len(answer.body.encode())
            return await _relay(request, response, struck, exchange, _once(answer.body.encode()))
        async with self._forwarded(request, struck) as upstream:
            response = web.StreamResponse(
                status=upstream.status, reason=upstream.reason, headers=_end_to_end(upstream.headers)
            )
            return await _relay(request, response, struck, exchange, upstream.content.iter_any())

    async def _before_answer(self, request: web.BaseRequest, struck: Struck) -> Answer | None:
        authorization = request.headers.get("Authorization", "")
        for active in struck.now():
            answer = None
            match active.rule.fault:
                case Delay(seconds=seconds):
                    await pause(seconds)
                case NeverAnswer():
                    await active.released.wait()
                case RequireBasic() as fault:
                    answer = basic_refusal(fault, authorization)
                case RequireBearer() as fault:
                    answer = self.tokens.refusal(fault, authorization, host=request.host, path=request.path)
                case Answer() as fault:
                    answer = fault
                case _:
                    pass
            if answer is not None:
                return answer
        return None

    def _forwarded(self, request: web.BaseRequest, struck: Struck) -> "aiohttp.client._RequestContextManager":
        assert self._session is not None
        headers = _end_to_end(request.headers)
        rules = [active.rule.fault for active in struck.now()]
        if any(isinstance(fault, IgnoreRange) for fault in rules):
            headers.pop("Range", None)
        if any(isinstance(fault, RequireBasic | RequireBearer) for fault in rules):
            # What opened our door is nothing to the registry behind it.
            headers.pop("Authorization", None)
        return self._session.request(
            request.method,
            self._upstream.join(request.rel_url),
            headers=headers,
            data=request.content if request.can_read_body else None,
            allow_redirects=False,
        )


async def _relay(
    request: web.BaseRequest,
    response: web.StreamResponse,
    struck: Struck,
    exchange: Exchange,
    body: AsyncIterator[bytes],
) -> web.StreamResponse:
    faults = [active.rule.fault for active in struck.now()]
    off = next((fault.by for fault in faults if isinstance(fault, WrongLength)), 0)
    if off and response.content_length is not None:
        response.content_length += off
    exchange.status = response.status
    writer = await response.prepare(request)
    assert writer is not None
    writer.send_headers()
    if request.method != "HEAD":
        spoil = _noise if any(isinstance(fault, Garbage) for fault in faults) else _as_it_is
        started = _RANGE_START.match(response.headers.get("Content-Range", ""))
        sender = Sender(response, writer, struck, exchange, offset=int(started.group(1)) if started else 0)
        async for data in body:
            await sender.send(spoil(data))
    if off:
        raise CutHere(with_reset=False)
    await response.write_eof()
    exchange.end(Ending.DONE)
    return response


def _ended(request: web.BaseRequest, *, with_reset: bool) -> web.StreamResponse:
    if with_reset:
        reset(request)
    elif request.transport is not None:
        request.transport.close()
    # Nobody will see it: the connection is gone.
    return web.Response()


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _as_it_is(data: bytes) -> bytes:
    return data


def _noise(data: bytes) -> bytes:
    return random.Random(len(data)).randbytes(len(data))


def _end_to_end(headers: "CIMultiDict[str] | aiohttp.typedefs.LooseHeaders") -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in CIMultiDict(headers).items() if name.lower() not in _HOP_BY_HOP)
