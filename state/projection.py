"""What the model sees: which messages of a request stay (design 5).

Messages carry no entry ids, so they are matched by what they say, never by their position: other extensions
may have added or dropped some. A summary that is not provably ours stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from protocol.events import OutlineItem


class Signature(Struct, frozen=True):
    """Names a summary's message: abandoned leaf, time in ms, hash of its text (facts: pi-lifecycle 8)."""

    from_id: str
    timestamp: int
    hash: str


def tree_projection(
    count: int, outline: Sequence[OutlineItem], hidden: Collection[Signature]
) -> list[tuple[int, int]] | None:
    """The ranges of messages to keep when the summaries in `hidden` go; None when all stay."""
    dropped = sorted(
        {item.at for item in outline if item.role == "branchSummary" and _signature(item) in hidden and item.at < count}
    )
    return _complement(dropped, count) if dropped else None


def _signature(item: OutlineItem) -> Signature | None:
    if item.from_id is None or item.timestamp is None or item.hash is None:
        return None
    return Signature(item.from_id, item.timestamp, item.hash)


def _complement(dropped: Sequence[int], count: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    start = 0
    for at in [*dropped, count]:
        if at > start:
            kept.append((start, at))
        start = at + 1
    return kept
