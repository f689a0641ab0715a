"""From a session's spec to what the engine is asked to create."""

from typing import Any

import docker

from towline.domain.containers import StartContainer
from towline.domain.ids import container_labels, container_name
from towline.domain.sessions import Network, SessionSpec


def creation(client: docker.APIClient, request: StartContainer, *, fleet_id: str) -> dict[str, Any]:
    """The arguments of `create_container`. Environment values pass byte for byte; nothing goes through a shell."""
    spec = request.spec
    labels = container_labels(
        fleet_id=fleet_id,
        agent_id=request.agent_id,
        session_id=spec.session_id,
        kernel=request.kernel,
        owner=spec.owner,
    )
    return {
        "image": request.image_ref,
        "name": container_name(spec.session_id, request.kernel),
        "command": None if spec.command is None else list(spec.command),
        "entrypoint": None if spec.entrypoint is None else list(spec.entrypoint),
        "working_dir": spec.working_dir,
        "tty": spec.tty,
        "environment": [f"{key}={value}" for key, value in _environment(request).items()],
        "labels": {**spec.labels, **labels},
        "ports": [(port.container_port, port.protocol) for port in spec.ports],
        "host_config": client.create_host_config(**_host_config(spec)),
    }


def _environment(request: StartContainer) -> dict[str, str]:
    spec = request.spec
    ours = {
        "TOWLINE_SESSION_ID": spec.session_id,
        "TOWLINE_KERNEL_INDEX": str(request.kernel),
        "TOWLINE_KERNELS": str(spec.kernels),
    }
    return {**ours, **spec.env}


def _host_config(spec: SessionSpec) -> dict[str, Any]:
    resources = spec.resources
    return {
        # `default` is the engine's bridge where it has one; naming `bridge` fails on an engine that has none.
        "network_mode": "default" if spec.network is Network.BRIDGE else spec.network.value,
        "nano_cpus": round(resources.cpu * 1_000_000_000),
        "mem_limit": resources.memory_bytes,
        # Without this a container may take as much again from swap.
        "memswap_limit": resources.memory_bytes,
        "shm_size": resources.shm_bytes,
        "port_bindings": {f"{port.container_port}/{port.protocol}": port.host_port for port in spec.ports},
        "mounts": [
            {"Type": "volume", "Source": mount.volume, "Target": mount.target, "ReadOnly": mount.read_only}
            for mount in spec.mounts
        ],
        "device_requests": (
            [{"Driver": "", "Count": resources.gpu, "Capabilities": [["gpu"]]}] if resources.gpu else None
        ),
        "log_config": {"Type": "json-file", "Config": {}},
    }
