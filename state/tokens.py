"""Token counts as Pi estimates them: four characters a token, counted in UTF-16 units as JavaScript does.

Pi's own rule decides what it compacts and what it shows, so ours has to be the same (facts: pi-lifecycle 13).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

CHARS_A_TOKEN: Final = 4
IMAGE_CHARS: Final = 4_800


def length(text: str) -> int:
    """UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def tokens(chars: int) -> int:
    """Rounded up."""
    return -(-chars // CHARS_A_TOKEN)


def text_tokens(text: str) -> int:
    """The tokens of a text."""
    return tokens(length(text))


def block_chars(block: Any) -> int:  # noqa: ANN401 - a content block, whatever the file holds
    """The characters that Pi counts for one content block; signatures are not among them."""
    if not isinstance(block, dict):
        return 0
    match block.get("type"):
        case "text":
            return _chars(block.get("text"))
        case "thinking":
            return _chars(block.get("thinking"))
        case "image":
            return IMAGE_CHARS
        case "toolCall":
            arguments = msgspec.json.encode(block.get("arguments")).decode()
            return _chars(block.get("name")) + length(arguments)
    return 0


def content_tokens(content: Any) -> int:  # noqa: ANN401 - a string or blocks, whatever the file holds
    """The tokens of a message's content."""
    if isinstance(content, str):
        return text_tokens(content)
    return tokens(sum(block_chars(block) for block in content)) if isinstance(content, list) else 0


def _chars(text: Any) -> int:  # noqa: ANN401 - see above
    return length(text) if isinstance(text, str) else 0
