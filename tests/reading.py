"""Everything that the product does with a session file, done once: so that a file that breaks any of it is found."""

import json
from dataclasses import dataclass
from pathlib import Path

from daemon.journal import Journal
from daemon.show import show
from protocol.tools import HistoryArguments
from state import history
from state.archive import Archive, ArchiveIndex
from state.notes import Notes
from state.tree import Tree


@dataclass(frozen=True, slots=True)
class Read:
    """What there was to read."""

    entries: int
    saved: int
    branch: int
    windows: int
    items: int
    notes: int


def everything(file: Path) -> Read:
    """Read the file as a session is read when it starts, and then all that can be asked of it."""
    journal = Journal(file)
    try:
        tree = Tree(journal.raw, journal.scan)
        journal.refresh(tree)
        for head in [*tree.heads.values(), *tree.saved.values()]:
            body = journal.raw(head)
            assert body is None or isinstance(json.loads(body.decode()), dict), head.id
        branch = tree.branch(journal.leaf)
        archives = ArchiveIndex(tree).of(branch)
        shelf = history.shelf(tree, branch, archives)
        items = 0
        for window in shelf.windows[:20]:
            asked = HistoryArguments(action="list_items", window_id=window.id, limit=50)
            for item in history.run(shelf, asked)["items"]:
                read = HistoryArguments(action="read_item", window_id=window.id, item_id=item["item_id"])
                assert history.run(shelf, read)["item"]
                items += 1
        for query in ("window", "é", "\\", '"', "nothing of the kind"):
            history.run(shelf, HistoryArguments(action="search_contents", query=query))
        history.run(shelf, HistoryArguments(action="list_windows"))
        notes = Notes.of(tree, branch).lines()
        show(file)
        valid = sum(isinstance(archive, Archive) for archive in archives)
        return Read(len(tree.heads), len(tree.saved), len(branch.heads), valid, items, len(notes))
    finally:
        journal.close()
