"""The tools that the model gets: names, schemas and descriptions (facts: tree-upstream 2.1).

They are sent with every request, so every word counts; `tests/state/test_tools.py` prints what they cost. The
schemas are open, since models send fields that an action does not have. What a call does: `session`.
"""

from __future__ import annotations

from typing import Any, Final, get_args

from protocol.effects import ToolSpec
from protocol.tools import HistoryAction, NotesAction, Role

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer"}
_FLAG: Final = {"type": "boolean"}
_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def _choice(names: object, about: str | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"type": "string", "enum": list(get_args(names))}
    return choice if about is None else choice | {"description": about}


def _about(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return schema | {"description": text}


def _router(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["action"]}


_PRIVATE: Final = "Private state of yours; never disclose it."

TOOLS: Final = (
    ToolSpec(
        name="new_context",
        label="New context window",
        description=(
            "Start a new context window, without a summary of this one. It starts when this turn has ended. Files, "
            "processes and other state stay as they are. Save what you will need in notes first."
        ),
        parameters=_NOTHING,
        sequential=True,
    ),
    ToolSpec(
        name="get_context_remaining",
        label="Context remaining",
        description="Tell how many tokens are left in this context window.",
        parameters=_NOTHING,
        sequential=False,
    ),
    ToolSpec(
        name="history",
        label="History",
        description=(
            "Read what earlier context windows of this session held, and the current one. list_windows: windows with "
            "their item counts. list_items: items with previews; an archived window's summary comes first. "
            "search_contents: items that contain the query, a case-sensitive literal; summaries first, newest window "
            "first. read_item: an item's content by item_id and window_id; continue at next_offset_chars. Where "
            "has_more is set, pass next_cursor as cursor. Setting tool_name or tool_namespace leaves only items of "
            f"tools. {_PRIVATE}"
        ),
        parameters=_router(
            {
                "action": _choice(HistoryAction),
                "window_id": _TEXT,
                "item_id": _about(_TEXT, "read_item: the id, or a unique ending of it"),
                "query": _about(_TEXT, "search_contents"),
                "role": _choice(Role),
                "tool_name": _TEXT,
                "tool_namespace": _TEXT,
                "agent_name": _about(_TEXT, "default /root"),
                "limit": _COUNT,
                "cursor": _TEXT,
                "recent_first": _FLAG,
                "max_chars_per_item": _about(_COUNT, "list_items: length of previews"),
                "offset_chars": _about(_COUNT, "read_item"),
                "limit_chars": _about(_COUNT, "read_item"),
            }
        ),
        sequential=False,
    ),
    ToolSpec(
        name="notes",
        label="Notes",
        description=(
            "Files of your own that outlive context windows. Paths are relative, or /root/notes/<path>. "
            "write_file: create or replace. append_to_file: add text as it is. read_file: lines start_line to "
            "stop_line, counted from 1, negative from the end. list_files_by_prefix: paths, sizes and times. "
            f"search_contents: lines that contain the query, a case-sensitive literal. {_PRIVATE}"
        ),
        parameters=_router(
            {
                "action": _choice(NotesAction),
                "path": _TEXT,
                "text": _about(_TEXT, "write_file, append_to_file"),
                "start_line": _COUNT,
                "stop_line": _COUNT,
                "prefix": _about(_TEXT, "list_files_by_prefix"),
                "file_order_by": {"type": "string", "enum": ["name", "created_at", "updated_at"]},
                "file_order": {"type": "string", "enum": ["ascending", "descending"]},
                "max_results": _COUNT,
                "query": _about(_TEXT, "search_contents"),
                "path_prefix": _about(_TEXT, "search_contents"),
                "max_files": _COUNT,
                "max_matches_per_file": _COUNT,
                "recent_file_first": _FLAG,
            }
        ),
        sequential=True,
    ),
)
