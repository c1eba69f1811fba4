"""The wall: which entries are folded now, told by the `shake` logs of the active branch alone.

Chronological, the last operation on an entry wins. Entries are counted, never overlays: a file gathers
superseded ones, and Pi's own (seed: "The wall"). So a fork, a rewind or an import is right by construction.
"""

from __future__ import annotations

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
    one; those are told by the entry's own id in the placeholder of all that is not the entry's own. What only
    leaves something out may be anybody's, and is left alone.
    """
    if not seen.overlaid or seen.content is None:
        return False
    if folded is not None and folded.target.hash == hash_of(seen.content):
        return True
    own = seen.raw if isinstance(seen.raw, list) else []
    blocks = seen.content if isinstance(seen.content, list) else [seen.content]
    added = [_text(block) for block in blocks if block not in own]
    return bool(added) and all(f"; history item {seen.head.id}]" in text for text in added)


def _text(block: Any) -> str:  # noqa: ANN401 - content as JSON
    text = block.get("text") if isinstance(block, dict) else block
    return text if isinstance(text, str) else ""
