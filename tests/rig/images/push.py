"""Pushing test images straight to a registry, without an engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import httpx

from tests.rig.images.layers import sha256_of
from tests.rig.images.recipe import Format, ImageRecipe, descriptor, encode

_TIMEOUT_SECONDS: Final = 120.0

Auth = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class PushedImage:
    """What now lies in the registry. `layers`: (digest, compressed bytes), bottom first; `reference` is by tag."""

    reference: str
    repository: str
    manifest_digest: str
    config_digest: str
    layers: tuple[tuple[str, int], ...]

    @property
    def layer_bytes(self) -> int:
        """Compressed bytes of all distinct layers: what a pull into an empty engine transfers of them."""
        return sum(dict(self.layers).values())

    @property
    def pinned(self) -> str:
        """The reference by digest."""
        host = self.reference.partition("/")[0]
        return f"{host}/{self.repository}@{self.manifest_digest}"


@dataclass(frozen=True, kw_only=True)
class PushedIndex:
    """A manifest list or index. `images` are in the order given; an attestation comes after them and is not among them."""

    reference: str
    digest: str
    images: tuple[PushedImage, ...]


def push(host: str, repository: str, tag: str, recipe: ImageRecipe, *, auth: Auth | None = None) -> PushedImage:
    """Push an image to `host` ("127.0.0.1:PORT"); what is there already is not sent again. An existing tag moves.

    Raises `httpx.HTTPStatusError` when the registry refuses.
    """
    with _Repository(host, repository, auth) as target:
        return _push_image(target, tag, recipe)


def push_index(
    host: str,
    repository: str,
    tag: str,
    recipes: Sequence[ImageRecipe],
    *,
    index_format: Format = Format.DOCKER,
    with_attestation: bool = False,
    auth: Auth | None = None,
) -> PushedIndex:
    """Push several platforms under one tag; `with_attestation` adds an `unknown/unknown` entry, as BuildKit does."""
    with _Repository(host, repository, auth) as target:
        images = tuple(_push_image(target, None, recipe) for recipe in recipes)
        entries = [
            {**descriptor(recipe.format.manifest_type, recipe.manifest()), "platform": recipe.platform.as_json()}
            for recipe in recipes
        ]
        if with_attestation:
            entries.append(_push_attestation(target, images[0].manifest_digest))
        index = encode({"schemaVersion": 2, "mediaType": index_format.index_type, "manifests": entries})
        target.put_manifest(tag, index, index_format.index_type)
        return PushedIndex(reference=f"{host}/{repository}:{tag}", digest=sha256_of(index), images=images)


def _push_image(target: "_Repository", tag: str | None, recipe: ImageRecipe) -> PushedImage:
    config, manifest = recipe.config(), recipe.manifest()
    blobs = [layer.blob() for layer in recipe.layers]
    name = tag or sha256_of(manifest)
    if not target.has_manifest(name, sha256_of(manifest), recipe.format.manifest_type):
        for blob in blobs:
            target.put_blob(blob.digest, blob.data)
        target.put_blob(sha256_of(config), config)
        target.put_manifest(name, manifest, recipe.format.manifest_type)
    return PushedImage(
        reference=f"{target.host}/{target.name}{':' if tag else '@'}{name}",
        repository=target.name,
        manifest_digest=sha256_of(manifest),
        config_digest=sha256_of(config),
        layers=tuple((blob.digest, blob.size_bytes) for blob in blobs),
    )


def _push_attestation(target: "_Repository", subject_digest: str) -> dict[str, object]:
    config, statement = (
        encode({"os": "unknown", "architecture": "unknown"}),
        encode({"_type": "https://in-toto.io/Statement/v0.1"}),
    )
    target.put_blob(sha256_of(config), config)
    target.put_blob(sha256_of(statement), statement)
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": Format.OCI.manifest_type,
            "config": descriptor(Format.OCI.config_type, config),
            "layers": [descriptor("application/vnd.in-toto+json", statement)],
        }
    )
    target.put_manifest(sha256_of(manifest), manifest, Format.OCI.manifest_type)
    return {
        **descriptor(Format.OCI.manifest_type, manifest),
        "platform": {"os": "unknown", "architecture": "unknown"},
        "annotations": {
            "vnd.docker.reference.type": "attestation-manifest",
            "vnd.docker.reference.digest": subject_digest,
        },
    }


class _Repository:
    def __init__(self, host: str, name: str, auth: Auth | None) -> None:
        self.host: Final = host
        self.name: Final = name
        self._http: Final = httpx.Client(
            base_url=f"http://{host}", auth=auth, timeout=_TIMEOUT_SECONDS, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def has_manifest(self, name: str, digest: str, media_type: str) -> bool:
        answer = self._http.head(f"/v2/{self.name}/manifests/{name}", headers={"Accept": media_type})
        return answer.status_code == httpx.codes.OK and answer.headers["Docker-Content-Digest"] == digest

    def put_manifest(self, name: str, content: bytes, media_type: str) -> None:
        self._http.put(
            f"/v2/{self.name}/manifests/{name}", content=content, headers={"Content-Type": media_type}
        ).raise_for_status()

    def put_blob(self, digest: str, content: bytes) -> None:
        if self._http.head(f"/v2/{self.name}/blobs/{digest}").status_code == httpx.codes.OK:
            return
        upload = self._http.post(f"/v2/{self.name}/blobs/uploads/").raise_for_status()
        place = httpx.URL(upload.headers["Location"]).copy_merge_params({"digest": digest})
        self._http.put(place, content=content, headers={"Content-Type": "application/octet-stream"}).raise_for_status()
