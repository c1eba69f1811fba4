"""Archives: finished windows that a manifest on the active branch describes.

A manifest is believed only when everything that it claims is so in the tree (facts: tree-upstream 4.1). One
that is not makes that archive unavailable, with the reason, and touches no other (design 5).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from protocol.entries import ARCHIVE, EntryHead, Manifest, ManifestEntry
from state.tree import Branch, Tree
from state.windows import HINT_USER_ITEMS, Recovery, is_marker

MAX_INTERVAL: Final = 50_000
"""The most entries that one archive may hold (facts: tree-upstream 4.1)."""


class Archive(Struct, frozen=True):
    """A readable archive: its summary, and its entries oldest first."""

    manifest_id: str
    window_id: str
    summary: EntryHead
    items: list[EntryHead]
    sealed: bool
    """A marker follows the manifest on the branch, so the summary may be hidden."""


class Unavailable(Struct, frozen=True):
    """A manifest that does not hold, and why."""

    manifest_id: str
    window_id: str | None
    why: str


class ArchiveIndex:
    """The archives of the active branch, oldest first.

    What was found valid stays so, since entries never change; only new manifests are looked at.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._valid: dict[str, tuple[Manifest, EntryHead, list[EntryHead]]] = {}

    def clear(self) -> None:
        """Forget everything, since the file was rewritten."""
        self._valid.clear()

    def of(self, branch: Branch) -> list[Archive | Unavailable]:
        """Every manifest of the branch, judged on its own."""
        found: list[Archive | Unavailable] = []
        windows: set[str] = set()
        summaries: set[str] = set()
        last_marker = max((at for at, head in enumerate(branch.ours) if is_marker(head)), default=-1)
        for at, head in enumerate(branch.ours):
            if head.kind != ARCHIVE or head.type != "custom":
                continue
            checked = self._valid.get(head.id) or self._check(head)
            if isinstance(checked, Unavailable):
                found.append(checked)
                continue
            manifest, summary, items = checked
            if manifest.window_id in windows or summary.id in summaries:
                found.append(Unavailable(head.id, manifest.window_id, "another archive claims the same window"))
                continue
            self._valid[head.id] = checked
            windows.add(manifest.window_id)
            summaries.add(summary.id)
            found.append(Archive(head.id, manifest.window_id, summary, items, sealed=last_marker > at))
        return found

    def _check(self, head: EntryHead) -> tuple[Manifest, EntryHead, list[EntryHead]] | Unavailable:
        entry = self._tree.body(head, ManifestEntry)
        if entry is None:
            return Unavailable(head.id, None, "the manifest is malformed")
        manifest = entry.data
        summary = self._tree.heads.get(manifest.summary_entry_id)
        if summary is None:
            return Unavailable(head.id, manifest.window_id, "the summary is missing")
        why = _mismatch(head, manifest, summary)
        if why is not None:
            return Unavailable(head.id, manifest.window_id, why)
        items = self._tree.interval(manifest.archived_leaf_id, manifest.branch_base_id, MAX_INTERVAL)
        if isinstance(items, str):
            return Unavailable(head.id, manifest.window_id, items)
        if all(item.id != manifest.boundary_entry_id for item in items):
            return Unavailable(head.id, manifest.window_id, "the boundary is not in the archived interval")
        return manifest, summary, items


def _mismatch(head: EntryHead, manifest: Manifest, summary: EntryHead) -> str | None:
    claims = (
        (bool(manifest.window_id), "the manifest names no window"),
        (summary.type == "branch_summary", "what the manifest calls a summary is none"),
        (head.parent_id == summary.id, "the manifest does not follow its summary"),
        (summary.tag == manifest.archived_leaf_id, "the summary is of another leaf"),
        (summary.parent_id == manifest.branch_base_id, "the summary has another base"),
    )
    return next((why for holds, why in claims if not holds), None)


def last_users(items: list[EntryHead]) -> list[str]:
    """The ids of the last user messages, most recent first."""
    users = [head.id for head in reversed(items) if head.type == "message" and head.kind == "user"]
    return users[:HINT_USER_ITEMS]


def recovery_of(window_id: str, summary_id: str, items: list[EntryHead]) -> Recovery:
    """Where the window that these entries were can be read from now on."""
    return Recovery(window_id, last_users(items), summary_id)
