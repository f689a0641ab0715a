"""Free loopback ports."""

import socket


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now. Another process may take it first: bind it soon."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
