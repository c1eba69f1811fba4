"""Reading JSON that other programs wrote.

msgspec first; what it refuses but JavaScript accepts (lone surrogates, a field of an unexpected type) goes
through the standard library, and lone surrogates become U+FFFD before the text goes anywhere (facts:
codex-and-sidecar 2.4). Nothing here knows what the JSON means.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import msgspec

encode = msgspec.json.Encoder().encode

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)"
)
_LONE: Final = len(rb"\ud800")
"""A surrogate without its other half; a pair is longer, any other escape shorter."""

_REPLACEMENT: Final = "\ufffd".encode()

_DEPTH: Final = 100
"""Levels of nesting that `shallow` keeps; whoever asks for it reads two."""

_TOKEN: Final = re.compile(
    rb"[ \t\n\r]*(?:(?P<open>[\[{])|(?P<close>[\]}])|(?P<sign>[,:])|"
    rb'(?P<string>"(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+")|'
    rb"(?P<word>(?:true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)(?![\w.+-])))"
)
_SPACE: Final = b" \t\n\r"

_BAD_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|)')
_DIGITS: Final = 1000
"""Digits up to which an integer is read as one; JavaScript has none of more than 309."""


class TooDeepError(ValueError):
    """JSON that is nested deeper than a recursive reader can go."""


def decode_value(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """JSON as JavaScript would read it; ValueError when it is none."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _decode_leniently(raw)


def decode_object(raw: bytes) -> dict[str, Any]:
    """One JSON object as JavaScript would read it; ValueError when it is none."""
    value = decode_value(raw)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for one kind of failure
    return value


def well_formed(raw: bytes) -> bytes:
    """The same JSON with U+FFFD for what no strict reader takes, and every other byte as it was."""
    valid = raw.decode("utf-8", "replace").encode()
    return _ESCAPE.sub(lambda escape: _REPLACEMENT if len(escape[0]) == _LONE else escape[0], valid)


def decode_damaged(raw: bytes) -> dict[str, Any]:
    """An object that is none for JavaScript, since strings in it hold control characters or escapes that do not exist.

    Such a backslash stands for itself. ValueError when that is not all that is wrong.
    """
    text = _BAD_ESCAPE.sub(lambda escape: escape[0] if len(escape[0]) > 1 else r"\\", raw.decode("utf-8", "replace"))
    value = _decode_leniently(text.encode(), strict=False)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for one kind of failure
    return value


def shallow(raw: bytes) -> bytes:
    """The same JSON with null for what is nested very deeply; ValueError when it is none. Not recursive."""
    parts: list[bytes] = []
    opened = bytearray()
    wanted = "value"
    kept = at = 0
    end = len(raw.rstrip(_SPACE))
    while at < end or wanted != "end":
        token = _TOKEN.match(raw, at, end)
        kind = "" if token is None else token.lastgroup or ""
        sign = "" if token is None or kind in ("string", "word") else token[kind].decode()
        following = _GRAMMAR.get((wanted, sign or kind))
        if token is None or following is None or (kind == "close" and opened[-1:] != _OPENS[sign]):
            raise ValueError("not JSON")
        at = token.end()
        if kind == "open":
            opened += token[kind]
            if len(opened) == _DEPTH:
                parts.append(raw[kept : at - 1])
        elif kind == "close":
            if len(opened) == _DEPTH:
                parts.append(b"null")
                kept = at
            del opened[-1:]
        if following == "closed":
            following = "end" if not opened else "member" if opened[-1:] == b"{" else "item"
        wanted = following
    return b"".join([*parts, raw[kept:]])


_OPENS: Final = {"]": b"[", "}": b"{"}
_VALUE: Final = {"[": "first item", "{": "first name", "string": "closed", "word": "closed"}
_GRAMMAR: Final = {
    **{(wanted, kind): following for wanted in ("value", "first item") for kind, following in _VALUE.items()},
    ("first item", "]"): "closed",
    ("first name", "}"): "closed",
    ("first name", "string"): "colon",
    ("name", "string"): "colon",
    ("colon", ":"): "value",
    ("item", ","): "value",
    ("item", "]"): "closed",
    ("member", ","): "name",
    ("member", "}"): "closed",
}
"""What may follow: (what was wanted, what came) to what is wanted then; "closed" when a value is complete."""


def _decode_leniently(raw: bytes, *, strict: bool = True) -> Any:  # noqa: ANN401 - any JSON value
    text = raw.decode("utf-8", "replace")
    try:
        return _scrub(json.loads(text, parse_constant=_refuse, parse_int=_integer, strict=strict))
    except RecursionError as error:
        raise TooDeepError("nested too deeply") from error


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


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
