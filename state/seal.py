"""Sealing: what makes a new window whole once Pi has moved the leaf (design 4, step 5).

Used by the rollover itself and by recovery alike, so both write the same entries in the same order.
"""

from __future__ import annotations

from protocol import effects as fx
from protocol.entries import ARCHIVE, NOTE_SNAPSHOT, STRATEGY, Intent, Manifest
from state.archive import MAX_INTERVAL, recovery_of
from state.intents import unanswered
from state.notes import Notes
from state.tree import Branch, Tree
from state.windows import marker


def seal(
    tree: Tree, intent: Intent, summary_id: str, branch: Branch, now: int, *, start_turn: bool
) -> list[fx.AnyEffect]:
    """Manifest, note snapshot, what the cut left behind, and the marker; less what follows the summary already."""
    summary = tree.heads[summary_id]
    window = intent.identity.current_window_id
    old = tree.path(summary.tag)
    notes = Notes.of(tree, old)
    there = {head.kind for head in branch.after(summary_id)}
    effects: list[fx.AnyEffect] = []
    if ARCHIVE not in there:
        manifest = Manifest(
            protocol=1,
            strategy=STRATEGY,
            window_id=window,
            boundary_entry_id=intent.boundary_id,
            summary_entry_id=summary_id,
            archived_leaf_id=summary.tag,
            branch_base_id=summary.parent_id,
        )
        effects.append(fx.AppendEntry(custom_type=ARCHIVE, data=manifest))
    if NOTE_SNAPSHOT not in there:
        effects.append(fx.AppendEntry(custom_type=NOTE_SNAPSHOT, data=notes.snapshot(now)))
    effects += _selections(old, branch)
    resend = unanswered(old, intent)
    if resend:
        effects.append(fx.Resend(entry_ids=resend))
    items = tree.interval(summary.tag, summary.parent_id, MAX_INTERVAL)
    recovery = recovery_of(window, summary_id, [] if isinstance(items, str) else items)
    effects.append(marker(intent.next, notes.lines(), recovery, start_turn=start_turn))
    return effects


def _selections(old: Branch, branch: Branch) -> list[fx.AnyEffect]:
    """Thinking level and model in force, where the cut left them behind (facts: pi-lifecycle 21).

    Pi 1.6 would declare them itself; then it finds them declared.
    """
    effects: list[fx.AnyEffect] = []
    level = _last(old, "thinking_level_change")
    if level and level != _last(branch, "thinking_level_change"):
        effects.append(fx.AppendThinkingLevel(level=level))
    model = _last(old, "model_change")
    if model and model != _last(branch, "model_change"):
        provider, _, model_id = model.partition("/")
        effects.append(fx.AppendModel(provider=provider, model_id=model_id))
    return effects


def _last(branch: Branch, entry_type: str) -> str | None:
    head = branch.last(lambda entry: entry.type == entry_type)
    return head.tag if head is not None else None
