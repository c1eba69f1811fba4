"""The session tree: an index of entry heads, and the walks over it.

Every walk is iterative, bounded and cycle-safe; a missing parent ends it, as in Pi. Nothing here knows
windows, archives or notes. The index only grows (`add`) or is emptied (`clear`); the leaf is always given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from protocol.entries import OURS, EntryHead

T = TypeVar("T")

Bodies = Callable[[EntryHead], bytes | None]
"""Reads an entry's JSON line; None when it cannot be read any more."""

Cancelled = Callable[[], bool]

Scan = Callable[[int, int, Sequence[bytes], Cancelled], bool]
"""Tells whether the bytes [start, end) of the file hold one of these strings."""


class Branch(Struct, frozen=True):
    """The path from a root to `leaf`, root first.

    `complete` is false when the walk ended at a parent that the index lacks, which `missing` then names, or
    in a cycle. The value holds until the tree is asked for another branch, which may extend `heads` in place.
    """

    leaf: str | None
    heads: list[EntryHead]
    ours: list[EntryHead]
    """Those of our own types, in the same order: what most questions are about."""
    complete: bool
    missing: str | None = None

    def after(self, entry_id: str | None) -> list[EntryHead]:
        """The entries that follow this one, oldest first; all for None, none when it is not on the branch."""
        if entry_id is None:
            return list(self.heads)
        position = self.position(entry_id)
        return [] if position is None else self.heads[position + 1 :]

    def position(self, entry_id: str) -> int | None:
        """Where the entry stands, sought from the leaf: what is asked for is mostly recent."""
        heads = self.heads
        for index in range(len(heads) - 1, -1, -1):
            if heads[index].id == entry_id:
                return index
        return None

    def __contains__(self, entry_id: object) -> bool:
        return isinstance(entry_id, str) and self.position(entry_id) is not None

    def last(self, accept: Callable[[EntryHead], bool]) -> EntryHead | None:
        """The entry nearest to the leaf that is accepted."""
        return next((head for head in reversed(self.heads) if accept(head)), None)


_NOWHERE: Final = Branch(None, [], [], complete=True)


def _ours(heads: list[EntryHead]) -> list[EntryHead]:
    return [head for head in heads if head.kind in OURS]


class Tree:
    """All entries of one session by id, and the branch that was asked for last.

    Adding is O(1), and so is asking again for a branch that has grown at its leaf: only the new part is
    walked.
    """

    heads: dict[str, EntryHead]
    ours: dict[str, list[EntryHead]]
    """The entries of our own types, on any branch, in the order of the file."""
    saved: dict[str, EntryHead]
    """Entries of lines that Pi does not read. No branch leads through them; an archived path may (facts: real-sessions
    3, #8575), since only we walk those."""
    duplicates: int
    """How many entries replaced another one with the same id."""
    gaps: set[str]
    """Parents that Pi lacks too: a branch that ends at one is as complete as it can be."""

    def __init__(self, bodies: Bodies, scan: Scan | None = None) -> None:
        self._bodies = bodies
        self._scan = scan
        self.clear()

    def clear(self) -> None:
        """Forget everything, since the file was rewritten."""
        self.heads = {}
        self.ours = {kind: [] for kind in OURS}
        self.saved = {}
        self.duplicates = 0
        self.gaps = set()
        self._branch = _NOWHERE

    def add(self, heads: Iterable[EntryHead]) -> None:
        """Index more entries. Of two with one id the later wins, as in Pi (facts: tree-upstream 9)."""
        index = self.heads
        stale: set[str] = set()
        for head in heads:
            before = index.get(head.id)
            if before is not None:
                if before == head:
                    continue
                self.duplicates += 1
                self._branch = _NOWHERE
                if before.kind in self.ours:
                    stale.add(before.kind)
            index[head.id] = head
            if head.kind in self.ours:
                self.ours[head.kind].append(head)
        for kind in stale:
            self.ours[kind] = [head for head in self.ours[kind] if index[head.id] is head]

    def save(self, heads: Iterable[EntryHead]) -> None:
        """Keep entries of lines that Pi does not read, for `find` alone."""
        self.saved.update((head.id, head) for head in heads)

    def find(self, entry_id: str) -> EntryHead | None:
        """The entry of this id, or else what could be saved of it."""
        head = self.heads.get(entry_id)
        return self.saved.get(entry_id) if head is None else head

    def known_before(self, missing: str) -> str | None:
        """The entry after which Pi, if it still holds this one, does so; most likely it is newer than the file.

        Unless its line cannot be read: then it followed its parent, and the file has gone on since.
        """
        saved = self.saved.get(missing)
        return next(reversed(self.heads), None) if saved is None else saved.parent_id

    def raw(self, head: EntryHead) -> bytes | None:
        """The entry's line."""
        return self._bodies(head)

    def holds(self, start: int, end: int, needles: Sequence[bytes], cancelled: Cancelled) -> bool:
        """Whether one of the needles may stand in these bytes of the file; a quick look before a slow one."""
        return self._scan is None or self._scan(start, end, needles, cancelled)

    def body(self, head: EntryHead, shape: type[T]) -> T | None:
        """The entry decoded as `shape`, or None when it is not of that shape or cannot be read."""
        raw = self._bodies(head)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=shape)
        except (msgspec.DecodeError, RecursionError):
            return None

    def oddities(self) -> dict[str, int]:
        """How many entries there are that no walk from a root meets as it should; looks at all of them."""
        heads = self.heads
        orphans = sum(1 for head in heads.values() if head.parent_id is not None and head.parent_id not in heads)
        reached: set[str] = set()
        circular = 0
        for start in heads:
            path: dict[str, int] = {}
            at: str | None = start
            while at is not None and at in heads and at not in reached and at not in path:
                path[at] = len(path)
                at = heads[at].parent_id
            circular += len(path) - path[at] if at in path else 0
            reached.update(path)
        return {"duplicate ids": self.duplicates, "parents missing": orphans, "entries in a circle": circular}

    def ancestors(self, leaf: str | None) -> Iterator[EntryHead]:
        """From the leaf to its root; ends silently at a missing parent and before a repeated entry."""
        seen: set[str] = set()
        while leaf is not None and leaf not in seen:
            head = self.heads.get(leaf)
            if head is None:
                return
            seen.add(leaf)
            yield head
            leaf = head.parent_id

    def path(self, leaf: str | None) -> Branch:
        """The path to this leaf, walked anew; for a look at another branch than the active one."""
        return self._walk(leaf, _NOWHERE)

    def branch(self, leaf: str | None) -> Branch:
        """The path to the active leaf; cheap when it continues the last one."""
        known = self._branch
        if not known.complete and (known.missing is None or known.missing in self.heads):
            known = _NOWHERE  # the parent that it lacked has come; and in a cycle no walk continues another
        if known is _NOWHERE or leaf != known.leaf:
            self._branch = self._walk(leaf, known)
        return self._branch

    @property
    def current(self) -> Branch:
        """The branch that was asked for last."""
        return self._branch

    def _walk(self, leaf: str | None, known: Branch) -> Branch:
        fresh: list[EntryHead] = []
        seen: set[str] = set()
        at = leaf
        while at is not None and at != known.leaf and at not in seen:
            head = self.heads.get(at)
            if head is None:
                break
            seen.add(at)
            fresh.append(head)
            at = head.parent_id
        fresh.reverse()
        if at is not None and at == known.leaf:
            known.heads.extend(fresh)
            known.ours.extend(_ours(fresh))
            return Branch(leaf, known.heads, known.ours, known.complete, known.missing)
        return Branch(leaf, fresh, _ours(fresh), complete=at is None, missing=None if at in seen else at)

    def interval(self, leaf: str, base: str | None, limit: int) -> list[EntryHead] | str:
        """The entries from `base`'s child to `leaf`, oldest first, or why there is no such path."""
        path: list[EntryHead] = []
        seen: set[str] = set()
        at: str | None = leaf
        while at != base:
            if at is None:
                return "the archived leaf does not descend from the branch base"
            if at in seen:
                return f"the path is a cycle at {at}"
            head = self.find(at)
            if head is None:
                return f"entry {at} is missing"
            if len(path) >= limit:
                return f"the path is longer than {limit:,} entries"
            seen.add(at)
            path.append(head)
            at = head.parent_id
        path.reverse()
        return path
