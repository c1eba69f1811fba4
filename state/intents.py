"""Rollovers as the session file tells of them: intents, what became of them, and what they left unanswered.

A restarted daemon and a killed Pi know a pending rollover from here alone (design 4, step 8).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from protocol.entries import INTENT, WINDOW, EntryHead, Intent, IntentEntry
from state.times import time_of
from state.tree import Branch, Tree
from state.windows import identity_of

QUEUED_MS: Final = 2_000
"""Within so many ms Pi has taken what was queued; nobody ends Pi, starts it anew and types faster."""

_ANSWERED = frozenset({"stop", "toolUse", "length"})


class OpenIntent(Struct, frozen=True):
    """An intent that is neither closed nor fulfilled, and the entry that holds it."""

    head: EntryHead
    intent: Intent


def open_intents(tree: Tree) -> dict[str, OpenIntent]:
    """All of them by intent id, oldest first."""
    found: dict[str, OpenIntent] = {}
    for head in tree.ours[INTENT]:
        entry = tree.body(head, IntentEntry)
        if entry is None:
            continue
        if isinstance(entry.data, Intent):
            found[entry.data.intent_id] = OpenIntent(head, entry.data)
        else:
            found.pop(entry.data.intent_id, None)
    if not found:
        return found
    opened = {identity.current_window_id for head in tree.ours[WINDOW] if (identity := identity_of(tree, head))}
    return {key: one for key, one in found.items() if one.intent.next.current_window_id not in opened}


def is_known(tree: Tree, intent_id: str | None) -> bool:
    """Whether the session holds this intent, open or not."""
    entries = (tree.body(head, IntentEntry) for head in tree.ours[INTENT])
    return any(entry is not None and entry.data.intent_id == intent_id for entry in entries)


def summary_of(tree: Tree, intent: Intent, branch: Branch) -> str | None:
    """The summary on this branch that ends the window of this intent.

    It hangs from the intent's base, and the leaf that it abandons descends from the intent's.
    """
    for head in branch.after(intent.base_id):
        if head.type == "branch_summary" and head.parent_id == intent.base_id:
            descends = any(entry.id == intent.leaf_id for entry in tree.ancestors(head.tag))
            return head.id if descends else None
    return None


def went_on(tree: Tree, intent: Intent, leaf: str) -> bool:
    """Whether somebody went on in the old window after the run of the intent had ended.

    Then a summary of it is not ours but theirs (design 4, step 8). What had been queued follows the message
    before it at once; who types comes later.
    """
    before: int | None = intent.requested_at
    for head in tree.path(leaf).after(intent.leaf_id):
        if head.type != "message":
            continue
        now = time_of(tree, head)
        if head.kind == "user" and before is not None and now is not None and now - before > QUEUED_MS:
            return True
        before = now
    return False


def unanswered(branch: Branch, intent: Intent) -> list[str]:
    """User messages after the intent that no assistant has answered, oldest first (facts: pi-lifecycle 4.3)."""
    waiting: list[str] = []
    for head in branch.after(intent.leaf_id):
        if head.type != "message":
            continue
        if head.kind == "user":
            waiting.append(head.id)
        elif head.kind == "assistant" and head.tag in _ANSWERED:
            waiting.clear()
    return waiting
