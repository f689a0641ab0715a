"""What a registry knows of an image before any byte of it is pulled: digest, platform, layers and their sizes."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Final, TypeVar

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from towline.domain.images import ImageRef
from towline.engine.credentials import Credential
from towline.engine.failures import pull_failure
from towline.engine.registry_client import Mirrors, RegistryClient

_RESOLVED_KEPT: Final = 256

T = TypeVar("T")

_Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
_DIGEST: Final = TypeAdapter(_Digest)


class _Platform(BaseModel):
    os: str = ""
    architecture: str = ""
    variant: str | None = None


class _Descriptor(BaseModel):
    digest: _Digest
    size: int = Field(ge=0)


class _IndexEntry(_Descriptor):
    platform: _Platform | None = None


class _Index(BaseModel):
    manifests: tuple[_IndexEntry, ...]


class _Manifest(BaseModel):
    config: _Descriptor
    layers: tuple[_Descriptor, ...]


class _RootFs(BaseModel):
    diff_ids: tuple[str, ...] = ()


class _Config(_Platform):
    rootfs: _RootFs = _RootFs()


_TOP: Final[TypeAdapter[_Index | _Manifest]] = TypeAdapter(_Index | _Manifest)
_MANIFEST: Final = TypeAdapter(_Manifest)
_CONFIG: Final = TypeAdapter(_Config)


@dataclass(frozen=True, kw_only=True)
class ResolvedImage:
    """`digest`: of what the reference names (an index where it is one); `layers`: (compressed digest, bytes) and `diff_ids`
    of the chosen `platform`, in order."""

    digest: str
    platform: str
    layers: tuple[tuple[str, int], ...]
    diff_ids: tuple[str, ...]


class Registries:
    """Resolves references. What a digest names never changes, so what was resolved for anybody is kept."""

    def __init__(
        self,
        *,
        insecure: frozenset[str] = frozenset(),
        mirrors: Mirrors | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._client = RegistryClient(insecure=insecure, mirrors=mirrors, transport=transport)
        self._resolved: OrderedDict[tuple[str, str, str], ResolvedImage] = OrderedDict()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def digest_of(self, ref: ImageRef, credential: Credential | None = None) -> str:
        """The digest that the reference names now: one HEAD, which registries do not count as a pull.

        It also tells whether this credential may read the image. Raises `PullError`.
        """
        answer = await self._client.ask("HEAD", ref, f"manifests/{ref.digest or ref.tag}", credential)
        if ref.digest is not None:
            return ref.digest
        try:
            return _DIGEST.validate_python(answer.announced)
        except ValidationError:  # Some registries do not announce it.
            return (await self._client.ask("GET", ref, f"manifests/{ref.tag}", credential)).digest

    async def resolve(self, ref: ImageRef, platform: str, credential: Credential | None = None) -> ResolvedImage:
        """Everything that can be known before the first byte. `platform` as `os/arch[/variant]`. Raises `PullError`."""
        digest = ref.digest or await self.digest_of(ref, credential)
        key = (ref.name, digest, platform)
        if (known := self._resolved.get(key)) is not None:
            self._resolved.move_to_end(key)
            return known
        resolved = self._resolved[key] = await self._resolve(ref.pinned(digest), platform, credential)
        if len(self._resolved) > _RESOLVED_KEPT:
            self._resolved.popitem(last=False)
        return resolved

    async def _resolve(self, ref: ImageRef, platform: str, credential: Credential | None) -> ResolvedImage:
        assert ref.digest is not None
        manifest = await self._read(_TOP, ref, "manifests", ref.digest, credential)
        if isinstance(manifest, _Index):
            chosen = _choose(manifest.manifests, platform, ref)
            manifest = await self._read(_MANIFEST, ref, "manifests", chosen, credential)
        config = await self._read(_CONFIG, ref, "blobs", manifest.config.digest, credential)
        _check_platform(config, platform, ref)
        return ResolvedImage(
            digest=ref.digest,
            platform=platform,
            layers=tuple((layer.digest, layer.size) for layer in manifest.layers),
            diff_ids=config.rootfs.diff_ids,
        )

    async def _read(
        self, shape: TypeAdapter[T], ref: ImageRef, kind: str, digest: str, credential: Credential | None
    ) -> T:
        answer = await self._client.ask("GET", ref, f"{kind}/{digest}", credential)
        if answer.digest != digest:
            raise pull_failure(f"digest mismatch: {digest} was asked for, {answer.digest} came", image=ref.familiar)
        try:
            return shape.validate_json(answer.content)
        except ValidationError as error:
            raise pull_failure(f"invalid character in {kind}/{digest}: {error}", image=ref.familiar) from error


def _choose(entries: tuple[_IndexEntry, ...], platform: str, ref: ImageRef) -> str:
    """The digest of the index's manifest for the platform. Attestations (`unknown/unknown`) fit none."""
    os_, architecture, variant = (*platform.split("/"), "", "")[:3]
    fitting = [
        (rank, entry.digest)
        for entry in entries
        if entry.platform is not None
        and (entry.platform.os, entry.platform.architecture) == (os_, architecture)
        and (rank := _variant_rank(entry.platform.variant or "", variant, architecture)) is not None
    ]
    if not fitting:
        raise pull_failure(f"no matching manifest for {platform} in the manifest list entries", image=ref.familiar)
    return min(fitting, key=lambda pair: pair[0])[1]


def _variant_rank(has: str, wanted: str, architecture: str) -> int | None:
    """0 fits best, None not at all. A 32-bit ARM also runs what was made for its forerunners."""
    if has == wanted or not has:
        return 0 if has == wanted else 1
    if not wanted:
        return 2
    if architecture == "arm" and has < wanted:
        return 2 + ord(wanted[-1]) - ord(has[-1])
    return None


def _check_platform(config: _Config, platform: str, ref: ImageRef) -> None:
    os_, architecture = (*platform.split("/"), "")[:2]
    has = (config.os or os_, config.architecture or architecture)
    if has != (os_, architecture):
        raise pull_failure(
            f"no matching manifest: the image is for {'/'.join(has)}, not for {platform}", image=ref.familiar
        )
