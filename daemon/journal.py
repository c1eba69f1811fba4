"""Session files, read only: an index of offsets, and later the tail alone.

The file is the truth about a session; entries that Pi still holds in memory come through `remember` and count
until the file exists. Pi may rewrite a file in place, repair its tail or replace it (facts: real-sessions 2),
so what was read is checked against the file's inode, size and fingerprints before more is read. What Pi reads is
read the same; what Pi drops is counted in `anomalies`, and saved beside the tree where it can be. What an entry means
is not known here.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from daemon.jsonio import (
    TooDeepError,
    decode_damaged,
    decode_object,
    decode_value,
    encode,
    shallow,
    well_formed,
)
from daemon.migration import Migration, migration_to_current
from daemon.salvage import pieces
from protocol.entries import EntryHead, EntryLine, MessageLine, SessionHeader
from state.tree import Cancelled, Tree

_BLOCK: Final = 4 * 1024 * 1024
_SCAN: Final = 1 << 20
"""Bytes that a search looks at between two reads; they should fit a processor's cache."""

_BY_COMMONNESS: Final = (
    b" etaoinsrlhdcumfpgy\\n\"wb.v,k:_-/0(){}1;=2TSAxICE3'RNj5P4OLDMq8679zBFHUGV[]W<>$Y*#|K&@`+!?XQ%JZ^~"
)
"""ASCII as it occurs in sessions of English and code, commonest first; a guess that `_stands_in` can bear."""

_RARE: Final = 60
"""The rank of every other byte; those of an alphabet are not rare in its sessions."""

_FINGERPRINT: Final = 256
_BOM: Final = b"\xef\xbb\xbf"
_MEMORY: Final = -1
"""The offset of an entry that is in no file."""

_decode_line = msgspec.json.Decoder(EntryLine).decode


class _Ids(Struct, frozen=True, rename="camel"):
    """What a body must have of the type that it should be, before any reader sees it."""

    id: str = ""
    parent_id: str | None = None


_decode_ids = msgspec.json.Decoder(_Ids).decode


class _Mark(Struct, frozen=True):
    """What was read of the file: its first bytes, and the last ones before `end`, which is `offset` or the end of a
    last line that counts without its LF. If any of it is otherwise now, the file was rewritten.
    """

    inode: int
    head: bytes
    tail: bytes
    end: int


class Journal:
    """One session's entries: `refresh` brings a tree up to date, `raw` reads a body again."""

    def __init__(self, path: Path | None, tap: Callable[[list[bytes], bool], None] | None = None) -> None:
        self.path = path
        self.anomalies: Counter[str] = Counter()
        self.offset = 0
        """Bytes that were indexed, up to the end of a line."""
        self.leaf: str | None = None
        """The entry that Pi takes as the leaf when it opens the file: the last one, or none if that has no id."""
        self._tap = tap
        self._fd: int | None = None
        self._seen: tuple[int, int] | None = None
        self._mark: _Mark | None = None
        self._memory: dict[str, bytes] = {}
        self._words: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        """Begin anew, at the start of the file."""
        self._memory.clear()
        self.anomalies.clear()
        self.offset = 0
        self.leaf = None
        self._front = self._back = b""
        self._end = 0
        self._provisional: list[str] = []
        self._saved: list[EntryHead] = []
        self._header: SessionHeader | None = None
        self._begun = False
        self._migration: Migration | None = None
        self._plain = False

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def refresh(self, tree: Tree) -> bool:
        """Index what was appended; true when the file had been rewritten and was read anew."""
        if self.path is None:
            return False
        try:
            stat = self.path.stat()
        except OSError:
            return False
        seen = (stat.st_size, stat.st_mtime_ns)
        if seen == self._seen and self._mark is not None and self._mark.inode == stat.st_ino:
            return False
        fresh = self._open(stat)
        if fresh:
            tree.clear()
            self._forget()
        tree.add(self._read(stat.st_size, rewritten=fresh))
        tree.save(self._saved)
        self._saved.clear()
        self._seen = seen
        self._mark = _Mark(stat.st_ino, self._front, self._back, self._end)
        return fresh

    def header(self) -> SessionHeader | None:
        """The header of what was read, if it has one."""
        return self._header

    def pending(self) -> int:
        """The bytes that the next `refresh` would read."""
        try:
            return 0 if self.path is None else max(0, self.path.stat().st_size - self.offset)
        except OSError:
            return 0

    def remember(self, tree: Tree, entries: Iterable[dict[str, Any]]) -> None:
        """Index entries that the file lacks."""
        heads = []
        for entry in entries:
            raw = encode(entry)
            head = self._head(raw, _MEMORY)
            if head is not None and head.id not in tree.heads:
                self._memory[head.id] = raw
                heads.append(head)
        tree.add(heads)

    def raw(self, head: EntryHead) -> bytes | None:
        """The entry's line, made valid for a strict reader; None when it cannot be read any more."""
        if head.offset == _MEMORY:
            return self._memory.get(head.id)
        fd = self._fd
        if fd is None:
            return None
        try:
            line = os.pread(fd, head.length, head.offset)
        except OSError:  # closed meanwhile, under a search
            return None
        if self._migration is None:
            if _is_strict(line):
                return line
            # As much of it byte for byte as can be: what is shown must be found in the file.
            line = well_formed(line)
            if _is_strict(line):
                return line
        return self._remade(head, line)

    def _remade(self, head: EntryHead, line: bytes) -> bytes | None:
        """The line written anew, with the ids that the index has for it."""
        try:
            entry = _decode_whole(line)
            if self._migration is not None:
                self._migration.body(head, entry)
            return encode(entry | {"id": head.id, "parentId": head.parent_id})
        except (ValueError, RecursionError):
            return None

    def scan(self, start: int, end: int, needles: Sequence[bytes], cancelled: Cancelled) -> bool:
        """Whether the bytes [start, end) hold one of the needles.

        Read block by block into one buffer: a mapped file would kill the process when Pi truncates it.
        """
        fd = self._fd
        if fd is None:
            return True
        overlap = max(len(needle) for needle in needles) - 1
        sought = [(needle, *_rarest(needle)) for needle in needles]
        buffer = bytearray(min(max(_SCAN, 2 * overlap), max(end - start, overlap + 1)))
        view = memoryview(buffer)
        kept = 0
        while start < end and not cancelled():
            try:
                got = os.preadv(fd, [view[kept : kept + min(len(buffer) - kept, end - start)]], start)
            except OSError:  # closed meanwhile, under a search
                return True
            if got == 0:
                return False
            start += got
            filled = kept + got
            if any(_stands_in(buffer, filled, *one) for one in sought):
                return True
            kept = min(overlap, filled)
            view[:kept] = bytes(view[filled - kept : filled])
        return False

    def _open(self, stat: os.stat_result) -> bool:
        """Make `_fd` the file of this path; true when nothing that was read before counts any more."""
        mark = self._mark
        if self._fd is not None and mark is not None and mark.inode == stat.st_ino and stat.st_size >= mark.end:
            return not self._holds(mark)
        self.close()
        assert self.path is not None  # noqa: S101 - `refresh` has returned otherwise
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return True

    def _holds(self, mark: _Mark) -> bool:
        """Whether the file still begins with what was read of it."""
        assert self._fd is not None  # noqa: S101 - `_open` has run
        tail = len(mark.tail)
        if os.pread(self._fd, len(mark.head), 0) != mark.head:
            return False
        if os.pread(self._fd, tail, mark.end - tail) != mark.tail:
            return False
        if mark.end == self.offset:
            return True
        # The last line has counted without its LF; anything else that follows makes another line of it.
        following = os.pread(self._fd, 2, mark.end)
        return following in (b"", b"\r", b"\r\n") or following.startswith(b"\n")

    def _read(self, size: int, *, rewritten: bool) -> Iterator[EntryHead]:
        """The heads of all lines from `offset` on, which moves behind the last LF.

        What was read is marked with the bytes as they were read: they may be others by now.
        """
        taped: list[bytes] | None = None if self._tap is None else []
        self.anomalies -= Counter(self._provisional)
        self._provisional.clear()
        line, ended = b"", True
        for line, offset, ended in self._lines(size):  # noqa: B007 - both are asked for after the last one
            if ended:
                self.offset = offset + len(line) + 1
                if len(self._front) < _FINGERPRINT:
                    self._front = (self._front + line[:_FINGERPRINT] + b"\n")[:_FINGERPRINT]
                if taped is not None:
                    taped.append(line)
            text = line[:-1] if line.endswith(b"\r") else line
            if not text.strip():
                continue
            head = self._head(text, offset, torn=not ended)
            if head is not None:
                self.leaf = head.id
                yield head
        if self._tap is not None and taped:
            self._tap(taped, rewritten)
        self._mark_end(line, ended=ended)

    def _mark_end(self, line: bytes, *, ended: bool) -> None:
        """Remember the last line that counted."""

    def _lines(self, size: int) -> Iterator[tuple[bytes, int, bool]]:
        """Every line with its offset, and whether its LF is there; memory is bounded by the longest line."""
        assert self._fd is not None  # noqa: S101 - `_open` has run
        at = start = self.offset
        parts: list[bytes] = []
        while at < size:
            block = os.pread(self._fd, min(_BLOCK, size - at), at)
            if not block:
                break
            at += len(block)
            *lines, rest = block.split(b"\n")
            if lines and parts:
                lines[0] = b"".join([*parts, lines[0]])
                parts.clear()
            for line in lines:
                yield line, start, True
                start += len(line) + 1
            if rest:
                parts.append(rest)
        if parts:
            yield b"".join(parts), start, False

    def _head(self, raw: bytes, offset: int, *, torn: bool = False) -> EntryHead | None:
        """The index entry of a line. A last line without LF counts once it is whole, as it does for Pi."""
        line: EntryLine | None
        try:
            line = _decode_line(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            line = _decode_oddly(raw)
        if line is None:
            self.anomalies["unfinished last line" if torn else "unreadable lines"] += 1
            return None
        if line.type == "session":
            return None
        if not line.id:
            self.anomalies["entries without id"] += 1
            return None
        kind, tag = _facets(line)
        words = self._words
        return EntryHead(
            line.id,
            line.parent_id,
            words.setdefault(line.type, line.type),
            words.setdefault(kind, kind),
            tag if line.type == "branch_summary" else words.setdefault(tag, tag),
            offset,
            len(raw),
        )


def _rarest(needle: bytes) -> tuple[int, int]:
    """The byte of the needle that text is least likely to hold, and where it stands."""
    ranks = [rank if (rank := _BY_COMMONNESS.find(byte)) >= 0 else _RARE for byte in needle]
    at = ranks.index(max(ranks)) if ranks else 0
    return (needle[at] if needle else 0), at


def _stands_in(buffer: bytearray, filled: int, needle: bytes, rare: int, at: int) -> bool:
    """Whether the needle stands in the first `filled` bytes.

    Looking for its rarest byte runs at the speed of memory, several times that of looking for the whole;
    where the byte turns out to be common, the whole is looked for after all.
    """
    if not needle:
        return True
    patience = filled >> 11
    found = buffer.find(rare, at, filled)
    while found >= 0:
        if buffer.startswith(needle, found - at, filled):
            return True
        patience -= 1
        if patience < 0:
            return buffer.find(needle, found - at, filled) >= 0
        found = buffer.find(rare, found + 1, filled)
    return False


def _is_strict(line: bytes) -> bool:
    try:
        line.decode()
        msgspec.json.decode(line, type=Raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _mended(line: bytes) -> bytes | None:
    """The line for a strict reader, as much of it byte for byte as can be: what is shown must be found in the file."""
    mended = well_formed(line)
    if _is_strict(mended):
        return mended
    try:
        return encode(decode_object(line))
    except (ValueError, RecursionError):
        return None


_TAGS: Final[dict[str, Callable[[EntryLine], str]]] = {
    "branch_summary": lambda line: line.from_id,
    "thinking_level_change": lambda line: line.thinking_level,
    "model_change": lambda line: f"{line.provider}/{line.model_id}" if line.provider and line.model_id else "",
    "context_edit": lambda line: line.target_id,
    "compaction": lambda line: line.first_kept_entry_id or "",
    "custom_message": lambda line: "text" if bytes(line.content)[:1] == b'"' else "",
}


def _facets(line: EntryLine) -> tuple[str, str]:
    """`kind` and `tag` of an entry, see `EntryHead`."""
    message = line.message
    if message is not None:
        return message.role, message.tool_name if message.role == "toolResult" else message.stop_reason
    tag = _TAGS.get(line.type)
    return line.custom_type, "" if tag is None else tag(line)


def _decode_oddly(raw: bytes) -> EntryLine | None:
    """A line that the fast reader refuses: every field that has its type counts, the others are as if absent."""
    try:
        entry = decode_object(raw)
    except ValueError:
        return None

    def text(source: dict[str, Any], key: str) -> str:
        value = source.get(key)
        return value if isinstance(value, str) else ""

    message = entry.get("message")
    return EntryLine(
        type=text(entry, "type"),
        id=text(entry, "id"),
        parent_id=text(entry, "parentId") or None,
        custom_type=text(entry, "customType"),
        from_id=text(entry, "fromId"),
        target_id=text(entry, "targetId"),
        first_kept_entry_id=text(entry, "firstKeptEntryId"),
        thinking_level=text(entry, "thinkingLevel"),
        provider=text(entry, "provider"),
        model_id=text(entry, "modelId"),
        content=Raw(b'""' if isinstance(entry.get("content"), str) else b""),
        message=MessageLine(text(message, "role"), text(message, "stopReason"), text(message, "toolName"))
        if isinstance(message, dict)
        else None,
    )
