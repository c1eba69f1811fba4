"""History: finding and reading what windows held (facts: tree-upstream 2.2, 10; codex-and-sidecar 2.5).

Every call becomes a plan, which is made from the index alone, and which `run` carries out: it reads entries
and may take a while, so the daemon runs it elsewhere than the session's other events. A search looks for the
query in the bytes of the file and decodes only what may hold it; nothing rendered is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from protocol.entries import EntryHead
from protocol.tools import HistoryArguments
from state.archive import Archive, Unavailable
from state.arguments import clamp, required
from state.errors import RefusedError
from state.render import Rendered, is_item, render, render_line, role_of
from state.tree import Branch, Cancelled, Tree
from state.windows import identity_of

SOURCE: Final = "pi-session"
WINDOWS: Final = (20, 100)
ITEMS: Final = (10, 25)
PREVIEW_CHARS: Final = 1_000
OUTPUT_CHARS: Final = 8_000
READ_CHARS: Final = 8_000
SUFFIX_CHARS: Final = 4
"""The shortest ending of an item id that may stand for it."""

Result = dict[str, Any]


class Window(Struct, frozen=True):
    """One window: its summary, if it is archived, and its entries oldest first, all from `tree`."""

    id: str
    tree: Tree
    summary: EntryHead | None
    items: list[EntryHead]

    @property
    def size(self) -> int:
        """The number of items."""
        return (self.summary is not None) + sum(1 for head in self.items if is_item(head))

    def span(self) -> tuple[int, int] | None:
        """The bytes of the file that hold the entries; None when some are in no file."""
        if not self.items:
            return (0, 0)
        start = min(head.offset for head in self.items)
        return None if start < 0 else (start, max(head.offset + head.length for head in self.items))


class Missing(Struct, frozen=True):
    """A window that cannot be read, and why."""

    id: str
    why: str


class Shelf(Struct, frozen=True):
    """All windows of the active branch, oldest first; the current one comes last."""

    windows: list[Window]
    missing: list[Missing]


def shelf(tree: Tree, branch: Branch, archives: Iterable[Archive | Unavailable]) -> Shelf:
    """Archived windows, and those whose entries stand on the branch itself, each from its marker to the next.

    The message that makes the call is no history yet; a search would find nothing but its own query in it.
    """
    calling = branch.last(lambda head: head.type == "message" and head.kind == "assistant")
    found: list[Window] = []
    missing: list[Missing] = []
    for archive in archives:
        if isinstance(archive, Archive):
            summary = archive.tree.heads.get(archive.summary.id, archive.summary)
            found.append(Window(archive.window_id, archive.tree, summary, archive.items))
        elif archive.window_id is not None:
            missing.append(Missing(archive.window_id, archive.why))
    boundaries = [(head, identity) for head in branch.ours if (identity := identity_of(tree, head)) is not None]
    for at, (head, identity) in enumerate(boundaries):
        items = branch.after(head.id)
        if at + 1 < len(boundaries):
            items = items[: items.index(boundaries[at + 1][0])]
        else:
            items = [item for item in items if item is not calling]
        found.append(Window(identity.current_window_id, tree, None, items))
    readable = {window.id for window in found}  # a bad manifest does not hide what can be read without it
    return Shelf(found, [one for one in missing if one.id not in readable])


class _Section(Struct, frozen=True):
    """Entries of one window that are gone through together; `span` is where a search looks first."""

    window: Window
    heads: list[EntryHead]
    span: tuple[int, int] | None


def run(shelf: Shelf, arguments: HistoryArguments, cancelled: Cancelled = lambda: False) -> Result:
    """Carry out one call; raises `RefusedError` with a text for the model."""
    if arguments.agent_name not in (None, "", "/root"):
        return _EMPTY[arguments.action].copy()
    return _ACTIONS[arguments.action](shelf, arguments, cancelled)


# The actions


def _list_windows(shelf: Shelf, arguments: HistoryArguments, _cancelled: Cancelled) -> Result:
    limit = clamp(arguments.limit, *WINDOWS)
    windows = shelf.windows[::-1] if arguments.recent_first else shelf.windows
    ids = [window.id for window in windows]
    rest = windows[_next(ids, arguments.cursor) :] if arguments.cursor else windows
    page = rest[:limit]
    result: Result = {
        "source": SOURCE,
        "windows": [{"window_id": window.id, "item_count": window.size} for window in page],
    }
    if shelf.missing:
        result["unavailable_windows"] = [missing.id for missing in shelf.missing]
    return _paged(result, more=len(rest) > limit, cursor=page[-1].id if page else None)


def _list_items(shelf: Shelf, arguments: HistoryArguments, cancelled: Cancelled) -> Result:
    """Window by window, its summary first, whatever the order of the rest: it is the index to it."""
    chosen = _chosen(shelf, arguments)
    sections = [
        _Section(window, [*([window.summary] if window.summary else []), *_ordered(window, arguments)], None)
        for window in (chosen[::-1] if arguments.recent_first else chosen)
    ]
    preview = clamp(arguments.max_chars_per_item, PREVIEW_CHARS, PREVIEW_CHARS)
    found = (
        _item(section.window, head, rendered, rendered.text[:preview])
        for section in _after(sections, arguments.cursor)
        for head in section.heads
        if not cancelled() and _role_fits(section.window, head, arguments)
        if (rendered := render(section.window.tree, head)) is not None and _tool_fits(rendered, arguments)
    )
    return _page(found, clamp(arguments.limit, *ITEMS))


def _read_item(shelf: Shelf, arguments: HistoryArguments, _cancelled: Cancelled) -> Result:
    """Without a window the newest that has the item counts: a placeholder of a fold names the item alone."""
    wanted = required(arguments.item_id, "item_id")
    missing = next((missing for missing in shelf.missing if missing.id == arguments.window_id), None)
    if missing is not None:
        raise RefusedError(f"This window cannot be read: {missing.why}.")
    named = ((window, _named(window, wanted)) for window in _chosen(shelf, arguments)[::-1])
    window, head = next(((window, head) for window, head in named if head is not None), (None, None))
    rendered = None if window is None or head is None else render(window.tree, head)
    if window is None or head is None or rendered is None:
        return {"source": SOURCE, "item": None}
    total = len(rendered.text)
    start = min(max(0, arguments.offset_chars or 0), total)
    stop = min(total, start + clamp(arguments.limit_chars, READ_CHARS, READ_CHARS))
    item = _facts(window, head, rendered) | {"content": rendered.text[start:stop], "total_chars": total}
    if stop < total:
        item["next_offset_chars"] = stop
    return {"source": SOURCE, "item": item}


def _search_contents(shelf: Shelf, arguments: HistoryArguments, cancelled: Cancelled) -> Result:
    """Summaries first, then entries; newest window first, so that an early stop has seen what matters most."""
    query = required(arguments.query, "query")
    needles = needles_of(query)
    newest = _chosen(shelf, arguments)[::-1]
    sections = [_Section(window, [window.summary], None) for window in newest if window.summary is not None]
    sections += [_Section(window, _ordered(window, arguments), window.span()) for window in newest]
    found = (
        _item(section.window, head, rendered, _excerpt(rendered.text, query))
        for section in _after(sections, arguments.cursor)
        if not cancelled() and _may_hold(section, needles, cancelled)
        for head in section.heads
        if not cancelled() and _role_fits(section.window, head, arguments)
        if (rendered := _holding(section.window.tree, head, needles)) is not None
        if query in rendered.text and _tool_fits(rendered, arguments)
    )
    return _page(found, clamp(arguments.limit, *ITEMS))


_ACTIONS: Final[dict[str, Callable[[Shelf, HistoryArguments, Cancelled], Result]]] = {
    "list_windows": _list_windows,
    "list_items": _list_items,
    "read_item": _read_item,
    "search_contents": _search_contents,
}
_EMPTY: Final[dict[str, Result]] = {
    "list_windows": {"windows": []},
    "list_items": {"items": []},
    "read_item": {"item": None},
    "search_contents": {"items": []},
}
"""Another agent's history: there is none here."""


# Choosing


def _chosen(shelf: Shelf, arguments: HistoryArguments) -> list[Window]:
    if arguments.window_id is None:
        return shelf.windows
    return [window for window in shelf.windows if window.id == arguments.window_id]


def _ordered(window: Window, arguments: HistoryArguments) -> list[EntryHead]:
    return window.items[::-1] if arguments.recent_first else window.items


def _role_fits(window: Window, head: EntryHead, arguments: HistoryArguments) -> bool:
    """Whether the entry is an item that may fit, as far as the index tells; `_tool_fits` tells the rest."""
    if head is not window.summary and not is_item(head):
        return False
    wants_tool = bool(arguments.tool_name or arguments.tool_namespace)
    role = role_of(head)
    if wants_tool and role not in ("assistant", "tool"):
        return False
    return arguments.role in (None, role)


def _tool_fits(rendered: Rendered, arguments: HistoryArguments) -> bool:
    name, namespace = arguments.tool_name or None, arguments.tool_namespace or None
    if name is None and namespace is None:
        return True
    return any(name in (None, tool) and namespace in (None, space) for tool, space in rendered.tools)


def _named(window: Window, wanted: str) -> EntryHead | None:
    """The item with this id, or the only one whose id ends so."""
    heads = [head for head in window.items if is_item(head)]
    heads += [window.summary] if window.summary else []
    exact = next((head for head in heads if head.id == wanted), None)
    if exact is not None or len(wanted) < SUFFIX_CHARS:
        return exact
    ending = [head for head in heads if head.id.endswith(wanted)]
    if len(ending) > 1:
        raise RefusedError(f"item_id is ambiguous: {len(ending)} items of this window end so. Give the whole id.")
    return ending[0] if ending else None


def _after(sections: list[_Section], cursor: str | None) -> list[_Section]:
    """What follows the item that the last page ended with."""
    if not cursor:
        return sections
    for at, section in enumerate(sections):
        ids = [head.id for head in section.heads]
        if cursor in ids:
            rest = _Section(section.window, section.heads[_next(ids, cursor) :], section.span)
            return [rest, *sections[at + 1 :]]
    return sections[: _next([], cursor)]


def _next(ids: Sequence[str], cursor: str) -> int:
    if cursor not in ids:
        raise RefusedError("cursor names nothing in this list. Leave it out to start again.")
    return ids.index(cursor) + 1


# Searching


def _may_hold(section: _Section, needles: Sequence[bytes], cancelled: Cancelled) -> bool:
    """Whether a needle stands anywhere in the bytes of the section."""
    if section.span is None:
        return True
    return section.window.tree.holds(*section.span, needles, cancelled)


def _holding(tree: Tree, head: EntryHead, needles: Sequence[bytes]) -> Rendered | None:
    """The item, if its line holds a needle."""
    raw = tree.raw(head)
    return render_line(raw) if raw is not None and any(needle in raw for needle in needles) else None


_STRUCTURE: Final = re.compile(r"[\s\x00-\x1f\"\\{}\[\]:,\ufffd]+")
_PLAIN: Final = re.compile(r"(?!:|(?:mage|age|ge|e)? )[^\x00-\x1f\"\\{}\[\]\ufffd]+")
"""Does not begin where rendering has put something: after `"arguments"`, or within `[image `."""


def needles_of(query: str) -> list[bytes]:
    """Byte strings of which a line must hold one, if its item is to hold the query.

    A plain query stands in the file as it is, whether in text or in a tool's arguments. Where it holds what
    JSON escapes or what rendering puts between two values, only its longest word is sure to stand there in one
    piece. Other programs than Pi write non-ASCII as escapes.
    """
    plain_query = _PLAIN.fullmatch(query) is not None and "image" not in query
    word = query if plain_query else max(_STRUCTURE.split(query), key=len)
    if not word:
        return [b""]
    escaped = json.dumps(word)[1:-1].encode()
    plain = word.encode()
    needles = [plain] if escaped == plain else [plain, escaped]
    # A call without arguments shows an empty object under a name that its line does not hold.
    return [*needles, b"toolCall"] if word in "arguments" else needles


def _excerpt(text: str, query: str) -> str:
    """The part of the text around the first match, the match a third of the way in."""
    at = text.find(query)
    start = max(0, min(at - PREVIEW_CHARS // 3, len(text) - PREVIEW_CHARS))
    return text[start : start + PREVIEW_CHARS]


# Answering


def _page(found: Iterable[Result], limit: int) -> Result:
    """As many as the limit and the size of the output allow; the first one always."""
    items: list[Result] = []
    size = 0
    more = False
    for item in found:
        length = len(msgspec.json.encode(item).decode())
        if items and (len(items) >= limit or size + length > OUTPUT_CHARS):
            more = True
            break
        items.append(item)
        size += length
    return _paged({"source": SOURCE, "items": items}, more=more, cursor=items[-1]["item_id"] if items else None)


def _item(window: Window, head: EntryHead, rendered: Rendered, preview: str) -> Result:
    return _facts(window, head, rendered) | {"truncated_content": preview, "content_chars": len(rendered.text)}


def _paged(result: Result, *, more: bool, cursor: str | None) -> Result:
    return result | {"has_more": True, "next_cursor": cursor} if more else result


def _facts(window: Window, head: EntryHead, rendered: Rendered) -> Result:
    facts: Result = {"window_id": window.id, "item_id": head.id, "role": role_of(head)}
    if rendered.tools:
        name, namespace = rendered.tools[0]
        facts["tool_name"] = name
        if namespace is not None:
            facts["tool_namespace"] = namespace
    return facts
