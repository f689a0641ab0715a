"""Configs and manifests say what the recipe says."""

import json

import pytest

from tests.rig.images import Format, ImageRecipe, Layer, Platform, demo_image
from tests.rig.images.layers import sha256_of

_LAYERS = (Layer.random(mb=0.1, seed=1), Layer.empty())


def test_a_manifest_points_at_its_config_and_layers() -> None:
    recipe = ImageRecipe(layers=_LAYERS)
    manifest = json.loads(recipe.manifest())
    assert manifest["config"]["digest"] == sha256_of(recipe.config())
    assert manifest["config"]["size"] == len(recipe.config())
    blobs = [layer.blob() for layer in _LAYERS]
    assert [(layer["digest"], layer["size"]) for layer in manifest["layers"]] == [
        (blob.digest, blob.size_bytes) for blob in blobs
    ]
    assert json.loads(recipe.config())["rootfs"]["diff_ids"] == [blob.diff_id for blob in blobs]


@pytest.mark.parametrize(("image_format", "vendor"), [(Format.DOCKER, "vnd.docker."), (Format.OCI, "vnd.oci.")])
def test_all_media_types_are_of_one_family(image_format: Format, vendor: str) -> None:
    manifest = json.loads(ImageRecipe(layers=_LAYERS, format=image_format).manifest())
    types = [
        manifest["mediaType"],
        manifest["config"]["mediaType"],
        *(layer["mediaType"] for layer in manifest["layers"]),
    ]
    assert all(f"application/{vendor}" in media_type for media_type in types)
    assert vendor in image_format.index_type


def test_the_config_says_how_to_run() -> None:
    recipe = ImageRecipe(
        layers=_LAYERS,
        cmd=("a", "b"),
        entrypoint=("/e",),
        env={"X": "1"},
        working_dir="/w",
        user="nobody",
        labels={"l": "v"},
        stop_signal="SIGUSR1",
        exposed_ports=("80/tcp",),
        volumes=("/v",),
    )
    assert json.loads(recipe.config())["config"] == {
        "Cmd": ["a", "b"],
        "Entrypoint": ["/e"],
        "Env": ["PATH=/bin", "X=1"],
        "WorkingDir": "/w",
        "User": "nobody",
        "Labels": {"l": "v"},
        "StopSignal": "SIGUSR1",
        "ExposedPorts": {"80/tcp": {}},
        "Volumes": {"/v": {}},
    }


def test_what_is_not_given_is_absent() -> None:
    assert json.loads(ImageRecipe(layers=_LAYERS).config())["config"] == {"Env": ["PATH=/bin"]}


def test_the_variant_stands_in_the_config_when_there_is_one() -> None:
    arm = Platform(architecture="arm", variant="v7")
    assert json.loads(ImageRecipe(layers=_LAYERS, platform=arm).config())["variant"] == "v7"
    assert "variant" not in json.loads(ImageRecipe(layers=_LAYERS).config())


def test_the_demo_image_is_about_150_mb_in_six_layers() -> None:
    layers = json.loads(demo_image().manifest())["layers"]
    assert len(layers) == 6
    assert sum(layer["size"] for layer in layers) == pytest.approx(150_000_000, rel=0.02)
