"""Notes: files of the model's own, kept as entries on the active branch.

The latest valid snapshot of the branch counts, and the writes that follow it. Paths, limits and results are
upstream's (facts: tree-upstream 2.2, 3.2); a malformed entry is passed over. What upstream leaves unbounded is
bounded here: the notes as a whole when one is written, so that a rollover stays possible, and every answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from protocol.entries import NOTE, NOTE_SNAPSHOT, Note, NoteEntry, NoteFile, NoteSnapshot, NoteSnapshotEntry
from protocol.tools import NotesArguments
from state.arguments import clamp, required
from state.errors import RefusedError
from state.tree import Branch, Tree
from state.windows import NoteLine

SOURCE: Final = "pi-session"
ROOT: Final = "/root/notes/"
MAX_FILE_BYTES: Final = 1_000_000
MAX_SNAPSHOT_BYTES: Final = 10_000_000
MAX_TIME: Final = 8_640_000_000_000_000
"""The last millisecond that a JavaScript date can hold."""

FILES: Final = (20, 100)
MATCHES: Final = (20, 100)
READ_CHARS: Final = 32_000
LINE_CHARS: Final = 500
OUTPUT_CHARS: Final = 16_000

Result = dict[str, Any]


class Notes:
    """The notes of one branch by path. A value that the branch determines: rebuild it, do not keep it."""

    def __init__(self) -> None:
        self.files: dict[str, NoteFile] = {}

    @classmethod
    def of(cls, tree: Tree, branch: Branch) -> Notes:
        """Read the notes that are in force on this branch."""
        notes = cls()
        start = 0
        for at in range(len(branch.ours) - 1, -1, -1):
            head = branch.ours[at]
            if head.kind == NOTE_SNAPSHOT:
                entry = tree.body(head, NoteSnapshotEntry)
                if entry is not None and _plausible(entry.data):
                    notes.files = {file.path: file for file in entry.data.files}
                    start = at + 1
                    break
        for head in branch.ours[start:]:
            if head.kind == NOTE:
                note = tree.body(head, NoteEntry)
                if note is not None:
                    notes.apply(note.data)
        return notes

    def apply(self, note: Note) -> None:
        """Perform one write; one that would break a limit never was a note, and is passed over."""
        before = self.files.get(note.path)
        text = note.text if note.action == "write" or before is None else before.text + note.text
        if len(text.encode()) > MAX_FILE_BYTES or not 0 <= note.timestamp <= MAX_TIME:
            return
        created = note.timestamp if before is None else before.created_at
        self.files[note.path] = NoteFile(note.path, text, created, note.timestamp)

    def snapshot(self, now: int) -> NoteSnapshot:
        """All of them as one entry's data, sorted by path."""
        return NoteSnapshot(protocol=1, timestamp=now, files=[self.files[path] for path in sorted(self.files)])

    def lines(self) -> list[NoteLine]:
        """What the window marker tells of them."""
        return [
            NoteLine(file.path, count_lines(file.text), len(file.text.encode()), file.updated_at)
            for file in self.files.values()
        ]


def count_lines(text: str) -> int:
    """Lines are split on LF alone; a trailing LF ends the last line and starts none; no text, no line."""
    return text.count("\n") + (0 if text.endswith("\n") or not text else 1)


def snapshot_size(snapshot: NoteSnapshot) -> int:
    """The bytes that it takes as JSON, which `MAX_SNAPSHOT_BYTES` bounds."""
    return len(msgspec.json.encode(snapshot))


def _plausible(snapshot: NoteSnapshot) -> bool:
    return all(
        len(file.text.encode()) <= MAX_FILE_BYTES
        and 0 <= file.created_at <= MAX_TIME
        and 0 <= file.updated_at <= MAX_TIME
        for file in snapshot.files
    )


class Written(Struct, frozen=True):
    """A write that fits: the entry to append, and the result that the model gets."""

    note: Note
    result: Result


def run(notes: Notes, arguments: NotesArguments, now: int) -> Result | Written:
    """Carry out one call of the router; raises `RefusedError` with a text for the model."""
    return _ACTIONS[arguments.action](notes, arguments, now)


def _list(notes: Notes, arguments: NotesArguments, _now: int) -> Result:
    keys: dict[str, Callable[[NoteFile], Any]] = {
        "name": lambda file: file.path,
        "created_at": lambda file: (file.created_at, file.path),
        "updated_at": lambda file: (file.updated_at, file.path),
    }
    prefix = _prefix(arguments.prefix)
    files = sorted(
        (file for file in notes.files.values() if file.path.startswith(prefix)),
        key=keys[arguments.file_order_by or "name"],
        reverse=arguments.file_order == "descending",
    )
    limit = clamp(arguments.max_results, *FILES)
    result: Result = {"source": SOURCE, "files": [_facts(file) for file in files[:limit]]}
    return result | {"has_more": True} if len(files) > limit else result


def _read(notes: Notes, arguments: NotesArguments, _now: int) -> Result:
    file = notes.files.get(_path(arguments.path))
    if file is None:
        return {"source": SOURCE, "file": None}
    lines = file.text.split("\n")
    start = _line(arguments.start_line, len(lines), 1)
    stop = _line(arguments.stop_line, len(lines), len(lines))
    chosen = lines[start - 1 : stop]
    fitting, size = 0, -1
    for line in chosen:
        size += len(line) + 1
        if size > READ_CHARS:
            break
        fitting += 1
    facts = _facts(file) | {"content": "\n".join(chosen), "start_line": start, "stop_line": stop}
    if fitting < len(chosen):
        shown = max(1, fitting)
        facts |= {"content": "\n".join(chosen[:shown])[:READ_CHARS], "stop_line": start + shown - 1, "truncated": True}
        if start + shown <= stop:
            facts["next_start_line"] = start + shown
    return {"source": SOURCE, "file": facts | {"total_lines": len(lines)}}


def _search(notes: Notes, arguments: NotesArguments, _now: int) -> Result:
    query = required(arguments.query, "query")
    prefix = _prefix(arguments.path_prefix)
    files = sorted((file for file in notes.files.values() if file.path.startswith(prefix)), key=lambda file: file.path)
    if arguments.recent_file_first:
        files.sort(key=lambda file: -file.created_at)
    most = clamp(arguments.max_matches_per_file, *MATCHES)
    found: list[Result] = []
    room = OUTPUT_CHARS
    more = False
    for file in files:
        matches = [
            {"line_number": number, "line": _around(line, query)}
            for number, line in enumerate(file.text.split("\n"), 1)
            if query in line
        ]
        if not matches:
            continue
        shown: list[Result] = []
        for match in matches[:most]:
            room -= len(str(match["line"]))
            if (found or shown) and room < 0:
                break
            shown.append(match)
        more = more or len(matches) > len(shown)
        if not shown or len(found) >= clamp(arguments.max_files, *FILES):
            more = True
            break
        found.append({"path": file.path, "matches": shown})
    result: Result = {"source": SOURCE, "files": found}
    return result | {"has_more": True} if more else result


def _append(notes: Notes, arguments: NotesArguments, now: int) -> Written:
    return _write_note(notes, Note(1, "append", _path(arguments.path), _text(arguments), now))


def _write(notes: Notes, arguments: NotesArguments, now: int) -> Written:
    return _write_note(notes, Note(1, "write", _path(arguments.path), _text(arguments), now))


def _write_note(notes: Notes, note: Note) -> Written:
    """Check the limits before the note exists: one that does not fit would stop every later rollover."""
    after = Notes()
    after.files = dict(notes.files)
    after.apply(note)
    file = after.files.get(note.path)
    before = notes.files.get(note.path)
    size = len(note.text.encode()) + (len(before.text.encode()) if before and note.action == "append" else 0)
    if file is None or size > MAX_FILE_BYTES:
        raise RefusedError(f"The note would take {size:,} bytes; one file may take {MAX_FILE_BYTES:,}.")
    total = snapshot_size(after.snapshot(note.timestamp))
    if total > MAX_SNAPSHOT_BYTES:
        raise RefusedError(
            f"All notes together would take {total:,} bytes; {MAX_SNAPSHOT_BYTES:,} fit into a new context window. "
            "Shorten some with write_file first."
        )
    return Written(note, {"source": SOURCE, "file": _facts(file)})


_ACTIONS: Final[dict[str, Callable[[Notes, NotesArguments, int], Result | Written]]] = {
    "list_files_by_prefix": _list,
    "read_file": _read,
    "search_contents": _search,
    "append_to_file": _append,
    "write_file": _write,
}


def _path(path: str | None) -> str:
    """The whole path: `/<agent>/notes/<file>`; a relative one lies under `ROOT`."""
    given = required(path, "path")
    whole = given if given.startswith("/") else ROOT + given
    parts = whole[1:].split("/")
    named = "notes" in parts[1:-1]
    if not named or any(part in ("", ".", "..") for part in parts) or "\0" in whole:
        raise RefusedError("path is not valid: use a relative path such as checkpoint.md, or /root/notes/<path>.")
    return whole


def _prefix(prefix: str | None) -> str:
    """Where to look; the folder of all notes can be named with or without its slash, what is deeper is plain text."""
    if not prefix:
        return ROOT
    whole = prefix if prefix.startswith("/") else ROOT + prefix
    below = whole.split("/")[2:]
    return whole + "/" if below[-1:] == ["notes"] and "notes" not in below[:-1] else whole


def _text(arguments: NotesArguments) -> str:
    if arguments.text is None:
        raise RefusedError("text is required; it may be empty.")
    return arguments.text


def _line(given: int | None, total: int, default: int) -> int:
    """Upstream's rule: 0 is the default, a negative number counts from the end, and all are clamped."""
    if not given:
        return default
    return max(1, min(total, total + 1 + given if given < 0 else given))


def _around(line: str, query: str) -> str:
    start = max(0, min(line.find(query) - LINE_CHARS // 3, len(line) - LINE_CHARS))
    return line[start : start + LINE_CHARS]


def _facts(file: NoteFile) -> Result:
    return {
        "path": file.path,
        "bytes": len(file.text.encode()),
        "created_at": _iso(file.created_at),
        "updated_at": _iso(file.updated_at),
    }


def _iso(ms: int) -> str:
    """The time as JavaScript prints it; a year that Python cannot hold is shown as its last one."""
    moment = datetime.fromtimestamp(min(ms, 253_402_300_799_999) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
