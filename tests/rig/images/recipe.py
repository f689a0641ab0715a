"""Recipes of test images: layers and what the config says, as Docker schema 2 or OCI."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, assert_never

from tests.rig.images.layers import Layer, sha256_of

_CREATED: Final = "2024-01-01T00:00:00Z"


class Format(StrEnum):
    """The two families of media types."""

    DOCKER = "docker"
    OCI = "oci"

    @property
    def manifest_type(self) -> str:
        """Of one platform's manifest."""
        return self._pick(
            "application/vnd.docker.distribution.manifest.v2+json", "application/vnd.oci.image.manifest.v1+json"
        )

    @property
    def index_type(self) -> str:
        """Of a manifest list or index."""
        return self._pick(
            "application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.oci.image.index.v1+json"
        )

    @property
    def config_type(self) -> str:
        """Of the config blob."""
        return self._pick("application/vnd.docker.container.image.v1+json", "application/vnd.oci.image.config.v1+json")

    @property
    def layer_type(self) -> str:
        """Of a gzipped layer."""
        return self._pick(
            "application/vnd.docker.image.rootfs.diff.tar.gzip", "application/vnd.oci.image.layer.v1.tar+gzip"
        )

    def _pick(self, docker: str, oci: str) -> str:
        match self:
            case Format.DOCKER:
                return docker
            case Format.OCI:
                return oci
            case _:
                assert_never(self)


@dataclass(frozen=True, kw_only=True)
class Platform:
    """`variant` may be empty, as for amd64."""

    os: str = "linux"
    architecture: str = "amd64"
    variant: str = ""

    def as_json(self) -> dict[str, str]:
        """As it stands in an index and in a config."""
        fields = {"os": self.os, "architecture": self.architecture, "variant": self.variant}
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, kw_only=True)
class ImageRecipe:
    """An image of one platform. Fields not given are absent from its config, as with real images."""

    layers: Sequence[Layer] = field(default_factory=lambda: (Layer.busybox(),))
    cmd: Sequence[str] | None = None
    entrypoint: Sequence[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    user: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    exposed_ports: Sequence[str] = ()
    volumes: Sequence[str] = ()
    platform: Platform = field(default_factory=Platform)
    format: Format = Format.DOCKER

    def config(self) -> bytes:
        """The config blob. Builds the layers, for their diff ids."""
        return encode(
            {
                **self.platform.as_json(),
                "created": _CREATED,
                "config": self._execution(),
                "rootfs": {"type": "layers", "diff_ids": [layer.blob().diff_id for layer in self.layers]},
                "history": [{"created": _CREATED, "created_by": f"layer {n}"} for n, _ in enumerate(self.layers)],
            }
        )

    def manifest(self) -> bytes:
        """The manifest of this image."""
        config = self.config()
        return encode(
            {
                "schemaVersion": 2,
                "mediaType": self.format.manifest_type,
                "config": descriptor(self.format.config_type, config),
                "layers": [
                    {"mediaType": self.format.layer_type, "size": blob.size_bytes, "digest": blob.digest}
                    for blob in (layer.blob() for layer in self.layers)
                ],
            }
        )

    def _execution(self) -> dict[str, object]:
        fields: dict[str, object] = {
            "Cmd": None if self.cmd is None else list(self.cmd),
            "Entrypoint": None if self.entrypoint is None else list(self.entrypoint),
            "Env": ["PATH=/bin", *(f"{name}={value}" for name, value in self.env.items())],
            "WorkingDir": self.working_dir,
            "User": self.user,
            "Labels": dict(self.labels),
            "StopSignal": self.stop_signal,
            "ExposedPorts": {port: {} for port in self.exposed_ports},
            "Volumes": {path: {} for path in self.volumes},
        }
        return {name: value for name, value in fields.items() if value}


def descriptor(media_type: str, content: bytes) -> dict[str, object]:
    """How a manifest or index points at a content."""
    return {"mediaType": media_type, "size": len(content), "digest": sha256_of(content)}


def encode(document: object) -> bytes:
    """JSON whose bytes, and so its digest, depend on the document alone."""
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
