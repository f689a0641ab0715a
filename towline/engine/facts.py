"""What an agent says of itself."""

import uuid
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from towline.domain.agents import AgentFacts
from towline.engine.client import Engine, store_kind_of

_GPU_RUNTIME: Final = "nvidia"


class Said(TypedDict, total=False):
    """What the agent's settings say of it."""

    labels: dict[str, str]
    resource_group: str
    grace_seconds: float
    running_grace_seconds: float


async def engine_facts(
    engine: Engine,
    *,
    agent_id: str,
    boot_id: str,
    cpu: float | None = None,
    memory_bytes: int | None = None,
    gpu: int | None = None,
    devices: Path = Path("/dev"),
    **said: Unpack[Said],
) -> AgentFacts:
    """Detected capacity, or what was set (cores, bytes, whole GPUs); `said` as it is. Raises `EngineError` when the engine
    does not answer now, whatever it has answered before."""
    await engine.probe()
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
        **said,
    )


def new_boot_id() -> str:
    """Names this life of the agent's process."""
    return uuid.uuid4().hex


def _gpus(info: dict[str, Any], devices: Path) -> int:
    """GPUs count only where the engine has a runtime for them. It does not tell how many there are: this machine does."""
    if _GPU_RUNTIME not in (info.get("Runtimes") or {}):
        return 0
    return sum(1 for _ in devices.glob("nvidia[0-9]*"))
