"""The checks of `towline doctor`. Each asks one thing, under a deadline, and has a sentence on what to do."""

import asyncio
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from towline.embedded.directory import is_held
from towline.embedded.places import stack_path
from towline.embedded.ports import LOOPBACK, is_free
from towline.embedded.postgres import Postgres, programs_for
from towline.embedded.temporal import NAMESPACE, temporal_program
from towline.errors import TowlineError
from towline.settings import Settings

_SECONDS: Final = 5.0
_GIB: Final = 1024**3
_DATA_FREE_MIN: Final = 1 * _GIB
_IMAGES_FREE_MIN: Final = 5 * _GIB
_PACKAGES: Final = ("towline", "temporalio", "docker", "sqlmodel", "psycopg", "fastapi", "uvicorn")
_DEFAULT_ENGINE: Final = "unix:///var/run/docker.sock"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The outcome of one check. `advice` says what to do; empty when all is well."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def all_checks(settings: Settings, *, docker_host: str | None = None, registry: str | None = None) -> list[Check]:
    """Every check that applies. Without a running stack and without addresses in the settings, it is the embedded stack
    that is checked: whether it could start."""
    addresses = _addresses(settings.data_dir) if is_held(settings.data_dir) else None
    engines = [docker_host] if docker_host else (addresses or {}).get("engines") or [engine_url(settings)]
    checks = [_versions(), *(check for url in engines for check in engine_checks(url)), _disk(settings.data_dir)]
    if registry:
        checks.append(_registry(registry))
    if addresses is not None:
        return [*checks, *_running_stack(settings, addresses)]
    if {"database", "temporal"} & settings.model_fields_set:
        temporal = _temporal(settings.temporal.address, settings.temporal.namespace)
        return [*checks, _postgres(settings.database.url), temporal]
    return [*checks, *_stack_to_start(settings)]


def _running_stack(settings: Settings, addresses: dict[str, Any]) -> list[Check]:
    return [
        _postgres(Postgres(directory=settings.data_dir).url()),
        _temporal(addresses.get("temporal", settings.temporal.address), NAMESPACE),
        _api(addresses.get("api", f"http://{LOOPBACK}:{settings.api.port}")),
    ]


def _stack_to_start(settings: Settings) -> list[Check]:
    return [
        _program("PostgreSQL", partial(programs_for, Postgres(directory=settings.data_dir).data)),
        _program("Temporal", temporal_program),
        _port("the API", settings.api.port, "--api-port"),
        _port("Temporal", 7233, "--temporal-port"),
        _port("Temporal UI", 8233, "--temporal-ui-port"),
    ]


def _versions() -> Check:
    found, missing = [f"Python {platform.python_version()}"], []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    if sys.version_info < (3, 11) or missing:
        advice = "Python 3.11 or newer is needed, with every package of requirements.lock: `make setup` installs them."
        return Check(name="versions", ok=False, detail=f"missing: {', '.join(missing) or 'none'}", advice=advice)
    return Check(name="versions", ok=True, detail=", ".join(found))


def engine_url(settings: Settings) -> str:
    """The engine that an agent serves by default."""
    return settings.agent.docker_host or os.environ.get("DOCKER_HOST") or _DEFAULT_ENGINE


def engine_checks(url: str) -> list[Check]:
    """Whether an engine can be used, and whether it has room for images."""
    try:
        info, unresponsive = asyncio.run(_ask_engine(url))
    except TowlineError as error:
        advice = "Start it (`systemctl start docker`), or name another with --docker-host or DOCKER_HOST."
        return [Check(name="engine", ok=False, detail=error.message, advice=advice)]
    from towline.engine.client import store_kind_of

    detail = f"{info.get('ServerVersion')} at {url}, {store_kind_of(info)} store, storage driver {info.get('Driver')}"
    if unresponsive:
        advice = "It answers some questions and not others: restart it (`systemctl restart docker`)."
        return [Check(name="engine", ok=False, detail=f"{detail}, hangs", advice=advice)]
    checks = [Check(name="engine", ok=True, detail=detail)]
    root = Path(str(info.get("DockerRootDir") or "/nonexistent"))
    if url.startswith("unix://") and root.is_dir():
        checks.append(_free("engine's disk", root, _IMAGES_FREE_MIN, "Remove what is not used: `docker system prune`."))
    return checks


async def _ask_engine(url: str) -> tuple[dict[str, Any], bool]:
    from towline.engine.client import Engine

    engine = Engine(url, call_timeout_seconds=_SECONDS)
    try:
        return await engine.info(), not await engine.responds()
    finally:
        engine.close()


def _registry(registry: str) -> Check:
    import httpx

    where = registry if "://" in registry else f"https://{registry}"
    local = urlsplit(where).hostname in ("localhost", LOOPBACK)
    tries = [where, where.replace("https://", "http://")] if local and "://" not in registry else [where]
    problem = ""
    for url in tries:
        try:
            answer = httpx.get(f"{url.rstrip('/')}/v2/", timeout=_SECONDS)
        except httpx.HTTPError as error:
            problem = f"{url}: {error or type(error).__name__}"
            continue
        # 401: it is there, and wants a login.
        if answer.status_code in (200, 401):
            return Check(name="registry", ok=True, detail=f"answers at {url}")
        problem = f"{url} answers {answer.status_code} to /v2/"
    advice = "Is the name right, and can this machine reach it (proxy, firewall, certificates)?"
    return Check(name="registry", ok=False, detail=problem, advice=advice)


def _disk(directory: Path) -> Check:
    there = next(path for path in (directory, *directory.parents) if path.is_dir())
    return _free("data", there, _DATA_FREE_MIN, "Make room, or choose another directory with --data-dir.", directory)


def _free(name: str, path: Path, least_bytes: int, advice: str, shown: Path | None = None) -> Check:
    free = shutil.disk_usage(path).free
    ok = free >= least_bytes
    detail = f"{free / _GIB:.1f} GiB free at {shown or path}"
    return Check(name=name, ok=ok, detail=detail, advice="" if ok else advice)


def _addresses(directory: Path) -> dict[str, Any]:
    try:
        addresses: dict[str, Any] = json.loads(stack_path(directory).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # It is not up yet.
    return addresses


def _postgres(url: str) -> Check:
    import psycopg

    try:
        with psycopg.connect(url.replace("+psycopg", "", 1), connect_timeout=int(_SECONDS)) as connection:
            version = connection.info.server_version // 10_000
    except psycopg.OperationalError as error:
        advice = "Is it running, and is TOWLINE_DATABASE__URL right?"
        return Check(name="PostgreSQL", ok=False, detail=str(error).splitlines()[0], advice=advice)
    return Check(name="PostgreSQL", ok=True, detail=f"version {version} answers")


def _temporal(address: str, namespace: str) -> Check:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    async def ask() -> None:
        client = await Client.connect(address, namespace=namespace)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))

    try:
        asyncio.run(asyncio.wait_for(ask(), _SECONDS))
    except (RuntimeError, RPCError, TimeoutError) as error:
        advice = "Is it running, and are TOWLINE_TEMPORAL__ADDRESS and __NAMESPACE right?"
        detail = f"{address}, namespace {namespace}: {error or 'no answer'}"
        return Check(name="Temporal", ok=False, detail=detail, advice=advice)
    return Check(name="Temporal", ok=True, detail=f"answers at {address}, namespace {namespace}")


def _api(url: str) -> Check:
    import httpx

    advice = "See the log api.log in the data directory."
    try:
        answer = httpx.get(f"{url}/readyz", timeout=_SECONDS)
    except httpx.HTTPError as error:
        return Check(name="API", ok=False, detail=f"{url}: {error}", advice=advice)
    if not answer.is_success:
        return Check(name="API", ok=False, detail=f"{url} answers {answer.status_code} to /readyz", advice=advice)
    return Check(name="API", ok=True, detail=f"ready at {url}")


def _program(name: str, find: Callable[[], Path]) -> Check:
    try:
        found = find()
    except TowlineError as error:
        return Check(name=name, ok=False, detail=error.message, advice="`make setup` installs what is missing.")
    return Check(name=name, ok=True, detail=f"not running; `towline up` starts {found}")


def _port(name: str, port: int, option: str) -> Check:
    if is_free(port):
        return Check(name=f"port {port}", ok=True, detail=f"free for {name}")
    advice = f"End what listens there, or choose another port with `towline up {option}`."
    return Check(name=f"port {port}", ok=False, detail=f"in use, and wanted for {name}", advice=advice)
