"""A Docker client whose connections can be broken from outside, at any moment.

The HTTP connection is the pull: closing it is the only way to cancel. `response.close()` waits for the reader's lock while
the reader waits for the engine, and before the response headers have come there is no response to close. So the client owns
its sockets: each is registered when it connects, and `abort` shuts it down, which wakes the reader within a millisecond.
"""

import contextlib
import socket
import threading
from typing import Any, Final

import docker
import requests.adapters
import urllib3
import urllib3.connection
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

_CONNECT_TIMEOUT_SECONDS: Final = 10
"""For connecting alone: until then there is no socket to shut down. What is connected may be silent for as long as it likes."""


class OwnedSockets:
    """The sockets of one client. After `abort`, a socket that connects is shut down at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._aborted = False

    @property
    def aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted

    def register(self, sock: socket.socket | None) -> None:
        """Take over a socket that has just connected."""
        if sock is None:
            return
        with self._lock:
            self._sockets.add(sock)
            if self._aborted:
                _shut_down(sock)

    def abort(self) -> None:
        """Break every connection, now and later. Does not block; may be called from any thread, and twice."""
        with self._lock:
            self._aborted = True
            for sock in self._sockets:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    # A socket that the engine has closed already says so; that is what was wanted.
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class _UnixConnection(UnixHTTPConnection):
    def __init__(self, owner: OwnedSockets, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner = owner

    def connect(self) -> None:
        self.timeout = _CONNECT_TIMEOUT_SECONDS
        super().connect()
        self._owner.register(self.sock)


class _UnixPool(UnixHTTPConnectionPool):
    def __init__(self, owner: OwnedSockets, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner = owner

    def _new_conn(self) -> Any:
        return _UnixConnection(self._owner, self.base_url, self.socket_path, self.timeout)


class _UnixAdapter(UnixHTTPAdapter):
    def __init__(self, owner: OwnedSockets, socket_url: str) -> None:
        self._owner = owner
        super().__init__(socket_url, timeout=_CONNECT_TIMEOUT_SECONDS)

    def get_connection(self, url: Any, proxies: Any = None) -> Any:  # noqa: ARG002  # the name is in the base class
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _UnixPool(self._owner, url, self.socket_path, self.timeout)
            return pool


class _TcpAdapter(requests.adapters.HTTPAdapter):
    def __init__(self, owner: OwnedSockets) -> None:
        self._owner = owner
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        owner = self._owner

        class Connection(urllib3.connection.HTTPConnection):
            def connect(self) -> None:
                self.timeout = _CONNECT_TIMEOUT_SECONDS
                super().connect()
                owner.register(self.sock)

        class Pool(urllib3.HTTPConnectionPool):
            ConnectionCls = Connection  # pyright: ignore[reportAssignmentType]  # as urllib3 documents it

        self.poolmanager.pool_classes_by_scheme = {"http": Pool, "https": urllib3.HTTPSConnectionPool}


def abortable_client(url: str, version: str) -> tuple[docker.APIClient, OwnedSockets]:
    """A client for one pull, with its sockets. `version` of the Docker API, as negotiated before."""
    owner = OwnedSockets()
    client = docker.APIClient(base_url=url, version=version, timeout=_CONNECT_TIMEOUT_SECONDS)
    if url.startswith("unix://"):
        client.mount("http+docker://", _UnixAdapter(owner, url.replace("unix://", "http+unix://", 1)))
    else:
        client.mount("http://", _TcpAdapter(owner))
    return client, owner
