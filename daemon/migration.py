"""What Pi makes of a session file of an older version when it opens it, in memory and without writing.

Version 1 has no ids: Pi chains the entries in the order of the file, also those of a file without a version that do
have ids (facts: real-sessions 2, rows 3 and 10). Its new ids are random, ours are positions; nobody meets both, since
Pi rewrites the file and a rewritten file is read anew. Version 2 has another name for the role of custom messages.
"""

from __future__ import annotations

import math
from typing import Any, Final

from msgspec import structs

from daemon.jsonio import decode_object
from protocol.entries import EntryHead, EntryLine

CURRENT: Final = 3
LINEAR_BELOW: Final = 2

_OLD_ROLE: Final = "hookMessage"
_ROLE: Final = "custom"


class Migration:
    """The state of migrating one file: `line` is given every line that Pi reads, in order, `body` any of them."""

    def __init__(self, *, linear: bool) -> None:
        self.linear = linear
        self._headers: set[int] = set()
        self._count = 0
        self._parent: str | None = None

    def line(self, raw: bytes, line: EntryLine, *, torn: bool) -> EntryLine:
        """The line as it is after migration. A torn one will be given again."""
        position = self._count
        if not torn:
            self._count += 1
        if line.type == "session":
            self._headers.add(position)
            return line
        if line.message is not None and line.message.role == _OLD_ROLE and line.type == "message":
            line = structs.replace(line, message=structs.replace(line.message, role=_ROLE))
        if not self.linear:
            return line
        line = structs.replace(line, id=_id(position), parent_id=self._parent)
        if not torn:
            self._parent = line.id
        if line.type == "compaction":
            entry = decode_object(raw)
            self._keep(entry, position)
            kept = entry.get("firstKeptEntryId")
            line = structs.replace(line, first_kept_entry_id=kept if isinstance(kept, str) else None)
        return line

    def body(self, head: EntryHead, entry: dict[str, Any]) -> None:
        """Change the decoded line of this entry into what it is after migration."""
        message = entry.get("message")
        if head.type == "message" and isinstance(message, dict) and message.get("role") == _OLD_ROLE:
            message["role"] = _ROLE
        if self.linear and head.type == "compaction":
            self._keep(entry, int(head.id, 16))

    def _keep(self, entry: dict[str, Any], position: int) -> None:
        """The first kept entry by id instead of by its position, which counts the header."""
        index = entry.pop("firstKeptEntryIndex", None)
        if isinstance(index, int) and 0 <= index <= position and index not in self._headers:
            entry["firstKeptEntryId"] = _id(index)


def migration_to_current(version: object) -> Migration | None:
    """What is to be done with a file whose header says this; None when nothing is."""
    number = _number(version)
    # Written so that what is no number is migrated as little as it is in JavaScript.
    if number < LINEAR_BELOW:
        return Migration(linear=True)
    return Migration(linear=False) if number < CURRENT else None


def _number(version: object) -> float:
    """As JavaScript compares it with a number."""
    if version is None:
        return 1
    if isinstance(version, bool | int | float):
        return float(version)
    if version in ("", []):
        return 0
    try:
        return float(version) if isinstance(version, str) else math.nan
    except ValueError:
        return math.nan


def _id(position: int) -> str:
    return f"{position:08x}"
