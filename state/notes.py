"""Notes: files of the model's own, kept as entries on the active branch.

The latest valid snapshot of the branch counts, and the writes that follow it. Paths and limits are
upstream's (facts: tree-upstream 3.2). A malformed entry is passed over.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.entries import NOTE, NOTE_SNAPSHOT, Note, NoteEntry, NoteFile, NoteSnapshot, NoteSnapshotEntry
from state.tree import Branch, Tree
from state.windows import NoteLine

MAX_FILE_BYTES: Final = 1_000_000
MAX_SNAPSHOT_BYTES: Final = 10_000_000
MAX_TIME: Final = 8_640_000_000_000_000
"""The last millisecond that a JavaScript date can hold."""


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
