"""Tool arguments as models send them: clamped instead of refused, required where nothing can be assumed."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from state.errors import RefusedError

T = TypeVar("T")


def parse(tool: str, arguments: object, shape: type[T]) -> T:
    """The arguments as their Struct; what is of another type is answered with what was expected."""
    try:
        return msgspec.convert(arguments, shape, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(f"{tool}: {error}") from None


def clamp(value: int | None, default: int, most: int) -> int:
    """At least 1, at most `most`."""
    return default if value is None else max(1, min(value, most))


def required(value: str | None, name: str) -> str:
    """The value, which must be there and not be empty."""
    if not value:
        raise RefusedError(f"{name} is required.")
    return value
