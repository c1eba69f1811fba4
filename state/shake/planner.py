"""What a fold or an undo would change, entry by entry (facts: shake-and-peers 5 and 6; design 6).

Rules
- The unit of change is the whole content of one entry, replaced and never nulled. Tool calls, signatures and,
  under elide, images stay; so a call never loses its result, nor a result its call.
- An entry may change when the model sees it, its turn is over, none of its calls waits for a result, it is not
  protected, and nobody else's overlay lies on it.
- Elide alone keeps a tail, counted from the newest entry in what the model sees, and a least size of blocks.
- What would not get smaller stays. So a fold repeated changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from msgspec import Raw, Struct, structs

from protocol.entries import FoldedTarget
from state.shake.scanner import scan
from state.shake.view import Seen, hash_of, raw_content
from state.shake.wall import Folded, ours
from state.tokens import IMAGE_CHARS, block_chars, content_tokens, text_tokens, tokens
from state.tree import Tree

SCOPES: Final = ("elide", "images", "thinking")

GUIDES: Final = frozenset({"SKILL.md", "AGENTS.md", "CLAUDE.md"})
"""Files that tell the model how to work; what was read of them stays."""

RECOVERING: Final = frozenset({"history"})
RECOVERED_TURNS: Final = 2
"""Text that the model fetched back stays for this many user turns (facts: shake-and-peers 5, row 14)."""

RESPONSES_APIS: Final = frozenset({"openai-responses", "azure-openai-responses", "openai-codex-responses"})
"""A call without its reasoning item is refused there (facts: shake-and-peers 0.4)."""

REASONING_WANTED: Final = ("deepseek", "kimi", "moonshot", "glm", "zai")
"""Chat models that want the reasoning of a tool call back (facts: shake-and-peers 0.4)."""

_NOTE: Final = re.compile(r"\[[^\[\]\n]* omitted \(~[\d,]+ tokens\)(?:; history item [^\[\]\s]+)?\]")
"""What stands for folded content; it is not folded once more."""

_SKILL: Final = re.compile(r"^</?skill[\s>]", re.MULTILINE)
"""A skill that was called up, or a part of one: instructions, which stay."""

Content = list[Any] | str


class Profile(Struct, frozen=True):
    """How much elide leaves alone, in tokens."""

    name: str
    tail: int
    block: int


PROFILES: Final = {
    "default": Profile("default", 4_000, 400),
    "conservative": Profile("conservative", 8_000, 800),
    "aggressive": Profile("aggressive", 2_000, 200),
}


class Rules(Struct, frozen=True):
    """What the user set, and what Pi knows. Tools and paths may be patterns; `skills` are files."""

    profile: Profile = PROFILES["default"]
    tools: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    recall: bool = True
    """The model can read a folded item through `history`, so a placeholder names it."""


class Counts(Struct, frozen=True):
    """What is folded, by kind."""

    results: int = 0
    blocks: int = 0
    images: int = 0
    thinking: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            *(mine + theirs for mine, theirs in zip(structs.astuple(self), structs.astuple(other), strict=True))
        )


class Change(Struct, frozen=True):
    """One entry's new content; tokens are of what the model sees before and after."""

    seen: Seen
    content: Content | Raw
    tokens_before: int
    tokens_after: int
    hash: str
    counts: Counts

    def logged(self) -> FoldedTarget:
        """The change as the log names it."""
        return FoldedTarget(self.seen.head.id, self.hash, content_tokens(self.seen.raw), self.tokens_after)


class Plan(Struct, frozen=True):
    """Changes oldest first, over what the model sees now. `left` counts entries under somebody else's overlay."""

    scope: str
    changes: list[Change]
    seen: list[Seen]
    left: int = 0

    @property
    def counts(self) -> Counts:
        """Everything that is folded."""
        return sum((change.counts for change in self.changes), Counts())

    @property
    def freed(self) -> int:
        """Tokens that the model will not see any more."""
        return sum(change.tokens_before - change.tokens_after for change in self.changes)


def fold(seen: Sequence[Seen], folded: dict[str, Folded], scope: str, rules: Rules) -> Plan:
    """What `/shake` with this scope would change."""
    over = _over(seen)
    calls = _calls(seen)
    answered = {str(one.message.get("toolCallId")) for one in seen if one.role == "toolResult"}
    turns_after = _turns_after(seen)
    tail = _tail(seen, rules.profile.tail) if scope == "elide" else len(seen)
    changes: list[Change] = []
    left = 0
    for at, one in enumerate(seen):
        if at >= over or at >= tail or not one.editable or not _settled(one, answered):
            continue
        own = folded.get(one.head.id)
        if one.overlaid and not ours(one, own):
            left += 1
            continue
        if own is not None and scope in own.scopes and one.overlaid:
            continue
        if _protected(one, calls, turns_after[at], rules):
            continue
        content, counts = _FOLDS[scope](one, rules)
        after = content_tokens(content)
        if counts != Counts() and after < one.tokens:
            changes.append(Change(one, content, one.tokens, after, hash_of(content), counts))
    return Plan(scope, changes, list(seen), left)


def undo(tree: Tree, seen: Sequence[Seen], folded: dict[str, Folded]) -> Plan:
    """What `/shake undo` would restore: the stored content of every entry that is folded, byte for byte."""
    changes: list[Change] = []
    left = 0
    for one in seen:
        own = folded.get(one.head.id)
        if not one.overlaid or (own is None and not ours(one, None)):
            continue
        if not ours(one, own):
            left += 1
            continue
        raw = raw_content(tree, one.head)
        if raw is not None:
            before = content_tokens(one.raw)
            changes.append(Change(one, raw, one.tokens, before, hash_of(one.raw), Counts()))
    return Plan("undo", changes, list(seen), left)


# Which entries may change


def _over(seen: Sequence[Seen]) -> int:
    """Where the unfinished turn begins: the one whose last message still waits to go on. Nothing after it changes."""
    end = len(seen)
    talk = [one for one in seen if one.role in ("user", "assistant", "toolResult")]
    if not talk or not _waits(talk[-1]):
        return end
    return next((at for at in range(end - 1, -1, -1) if seen[at].role == "user"), 0)


def _waits(last: Seen) -> bool:
    if last.role == "toolResult":
        return True
    return last.role == "assistant" and (last.head.tag == "toolUse" or bool(_call_ids(last)))


def _settled(one: Seen, answered: set[str]) -> bool:
    return all(call in answered for call in _call_ids(one))


def _call_ids(one: Seen) -> list[str]:
    blocks = one.raw if isinstance(one.raw, list) and one.role == "assistant" else []
    return [str(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"]


def _tail(seen: Sequence[Seen], protect: int) -> int:
    """Where the tail begins: entries that have less than this after them are the model's working set."""
    after = 0
    for at in range(len(seen) - 1, -1, -1):
        if after >= protect:
            return at + 1
        after += seen[at].tokens
    return 0


def _turns_after(seen: Sequence[Seen]) -> list[int]:
    turns, count = [0] * len(seen), 0
    for at in range(len(seen) - 1, -1, -1):
        turns[at] = count
        count += seen[at].role == "user"
    return turns


def _calls(seen: Iterable[Seen]) -> dict[str, tuple[str, Any]]:
    """Every tool call by id: its tool and arguments."""
    return {
        str(block.get("id")): (str(block.get("name")), block.get("arguments"))
        for one in seen
        if one.role == "assistant" and isinstance(one.raw, list)
        for block in one.raw
        if isinstance(block, dict) and block.get("type") == "toolCall"
    }


def _protected(one: Seen, calls: dict[str, tuple[str, Any]], turns_after: int, rules: Rules) -> bool:
    if one.role != "toolResult":
        return False
    tool = str(one.message.get("toolName", ""))
    if any(fnmatchcase(tool, pattern) for pattern in rules.tools):
        return True
    if tool in RECOVERING and turns_after < RECOVERED_TURNS:
        return True
    _, arguments = calls.get(str(one.message.get("toolCallId")), ("", None))
    path = arguments.get("path", arguments.get("file_path")) if isinstance(arguments, dict) else None
    if not isinstance(path, str):
        return False
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    guide = tool == "read" and (name in GUIDES or any(_names(skill, path) for skill in rules.skills))
    return guide or any(fnmatchcase(path, pattern) or fnmatchcase(name, pattern) for pattern in rules.paths)


def _names(file: str, path: str) -> bool:
    """Whether a path, relative perhaps, may be this file."""
    return file == path or file.endswith("/" + path.removeprefix("./"))


# What each scope makes of an entry


def _elide(one: Seen, rules: Rules) -> tuple[Content, Counts]:
    if one.role == "toolResult":
        return _elide_result(one, rules)
    if isinstance(one.content, str):
        text, count = _elide_blocks(one.content, one, rules)
        return text, Counts(blocks=count)
    content, total = [], 0
    for block in one.content:
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            text, count = _elide_blocks(block["text"], one, rules)
            total += count
            content.append({**block, "text": text} if count else block)
        else:
            content.append(block)
    return content, Counts(blocks=total)


def _elide_result(one: Seen, rules: Rules) -> tuple[Content, Counts]:
    """The text of a tool result as one placeholder where its first text stood; everything else stays."""
    blocks = one.blocks()
    texts = [b for b in blocks if b.get("type") == "text" and not _NOTE.fullmatch(str(b.get("text")))]
    if not texts:
        return blocks, Counts()
    tool = str(one.message.get("toolName") or "tool")
    size = tokens(sum(block_chars(block) for block in texts))
    note = {"type": "text", "text": _placeholder(f"{tool} output", size, one, rules)}
    content = [note if block is texts[0] else block for block in blocks if block is texts[0] or block not in texts]
    return content, Counts(results=1)


def _elide_blocks(text: str, one: Seen, rules: Rules) -> tuple[str, int]:
    parts: list[str] = []
    at = count = 0
    for block in scan(text):
        size = text_tokens(text[block.start : block.end])
        note = _placeholder(f"<{block.name}> block" if block.name else "code block", size, one, rules)
        small = size < rules.profile.block or text_tokens(note) >= size
        if small or _SKILL.search(text, block.start, block.end):
            continue
        parts += [text[at : block.start], note]
        at, count = block.end, count + 1
    return "".join([*parts, text[at:]]), count


def _images(one: Seen, rules: Rules) -> tuple[Content, Counts]:
    blocks = one.blocks()
    size = tokens(IMAGE_CHARS)
    note = {"type": "text", "text": _placeholder("image", size, one, rules)}
    count = sum(1 for block in blocks if block.get("type") == "image")
    return [note if block.get("type") == "image" else block for block in blocks], Counts(images=count)


def _thinking(one: Seen, _rules: Rules) -> tuple[Content, Counts]:
    """Reasoning goes without a word; where a provider would refuse what is left, it stays."""
    blocks = one.blocks()
    found = [block for block in blocks if block.get("type") == "thinking"]
    calls = any(block.get("type") == "toolCall" for block in blocks)
    if one.role != "assistant" or not found or (calls and _wants_reasoning(one.message)):
        return blocks, Counts()
    rest = [block for block in blocks if block.get("type") != "thinking"]
    if not rest:
        size = tokens(sum(block_chars(block) for block in found))
        rest = [{"type": "text", "text": f"[thinking omitted (~{size:,} tokens)]"}]
    return rest, Counts(thinking=len(found))


def _wants_reasoning(message: dict[str, Any]) -> bool:
    if message.get("api") in RESPONSES_APIS:
        return True
    names = f"{message.get('provider', '')} {message.get('model', '')}".lower()
    return message.get("api") == "openai-completions" and any(name in names for name in REASONING_WANTED)


def _placeholder(what: str, size: int, one: Seen, rules: Rules) -> str:
    recall = f"; history item {one.head.id}" if rules.recall else ""
    return f"[{what} omitted (~{size:,} tokens){recall}]"


_FOLDS: Final[dict[str, Callable[[Seen, Rules], tuple[Content, Counts]]]] = {
    "elide": _elide,
    "images": _images,
    "thinking": _thinking,
}
