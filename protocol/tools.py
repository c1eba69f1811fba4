"""Arguments of the tools. Names, defaults and limits are upstream's (facts: tree-upstream 2.1, 2.2).

Fields that an action does not use are ignored, as are unknown ones: models send them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

HistoryAction = Literal["list_windows", "list_items", "read_item", "search_contents"]
NotesAction = Literal["list_files_by_prefix", "read_file", "search_contents", "append_to_file", "write_file"]
Role = Literal["user", "assistant", "tool", "system", "developer"]


class HistoryArguments(Struct, frozen=True, kw_only=True):
    """The flat router `history`. Characters are code points."""

    action: HistoryAction
    agent_name: str | None = None
    cursor: str | None = None
    item_id: str | None = None
    limit: int | None = None
    limit_chars: int | None = None
    max_chars_per_item: int | None = None
    offset_chars: int | None = None
    query: str | None = None
    recent_first: bool | None = None
    role: Role | None = None
    tool_name: str | None = None
    tool_namespace: str | None = None
    window_id: str | None = None


class NotesArguments(Struct, frozen=True, kw_only=True):
    """The flat router `notes`. Lines count from 1, negative ones from the end."""

    action: NotesAction
    file_order: Literal["ascending", "descending"] | None = None
    file_order_by: Literal["name", "created_at", "updated_at"] | None = None
    max_files: int | None = None
    max_matches_per_file: int | None = None
    max_results: int | None = None
    path: str | None = None
    path_prefix: str | None = None
    prefix: str | None = None
    query: str | None = None
    recent_file_first: bool | None = None
    start_line: int | None = None
    stop_line: int | None = None
    text: str | None = None
