"""How values become Temporal payloads: JSON by pydantic, each type's adapter built once in a process.

Every workflow instance makes a payload converter of its own. With adapters of its own, too, it would build them
anew for each session: some 20 ms for the session's state alone.
"""

import functools
from typing import Final

from pydantic import TypeAdapter
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultPayloadConverter

_adapter_of: Final = functools.lru_cache(maxsize=256)(TypeAdapter)


class SharedAdaptersConverter(PydanticJSONPlainPayloadConverter):
    """As the SDK's converter, with the process's adapters."""

    def __init__(self) -> None:
        super().__init__()
        self._type_adapter = _adapter_of


class _PayloadConverter(CompositePayloadConverter):
    def __init__(self) -> None:
        json = SharedAdaptersConverter()
        kept = DefaultPayloadConverter.default_encoding_payload_converters
        super().__init__(*(one if one.encoding != json.encoding else json for one in kept))


data_converter: Final = DataConverter(payload_converter_class=_PayloadConverter)
"""Every client, worker, test and replay uses this one."""
