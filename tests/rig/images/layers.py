"""Layers of test images: tars built in memory, the same bytes for the same recipe."""

import gzip
import hashlib
import io
import random
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

_BUSYBOX: Final = Path("/bin/busybox")
_PIECE_BYTES: Final = 1024 * 1024
_MTIME: Final = 1_700_000_000


class Filling(StrEnum):
    """What the file of a layer holds."""

    RANDOM = "random"
    ZEROS = "zeros"


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A compressed layer as it goes over the wire. `digest` is of the compressed bytes, `diff_id` of the tar."""

    digest: str
    diff_id: str
    data: bytes = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Compressed size."""
        return len(self.data)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A recipe of a layer. Use the constructors below; equal recipes have equal digests on one machine."""

    files: tuple[tuple[str, bytes], ...] = ()
    executables: frozenset[str] = frozenset()
    with_busybox: bool = False
    filling: Filling | None = None
    filling_bytes: int = 0
    seed: int = 0

    @classmethod
    def busybox(cls, *, files: Mapping[str, bytes] | None = None, executables: frozenset[str] = frozenset()) -> Self:
        """/bin/busybox (static) with a link for each applet, and the few directories that programs expect; about 1 MB.

        `files` are added, as with `of_files`.
        """
        return cls(with_busybox=True, files=tuple((files or {}).items()), executables=executables)

    @classmethod
    def random(cls, *, mb: float, seed: int) -> Self:
        """One file of `mb` million random bytes, which do not compress: the wire size is the same within 0.1 %."""
        return cls(filling=Filling.RANDOM, filling_bytes=round(mb * 1_000_000), seed=seed)

    @classmethod
    def zeros(cls, *, mb: float, seed: int = 0) -> Self:
        """One file of `mb` million zeros: a thousandth of it on the wire, all of it to extract. `seed` makes the digest differ."""
        return cls(filling=Filling.ZEROS, filling_bytes=round(mb * 1_000_000), seed=seed)

    @classmethod
    def of_files(cls, files: Mapping[str, bytes], *, executables: frozenset[str] = frozenset()) -> Self:
        """Given files, by path without a leading slash."""
        return cls(files=tuple(files.items()), executables=executables)

    @classmethod
    def empty(cls) -> Self:
        """A tar without entries: 32 bytes or so on the wire."""
        return cls()

    def blob(self) -> Blob:
        """Build it; the last few are kept."""
        return _build(self)


@lru_cache(maxsize=8)
def _build(layer: Layer) -> Blob:
    # Random bytes are stored, not deflated: real gzip all the same, and 150 MB of it in a second.
    level = {Filling.RANDOM: 0, Filling.ZEROS: 1, None: 6}[layer.filling]
    tar_digest = hashlib.sha256()
    compressed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=compressed, mode="wb", compresslevel=level, mtime=0) as sink:
        for piece in _tar(layer):
            tar_digest.update(piece)
            sink.write(piece)
    data = compressed.getvalue()
    return Blob(digest=sha256_of(data), diff_id=f"sha256:{tar_digest.hexdigest()}", data=data)


def sha256_of(data: bytes) -> str:
    """`sha256:…` of the bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tar(layer: Layer) -> Iterator[bytes]:
    for directory in _directories(layer):
        yield _header(directory, kind=tarfile.DIRTYPE, mode=0o1777 if directory == "tmp" else 0o755)
    if layer.with_busybox:
        yield from _file("bin/busybox", _BUSYBOX.read_bytes(), mode=0o755)
        for applet in _applets():
            yield _header(f"bin/{applet}", kind=tarfile.SYMTYPE, mode=0o777, target="busybox")
        yield from _file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
        yield from _file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
    for path, content in layer.files:
        yield from _file(path, content, mode=0o755 if path in layer.executables else 0o644)
    if layer.filling is not None:
        name = f"data/{layer.filling}-{layer.seed}-{layer.filling_bytes}"
        yield _header(name, size_bytes=layer.filling_bytes)
        yield from _filling(layer)
        yield _padding(layer.filling_bytes)
    yield bytes(1024)


def _directories(layer: Layer) -> list[str]:
    paths = [path for path, _ in layer.files]
    found = {str(parent) for path in paths for parent in Path(path).parents} - {"."}
    if layer.with_busybox:
        found |= {"bin", "etc", "root", "tmp", "var", "var/tmp", "proc", "sys", "dev"}
    if layer.filling is not None:
        found.add("data")
    return sorted(found)


def _filling(layer: Layer) -> Iterator[bytes]:
    source = random.Random(layer.seed)
    left = layer.filling_bytes
    while left:
        piece = min(left, _PIECE_BYTES)
        yield source.randbytes(piece) if layer.filling is Filling.RANDOM else bytes(piece)
        left -= piece


def _file(path: str, content: bytes, *, mode: int = 0o644) -> Iterator[bytes]:
    yield _header(path, size_bytes=len(content), mode=mode)
    yield content
    yield _padding(len(content))


def _header(
    path: str, *, size_bytes: int = 0, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, target: str = ""
) -> bytes:
    info = tarfile.TarInfo(path)
    info.size, info.type, info.mode, info.linkname, info.mtime = size_bytes, kind, mode, target, _MTIME
    return info.tobuf(tarfile.GNU_FORMAT)


def _padding(size_bytes: int) -> bytes:
    return bytes(-size_bytes % tarfile.BLOCKSIZE)


@lru_cache(maxsize=1)
def _applets() -> tuple[str, ...]:
    listed = subprocess.run([_BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    return tuple(name for name in listed if name != "busybox")
