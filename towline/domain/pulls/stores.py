"""The kinds of image store, which differ in what their pull streams say and keep."""

from enum import StrEnum


class StoreKind(StrEnum):
    """`classic`: Docker's graph drivers (overlay2). `containerd`: Docker's containerd image store. `podman`: Podman's API."""

    CLASSIC = "classic"
    CONTAINERD = "containerd"
    PODMAN = "podman"
