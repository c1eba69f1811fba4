"""How much room a window has left, and the one reminder before it runs out (facts: tree-upstream 1.5)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from protocol.effects import AppendMessage
from protocol.entries import WINDOW, MarkerDetails, WindowIdentity
from protocol.events import Usage

RESERVE: Final = 16_384
"""Tokens that are kept free; Pi's own compaction reserve when that is more."""

REMINDER: Final = 6_144
"""Tokens left at which the model is reminded, once a window."""


class Budget(Struct, frozen=True):
    """Tokens that a window may take, and how many are left; null right after a compaction."""

    limit: int
    remaining: int | None


def budget(usage: Usage | None, reserve: int) -> Budget | None:
    """The budget as Pi's estimate has it, or None when Pi gives none."""
    if usage is None:
        return None
    limit = max(0, usage.context_window - max(RESERVE, reserve))
    return Budget(limit, None if usage.tokens is None else max(0, limit - usage.tokens))


def sentence(budget: Budget | None) -> str:
    """What the model is told when it asks."""
    left = "unknown" if budget is None or budget.remaining is None else f"{budget.remaining}"
    return f"You have {left} tokens left in this context window."


def reminder(identity: WindowIdentity, remaining: int, message_id: str) -> AppendMessage:
    """A message of the window's own kind, so that it goes where markers go."""
    text = (
        f"<context_window_reminder>\nAbout {remaining} tokens are left in this context window. Bring your checkpoint "
        "in notes up to date now: goal, decisions, progress, next steps, and the item ids you may need. Then call "
        "new_context. The next window does not include this conversation.\n</context_window_reminder>"
    )
    details = MarkerDetails(1, message_id, structs.replace(identity, kind="reminder"))
    return AppendMessage(custom_type=WINDOW, content=text, details=details, steer=True)
