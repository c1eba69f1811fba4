"""What the model sees of a branch: the entries that contribute messages, with their content after all overlays.

The rule is Pi's: after a compaction only what it kept and what came later, and the latest overlay of an entry
counts (facts: shake-and-peers 3). In local mode the model sees nothing before the latest marker either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from protocol.entries import EntryHead
from state.tokens import content_tokens, tokens
from state.tree import Branch, Tree

EDITABLE: Final = frozenset({"user", "assistant", "toolResult", "custom"})
"""Roles whose content Pi lets an overlay replace."""


class Seen(Struct, frozen=True):
    """One entry's message. `raw` is its own content, `content` what the model sees; None when it sees nothing.

    `overlaid`: what the model sees is not the entry's own content. An overlay that restores it hides nothing.
    """

    head: EntryHead
    role: str
    message: dict[str, Any]
    raw: Any
    content: Any
    overlaid: bool
    tokens: int

    def blocks(self) -> list[dict[str, Any]]:
        """The blocks that the model sees; a plain string is one text block."""
        if isinstance(self.content, str):
            return [{"type": "text", "text": self.content}]
        content = self.content if isinstance(self.content, list) else []
        return [block for block in content if isinstance(block, dict)]

    @property
    def editable(self) -> bool:
        """Whether an overlay may replace the content."""
        return self.role in EDITABLE and isinstance(self.content, str | list)


class _Replacement(Struct, frozen=True):
    content: Any


class _Edit(Struct, frozen=True):
    replacement: _Replacement | None


class _Entry(Struct, frozen=True, rename="camel"):
    message: dict[str, Any] | None = None
    content: Any = None
    summary: str = ""


class _RawMessage(Struct, frozen=True):
    content: Raw = Raw(b"[]")


class _RawEntry(Struct, frozen=True):
    message: _RawMessage | None = None
    content: Raw = Raw(b"[]")


def visible(branch: Branch, since: str | None = None) -> list[EntryHead]:
    """The entries that Pi projects, from entry `since` on if it is given; the latest compaction comes first."""
    heads = branch.heads
    compaction = next((at for at in range(len(heads) - 1, -1, -1) if heads[at].type == "compaction"), None)
    if compaction is not None:
        kept = next((at for at in range(compaction) if heads[at].id == heads[compaction].tag), compaction)
        heads = [heads[compaction], *heads[kept:compaction], *heads[compaction + 1 :]]
    start = next((at for at, head in enumerate(heads) if head.id == since), 0)
    return [head for at, head in enumerate(heads) if at >= start and (head.type != "compaction" or at == 0)]


def view(tree: Tree, branch: Branch, since: str | None = None, hidden: Collection[str] = frozenset()) -> list[Seen]:
    """The messages that the model sees, oldest first; `hidden` are summaries that the projection takes out."""
    heads = [head for head in visible(branch, since) if head.id not in hidden]
    overlays: dict[str, EntryHead] = {head.tag: head for head in heads if head.type == "context_edit"}
    return [seen for head in heads if (seen := _see(tree, head, overlays.get(head.id))) is not None]


def _see(tree: Tree, head: EntryHead, overlay: EntryHead | None) -> Seen | None:
    if head.type not in ("message", "custom_message", "branch_summary", "compaction"):
        return None
    entry = tree.body(head, _Entry)
    if entry is None:
        return None
    if head.type in ("branch_summary", "compaction"):
        text = entry.summary
        return Seen(head, head.type, {}, text, text, overlaid=False, tokens=content_tokens(text))
    message = entry.message if entry.message is not None else {"role": "custom", "content": entry.content}
    role = str(message.get("role", ""))
    raw = message.get("content")
    content = raw
    edit = tree.body(overlay, _Edit) if overlay is not None else None
    if edit is not None and role in EDITABLE:
        content = None if edit.replacement is None else edit.replacement.content
    count = content_tokens(content) if role != "bashExecution" else _bash_tokens(message)
    return Seen(head, role, message, raw, content, overlaid=content != raw, tokens=count)


def _bash_tokens(message: dict[str, Any]) -> int:
    return tokens(len(str(message.get("command", ""))) + len(str(message.get("output", ""))))


def raw_content(tree: Tree, head: EntryHead) -> Raw | None:
    """The entry's own content, byte for byte as it stands in the file."""
    entry = tree.body(head, _RawEntry)
    if entry is None:
        return None
    return (entry.content if entry.message is None else entry.message.content).copy()


def hash_of(content: Any) -> str:  # noqa: ANN401 - content as JSON
    """Names a content, whatever the order of its keys; 16 hex digits."""
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]
