"""From a session's spec to what the engine is asked to create."""

from collections import defaultdict
from typing import Any, Final

import docker

from towline.domain.containers import StartContainer
from towline.domain.ids import container_labels, container_name, kernel_name
from towline.domain.pulls.stores import StoreKind
from towline.domain.sessions import Network, Port, SessionSpec

_BYTE_EXACT_LOG: Final = {
    "Type": "local",
    "Config": {"max-size": "50m", "max-file": "5", "compress": "false"},
}
"""The engine's default, `json-file`, is not byte-exact: it keeps UTF-8 text, and replaces all else, also a character that it
cuts in two after 16 KiB without a newline. And it grows without end: here the last 250 MB are kept. (Before Docker 23 this
one has a fault, too, and a smaller one: it loses the newline that ends a line of more than 16 KiB.)"""


def creation(
    client: docker.APIClient,
    request: StartContainer,
    *,
    fleet_id: str,
    cpu_max: float,
    store: StoreKind,
    network_id: str | None = None,
) -> dict[str, Any]:
    """The arguments of `create_container`. `cpu_max`: cores of the host; `network_id`: the session's own network. Environment
    values pass byte for byte; nothing goes through a shell. No ulimit is set: raising one above the host's own limit makes
    the start fail."""
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
        "host_config": client.create_host_config(**_host_config(spec, cpu_max, store, network_id)),
        **(_in_network(request.kernel, network_id) if network_id else {}),
    }


def _in_network(kernel: int, network_id: str) -> dict[str, Any]:
    name = kernel_name(kernel)
    return {"hostname": name, "networking_config": {"EndpointsConfig": {network_id: {"Aliases": [name]}}}}


def _environment(request: StartContainer) -> dict[str, str]:
    spec = request.spec
    ours = {
        "TOWLINE_SESSION_ID": spec.session_id,
        "TOWLINE_KERNEL_INDEX": str(request.kernel),
        "TOWLINE_KERNEL_ROLE": "main" if request.kernel == 0 else "worker",
        "TOWLINE_KERNELS": str(spec.kernels),
    }
    if spec.has_own_network:
        ours["TOWLINE_PEERS"] = ",".join(map(kernel_name, range(spec.kernels)))
    return {**ours, **spec.env}


def _host_config(spec: SessionSpec, cpu_max: float, store: StoreKind, network_id: str | None) -> dict[str, Any]:
    resources = spec.resources
    # `default` is the engine's bridge where it has one; naming `bridge` fails on an engine that has none.
    network = "default" if spec.network is Network.BRIDGE else spec.network.value
    return {
        "network_mode": network_id or network,
        # More than the host has is no limit, and the engine refuses it. An agent may be set to lend more than it has.
        "nano_cpus": round(min(resources.cpu, cpu_max) * 1_000_000_000),
        "mem_limit": resources.memory_bytes,
        # Without this a container may take as much again from swap.
        "memswap_limit": resources.memory_bytes,
        "shm_size": resources.shm_bytes,
        "port_bindings": _port_bindings(spec.ports),
        "mounts": [
            {"Type": "volume", "Source": mount.volume, "Target": mount.target, "ReadOnly": mount.read_only}
            for mount in spec.mounts
        ],
        "device_requests": (
            [{"Driver": "", "Count": resources.gpu, "Capabilities": [["gpu"]]}] if resources.gpu else None
        ),
        # Podman has no such driver; its own keeps bytes.
        "log_config": None if store is StoreKind.PODMAN else _BYTE_EXACT_LOG,
    }


def _port_bindings(ports: tuple[Port, ...]) -> dict[str, list[int | None]]:
    """Published on all of the host's addresses, as `docker run -p` does; None lets the engine choose."""
    bindings: defaultdict[str, list[int | None]] = defaultdict(list)
    for port in ports:
        bindings[f"{port.container_port}/{port.protocol}"].append(port.host_port)
    return dict(bindings)
