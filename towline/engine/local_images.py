"""What an engine holds: one image found, and the layer chains of all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import docker
from docker.errors import APIError, NotFound

from towline.domain.images import ImageRef
from towline.engine.client import Engine
from towline.engine.failures import pull_failure

T = TypeVar("T")

_ANY_DIGEST: Final = f"sha256:{'0' * 64}"


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """An image on the engine. `digests` of its manifests (an engine may know none), `tags` as references,
    `platform` as `os/arch[/variant]`."""

    image_id: str
    digests: tuple[str, ...]
    platform: str
    tags: frozenset[str] = frozenset()
    chain: tuple[str, ...] = ()

    def digest_for(self, wanted: str | None) -> str | None:
        """The wanted digest if the image has it, else the first it has."""
        if wanted is not None and (wanted in self.digests or wanted == self.image_id):
            return wanted
        return self.digests[0] if self.digests else None


async def find_local(engine: Engine, ref: ImageRef) -> LocalImage | None:
    """The image that the reference names, by its digest or its tag. Digests of other repositories are left out.

    None: it is not there. Raises `EngineError` when the engine cannot say: unknown is not absent.
    """

    def inspect(client: docker.APIClient) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = client.inspect_image(str(ref))
        except NotFound:  # Not `ImageNotFound` alone: only some of the engine's words become that.
            return None
        return found

    found = await _asked(engine, inspect, ref.familiar)
    return None if found is None else _local(found, ref)


class LayerChains:
    """The layers (`diff_ids`) of every image on the engine. An image's never change, so each image is asked about once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[str, ...]] = {}

    async def all(self) -> tuple[tuple[str, ...], ...]:
        """As they are now. Raises `EngineError`."""
        known = self._known

        def look(client: docker.APIClient) -> dict[str, tuple[str, ...]]:
            found = {}
            for image_id in {image["Id"] for image in client.images(all=True)}:
                try:
                    found[image_id] = known.get(image_id) or _local(client.inspect_image(image_id)).chain
                except NotFound:
                    continue  # Removed since it was listed.
            return found

        self._known = await _asked(self._engine, look, "the images on the agent")
        return tuple(self._known.values())


async def tag_local(engine: Engine, image: LocalImage, ref: ImageRef) -> None:
    """Name the image as the reference does. Raises `EngineError`."""
    await _asked(engine, lambda client: client.tag(image.image_id, ref.name, ref.tag, force=True), ref.familiar)


async def _asked(engine: Engine, ask: Callable[[docker.APIClient], T], about: str) -> T:
    try:
        return await engine.call(ask)
    except APIError as error:
        raise pull_failure(str(error.explanation or error), image=about) from error


def _local(found: dict[str, Any], ref: ImageRef | None = None) -> LocalImage:
    # Docker writes familiar names in `RepoDigests`, Podman canonical ones.
    names = {ref.name, ref.pinned(_ANY_DIGEST).familiar.partition("@")[0]} if ref else set()
    named = (name.partition("@") for name in found.get("RepoDigests") or ())
    parts = [found.get("Os"), found.get("Architecture"), found.get("Variant")]
    return LocalImage(
        image_id=found["Id"],
        digests=tuple(digest for name, _, digest in named if name in names),
        tags=frozenset(found.get("RepoTags") or ()),
        platform="/".join(part for part in parts if part),
        chain=tuple((found.get("RootFS") or {}).get("Layers") or ()),
    )
