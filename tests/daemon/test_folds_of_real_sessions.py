"""What `/shake` would fold in real session files: plans that a person can read, and figures worked out a second way.

The plans are kept in `tests/golden/shake`; `UPDATE_GOLDEN=1` writes them anew. They hold ids and names of tools alone.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import Json
from daemon.folds import plans_of
from daemon.journal import Journal
from state.shake.planner import PROFILES, SCOPES, Change, Plan, Profile

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "shake"
DEFAULT = PROFILES["default"]
FILES = (
    "01-v1-two-compactions",
    "02-v1-many-thinking-level-changes",
    "03-v1-fused-line-mid-file",
    "05-v3-custom-messages",
    "15-derived-v3-context-edits",
)

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real sessions is not beside the repository")


def file_of(name: str) -> Path:
    return CORPUS / f"{name}.jsonl"


def plans(name: str, profile: Profile = DEFAULT) -> dict[str, Plan]:
    _, found, _ = plans_of(Journal(file_of(name)), leaf=None, profile=profile)
    return dict(zip(SCOPES, found, strict=True))


# To be read


def pages(name: str) -> Iterator[str]:
    for scope, plan in plans(name).items():
        if scope == "elide":
            yield f"{name}: {len(plan.seen):,} messages, ~{sum(one.tokens for one in plan.seen):,} tokens\n"
        before = sum(change.tokens_before for change in plan.changes)
        after = sum(change.tokens_after for change in plan.changes)
        left = f", {plan.left:,} under another overlay" if plan.left else ""
        yield f"\n{scope}: {len(plan.changes):,} targets, {before:,} -> {after:,} tokens, {plan.freed:,} freed{left}\n"
        yield from map(target_line, plan.changes)


def target_line(change: Change) -> str:
    seen, counts = change.seen, change.counts
    who = f"{seen.role} {seen.message.get('toolName', '')}".strip()
    kinds = {
        "result": counts.results,
        "blocks": counts.blocks,
        "images": counts.images,
        "thinking": counts.thinking,
    }
    what = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    return f"  {seen.head.id:<10}{who:<18}{change.tokens_before:>7,} -> {change.tokens_after:>6,}  {what}\n"


@pytest.mark.parametrize("name", FILES)
def test_the_plans_of_a_real_session_are_as_they_were(name: str) -> None:
    text = "".join(pages(name))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", FILES)
def test_the_same_file_is_planned_the_same_way_twice(name: str) -> None:
    """Entries of version 1 have no ids; those that they are given do not change."""
    assert list(pages(name)) == list(pages(name))


# A second way


def branch_of(name: str) -> list[Json]:
    """The entries that contribute to the next request, read as plainly as can be."""
    entries: list[Json] = []
    for line in file_of(name).read_bytes().split(b"\n"):
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    header = entries[0]
    if header.get("version", 1) < 2:  # a chain in the order of the file
        for number, entry in enumerate(entries):
            entry["id"] = str(number)
            entry["firstKeptEntryId"] = str(entry.get("firstKeptEntryIndex"))
        branch = entries[1:]
    else:
        known = {entry["id"]: entry for entry in entries[1:]}
        branch, at = [], entries[-1]["id"]
        while at is not None:
            branch.insert(0, known[at])
            at = known[at]["parentId"]
    cuts = [at for at, entry in enumerate(branch) if entry["type"] == "compaction"]
    if not cuts:
        return branch
    kept = next((at for at in range(cuts[-1]) if branch[at]["id"] == branch[cuts[-1]]["firstKeptEntryId"]), cuts[-1])
    between = [entry for entry in branch[kept : cuts[-1]] if entry["type"] != "compaction"]
    return [branch[cuts[-1]], *between, *branch[cuts[-1] + 1 :]]


def chars(content: Any) -> int:
    """Pi's measure, for what these files hold."""
    if isinstance(content, str):
        return len(content.encode("utf-16-le")) // 2
    kinds: dict[str, Callable[[Json], int]] = {
        "text": lambda block: chars(block["text"]),
        "thinking": lambda block: chars(block["thinking"]),
        "image": lambda _: 4_800,
        "toolCall": lambda block: chars(block["name"]) + chars(compact(block["arguments"])),
    }
    return sum(kinds[block["type"]](block) for block in content or [])


def compact(arguments: object) -> str:
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def message_chars(entry: Json, overlays: dict[str, Any]) -> int:
    message = entry.get("message", entry)
    if message.get("role") == "bashExecution":
        return chars(message["command"]) + chars(message["output"])
    if entry["type"] in ("compaction", "branch_summary"):
        return chars(entry["summary"])
    content = (
        overlays.get(entry["id"], message.get("content")) if entry["type"] in ("message", "custom_message") else ""
    )
    return chars(content)


def results_to_elide(name: str, profile: Profile) -> list[int]:
    """Tokens of every tool result that elide may take, by the rules of the seed and nothing else."""
    branch = branch_of(name)
    overlays = {
        entry["targetId"]: (entry["replacement"] or {}).get("content")
        for entry in branch
        if entry["type"] == "context_edit"
    }
    sizes = [-(-message_chars(entry, overlays) // 4) for entry in branch]
    roles = [entry.get("message", {}).get("role") for entry in branch]
    last = max(at for at, role in enumerate(roles) if role in ("user", "assistant", "toolResult"))
    asks = any(block["type"] == "toolCall" for block in branch[last]["message"]["content"] or [])
    turn = max(at for at, role in enumerate(roles) if role == "user")
    end = turn if asks or roles[last] == "toolResult" else len(branch)
    paths = {
        block["id"]: block["arguments"].get("path", "")
        for entry in branch
        if entry.get("message", {}).get("role") == "assistant"
        for block in entry["message"]["content"]
        if block["type"] == "toolCall"
    }
    found = []
    for at, (entry, size) in enumerate(zip(branch, sizes, strict=True)):
        if roles[at] != "toolResult" or at >= end or sum(sizes[at + 1 :]) < profile.tail or entry["id"] in overlays:
            continue
        message = entry["message"]
        texts = [block for block in message["content"] if block["type"] == "text"]
        guide = str(paths.get(message["toolCallId"])).rsplit("/", 1)[-1] in ("SKILL.md", "AGENTS.md", "CLAUDE.md")
        if not texts or (guide and message["toolName"] == "read"):
            continue
        text = -(-chars(texts) // 4)
        note = f"[{message['toolName']} output omitted (~{text:,} tokens); history item 12345678]"
        others = chars([block for block in message["content"] if block["type"] != "text"])
        if -(-(len(note) + others) // 4) < size:
            found.append(size)
    return found


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
@pytest.mark.parametrize("name", FILES)
def test_elide_takes_the_results_that_the_rules_say(name: str, profile: Profile) -> None:
    expected = results_to_elide(name, profile)
    changes = [change for change in plans(name, profile)["elide"].changes if change.counts.results]
    assert [change.tokens_before for change in changes] == expected
    assert sum(expected) > 0


@pytest.mark.parametrize("name", FILES)
def test_the_tokens_that_the_model_sees_add_up(name: str) -> None:
    branch = branch_of(name)
    edits = [entry for entry in branch if entry["type"] == "context_edit"]
    overlays = {edit["targetId"]: (edit["replacement"] or {}).get("content") for edit in edits}
    seen = plans(name)["elide"].seen
    assert sum(one.tokens for one in seen) == sum(-(-message_chars(entry, overlays) // 4) for entry in branch)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("scope", ["images", "thinking"])
def test_images_and_reasoning_are_counted_block_by_block(name: str, scope: str) -> None:
    """All of them but those in an unfinished turn, of an unanswered call, or that free nothing."""
    kind = {"images": "image", "thinking": "thinking"}[scope]
    stored = sum(
        block["type"] == kind
        for entry in branch_of(name)
        if isinstance(content := entry.get("message", {}).get("content"), list)
        for block in content
    )
    counts = plans(name)[scope].counts
    folded = counts.images if scope == "images" else counts.thinking
    assert folded <= stored
    assert (folded > 0) == (stored > 0)
