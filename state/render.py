"""Entries as history items: which entries are items, and their content as text (facts: tree-upstream 3.1).

JSON that shows in an item is the file's own, byte for byte, so that what a search finds in the file is what
the item holds. Lone surrogates were made U+FFFD by the reader.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from protocol.entries import EntryHead
from state.tree import Tree
from state.windows import is_marker

ROUTERS: Final = frozenset({"history", "notes"})
"""Tools that stand for a namespace; what they are called with names the tool."""

ROLES: Final = {"toolResult": "tool"}
"""Pi's role to the contract's; others stay as they are."""


class Rendered(Struct, frozen=True):
    """An item's whole content, and the tools that it is about: (name, namespace), first one first."""

    text: str
    tools: list[tuple[str, str | None]]


# What is of another type than it should be is as if absent; it must not take the whole item with it.


class _Message(Struct, frozen=True, rename="camel"):
    content: Raw | UnsetType = UNSET
    tool_name: Any = ""


class _Entry(Struct, frozen=True, rename="camel"):
    message: Raw | UnsetType = UNSET
    content: Raw | UnsetType = UNSET
    summary: Any = ""


class _Block(Struct, frozen=True, rename="camel"):
    type: Any = ""
    text: Any = UNSET
    thinking: Any = UNSET
    name: Raw = Raw()
    arguments: Raw | UnsetType = UNSET
    mime_type: Any = ""


_TEXT: Final = msgspec.json.Decoder(str)
_MESSAGE: Final = msgspec.json.Decoder(_Message)
_BLOCKS: Final = msgspec.json.Decoder(list[Raw])
_BLOCK: Final = msgspec.json.Decoder(_Block)


def is_item(head: EntryHead) -> bool:
    """Whether history shows the entry: messages but Pi's system ones, and custom messages of plain text."""
    if head.type == "message":
        return head.kind != "system"
    return head.type == "custom_message" and head.tag == "text" and not is_marker(head)


def role_of(head: EntryHead) -> str:
    """The item's role in the terms of the contract. A summary is the assistant's."""
    if head.type == "branch_summary":
        return "assistant"
    return "developer" if head.type == "custom_message" else ROLES.get(head.kind, head.kind) or "unknown"


def render(tree: Tree, head: EntryHead) -> Rendered | None:
    """The item, or None when its entry cannot be read any more."""
    raw = tree.raw(head)
    return None if raw is None else render_line(raw)


def render_line(raw: bytes) -> Rendered | None:
    """The item that this line of a session file is, or None when the line is damaged."""
    try:
        return _render(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _render(raw: bytes) -> Rendered:
    entry = msgspec.json.decode(raw, type=_Entry)
    if isinstance(entry.message, Raw):
        message = _Message() if bytes(entry.message)[:1] != b"{" else _MESSAGE.decode(entry.message)
        tools = [_routed(name, UNSET)] if (name := _text(message.tool_name)) else []
        if not isinstance(message.content, Raw):
            return Rendered(bytes(entry.message).decode(), tools)
        return _content(message.content, bytes(entry.message), tools)
    if isinstance(entry.content, Raw):
        return _content(entry.content, bytes(entry.content), [])
    return Rendered(_text(entry.summary), [])


def _content(content: Raw, instead: bytes, tools: list[tuple[str, str | None]]) -> Rendered:
    first = bytes(content)[:1]
    if first == b'"':
        return Rendered(_TEXT.decode(content), tools)
    if first != b"[":
        return Rendered(instead.decode(), tools)
    parts: list[str] = []
    found = list(tools)
    for raw in _BLOCKS.decode(content):
        block = _BLOCK.decode(raw) if bytes(raw)[:1] == b"{" else _Block()
        parts.append(_part(block, raw))
        if block.type == "toolCall":
            found.append(_routed(_name(block), block.arguments))
    return Rendered("\n".join(parts), found)


def _part(block: _Block, raw: Raw) -> str:
    if isinstance(block.text, str):
        return block.text
    if isinstance(block.thinking, str):
        return block.thinking
    if block.type == "image":
        return f"[image {_text(block.mime_type)}]"
    if block.type == "toolCall":
        arguments = bytes(block.arguments).decode() if isinstance(block.arguments, Raw) else "{}"
        name = bytes(block.name).decode() if _name(block) else '""'
        return f'{{"tool":{name},"arguments":{arguments}}}'
    return bytes(raw).decode()


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(block: _Block) -> str:
    return _TEXT.decode(block.name) if bytes(block.name)[:1] == b'"' else ""


class _Routed(Struct, frozen=True):
    action: Any = ""


def _routed(name: str, arguments: Raw | UnsetType) -> tuple[str, str | None]:
    """A router's call under the name of its action, with the router as namespace."""
    if name not in ROUTERS or not isinstance(arguments, Raw):
        return name, None
    try:
        action = _text(msgspec.json.decode(arguments, type=_Routed).action)
    except msgspec.DecodeError:
        action = ""
    return (action, name) if action else (name, None)
