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

_OPEN: Final = re.compile(r"<([A-Za-z_][\w.:-]*)(?:\s[^<>]*)?(?<!/)>[ \t]*\r?\Z")
_CLOSE: Final = re.compile(r"</([A-Za-z_][\w.:-]*)\s*>[ \t]*\r?\Z")


class Block(Struct, frozen=True):
    """The characters [start, end) of a text. `name` is the tag of an XML span, "" for a fence."""

    start: int
    end: int
    name: str


class _Part(Struct, frozen=True):
    """A block by its lines, both included; `start` is where in the first one it begins."""

    first: int
    last: int
    start: int
    name: str


def scan(text: str) -> list[Block]:
    """All outermost blocks, in order, disjoint."""
    if "```" not in text and "~~~" not in text and "</" not in text:
        return []
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found = {part.first: part for part in _fences(text, lines)}
    found |= {part.first: part for part in _spans(lines, found)}
    return list(_blocks(lines, starts, found))


def _blocks(lines: list[str], starts: list[int], found: dict[int, _Part]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        part = found.get(at)
        if part is None:
            at += 1
            continue
        yield Block(starts[at] + part.start, starts[part.last] + len(lines[part.last].removesuffix("\r")), part.name)
        at = part.last + 1


def _spans(lines: list[str], fences: dict[int, _Part]) -> Iterator[_Part]:
    """Spans outside fences, inner ones too: a closing tag belongs to the nearest open one of its name."""
    opened: dict[str, list[int]] = {}
    at = 0
    while at < len(lines):
        if at in fences:
            at = fences[at].last + 1
            continue
        line = lines[at]
        if line.startswith("<"):
            if opening := _OPEN.match(line):
                opened.setdefault(opening.group(1), []).append(at)
            elif (closing := _CLOSE.match(line)) and opened.get(closing.group(1)):
                yield _Part(opened[closing.group(1)].pop(), at, 0, closing.group(1))
        at += 1


def _fences(text: str, lines: list[str]) -> Iterator[_Part]:
    """Closed fences that stand in no quote: a quote's lines begin with its mark and cannot be taken out whole."""
    quotes = 0
    # The parser counts lines by LF, as we do, once it finds no other line end. With one at the end every line of
    # a token's content has one, so that their number tells whether a closing fence follows.
    for token in _parser().parse(text.replace("\r", " ").replace("\0", " ") + "\n"):
        if token.type in ("blockquote_open", "blockquote_close"):
            quotes += 1 if token.nesting > 0 else -1
        if token.type != "fence" or token.map is None or quotes:
            continue
        first, last = token.map[0], token.map[1] - 1
        if token.content.count("\n") == last - first - 1:
            yield _Part(first, last, lines[first].index(token.markup), "")


@cache
def _parser() -> MarkdownIt:
    """CommonMark without HTML blocks, which would swallow fences that follow a tag. Imported when first needed."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - a daemon that folds nothing starts without it

    return MarkdownIt("commonmark").disable(["html_block", "inline", "linkify"], ignoreInvalid=True)
