"""Free loopback ports, and an address beside the loopback."""

import socket


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now. Another process may take it first: bind it soon."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_address() -> str:
    """An address of this machine that is not a loopback one; nothing is sent. Raises `OSError` when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address
