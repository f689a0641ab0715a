"""What can go wrong between an engine and a registry.

Bytes are counted in the body of one answer, from 0, unless said otherwise; with `Range`, from the first byte that is asked for.
"Until released" means: until the rule is removed; the request then goes on as if nothing had been.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field


class _Strict:
    """Read from JSON, a misspelt field is refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Delay(_Strict):
    """Wait before anything is answered."""

    kind: Literal["delay"] = "delay"
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NeverAnswer(_Strict):
    """Accept the request and send nothing, until released."""

    kind: Literal["never-answer"] = "never-answer"


@dataclass(frozen=True, kw_only=True)
class Throttle(_Strict):
    """Limit the rate, smoothly: of each answer, and of all answers under this rule together."""

    kind: Literal["throttle"] = "throttle"
    bytes_per_second: float | None = None
    total_bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        """Refuse rates that are none; for silence there is `Stall`."""
        if any(rate is not None and rate <= 0 for rate in (self.bytes_per_second, self.total_bytes_per_second)):
            raise ValueError("a rate is above 0")


@dataclass(frozen=True, kw_only=True)
class Stall(_Strict):
    """Send so many bytes, then nothing until released. 0: the headers alone, or, of an answer already begun, no further byte."""

    kind: Literal["stall"] = "stall"
    after_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Trickle(_Strict):
    """Send a few bytes at a time, with silence between."""

    kind: Literal["trickle"] = "trickle"
    piece_bytes: int = 1
    every_seconds: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Cut(_Strict):
    """Send so many bytes, then end the connection: with a RST, or with an early end."""

    kind: Literal["cut"] = "cut"
    after_bytes: int = 0
    with_reset: bool = True


@dataclass(frozen=True, kw_only=True)
class Flip(_Strict):
    """Invert one byte; `offset` counts in the whole blob, also when a range of it is asked for."""

    kind: Literal["flip"] = "flip"
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class IgnoreRange(_Strict):
    """Answer 200 with the whole body to a request for a range."""

    kind: Literal["ignore-range"] = "ignore-range"


@dataclass(frozen=True, kw_only=True)
class WrongLength(_Strict):
    """Declare a Content-Length that is off `by` so many bytes, and close when the body is through. Below 0 the body ends early."""

    kind: Literal["wrong-length"] = "wrong-length"
    by: int


@dataclass(frozen=True, kw_only=True)
class Garbage(_Strict):
    """Replace the body by noise of the same length."""

    kind: Literal["garbage"] = "garbage"


@dataclass(frozen=True, kw_only=True)
class Answer(_Strict):
    """Answer this instead of asking the registry."""

    kind: Literal["answer"] = "answer"
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True, kw_only=True)
class RequireBasic(_Strict):
    """Ask for a user and password, by 401."""

    kind: Literal["require-basic"] = "require-basic"
    user: str
    password: str


@dataclass(frozen=True, kw_only=True)
class RequireBearer(_Strict):
    """Ask for a token from our own token endpoint.

    It gives tokens, good for `token_seconds`, to the account; with `user` None to anybody. A token opens only the
    repositories that match one of the globs in `repositories`. `realm` is the endpoint's URL if it is to be another one (a dead one, say).
    """

    kind: Literal["require-bearer"] = "require-bearer"
    user: str | None = None
    password: str = ""
    token_seconds: float = 300.0
    repositories: tuple[str, ...] = ("*",)
    realm: str = ""


Fault = Annotated[
    Delay
    | NeverAnswer
    | Throttle
    | Stall
    | Trickle
    | Cut
    | Flip
    | IgnoreRange
    | WrongLength
    | Garbage
    | Answer
    | RequireBasic
    | RequireBearer,
    Field(discriminator="kind"),
]


def registry_error(status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> Answer:
    """An error as registries give it: a JSON body with a code such as `TOOMANYREQUESTS` (OCI distribution spec, "Error codes")."""
    body = json.dumps({"errors": [{"code": code, "message": message}]})
    return Answer(status=status, headers={"Content-Type": "application/json", **(headers or {})}, body=body)
