"""What an agent says of itself."""

import uuid

from towline.domain.records import AgentFacts
from towline.engine.client import Engine, store_kind_of


async def engine_facts(
    engine: Engine,
    *,
    agent_id: str,
    boot_id: str,
    cpu: float | None = None,
    memory_bytes: int | None = None,
    labels: dict[str, str] | None = None,
) -> AgentFacts:
    """Detected capacity, or what was set (cores, bytes). A GPU is counted only where the engine has a runtime for it, and
    then must be set: the engine does not tell how many there are. Raises `EngineError`."""
    info = await engine.info()
    return AgentFacts(
        agent_id=agent_id,
        boot_id=boot_id,
        cpu=cpu if cpu is not None else float(info.get("NCPU", 1)),
        memory_bytes=memory_bytes if memory_bytes is not None else int(info.get("MemTotal", 0)),
        platform=await engine.platform(),
        engine_version=str(info.get("ServerVersion", "")),
        store_kind=store_kind_of(info),
        labels=labels or {},
    )


def new_boot_id() -> str:
    """Names this life of the agent's process."""
    return uuid.uuid4().hex
