"""Real Docker Engines for tests."""

from tests.rig.engines.engine import Engine, EngineOptions
from tests.rig.engines.flavours import classic_engine, containerd_engine

__all__ = ["Engine", "EngineOptions", "classic_engine", "containerd_engine"]
