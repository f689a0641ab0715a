"""What an engine holds: one image found, and the layer chains of all."""

from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, NotFound

from towline.domain.images import ImageRef
from towline.engine.client import Engine
from towline.engine.failures import pull_failure


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """An image on the engine. `digests` of its manifests (an engine may know none), `platform` as `os/arch[/variant]`."""

    image_id: str
    digests: tuple[str, ...]
    platform: str
    chain: tuple[str, ...] = ()

    def digest_for(self, wanted: str | None) -> str | None:
        """The wanted digest if the image has it, else the first it has."""
        if wanted is not None and (wanted in self.digests or wanted == self.image_id):
            return wanted
        return self.digests[0] if self.digests else None


async def find_local(engine: Engine, name: str, *, repository: str | None = None) -> LocalImage | None:
    """Inspect `name` (a reference or an id). Digests of other repositories are left out where `repository` is given.

    None: it is not there. Raises `EngineError` when the engine cannot say: unknown is not absent.
    """

    def inspect(client: docker.APIClient) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = client.inspect_image(name)
        except NotFound:
            return None
        except APIError as error:
            if error.status_code == 404:
                return None
            raise pull_failure(str(error.explanation or error), image=name) from error
        return found

    found = await engine.call(inspect)
    return None if found is None else _local(found, repository)


async def find_pinned(engine: Engine, ref: ImageRef, digest: str | None) -> LocalImage | None:
    """The image by digest where one is given or named, by its tag otherwise."""
    wanted = digest or ref.digest
    if wanted is None:
        return await find_local(engine, str(ref), repository=familiar_name(ref))
    return await find_local(engine, f"{ref.name}@{wanted}", repository=familiar_name(ref))


def familiar_name(ref: ImageRef) -> str:
    """The repository as engines write it in `RepoDigests`."""
    return ref.pinned(f"sha256:{'0' * 64}").familiar.partition("@")[0]


async def local_chains(engine: Engine) -> list[tuple[str, ...]]:
    """The layers (`diff_ids`) of every image on the engine."""

    def chains(client: docker.APIClient) -> list[tuple[str, ...]]:
        found = []
        for image in client.images(all=True):
            try:
                found.append(_local(client.inspect_image(image["Id"]), None).chain)
            except NotFound:
                continue  # Removed since it was listed.
        return found

    return await engine.call(chains)


async def tag_local(engine: Engine, image: LocalImage, ref: ImageRef) -> None:
    """Name the image as the reference does."""
    await engine.call(lambda client: client.tag(image.image_id, ref.name, ref.tag or "latest", force=True))


def _local(found: dict[str, Any], repository: str | None) -> LocalImage:
    digests = [
        name.partition("@")[2]
        for name in found.get("RepoDigests") or ()
        if repository is None or name.partition("@")[0] == repository
    ]
    parts = [found.get("Os"), found.get("Architecture"), found.get("Variant")]
    return LocalImage(
        image_id=found["Id"],
        digests=tuple(digests),
        platform="/".join(part for part in parts if part),
        chain=tuple((found.get("RootFS") or {}).get("Layers") or ()),
    )
