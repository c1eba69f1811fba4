"""Times of entries: Pi writes them as ISO text, everything here counts in ms."""

from __future__ import annotations

from datetime import datetime

from protocol.entries import EntryHead, Stamped
from state.tree import Tree


def ms_of(timestamp: str) -> int | None:
    """An ISO time in ms; None when it is none."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def time_of(tree: Tree, head: EntryHead | None) -> int | None:
    """When the entry was appended, in ms."""
    entry = tree.body(head, Stamped) if head is not None else None
    return None if entry is None else ms_of(entry.timestamp)
