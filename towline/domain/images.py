"""ImageRef: what somebody typed for an image, checked by Docker's grammar and normalised.

The grammar is that of distribution's `reference` package. Where engines differ, the strictest verdict counts, so that
nothing is accepted here which an engine then refuses: the name, registry included, has at most 255 characters (older
engines count the registry, later ones do not), a registry written in upper case needs a dot or a port, and a bare IPv6
address is no registry. Two things are refused that engines let pass and then fail on: a port that no host has, and a host
name with an underscore.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Self

from towline.errors import FieldProblem, InvalidInputError

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
NAME_LENGTH_MAX: Final = 255
TAG_LENGTH_MAX: Final = 128
_TEXT_LENGTH_MAX: Final = NAME_LENGTH_MAX + len(":") + TAG_LENGTH_MAX + len("@sha256:") + 64

_LEGACY_REGISTRY: Final = "index.docker.io"
_OFFICIAL: Final = "library"
_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_PATH: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST: Final = re.compile(rf"{_HOST_LABEL}(?:\.{_HOST_LABEL})*(?::(?P<port>[0-9]+))?")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[a-f0-9]{64}")
_IMAGE_ID: Final = re.compile(r"(?:sha256:)?[a-f0-9]{64}|sha256:[a-f0-9]{12,63}")
_COMMAND: Final = re.compile(
    r"(?:sudo\s+)?(?:docker|podman|nerdctl)\s+(?:image\s+)?(?:pull\s+(?P<image>\S+)|(?:pull|run|create)\b.*)"
)
_CATALOGUE: Final = re.compile(
    r"(?:https?://)?hub\.docker\.com/(?:_/|r/|u/|layers/)?(?P<image>[^\s?#/]*(?:/[^\s?#/]+)?)\S*"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ImageRef:
    """One image by tag or by digest; exactly one of the two is set.

    Typed with both (`app:v1@sha256:…`), the digest counts and the tag is dropped, as engines do: such a reference never
    makes `app:v1` present. `str()` is the canonical form, `docker.io/library/busybox:latest`; `familiar` the short one.
    """

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Check and normalise. Blanks around the text are dropped; whatever else is wrong raises `InvalidInputError`."""
        text = text.strip(" \t\r\n")
        _refuse_what_is_no_reference(text)
        name, tag, digest = _split(text)
        registry, repository = _split_registry(name)
        _check_registry(registry)
        _check_repository(repository)
        if len(registry) + 1 + len(repository) > NAME_LENGTH_MAX:
            raise _refused(f"The name is too long: with its registry it may have {NAME_LENGTH_MAX} characters.")
        if digest is not None:
            return cls(registry=registry, repository=repository, digest=digest)
        return cls(registry=registry, repository=repository, tag=tag or DEFAULT_TAG)

    @property
    def name(self) -> str:
        """Registry and repository, without tag or digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def familiar(self) -> str:
        """The short form that people use: `busybox:latest`. Parses back to the same reference."""
        if self.registry != DEFAULT_REGISTRY:
            return str(self)
        official, _, rest = self.repository.partition("/")
        if official == _OFFICIAL and rest and "/" not in rest:
            return rest + self._suffix
        if _looks_like_host(official):
            return str(self)
        return self.repository + self._suffix

    def pinned(self, digest: str) -> "ImageRef":
        """The same repository at `digest` (`sha256:` and 64 hex digits)."""
        return replace(self, tag=None, digest=_checked_digest(digest))

    @property
    def _suffix(self) -> str:
        return f":{self.tag}" if self.digest is None else f"@{self.digest}"

    def __str__(self) -> str:
        return self.name + self._suffix


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"The image reference is not valid. {problem}", fields=(FieldProblem(field="image", problem=problem),)
    )


def _refuse_what_is_no_reference(text: str) -> None:
    """Things that people paste, and image ids: each has its own sentence."""
    if not text:
        raise _refused("It is empty. Name an image, such as busybox or registry.example.com/team/app:1.0.")
    if len(text) > _TEXT_LENGTH_MAX:
        raise _refused(f"It is too long: the name may have {NAME_LENGTH_MAX} characters, the tag {TAG_LENGTH_MAX}.")
    if found := _CATALOGUE.fullmatch(text):
        hint = f" such as {found['image']}" if _PATH.fullmatch(found["image"]) else ""
        raise _refused(f"This is a catalogue page, not an image. Give the image's name{hint}.")
    if found := _SCHEME.fullmatch(text):
        hint = f": {found['rest']}" if _looks_clean(found["rest"]) else ""
        raise _refused(f"It is a URL. Give the reference without the scheme{hint}")
    if found := _COMMAND.fullmatch(text):
        hint = f": {found['image']}" if _looks_clean(found["image"] or "") else "."
        raise _refused(f"It is a command line. Give the image alone{hint}")
    if not text.isascii() or any(character <= " " or character == "\x7f" for character in text):
        raise _refused("It has a blank, a control character or a letter outside ASCII.")
    if _IMAGE_ID.fullmatch(text):
        raise _refused("It is an image id, which no registry knows. Give a name, or name@sha256:… with its digest.")


def _looks_clean(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _split(text: str) -> tuple[str, str | None, str | None]:
    """Name, tag and digest. A colon before the last slash belongs to the registry's port."""
    rest, at_sign, digest = text.partition("@")
    if at_sign:
        digest = _checked_digest(digest)
    slash, colon = rest.rfind("/"), rest.rfind(":")
    if colon <= slash:
        return rest, None, digest if at_sign else None
    name, tag = rest[:colon], rest[colon + 1 :]
    if not name:
        raise _refused("The name before the tag is missing.")
    if not tag:
        raise _refused("The tag after the colon is missing. Leave the colon out, or name a tag.")
    if not _TAG.fullmatch(tag):
        raise _refused(
            f"The tag may have letters, digits, '_', '.' and '-', does not begin with '.' or '-', "
            f"and has at most {TAG_LENGTH_MAX} characters."
        )
    return name, tag, digest if at_sign else None


def _checked_digest(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise _refused("The digest after '@' must be sha256: and 64 hexadecimal digits in lower case.")
    return digest


def _looks_like_host(first: str) -> bool:
    return first == "localhost" or any(mark in first for mark in ".:")


def _split_registry(name: str) -> tuple[str, str]:
    """Docker's rule: the first part is a registry if it has a dot or a colon, or is `localhost`."""
    first, slash, rest = name.partition("/")
    if not slash:
        return DEFAULT_REGISTRY, f"{_OFFICIAL}/{name}"
    if not _looks_like_host(first):
        return DEFAULT_REGISTRY, name
    if first in {DEFAULT_REGISTRY, _LEGACY_REGISTRY}:
        return DEFAULT_REGISTRY, rest if "/" in rest else f"{_OFFICIAL}/{rest}"
    return first, rest


def _check_registry(registry: str) -> None:
    found = _HOST.fullmatch(registry)
    if not found:
        raise _refused(f"'{registry}' is not a registry's host name.")
    if found["port"] is not None and not 0 < int(found["port"][:6]) <= 65535:
        raise _refused(f"The registry's port {found['port'][:12]} is not between 1 and 65535.")


def _check_repository(repository: str) -> None:
    if _PATH.fullmatch(repository):
        return
    if any(not part for part in repository.split("/")) or repository == f"{_OFFICIAL}/":
        raise _refused("A part of the name between slashes is empty.")
    if repository != repository.lower() and _PATH.fullmatch(repository.lower()):
        raise _refused(f"The repository name must be in lower case: {repository.lower()}")
    raise _refused(
        "The name's parts have lower-case letters and digits, separated by one '.', one or two '_', or any number of '-'."
    )
