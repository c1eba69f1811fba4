"""What the model sees: which messages of a request stay, by mode (design 5).

Messages carry no entry ids, so they are matched by what they say, never by their position: other extensions
may have added or dropped some. A summary that is not provably ours stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from protocol.entries import WINDOW
from protocol.events import OutlineItem

Ranges = list[tuple[int, int]]


class Signature(Struct, frozen=True):
    """Names a summary's message: abandoned leaf, time in ms, hash of its text (facts: pi-lifecycle 8)."""

    from_id: str
    timestamp: int
    hash: str


def tree_projection(count: int, outline: Sequence[OutlineItem], hidden: Collection[Signature]) -> Ranges | None:
    """The ranges of messages to keep when the summaries in `hidden` go; None when all stay."""
    return _without((item.at for item in outline if item.role == "branchSummary" and _signature(item) in hidden), count)


def local_projection(count: int, outline: Sequence[OutlineItem], marker_id: str | None) -> Ranges | None:
    """From the marker with this `details.id` on; None when it is not among the messages."""
    starts = [item.at for item in outline if item.id == marker_id and item.custom_type == WINDOW and item.at < count]
    return [(starts[-1], count)] if marker_id is not None and starts and starts[-1] > 0 else None


def off_projection(count: int, outline: Sequence[OutlineItem]) -> Ranges | None:
    """All but our markers."""
    return _without((item.at for item in outline if item.custom_type == WINDOW), count)


def _signature(item: OutlineItem) -> Signature | None:
    if item.from_id is None or item.timestamp is None or item.hash is None:
        return None
    return Signature(item.from_id, item.timestamp, item.hash)


def _without(dropped: Iterable[int], count: int) -> Ranges | None:
    """The complement of these positions in [0, count)."""
    gone = sorted({at for at in dropped if 0 <= at < count})
    if not gone:
        return None
    kept: Ranges = []
    start = 0
    for at in [*gone, count]:
        if at > start:
            kept.append((start, at))
        start = at + 1
    return kept
