"""Archives: finished windows that a manifest on the active branch describes.

A manifest is believed only when everything that it claims is so in the tree (facts: tree-upstream 4.1). One
that is not makes that archive unavailable, with the reason, and touches no other (design 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from protocol.entries import ARCHIVE, EntryHead, Manifest, ManifestEntry
from state.tree import Branch, Tree
from state.windows import HINT_USER_ITEMS, Recovery, identity_of

MAX_INTERVAL: Final = 50_000
"""The most entries that one archive may hold (facts: tree-upstream 4.1)."""


class Archive(Struct, frozen=True):
    """A readable archive: its summary, and its entries oldest first.

    `tree` holds the entries: the session's own, or in a fork the one of an ancestor. `sealed`: a marker
    follows the manifest on the branch, so the summary may be hidden.
    """

    manifest_id: str
    window_id: str
    summary: EntryHead
    items: list[EntryHead]
    tree: Tree
    sealed: bool


class Unavailable(Struct, frozen=True):
    """A manifest that does not hold, and why."""

    manifest_id: str
    window_id: str | None
    why: str


class Ancestor(Struct, frozen=True):
    """A session that this one was forked from. `tree` is None when its file cannot be read."""

    file: str
    tree: Tree | None


Ancestors = Callable[[], Sequence[Ancestor]]
"""The chain of `parentSession` files, nearest first; called when an archive is not in the session's own file."""


class _Checked(Struct, frozen=True):
    manifest: Manifest
    summary: EntryHead
    items: list[EntryHead]
    tree: Tree


class ArchiveIndex:
    """The archives of the active branch, oldest first.

    A manifest is judged once, since entries never change; a branch that grows costs what has grown.
    """

    def __init__(self, tree: Tree, ancestors: Ancestors = lambda: ()) -> None:
        self._tree = tree
        self._ancestors = ancestors
        self.clear()

    def clear(self) -> None:
        """Forget everything: the file was rewritten, or an ancestor may be back."""
        self._judged: dict[str, _Checked | Unavailable] = {}
        self._found: list[Archive | Unavailable] = []
        self._ours: tuple[list[EntryHead], int] = ([], 0)

    def of(self, branch: Branch) -> list[Archive | Unavailable]:
        """Every manifest of the branch, judged on its own."""
        if branch.ours is not self._ours[0] or len(branch.ours) != self._ours[1]:
            self._found = self._judge(branch.ours)
            self._ours = branch.ours, len(branch.ours)
        return self._found

    def _judge(self, ours: list[EntryHead]) -> list[Archive | Unavailable]:
        found: list[Archive | Unavailable] = []
        taken: set[str] = set()
        backwards = range(len(ours) - 1, -1, -1)
        last_marker = next((at for at in backwards if identity_of(self._tree, ours[at]) is not None), -1)
        for at, head in enumerate(ours):
            if head.kind != ARCHIVE or head.type != "custom":
                continue
            if head.id not in self._judged:
                self._judged[head.id] = self._check(head)
            checked = self._judged[head.id]
            if isinstance(checked, Unavailable):
                found.append(checked)
                continue
            window = checked.manifest.window_id
            claims = {window, checked.summary.id, *(item.id for item in checked.items)}
            if claims & taken:
                found.append(Unavailable(head.id, window, "an earlier archive holds some of the same"))
                continue
            taken |= claims
            sealed = last_marker > at
            found.append(Archive(head.id, window, checked.summary, checked.items, checked.tree, sealed))
        return found

    def _check(self, head: EntryHead) -> _Checked | Unavailable:
        entry = self._tree.body(head, ManifestEntry)
        if entry is None:
            return Unavailable(head.id, None, "the manifest is malformed")
        manifest = entry.data
        summary = self._tree.heads.get(manifest.summary_entry_id)
        if summary is None:
            return Unavailable(head.id, manifest.window_id, "the summary is missing")
        why = self._mismatch(head, manifest, summary)
        if why is not None:
            return Unavailable(head.id, manifest.window_id, why)
        items, tree = self._interval(manifest)
        if isinstance(items, str):
            return Unavailable(head.id, manifest.window_id, items)
        # A cut at anything but a message leaves the boundary itself as the base (facts: pi-lifecycle 5).
        boundary = manifest.boundary_entry_id
        if boundary != manifest.branch_base_id and all(item.id != boundary for item in items):
            return Unavailable(head.id, manifest.window_id, "the boundary is not in the archived interval")
        return _Checked(manifest, summary, items, tree)

    def _mismatch(self, head: EntryHead, manifest: Manifest, summary: EntryHead) -> str | None:
        """What the manifest claims of its summary and is not so.

        Upstream wants the manifest right below its summary. Other extensions append there as well, and a window
        must not be lost for that; so it may follow anywhere on the same branch.
        """
        follows = not isinstance(self._tree.interval(head.id, summary.id, MAX_INTERVAL), str)
        claims = (
            (bool(manifest.window_id), "the manifest names no window"),
            (summary.type == "branch_summary", "what the manifest calls a summary is none"),
            (follows, "the manifest does not follow its summary"),
            (summary.tag == manifest.archived_leaf_id, "the summary is of another leaf"),
            (summary.parent_id == manifest.branch_base_id, "the summary has another base"),
        )
        return next((why for holds, why in claims if not holds), None)

    def _interval(self, manifest: Manifest) -> tuple[list[EntryHead] | str, Tree]:
        """The archived entries, from this session or from the nearest one that it was forked from."""
        leaf, base = manifest.archived_leaf_id, manifest.branch_base_id
        items = self._tree.interval(leaf, base, MAX_INTERVAL)
        if self._tree.find(leaf) is not None:
            return items, self._tree
        for ancestor in self._ancestors():
            if ancestor.tree is None:
                return f"its entries lie in {ancestor.file}, which cannot be read", self._tree
            if ancestor.tree.find(leaf) is not None:
                return ancestor.tree.interval(leaf, base, MAX_INTERVAL), ancestor.tree
        return items, self._tree


def last_users(items: list[EntryHead]) -> list[str]:
    """The ids of the last user messages, most recent first."""
    users = [head.id for head in reversed(items) if head.type == "message" and head.kind == "user"]
    return users[:HINT_USER_ITEMS]


def recovery_of(window_id: str, summary_id: str | None, items: list[EntryHead]) -> Recovery:
    """Where the window that these entries were can be read from now on."""
    return Recovery(window_id, last_users(items), summary_id)
