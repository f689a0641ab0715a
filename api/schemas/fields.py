"""Checked kinds of fields."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, StrictStr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from towline.domain.ids import AGENT_ID, LABEL_PREFIX, SESSION_ID
from towline.domain.images import ImageRef
from towline.errors import InvalidInputError

MEMORY_MIN: Final = 6 * 1024 * 1024
"""The engine's own minimum."""

MEMORY_MAX: Final = 1 << 44
ENV_TOTAL_MAX: Final = 256 * 1024
_SIZE: Final = re.compile(r"([0-9]{1,15})([bkmgt]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("a NUL byte is not allowed")
    return text


@dataclass(frozen=True)
class Form:
    """Text that has to match `pattern` as a whole; `wanted` says in words what that is."""

    pattern: str
    wanted: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"pattern": f"^{self.pattern}$"}

    def _check(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(self.wanted)
        return text


def _image(text: str) -> str:
    try:
        return str(ImageRef.parse(text))
    except InvalidInputError as error:
        raise ValueError(error.fields[0].problem if error.fields else error.message) from error


def _size(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("give bytes as an integer, or a size such as 512m or 2g")
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(value)
    if found is None:
        raise ValueError("not a size: give bytes, or a number with k, m, g or t, such as 512m or 2g")
    return int(found[1]) << _UNITS[found[2].lower()]


def _env(values: dict[str, str]) -> dict[str, str]:
    for key in values:
        if not key or "=" in key:
            raise ValueError("a variable's name must not be empty or contain =")
    if sum(len(key.encode()) + len(value.encode()) for key, value in values.items()) > ENV_TOTAL_MAX:
        raise ValueError(
            f"all variables together may have {ENV_TOTAL_MAX} bytes; put large data into the image or a volume"
        )
    return values


def _labels(values: dict[str, str]) -> dict[str, str]:
    for key in values:
        if not key or key.startswith(LABEL_PREFIX):
            raise ValueError(f"a label's name must not be empty or begin with {LABEL_PREFIX}")
    return values


Text = Annotated[StrictStr, AfterValidator(_no_nul)]
Argument = Annotated[Text, Field(max_length=128 * 1024)]
Image = Annotated[Text, Field(max_length=600, json_schema_extra={"minLength": 1}), AfterValidator(_image)]
MemorySize = Annotated[int, BeforeValidator(_size), Field(ge=MEMORY_MIN, le=MEMORY_MAX)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=1, le=MEMORY_MAX)]
Environment = Annotated[dict[Text, Text], Field(max_length=1000), AfterValidator(_env)]
Labels = Annotated[
    dict[Annotated[Text, Field(max_length=128)], Annotated[Text, Field(max_length=1024)]],
    Field(max_length=64),
    AfterValidator(_labels),
]
Name = Annotated[
    StrictStr,
    Form(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
        "up to 63 letters, digits, dots, dashes and underscores, a letter or digit first",
    ),
]
"""Names of sessions and users."""

VolumeName = Annotated[
    StrictStr,
    Field(description="a volume's name, not a path"),
    Form(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
        "give a volume's name, not a path: up to 128 letters, digits, dots, dashes and underscores",
    ),
]
AbsolutePath = Annotated[Text, Field(max_length=4096), Form(r"/[\s\S]*", "give an absolute path, such as /data")]
Platform = Annotated[
    StrictStr,
    Field(max_length=64),
    Form(r"[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?", "give os/architecture, such as linux/amd64 or linux/arm64/v8"),
]
AgentId = Annotated[
    StrictStr,
    Form(AGENT_ID.pattern, "no agent can have this id: up to 63 lower-case letters, digits, dots, dashes, underscores"),
]
SessionId = Annotated[StrictStr, Form(SESSION_ID.pattern, "not a session's id, such as ses-0123456789abcdef")]
IdempotencyKey = Annotated[str, Field(max_length=255), Form("[!-~]+", "up to 255 visible ASCII characters, no blank")]
