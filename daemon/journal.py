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
from stat import S_ISREG
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
from daemon.migration import CURRENT, Migration, migration_to_current
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
    """What was read of the file: its first bytes, and the last ones before `end`.

    That is `offset`, or the end of a last line that counts without its LF. If any of it is otherwise now, the file
    was rewritten.
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
        self._provisional: list[str] = []
        self._saved: list[EntryHead] = []
        self._header: SessionHeader | None = None
        self._version: object = None
        self._begun = self._headed = self._plain = False
        self._migration: Migration | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def refresh(self, tree: Tree) -> bool:
        """Index what was appended; true when the file had been rewritten and was read anew.

        OSError when it is there and cannot be read.
        """
        if self.path is None:
            return False
        try:
            stat = self.path.stat()
        except (OSError, ValueError):  # the latter for a name that no file can have
            return False
        if not S_ISREG(stat.st_mode):  # a pipe would be waited for, without end
            return False
        seen = (stat.st_size, stat.st_mtime_ns)
        if seen == self._seen and self._mark is not None and self._mark.inode == stat.st_ino:
            return False
        fresh = self._open(stat)
        if fresh:
            tree.clear()
            self._forget()
        tree.add(self._read(stat, rewritten=fresh))
        tree.save(self._saved)
        self._saved.clear()
        self._seen = seen
        return fresh

    def header(self) -> SessionHeader | None:
        """The header of what was read, if it has one."""
        return self._header

    def pending(self) -> int:
        """The bytes that the next `refresh` would read."""
        try:
            return 0 if self.path is None else max(0, self.path.stat().st_size - self.offset)
        except (OSError, ValueError):
            return 0

    def remember(self, tree: Tree, entries: Iterable[dict[str, Any]]) -> None:
        """Index entries that the file lacks."""
        heads = []
        for entry in entries:
            raw = encode(entry)
            line = _parsed(raw)
            if line is not None and line.type != "session" and line.id and line.id not in tree.heads:
                self._memory[line.id] = raw
                heads.append(self._indexed(line, _MEMORY, len(raw)))
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

    def _read(self, stat: os.stat_result, *, rewritten: bool) -> Iterator[EntryHead]:
        """The heads of all lines from `offset` on, which moves behind the last LF.

        What was read is marked with the bytes as they were read: they may be others by now.
        """
        taped: list[bytes] | None = None if self._tap is None else []
        self.anomalies -= Counter(self._provisional)
        self._provisional.clear()
        last: bytes | None = None
        mark: _Mark | None = None
        beginning = len(self._front) < _FINGERPRINT
        head_of = self._head
        for line, offset, ended in self._lines(stat.st_size):
            if ended:
                last = line
                self.offset = offset + len(line) + 1
                if beginning:
                    self._front = (self._front + line[:_FINGERPRINT] + b"\n")[:_FINGERPRINT]
                    beginning = len(self._front) < _FINGERPRINT
                if taped is not None:
                    taped.append(line)
            text = line[:-1] if line.endswith(b"\r") else line
            head = head_of(text, offset, torn=not ended)
            if head is not None:
                if not ended:
                    mark = _Mark(stat.st_ino, self._front, line[-_FINGERPRINT:], offset + len(line))
                self.leaf = head.id
                yield head
        if self._tap is not None and taped:
            self._tap(taped, rewritten)
        if last is not None:
            self._back = last[1 - _FINGERPRINT :] + b"\n"
        self._mark = mark or _Mark(stat.st_ino, self._front, self._back, self.offset)

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

    def _head(self, raw: bytes, offset: int, *, torn: bool) -> EntryHead | None:
        """The index entry of a line. A last line without LF counts once it is whole, as it does for Pi."""
        line: EntryLine | None
        try:
            line = _decode_line(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            line = self._odd(raw, offset, torn=torn)
        if line is None:
            return None
        if not self._plain:
            line = self._adapted(raw, line, torn=torn)
        if line.type == "session":
            if self._headed:
                self._count("headers after the first", torn=torn)
            self._headed = self._headed or not torn
            return None
        if not line.id:
            self.leaf = None
            self._count("entries without id", torn=torn)
            return None
        return self._indexed(line, offset, len(raw))

    def _indexed(self, line: EntryLine, offset: int, length: int) -> EntryHead:
        kind, tag = _facets(line)
        words = self._words
        return EntryHead(
            line.id,
            line.parent_id or None,
            words.setdefault(line.type, line.type),
            words.setdefault(kind, kind),
            tag if line.type in _ID_TAGS else words.setdefault(tag, tag),
            offset,
            length,
        )

    def _odd(self, raw: bytes, offset: int, *, torn: bool) -> EntryLine | None:
        """A line that the fast reader refuses; None when Pi drops it."""
        if not raw.strip():
            return None
        if raw.startswith(_BOM) and offset == 0 and self._begin_after_bom(raw[len(_BOM) :]):
            return None
        try:
            value = decode_value(raw)
        except TooDeepError:
            value = _shallow_value(raw)
            if value is not None:
                self._count("lines nested too deeply", torn=torn)
        except ValueError:
            value = None
        if value or isinstance(value, dict | list):
            return _line_of(value) if isinstance(value, dict) else EntryLine()
        self._count("unfinished last line" if torn else "unreadable lines", torn=torn)
        if not torn:
            self._save(raw, offset)
        return None

    def _adapted(self, raw: bytes, line: EntryLine, *, torn: bool) -> EntryLine:
        """The line as it is after migration; the first one tells whether there is any."""
        if not self._begun:
            if torn:
                return line
            self._begin(raw, line)
        return line if self._migration is None else self._migration.line(raw, line, torn=torn)

    def _begin(self, raw: bytes, line: EntryLine) -> None:
        """Pi takes the first line that it can read for the header, and no file in which that is none."""
        self._begun = True
        if line.type == "session":
            header = decode_object(raw)
            self._header, self._version = _header_of(header), header.get("version")
            if not isinstance(header.get("id"), str):
                self._count("header without id")
        else:
            self._count("header missing")
            if self._header is None:
                self._version = None if line.type and not line.id else CURRENT
        self._migration = migration_to_current(self._version)
        self._plain = self._migration is None

    def _begin_after_bom(self, raw: bytes) -> bool:
        """Note a header that Pi does not read for its byte order mark, in case there is no other."""
        try:
            header = decode_object(raw)
        except ValueError:
            return False
        if header.get("type") != "session":
            return False
        self._header, self._version = _header_of(header), header.get("version")
        self._count("byte order mark before the header")
        return True

    def _save(self, raw: bytes, offset: int) -> None:
        """Keep the entries in a line that Pi drops; without ids of their own nobody could ask for them."""
        if self._migration is not None and self._migration.linear:
            return
        for start, end in pieces(raw):
            try:
                entry = _decode_whole(raw[start:end])
            except ValueError:
                continue
            line = _line_of(entry)
            if line.id and line.type not in ("", "session") and "parentId" in entry:
                self._saved.append(self._indexed(line, offset + start, end - start))
                self._count("entries saved from unreadable lines")

    def _count(self, kind: str, *, torn: bool = False) -> None:
        """One more oddity; that of a last line without LF stands until it is read again."""
        self.anomalies[kind] += 1
        if torn:
            self._provisional.append(kind)


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
        _decode_ids(line)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _decode_whole(raw: bytes) -> dict[str, Any]:
    """An entry, or one that is whole but for the strings in it; ValueError when it is neither."""
    try:
        return decode_object(raw)
    except ValueError:
        return decode_damaged(raw)


def _shallow_value(raw: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return decode_value(shallow(raw))
    except ValueError:
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


_ID_TAGS: Final = ("branch_summary", "context_edit", "compaction")
"""The types whose tag is an entry's id: there are as many as entries, so none is shared."""


def _parsed(raw: bytes) -> EntryLine | None:
    """A line that needs no migration; None when it is no object."""
    try:
        return _decode_line(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        try:
            return _line_of(decode_object(raw))
        except ValueError:
            return None


def _line_of(entry: dict[str, Any]) -> EntryLine:
    """An entry that the fast reader refuses: every field that has its type counts, the others are as if absent."""

    def text(source: dict[str, Any], key: str) -> str:
        value = source.get(key)
        return value if isinstance(value, str) else ""

    message = entry.get("message")
    return EntryLine(
        type=text(entry, "type"),
        id=_identity(entry.get("id")),
        parent_id=_identity(entry.get("parentId")) or None,
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


def _identity(value: object) -> str:
    """An id as text. For Pi numbers are ids as well; what is falsy ends every walk, and objects equal nothing."""
    if isinstance(value, str):
        return value
    if not value or not isinstance(value, int | float):
        return ""
    if value is True:
        return "true"
    return str(int(value)) if float(value).is_integer() else repr(value)


def _header_of(entry: dict[str, Any]) -> SessionHeader:
    """The header, less what is not of its type."""

    def text(key: str) -> str:
        value = entry.get(key)
        return value if isinstance(value, str) else ""

    version = entry.get("version")
    return SessionHeader(
        "session",
        id=text("id"),
        version=version if isinstance(version, int) else 1,
        cwd=text("cwd"),
        parent_session=text("parentSession") or None,
    )
