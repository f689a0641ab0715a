"""Commands whose parameters are the fields of a dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def declared_by(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Make `function(options)` a command for Typer, with a parameter for each field of the dataclass `kind`."""

    def decorate(function: Callable[[T], None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(kind(**given))

        hints = get_type_hints(kind, include_extras=True)
        parameters = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)  # type: ignore[arg-type]  # any dataclass
        ]
        command.__name__, command.__doc__, command.__annotations__ = function.__name__, function.__doc__, hints
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        return command

    return decorate
