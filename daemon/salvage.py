"""What can be saved of a line that is no JSON: the entries in it, for whoever knows them by id.

A crash or a full disk leaves the beginning of an entry, and the next one is appended to it on the same line (facts:
real-sessions 3, #8575); two writers or a lost LF fuse two whole ones. Pi drops such a line, so nothing of it may
stand on a branch that Pi walks; that is for the journal and the tree to see to.
"""

from __future__ import annotations

import json
from typing import Final

from daemon.jsonio import decode_damaged

_START: Final = '{"type"'
"""How Pi begins every entry; blocks within one may begin like it too."""

_SPACE: Final = " \t\r"
_EFFORT: Final = 64
"""How many times the length of the line may be read in search of an entry at its end."""

_decode: Final = json.JSONDecoder().raw_decode


def pieces(raw: bytes) -> list[tuple[int, int]]:
    """Where in the line something of it may be an entry, as start and end.

    Whole objects that it begins with, then one that it ends with; or else all of it, with errors in its strings.
    """
    text = raw.decode("latin-1").rstrip(_SPACE)
    found: list[tuple[int, int]] = []
    at = 0
    while (end := _end(text, at)) is not None:
        found.append((at, end))
        at = len(text) - len(text[end:].lstrip(_SPACE))
    if at < len(text):
        found += _last(text, at)
    return found or _damaged(raw)


def _end(text: str, at: int) -> int | None:
    """Where the object that begins here ends. Latin-1 keeps bytes and characters apart in number alone."""
    if not text.startswith("{", at):
        return None
    try:
        return _decode(text, at)[1]
    except (ValueError, RecursionError):
        return None


def _last(text: str, start: int) -> list[tuple[int, int]]:
    """The object at the end: the first one from the right that nothing follows, so none that is part of another."""
    effort = _EFFORT * len(text)
    at = len(text)
    while effort > 0 and (at := text.rfind(_START, start, at)) >= 0:
        end = _end(text, at)
        if end == len(text):
            return [(at, end)]
        effort -= (len(text) if end is None else end) - at
    return []


def _damaged(raw: bytes) -> list[tuple[int, int]]:
    try:
        decode_damaged(raw)
    except ValueError:
        return []
    return [(0, len(raw))]
