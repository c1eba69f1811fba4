"""The wall: which entries are folded now, told by the `shake` logs of the active branch alone.

Chronological, the last operation on an entry wins. Entries are counted, never overlays: a file gathers
superseded ones, and Pi's own (seed: "The wall"). So a fork, a rewind or an import is right by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from protocol.entries import SHAKE, FoldedTarget, ShakeEntry
from state.shake.view import Seen, hash_of
from state.tree import Branch, Tree


class Folded(Struct, frozen=True):
    """An entry that the logs hold for folded, by which scopes, and with what in its place."""

    target: FoldedTarget
    scopes: frozenset[str]


def wall(tree: Tree, branch: Branch) -> dict[str, Folded]:
    """Folded entries by id, oldest fold first."""
    folded: dict[str, Folded] = {}
    for head in branch.ours:
        if head.kind != SHAKE:
            continue
        entry = tree.body(head, ShakeEntry)
        if entry is None:
            continue
        for target in entry.data.targets:
            before = folded.pop(target.id, None)
            if entry.data.op == "fold":
                scopes = before.scopes if before is not None else frozenset()
                folded[target.id] = Folded(target, scopes | {entry.data.scope})
    return folded


def ours(seen: Seen, folded: Folded | None) -> bool:
    """Whether what the model sees of this entry is our fold.

    It is when a log names just this content. A kill between the overlays and their log leaves folds without
    one; those are told by the entry's own id in the placeholder.
    """
    if not seen.overlaid or seen.content is None:
        return False
    if folded is not None and folded.target.hash == hash_of(seen.content):
        return True
    return any(f"; history item {seen.head.id}]" in text for text in _texts(seen.content))


def _texts(content: Any) -> Iterable[str]:  # noqa: ANN401 - content as JSON
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
