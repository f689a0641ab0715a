"""Layers are valid gzipped tars, the same for the same recipe."""

import gzip
import hashlib
import io
import tarfile

import pytest

from tests.rig.images import Layer

_SCRIPT = b"#!/bin/sh\nexit 3\n"

RECIPES = {
    "busybox": Layer.busybox(),
    "random": Layer.random(mb=0.3, seed=1),
    "zeros": Layer.zeros(mb=2.5),
    "empty": Layer.empty(),
    "files": Layer.of_files({"opt/deep/run": _SCRIPT, "motd": b""}, executables=frozenset({"opt/deep/run"})),
}


def _members(layer: Layer) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer.blob().data), mode="r:gz") as tar:
        return {member.name: member for member in tar.getmembers()}


@pytest.mark.parametrize("layer", RECIPES.values(), ids=RECIPES.keys())
def test_digests_are_those_of_the_bytes(layer: Layer) -> None:
    blob = layer.blob()
    assert blob.digest == f"sha256:{hashlib.sha256(blob.data).hexdigest()}"
    assert blob.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(blob.data)).hexdigest()}"
    assert blob.size_bytes == len(blob.data)


@pytest.mark.parametrize("layer", RECIPES.values(), ids=RECIPES.keys())
def test_every_layer_is_a_tar(layer: Layer) -> None:
    tar = gzip.decompress(layer.blob().data)
    assert len(tar) % tarfile.BLOCKSIZE == 0
    _members(layer)


def test_the_same_recipe_gives_the_same_bytes() -> None:
    # The others push the first one out of the cache.
    first = Layer.random(mb=0.1, seed=7).blob()
    for seed in range(20):
        Layer.random(mb=0.01, seed=seed).blob()
    again = Layer.random(mb=0.1, seed=7).blob()
    assert again is not first
    assert again == first


def test_seeds_make_layers_of_one_size_differ() -> None:
    one, other = Layer.random(mb=0.1, seed=1).blob(), Layer.random(mb=0.1, seed=2).blob()
    assert one.digest != other.digest
    assert one.size_bytes == other.size_bytes
    assert Layer.zeros(mb=1, seed=1).blob().digest != Layer.zeros(mb=1, seed=2).blob().digest


def test_random_layers_weigh_on_the_wire_what_was_asked_for() -> None:
    assert Layer.random(mb=5, seed=1).blob().size_bytes == pytest.approx(5_000_000, rel=0.002)


def test_zeros_weigh_nearly_nothing_on_the_wire() -> None:
    layer = Layer.zeros(mb=20)
    assert layer.blob().size_bytes < 200_000
    assert sum(member.size for member in _members(layer).values()) == 20_000_000


def test_busybox_has_a_shell_and_what_is_added() -> None:
    members = _members(Layer.busybox(files={"bin/greet": _SCRIPT}, executables=frozenset({"bin/greet"})))
    assert members["bin/busybox"].mode == 0o755
    assert members["bin/sh"].linkname == "busybox"
    assert members["tmp"].mode == 0o1777
    assert (members["bin/greet"].size, members["bin/greet"].mode) == (len(_SCRIPT), 0o755)


def test_files_have_their_directories_and_modes() -> None:
    members = _members(RECIPES["files"])
    assert list(members) == ["opt", "opt/deep", "opt/deep/run", "motd"]
    assert members["opt"].isdir()
    assert members["motd"].mode == 0o644
