"""The sessions that a session was forked from.

A fork's file holds only its path, so side branches that were archived before it lie in the file of its parent
(facts: pi-lifecycle 21). Read only, bounded, cycle-safe.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from daemon.journal import Journal
from state.archive import Ancestor
from state.tree import Tree

MAX_DEPTH: Final = 16
"""Forks of forks that are followed."""


class Lineage:
    """The chain of `parentSession` files of one journal, each indexed once and kept up to date after that."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[Path, tuple[Journal, Tree]] = {}

    def ancestors(self) -> list[Ancestor]:
        """Nearest first; the chain ends at a file that cannot be read, which is named."""
        found: list[Ancestor] = []
        seen = {self._journal.path}
        journal = self._journal
        while len(found) < MAX_DEPTH:
            header = journal.header()
            if header is None or not header.parent_session:
                break
            path = Path(header.parent_session)
            if path in seen:
                break
            seen.add(path)
            opened = self._open(path)
            if opened is None:
                found.append(Ancestor(str(path), None))
                break
            journal, tree = opened
            found.append(Ancestor(str(path), tree))
        return found

    def _open(self, path: Path) -> tuple[Journal, Tree] | None:
        if not path.is_file():
            return None
        if path not in self._known:
            journal = Journal(path)
            self._known[path] = journal, Tree(journal.raw, journal.scan)
        journal, tree = self._known[path]
        try:
            journal.refresh(tree)
        except OSError:  # not ours to read
            return None
        return journal, tree

    def close(self) -> None:
        """Let go of the files."""
        for journal, _ in self._known.values():
            journal.close()
