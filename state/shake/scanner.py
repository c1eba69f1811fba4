"""Blocks in a text that a fold can take out: fenced code and top-level XML spans, with exact offsets.

Fences follow CommonMark, found by a CommonMark parser; one that is not closed is no block. An XML span is an
unindented opening tag alone on its line, up to its closing tag alone on its; the outermost one counts, and
tags inside fences do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_OPEN: Final = re.compile(r"<([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?>[ \t]*\r?\Z")
_CLOSE: Final = re.compile(r"</([A-Za-z_][\w.:-]*)\s*>[ \t]*\r?\Z")


class Block(Struct, frozen=True):
    """The characters [start, end) of a text. `name` is the tag of an XML span, "" for a fence."""

    start: int
    end: int
    name: str


class _Fence(Struct, frozen=True):
    first: int
    last: int
    start: int


def scan(text: str) -> list[Block]:
    """All outermost blocks, in order, disjoint."""
    if "```" not in text and "~~~" not in text and "</" not in text:
        return []
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    fences = {fence.first: fence for fence in _fences(text, lines)}
    return list(_blocks(lines, starts, fences))


def _blocks(lines: list[str], starts: list[int], fences: dict[int, _Fence]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        fence = fences.get(at)
        last = fence.last if fence is not None else _span_end(lines, at, fences)
        if last is None:
            at += 1
            continue
        opening = _OPEN.match(lines[at])
        name = opening.group(1) if fence is None and opening is not None else ""
        start = starts[at] + (fence.start if fence is not None else 0)
        yield Block(start, starts[last] + len(lines[last].removesuffix("\r")), name)
        at = last + 1


def _span_end(lines: list[str], first: int, fences: dict[int, _Fence]) -> int | None:
    """The line of the closing tag, spans of the same name inside counted; None when it is not there."""
    opening = _OPEN.match(lines[first])
    if opening is None:
        return None
    name, depth, at = opening.group(1), 1, first + 1
    while at < len(lines):
        if at in fences:
            at = fences[at].last + 1
            continue
        line = lines[at]
        if line.startswith("<"):
            inner, closing = _OPEN.match(line), _CLOSE.match(line)
            depth += (inner is not None and inner.group(1) == name) - (closing is not None and closing.group(1) == name)
            if depth == 0:
                return at
        at += 1
    return None


def _fences(text: str, lines: list[str]) -> Iterator[_Fence]:
    """Closed fences that stand in no quote: a quote's lines begin with its mark and cannot be taken out whole."""
    quotes = 0
    # The parser counts lines by LF, as we do, once it finds no other line end.
    for token in _parser().parse(text.replace("\r", " ").replace("\0", " ")):
        if token.type in ("blockquote_open", "blockquote_close"):
            quotes += 1 if token.nesting > 0 else -1
        if token.type != "fence" or token.map is None or quotes:
            continue
        first, last = token.map[0], token.map[1] - 1
        closing = lines[last].strip()
        if last > first and len(closing) >= len(token.markup) and set(closing) == {token.markup[0]}:
            yield _Fence(first, last, len(lines[first]) - len(lines[first].lstrip(" \t")))


@cache
def _parser() -> MarkdownIt:
    """CommonMark without HTML blocks, which would swallow fences that follow a tag. Imported when first needed."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - a daemon that folds nothing starts without it

    return MarkdownIt("commonmark").disable(["html_block", "inline", "linkify"], ignoreInvalid=True)
