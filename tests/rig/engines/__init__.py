"""Real Docker Engines for tests."""

from tests.rig.engines.engine import Engine, EngineOptions
from tests.rig.engines.flavours import classic_engine, containerd_engine
from tests.rig.engines.proxy_socket import ProxySocket

__all__ = ["Engine", "EngineOptions", "ProxySocket", "classic_engine", "containerd_engine"]
