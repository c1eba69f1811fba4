"""Context windows: their identity, and the marker that opens one in the model's context.

The format on disk and the order of the text's lines are upstream's (facts: tree-upstream 1.1 to 1.3); the
wording is ours. What a window archived lies in `archive`, what the model sees of it in `projection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from protocol.effects import AppendMessage
from protocol.entries import WINDOW, EntryHead, MarkerDetails, MarkerEntry, WindowIdentity
from state.tree import Branch, Tree

HINT_BYTES: Final = 4_000
"""The whole hint, in UTF-8 bytes (facts: tree-upstream 1.3)."""

HINT_NOTES: Final = 5
HINT_USER_ITEMS: Final = 5

GUIDANCE: Final = """\
<context_window_guidance>
Your work is split into context windows. A new window starts without a summary of the last one: only your notes \
and the history of earlier windows carry over.
- Keep one short checkpoint per task in notes, at a stable path: goal, decisions, progress, what you learned, next \
steps, and the item ids you may need. Replace what is out of date instead of adding to it.
- get_context_remaining tells how much room is left. Before you call new_context, bring the checkpoint up to date.
- A previous context window id below means that this window continues earlier work. Read the newest note first, \
then fetch from history only what is missing: read an item whose id you know directly, search for the rest, and \
do not page through whole windows.
- All of this is your own bookkeeping. Do not mention it to the user.
</context_window_guidance>"""


class NoteLine(Struct, frozen=True):
    """What the hint tells of one note; `updated_at` in ms, `size` in UTF-8 bytes."""

    path: str
    lines: int
    size: int
    updated_at: int


class Recovery(Struct, frozen=True):
    """Where the last window can be read; the ids are Pi's entry ids. No summary in local mode."""

    window_id: str
    user_item_ids: list[str]
    summary_item_id: str | None = None


def first_window(new_id: Callable[[], str]) -> WindowIdentity:
    """The identity of a session's first window."""
    current = new_id()
    return WindowIdentity(
        protocol=1, kind="window", first_window_id=current, current_window_id=current, window_number=0
    )


def next_window(identity: WindowIdentity, new_id: Callable[[], str]) -> WindowIdentity:
    """The identity that follows."""
    return WindowIdentity(
        protocol=1,
        kind="window",
        first_window_id=identity.first_window_id,
        current_window_id=new_id(),
        previous_window_id=identity.current_window_id,
        window_number=identity.window_number + 1,
    )


def is_marker(head: EntryHead) -> bool:
    """Whether the entry claims to be one of our markers; `identity_of` tells whether it is a valid one."""
    return head.type == "custom_message" and head.kind == WINDOW


def identity_of(tree: Tree, head: EntryHead) -> WindowIdentity | None:
    """The window that a marker opens, or None when it opens none or is malformed."""
    marker = tree.body(head, MarkerEntry) if is_marker(head) else None
    if marker is None:
        return None
    identity = marker.details.context_management
    whole = identity.first_window_id and identity.current_window_id and identity.window_number >= 0
    return identity if whole and identity.kind == "window" and marker.details.id else None


def message_id_of(tree: Tree, head: EntryHead) -> str | None:
    """The `details.id` of a marker, which its message carries too."""
    entry = tree.body(head, MarkerEntry)
    return None if entry is None else entry.details.id


def current_boundary(tree: Tree, branch: Branch) -> tuple[EntryHead, WindowIdentity] | None:
    """The latest valid marker of the branch; a malformed one is passed over, never fatal."""
    for head in reversed(branch.ours):
        identity = identity_of(tree, head)
        if identity is not None:
            return head, identity
    return None


def marker(
    identity: WindowIdentity, notes: Iterable[NoteLine], recovery: Recovery | None, *, start_turn: bool = False
) -> AppendMessage:
    """The effect that opens a window. With a turn, it also frees held input once it is in the session."""
    message_id = identity.current_window_id
    return AppendMessage(
        custom_type=WINDOW,
        content=marker_text(identity, hint(notes, recovery)),
        details=MarkerDetails(protocol=1, id=message_id, context_management=identity),
        start_turn=start_turn,
        release_after=message_id if start_turn else None,
    )


def marker_text(identity: WindowIdentity, hint_text: str) -> str:
    """What the model reads at the start of a window."""
    lines = [
        "<context_window>",
        f"Agent name: {identity.agent_name or '/root'}",
        f"First context window id: {identity.first_window_id}",
        f"Current context window id: {identity.current_window_id}",
    ]
    if identity.previous_window_id is not None:
        lines.append(f"Previous context window id: {identity.previous_window_id}")
    if hint_text:
        lines.append(hint_text)
    lines.append("</context_window>")
    return GUIDANCE + "\n\n" + "\n".join(lines)


def hint(notes: Iterable[NoteLine], recovery: Recovery | None) -> str:
    """Recent notes and the ids of the last window, within `HINT_BYTES`.

    The recovery line's bytes are set aside first; a note line that does not fit is left out and shorter
    ones after it are still tried.
    """
    tail = "" if recovery is None else _recovery_line(recovery)
    room = HINT_BYTES - len(tail.encode())
    head = f"Recent notes (up to {HINT_NOTES}, most-recent first):"
    lines: list[str] = []
    used = len(head.encode()) + 1
    recent = sorted(notes, key=lambda note: (-note.updated_at, note.path))
    for note in recent:
        line = f"- {note.path} ({note.lines} {'line' if note.lines == 1 else 'lines'}, {note.size} UTF-8 bytes)"
        size = len(line.encode()) + 1
        if len(lines) < HINT_NOTES and used + size <= room:
            lines.append(line)
            used += size
    parts = [head, *lines] if lines else []
    if tail:
        parts.append(tail)
    text = "\n".join(parts)
    return text if len(text.encode()) <= HINT_BYTES else ""


def _recovery_line(recovery: Recovery) -> str:
    ids: dict[str, str | list[str]] = {"window_id": recovery.window_id}
    if recovery.summary_item_id is not None:
        ids["summary_item_id"] = recovery.summary_item_id
    ids["user_item_ids"] = recovery.user_item_ids
    return "Previous window history IDs: " + msgspec.json.encode(ids).decode()
