"""Sessions on disk: a `PiSession` whose file grows line by line, as Pi writes it."""

import json
from pathlib import Path
from typing import Any

from builders import Json, PiSession, line_of


class FilePi(PiSession):
    """A session that Pi writes line by line."""

    def __init__(self, file: Path, before: PiSession | None = None, *, parent: Path | None = None) -> None:
        super().__init__()
        self.file = file
        if before is not None:
            self._ids, self.clock = before._ids, before.clock
        if not file.exists():
            parents = {} if parent is None else {"parentSession": str(parent)}
            file.write_bytes(line_of(self.header() | parents) + b"\n")

    def append(self, entry_type: str, *, parent: str | None = "", **fields: Any) -> str:
        entry_id = super().append(entry_type, parent=parent, **fields)
        self._write(self.entries[-1])
        return entry_id

    def _write(self, *entries: Json) -> None:
        with self.file.open("ab") as out:
            out.write(b"".join(line_of(entry) + b"\n" for entry in entries))

    def reopened(self) -> "FilePi":
        """As another process finds it: the leaf is the last line (facts: tree-upstream 9)."""
        after = FilePi(self.file, self)
        after.entries = [json.loads(line) for line in self.file.read_bytes().split(b"\n")[1:] if line]
        after.leaf = after.entries[-1]["id"] if after.entries else None
        return after

    def fork(self, file: Path) -> "FilePi":
        """A new file with the path to the leaf alone (facts: pi-lifecycle 21)."""
        after = FilePi(file, self, parent=self.file)
        after.entries, after.leaf, after.editor = self.branch(), self.leaf, self.editor
        after._write(*after.entries)
        return after
