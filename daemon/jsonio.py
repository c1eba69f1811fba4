"""Reading JSON that other programs wrote.

msgspec first; what it refuses but JavaScript accepts (lone surrogates, a field of an unexpected type) goes
through the standard library, and lone surrogates become U+FFFD before the text goes anywhere (facts:
codex-and-sidecar 2.4). Nothing here knows what the JSON means.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn, TypeVar

import msgspec

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


def decode_object(raw: bytes) -> dict[str, Any]:
    """One JSON object as JavaScript would read it; ValueError when it is none."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        value = _decode_leniently(raw)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for one kind of failure
    return value


def decode_as(raw: bytes, shape: type[T]) -> T:
    """The line as `shape`, less the fields that are not of their type; ValueError when it is no object."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return msgspec.convert(decode_object(raw), shape)


def _decode_leniently(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return _scrub(json.loads(raw.decode("utf-8", "replace"), parse_constant=_refuse))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _scrub(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Deeper than Python's own limit it is a RecursionError, as in the parser."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value
