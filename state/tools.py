"""The tools that the model gets: names, schemas and descriptions (facts: tree-upstream 2.1).

What a call does is decided in `session`.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.effects import ToolSpec

_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}

NEW_CONTEXT: Final = ToolSpec(
    name="new_context",
    label="New context window",
    description=(
        "Start a new context window without a summary of this one. It starts when this turn has ended; running "
        "processes and files stay as they are. Save what you will need in notes first."
    ),
    parameters=_NOTHING,
    sequential=True,
)


def specs() -> list[ToolSpec]:
    """The tools to register."""
    return [NEW_CONTEXT]
