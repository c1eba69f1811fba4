"""A session file as a tree for a person's eyes: the active branch, and the windows that hang from it.

Session text is untrusted: control characters are taken out before it reaches a terminal.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text
from rich.tree import Tree as Picture

from daemon.journal import Journal
from protocol.entries import ARCHIVE, INTENT, NOTE, NOTE_SNAPSHOT, WINDOW, Body, EntryHead, SummaryEntry
from state.archive import Archive, ArchiveIndex, Unavailable
from state.notes import Notes
from state.tree import Tree
from state.windows import current_boundary, identity_of, is_marker

_WIDTH = 88
_SHOWN = 12
"""Entries of one stretch that are shown before and after the rest is left out."""

_STYLES = {
    WINDOW: "bold magenta",
    ARCHIVE: "cyan",
    NOTE_SNAPSHOT: "cyan",
    NOTE: "green",
    INTENT: "yellow",
    "branch_summary": "blue",
    "user": "bold",
    "system": "dim",
}
_NAMES = {
    WINDOW: "marker",
    ARCHIVE: "manifest",
    NOTE_SNAPSHOT: "note snapshot",
    NOTE: "note",
    INTENT: "intent",
    "branch_summary": "summary",
    "thinking_level_change": "thinking level",
    "model_change": "model",
}


def show(file: Path, *, everything: bool = False) -> Group:
    """Read the file as it is now; the leaf is its last entry, as Pi takes it when it opens the file."""
    journal = Journal(file)
    tree = Tree(journal.raw)
    journal.refresh(tree)
    leaf = next(reversed(tree.heads), None)
    branch = tree.branch(leaf)
    found = ArchiveIndex(tree).of(branch)
    archives = {archive.summary.id: archive for archive in found if isinstance(archive, Archive)}
    number = len(archives)
    boundary = current_boundary(tree, branch)
    title = Text(f"{file.name}", style="bold")
    title.append(f"  {len(tree.heads):,} entries, {len(branch.heads):,} on the active branch", style="dim")
    root = Picture(title)
    if boundary is not None:
        number = boundary[1].window_number
    for head in _trim(branch.heads, everything=everything):
        if isinstance(head, Text):
            root.add(head)
            continue
        node = root.add(_line(tree, head))
        archive = archives.get(head.id)
        if archive is not None:
            _add_archive(node, tree, archive, everything=everything)
    notes = Notes.of(tree, branch).lines()
    lines = [
        _fact("windows", f"{len(archives)} archived, the current one is number {number}" if boundary else "none"),
        _fact("notes", ", ".join(f"{note.path} ({note.lines} lines)" for note in notes) or "none"),
        *(_fact("unavailable", f"{one.window_id}: {one.why}") for one in found if isinstance(one, Unavailable)),
        *(_fact("oddity", f"{count:,} {kind}") for kind, count in journal.anomalies.items()),
    ]
    journal.close()
    return Group(root, *lines)


def _add_archive(node: Picture, tree: Tree, archive: Archive, *, everything: bool) -> None:
    first = next((head for head in archive.items if is_marker(head)), None)
    identity = None if first is None else identity_of(tree, first)
    name = "?" if identity is None else str(identity.window_number)
    label = Text(f"window {name}", style="bold cyan")
    label.append(f"  archived, {len(archive.items):,} entries, {archive.window_id}", style="dim")
    window = node.add(label)
    for head in _trim(archive.items, everything=everything):
        window.add(head if isinstance(head, Text) else _line(tree, head))


def _trim(heads: list[EntryHead], *, everything: bool) -> list[EntryHead | Text]:
    if everything or len(heads) <= 2 * _SHOWN:
        return list(heads)
    gap = Text(f"… {len(heads) - 2 * _SHOWN:,} more entries", style="dim italic")
    return [*heads[:_SHOWN], gap, *heads[-_SHOWN:]]


def _line(tree: Tree, head: EntryHead) -> Text:
    key = head.kind if head.kind in _STYLES else head.type
    label = _NAMES.get(key, head.kind or head.type)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{head.id[:8]:<8} ", style="dim")
    text.append(f"{label:<14} ", style=_STYLES.get(key, ""))
    text.append(_plain(_gist(tree, head)), style="" if key in _STYLES else "dim")
    text.truncate(_WIDTH, overflow="ellipsis")
    return text


def _gist(tree: Tree, head: EntryHead) -> str:
    if is_marker(head):
        identity = identity_of(tree, head)
        return "malformed" if identity is None else f"window {identity.window_number}  {identity.current_window_id}"
    if head.type == "branch_summary":
        summary = tree.body(head, SummaryEntry)
        return "" if summary is None else summary.summary.rsplit("\n\n", 1)[-1]
    body = tree.body(head, Body)
    if body is not None and body.message is not None:
        return _message(body.message) or head.tag
    if body is not None and body.content is not None:
        return _content(body.content)
    return head.tag


def _message(message: dict[str, Any]) -> str:
    text = _content(message.get("content"))
    return f"{message.get('toolName')}: {text}" if message.get("role") == "toolResult" else text


def _content(content: Any) -> str:  # noqa: ANN401 - whatever the file holds
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [f"→ {block.get('name')}" if block.get("type") == "toolCall" else block.get("text") for block in blocks]
    return " ".join(str(part) for part in parts if part)


def _plain(text: str) -> str:
    words = " ".join(text.split())
    return "".join(char if unicodedata.category(char)[0] != "C" else "·" for char in words)


def _fact(name: str, value: str) -> Text:
    line = Text(f"{name:<12}", style="bold")
    line.append(_plain(value))
    return line
