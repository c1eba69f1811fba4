"""A session file as a tree for a person's eyes: the windows of one branch, and what each of them holds.

An archived window stands before the summary that took its place, the current one holds what followed its marker.
How entries relate is asked of `state`; here it is only drawn. Session text is untrusted: control characters are
taken out before it reaches a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Picture

from daemon.journal import Journal
from daemon.jsonio import decode_object, encode
from daemon.lineage import Lineage
from daemon.migration import CURRENT
from protocol.entries import (
    ARCHIVE,
    INTENT,
    NOTE,
    NOTE_SNAPSHOT,
    WINDOW,
    EntryHead,
    Intent,
    IntentEntry,
    ManifestEntry,
    NoteSnapshotEntry,
    SessionHeader,
)
from state.archive import Archive, ArchiveIndex, Unavailable
from state.notes import Notes
from state.tree import Branch, Tree
from state.windows import current_boundary, identity_of, is_marker

_SHOWN: Final = 12
"""Entries of one stretch that are shown at its start and at its end; what is between them is counted."""

_LEAVES: Final = 8
"""Other leaves that are named, the newest first."""

_GIST: Final = 400
"""Characters of an entry that are made ready for the screen, which cuts them to its width."""

_SHORT: Final = 24
"""Characters of a second argument that is shown."""

_LABEL: Final = 15
_ID: Final = 20
"""Columns at most; the ids of Pi itself have eight."""

_STYLES: Final = {
    WINDOW: "bold magenta",
    ARCHIVE: "cyan",
    NOTE_SNAPSHOT: "cyan",
    NOTE: "green",
    INTENT: "yellow",
    "branch_summary": "blue",
    "compaction": "blue",
    "context_edit": "yellow",
    "user": "bold",
    "assistant": "",
    "toolResult": "",
}
"""How entries of a kind or type are drawn; the others are dim."""

_NAMES: Final = {
    WINDOW: "marker",
    ARCHIVE: "manifest",
    NOTE_SNAPSHOT: "note snapshot",
    NOTE: "note",
    INTENT: "rollover",
    "branch_summary": "summary",
    "thinking_level_change": "thinking level",
    "model_change": "model",
    "toolResult": "tool result",
    "bashExecution": "shell",
    "context_edit": "context edit",
    "session_info": "session name",
}

_FILES: Final = re.compile(r"\n\n<(?:read|modified)-files>\n")

Json = dict[str, Any]


class UnknownLeafError(Exception):
    """No entry, or more than one, has the id that was asked for."""


def show(file: Path, *, leaf: str | None = None, everything: bool = False) -> Group:
    """Draw the branch of `leaf`; the file's last entry is the leaf that Pi takes when it opens the file."""
    journal = Journal(file)
    try:
        tree = Tree(journal.raw)
        journal.refresh(tree)
        branch = tree.path(leaf_of(journal, tree, leaf))
        found = ArchiveIndex(tree, Lineage(journal).ancestors).of(branch)
        archives = {one.summary.id: one for one in found if isinstance(one, Archive)}
        unavailable = [one for one in found if isinstance(one, Unavailable)]
        picture = _Drawing(tree, archives, everything=everything).of(file.name, branch)
        facts = [
            ("session", _session(journal.header())),
            ("entries", _entries(tree, branch, journal.leaf)),
            ("windows", _windows(tree, branch, archives)),
            ("notes", ", ".join(f"{one.path} ({_count(one.lines, 'line')})" for one in Notes.of(tree, branch).lines())),
            ("other leaves", _other_leaves(tree, branch, archives.values())),
            *(("unavailable", f"window {one.window_id}: {one.why}") for one in unavailable),
            *(("oddity", f"{count:,} {kind}") for kind, count in _oddities(journal, tree)),
        ]
        table = Table.grid(padding=(0, 2, 0, 0))
        for name, value in facts:
            if value:
                table.add_row(Text(name, style="bold"), Text(plain(value)))
        return Group(picture, table)
    finally:
        journal.close()


class _Drawing:
    """Draws one branch. `everything` shows long stretches in full."""

    def __init__(self, tree: Tree, archives: dict[str, Archive], *, everything: bool) -> None:
        self._tree = tree
        self._archives = archives
        self._everything = everything
        self._numbers = {archive.window_id: _number(tree, archive) for archive in archives.values()}
        self._id_width = 0

    def of(self, name: str, branch: Branch) -> Picture:
        """The branch: a window is a node, what is in none hangs from the root."""
        self._id_width = min(_ID, max((len(head.id) for head in branch.heads), default=0))
        root = place = Picture(_one_line(plain(name), "bold"), guide_style="dim")
        stretch: list[EntryHead] = []
        boundary = current_boundary(self._tree, branch)
        for head in branch.heads:
            archive = self._archives.get(head.id)
            identity = identity_of(self._tree, head) if is_marker(head) else None
            if archive is not None or identity is not None:
                self._add(place, stretch)
                place, stretch = root, []
            if archive is not None:
                state = f"archived, {_count(len(archive.items), 'entry', 'entries')}"
                number = self._numbers[archive.window_id]
                self._add(root.add(_window(number, state, archive.window_id, "cyan")), archive.items)
            elif identity is not None:
                state, style = ("current", "magenta") if boundary and boundary[0] is head else ("earlier", "cyan")
                place = root.add(_window(identity.window_number, state, identity.current_window_id, style))
            stretch.append(head)
        self._add(place, stretch)
        return root

    def _add(self, place: Picture, heads: list[EntryHead]) -> None:
        if self._everything or len(heads) <= 2 * _SHOWN:
            before, after = heads, []
        else:
            before, after = heads[:_SHOWN], heads[-_SHOWN:]
        for head in before:
            place.add(self._line(head))
        if after:
            place.add(_one_line(f"… {len(heads) - 2 * _SHOWN:,} more, --all shows them", "dim italic"))
        for head in after:
            place.add(self._line(head))

    def _line(self, head: EntryHead) -> Text:
        key = head.kind if head.kind in _STYLES else head.type
        label = _NAMES.get(head.kind) or _NAMES.get(head.type) or head.kind or head.type
        text = _one_line(f"{_cut(plain(head.id), self._id_width):<{self._id_width}}  ", "dim")
        text.append(f"{_cut(plain(label), _LABEL):<{_LABEL}} ", style=_STYLES.get(key, "dim"))
        return text.append(plain(self._told(head)), style="" if key in _STYLES else "dim")

    def _told(self, head: EntryHead) -> str:
        archive = self._archives.get(head.id)
        if archive is not None:
            unseen = ", hidden from the model" if archive.sealed else ""
            return f"of window {self._numbers[archive.window_id]}{unseen}: {gist(self._tree, head)}"
        manifest = self._tree.body(head, ManifestEntry) if head.kind == ARCHIVE else None
        if manifest is not None and manifest.data.window_id in self._numbers:
            return f"window {self._numbers[manifest.data.window_id]} is archived"
        return gist(self._tree, head)


def _window(number: int | str, state: str, window_id: str, style: str) -> Text:
    label = _one_line(f"window {number}", f"bold {style}")
    return label.append(f"  {state}", style=style).append(f"  {plain(window_id)}", style="dim")


def _number(tree: Tree, archive: Archive) -> int | str:
    identities = (identity_of(tree, head) for head in archive.items if is_marker(head))
    numbers = {one.current_window_id: one.window_number for one in identities if one is not None}
    return numbers.get(archive.window_id, "?")


# What an entry says, in a line


def gist(tree: Tree, head: EntryHead) -> str:
    """The entry in a few words; whatever it holds, this does not fail."""
    tell = _OURS.get(head.kind)
    told = None if tell is None else tell(tree, head)
    if told is not None:
        return told
    entry = tree.body(head, dict[str, Any]) or {}
    message = entry.get("message")
    if isinstance(message, dict):
        return message_gist(message)
    write = _WRITERS.get(head.type)
    if write is not None:
        return write(entry)
    return _content(entry.get("content")) or head.tag or _rest(entry)


def message_gist(message: Json) -> str:
    """A message in a few words: its text, its calls, and how it ended if not well."""
    text = _content(message.get("content"))
    match message.get("role"):
        case "toolResult":
            return f"{message.get('toolName')}{' failed' if message.get('isError') else ''}: {_result(text)}"
        case "bashExecution":
            return f"$ {message.get('command')}"
        case "system":
            sections = message.get("sections")
            return text or (f"prompt: {', '.join(sections)}" if isinstance(sections, dict) else "prompt")
        case "assistant" if message.get("stopReason") in ("aborted", "error"):
            return f"{text} ({message.get('errorMessage') or message['stopReason']})".strip()
    return text


def _result(text: str) -> str:
    """The result of one of our own tools is JSON: of a note its content counts, else its path."""
    if not text.startswith('{"source":'):
        return text
    try:
        result = decode_object(text.encode())
    except ValueError:
        return text
    file = result.get("file")
    if isinstance(file, dict):
        return str(file.get("content") or file.get("path"))
    return _json({key: value for key, value in result.items() if key != "source"})


def summary_gist(summary: object) -> str:
    """A branch summary less the two lines that Pi puts before each, and the files that it names after it."""
    text = summary if isinstance(summary, str) else ""
    before, found, after = text.partition("Summary of that exploration:")
    return _FILES.split(after if found else before, maxsplit=1)[0]


def _marker(tree: Tree, head: EntryHead) -> str:
    identity = identity_of(tree, head)
    return "opens no window, it is malformed" if identity is None else f"opens window {identity.window_number}"


def _manifest(tree: Tree, head: EntryHead) -> str | None:
    entry = tree.body(head, ManifestEntry)
    return None if entry is None else f"claims window {entry.data.window_id}"


def _snapshot(tree: Tree, head: EntryHead) -> str | None:
    entry = tree.body(head, NoteSnapshotEntry)
    if entry is None:
        return None
    return "no notes" if not entry.data.files else f"notes: {', '.join(file.path for file in entry.data.files)}"


def _intent(tree: Tree, head: EntryHead) -> str | None:
    entry = tree.body(head, IntentEntry)
    if entry is None:
        return None
    if isinstance(entry.data, Intent):
        return f"window {entry.data.next.window_number} is asked for"
    return f"given up: {entry.data.why}"


_OURS: Final[dict[str, Callable[[Tree, EntryHead], str | None]]] = {
    WINDOW: _marker,
    ARCHIVE: _manifest,
    NOTE_SNAPSHOT: _snapshot,
    INTENT: _intent,
}


def _note(entry: Json) -> str:
    data = entry.get("data")
    return f"{data.get('action')} {data.get('path')}: {data.get('text')}" if isinstance(data, dict) else ""


def _custom(entry: Json) -> str:
    return _note(entry) if entry.get("customType") == NOTE else _json(entry.get("data"))


def _edit(entry: Json) -> str:
    replacement = entry.get("replacement")
    text = _content(replacement.get("content")) if isinstance(replacement, dict) else ""
    return f"{entry.get('targetId')}: {text or _json(replacement) or 'left out'}"


def _label(entry: Json) -> str:
    label = entry.get("label")
    return f"{label}, on {entry.get('targetId')}" if label else f"none any more, on {entry.get('targetId')}"


_WRITERS: Final[dict[str, Callable[[Json], str]]] = {
    "branch_summary": lambda entry: summary_gist(entry.get("summary")),
    "compaction": lambda entry: f"from {entry.get('firstKeptEntryId')} on as it is, before: {entry.get('summary')}",
    "custom": _custom,
    "context_edit": _edit,
    "label": _label,
    "session_info": lambda entry: str(entry.get("name") or ""),
}


def _rest(entry: Json) -> str:
    known = ("type", "id", "parentId", "timestamp", "customType", "display")
    return _json({key: value for key, value in entry.items() if key not in known} or None)


def _json(value: object) -> str:
    return "" if value is None else encode(value).decode()[:_GIST]


def _content(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    return "  ".join(part for part in map(_block, blocks) if part)


def _block(block: Json) -> str:
    if block.get("type") == "toolCall":
        return f"→ {block.get('name')}({_arguments(block.get('arguments'))})"
    if block.get("type") == "image":
        return "[image]"
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _arguments(arguments: object) -> str:
    """The first text, and a short second one; what else there is shows as an ellipsis."""
    values = list(arguments.values()) if isinstance(arguments, dict) else []
    shown = [value for value in values[:1] if isinstance(value, str)]
    shown += [value for value in values[1:2] if isinstance(value, str) and len(value) <= _SHORT and "\n" not in value]
    return ", ".join([*shown, "…"] if len(shown) < len(values) else shown)


# The facts below the tree


def leaf_of(journal: Journal, tree: Tree, wanted: str | None) -> str | None:
    """The entry that is wanted, by its id or the only beginning of one; else the one that Pi begins with.

    That is none when the last line has no id; then the last one that has.
    """
    if wanted is None:
        return journal.leaf or next(reversed(tree.heads), None)
    if wanted in tree.heads:
        return wanted
    matches = [entry_id for entry_id in tree.heads if entry_id.startswith(wanted)]
    if len(matches) != 1:
        raise UnknownLeafError(f"{len(matches) or 'no'} entries have an id that begins with {wanted}")
    return matches[0]


def _session(header: SessionHeader | None) -> str:
    if header is None:
        return "no header that Pi would take"
    note = ", shown as Pi migrates it" if header.version < CURRENT else ""
    return f"{header.id or 'no id'}, in {header.cwd or '?'}, version {header.version}{note}"


def _oddities(journal: Journal, tree: Tree) -> list[tuple[str, int]]:
    found = {**journal.anomalies, **tree.oddities()}
    return [(kind, count) for kind, count in found.items() if count]


def _entries(tree: Tree, branch: Branch, last_id: str | None) -> str:
    total = f"{len(tree.heads):,}"
    if branch.leaf is None:
        return total
    last = ", the last one of the file" if branch.leaf == last_id else ""
    why = "the parents go in a circle" if branch.missing is None else "whose parent is missing"
    end = "" if branch.complete or not branch.heads else f"; it begins at {branch.heads[0].id}, {why}"
    return f"{total}, of them {len(branch.heads):,} on the branch of {branch.leaf}{last}{end}"


def _windows(tree: Tree, branch: Branch, archives: dict[str, Archive]) -> str:
    boundary = current_boundary(tree, branch)
    archived = _count(len(archives), "archived window")
    if boundary is None:
        return archived if archives else "none on this branch"
    return f"{archived if archives else 'none archived'}, window {boundary[1].window_number} goes on"


def _other_leaves(tree: Tree, branch: Branch, archives: Iterable[Archive]) -> str:
    parents = {head.parent_id for head in tree.heads.values()}
    shown = {branch.leaf, *(archive.items[-1].id for archive in archives if archive.items)}
    others = [head for head in reversed(tree.heads.values()) if head.id not in parents and head.id not in shown]
    named = [f"{head.id} ({len(tree.path(head.id).heads):,})" for head in others[:_LEAVES]]
    more = f" and {len(others) - _LEAVES:,} more" if len(others) > _LEAVES else ""
    return f"{', '.join(named)}{more}; --leaf ID shows one" if named else ""


# Text that is safe and fits


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _one_line(text: str, style: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    return line.append(text, style=style)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def plain(text: str) -> str:
    """Text on one line and without control characters, safe for a terminal."""
    words = " ".join(text[: 4 * _GIST].split())[:_GIST]
    return "".join(char if unicodedata.category(char)[0] != "C" else "·" for char in words)
