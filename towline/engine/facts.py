"""What an agent says of itself."""

import uuid
from pathlib import Path
from typing import Any, Final

from towline.domain.records import AgentFacts
from towline.engine.client import Engine, store_kind_of

_GPU_RUNTIME: Final = "nvidia"


async def engine_facts(
    engine: Engine,
    *,
    agent_id: str,
    boot_id: str,
    cpu: float | None = None,
    memory_bytes: int | None = None,
    gpu: int | None = None,
    labels: dict[str, str] | None = None,
    devices: Path = Path("/dev"),
) -> AgentFacts:
    """Detected capacity, or what was set (cores, bytes, whole GPUs). Raises `EngineError`."""
    info = await engine.info()
    return AgentFacts(
        agent_id=agent_id,
        boot_id=boot_id,
        cpu=cpu if cpu is not None else float(info.get("NCPU", 1)),
        memory_bytes=memory_bytes if memory_bytes is not None else int(info.get("MemTotal", 0)),
        gpu=gpu if gpu is not None else _gpus(info, devices),
        platform=await engine.platform(),
        engine_version=str(info.get("ServerVersion", "")),
        store_kind=store_kind_of(info),
        labels=labels or {},
    )


def new_boot_id() -> str:
    """Names this life of the agent's process."""
    return uuid.uuid4().hex


def _gpus(info: dict[str, Any], devices: Path) -> int:
    """GPUs count only where the engine has a runtime for them. It does not tell how many there are: this machine does."""
    if _GPU_RUNTIME not in (info.get("Runtimes") or {}):
        return 0
    return sum(1 for _ in devices.glob("nvidia[0-9]*"))
