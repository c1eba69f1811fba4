"""What holds of folds in any session: nothing is lost, nothing grows, nothing is done twice, one undo restores all."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from shaking import (
    PLAIN,
    append,
    call,
    edits,
    fenced,
    folded,
    image,
    plan,
    request,
    rules,
    shake,
    shown,
    text,
    thinking,
    undoing,
    words,
)

from builders import Json, PiSession
from protocol.entries import SHAKE
from state.shake.command import logs_of_done, run
from state.shake.planner import SCOPES, Plan, Rules
from state.tokens import content_tokens

Step = Callable[[PiSession, "itertools.count[int]"], None]

BLOCKS = st.sampled_from(
    [
        text(""),
        text("short"),
        text(words(300)),
        text(words(900)),
        text(fenced(60)),
        text(f"x\n{fenced(450)}\ny"),
        text(f"a\n{fenced(30, '~~~')}\nb\r\n<file>\r\n{words(20)}\r\n</file>"),
        text("```\nnever closed", textSignature="sig"),
        text(f'<skill name="x">\n{fenced(60)}\n</skill>'),
        text("漢字😀" * 50),
        image(),
        {"type": "unknown", "data": words(50)},
    ]
)
REASONS = st.sampled_from([thinking(), thinking(signature=None), thinking("", "redacted"), thinking(words(90))])
PROVIDERS = st.sampled_from(
    [
        {},
        {"api": "anthropic-messages", "provider": "anthropic", "model": "claude"},
        {"api": "openai-responses", "provider": "openai", "model": "gpt"},
        {"api": "openai-completions", "provider": "deepseek", "model": "deepseek"},
    ]
)
TOOLS = st.sampled_from(["bash", "read", "history", "edit"])
CONTENTS = st.one_of(st.lists(BLOCKS, max_size=4), st.sampled_from(["", "plain", words(200), fenced(70)]))
RESULTS = st.lists(BLOCKS, min_size=1, max_size=3)
STOPS = st.sampled_from(["stop", "aborted", "error"])


def user(content: Any) -> Step:
    return lambda pi, _: drop(pi.message("user", content))


def custom(content: Any) -> Step:
    return lambda pi, _: drop(pi.custom_message("note", content))


def shell(size: int) -> Step:
    message = {"role": "bashExecution", "command": "ls", "output": words(size)}
    return lambda pi, _: drop(pi.append("message", message=message))


def drop(entry_id: str) -> None:
    """A step gives nothing back."""
    del entry_id


def turn(
    reasons: list[Json], blocks: list[Json], results: list[tuple[str, list[Json] | None]], fields: Json, stop: str
) -> Step:
    """An assistant with calls, some of which are never answered."""

    def step(pi: PiSession, numbers: "itertools.count[int]") -> None:
        ids = [f"c{next(numbers)}" for _ in results]
        asked = [call(each, tool, path="/a/b.py") for each, (tool, _) in zip(ids, results, strict=True)]
        pi.message("assistant", [*reasons, *blocks, *asked], stopReason="toolUse" if ids else stop, **fields)
        for each, (tool, content) in zip(ids, results, strict=True):
            if content is not None:
                pi.message("toolResult", content, toolCallId=each, toolName=tool, isError=False)

    return step


def overlay(at: int, content: Any) -> Step:
    """Somebody else's, on some message."""

    def step(pi: PiSession, _: "itertools.count[int]") -> None:
        found = [
            each for each in pi.branch() if each.get("message", {}).get("role") in ("user", "assistant", "toolResult")
        ]
        if found:
            pi.overlay(found[at % len(found)]["id"], content)

    return step


def compaction(at: int) -> Step:
    def step(pi: PiSession, _: "itertools.count[int]") -> None:
        found = [each for each in pi.branch() if each["type"] == "message"]
        pi.compact(found[at % len(found)]["id"] if found else None)

    return step


TURNS = st.builds(
    turn,
    st.lists(REASONS, max_size=2),
    st.lists(BLOCKS, max_size=2),
    st.lists(st.tuples(TOOLS, st.one_of(st.none(), RESULTS, RESULTS, RESULTS)), max_size=3),
    PROVIDERS,
    STOPS,
)
EVENTS = st.one_of(
    st.builds(custom, CONTENTS),
    st.builds(shell, st.integers(0, 500)),
    st.builds(overlay, st.integers(0, 50), st.none() | CONTENTS),
    st.builds(compaction, st.integers(0, 50)),
)
STEPS = st.one_of(TURNS, TURNS, TURNS, st.builds(user, CONTENTS), EVENTS)
END = turn([], [text(words(200))], [], {}, "stop")


def build(steps: Iterable[Step]) -> PiSession:
    pi, numbers = PiSession(), itertools.count()
    for step in steps:
        step(pi, numbers)
    return pi


SESSIONS = st.builds(
    lambda steps, end: build([*steps, *end]),
    st.lists(STEPS, min_size=3, max_size=16),
    st.sampled_from([[], [END], [user("go on"), END], [END], [user("go on")]]),
)
RULES = st.builds(
    rules,
    st.sampled_from([0, 100, 400]),
    st.sampled_from([0, 50, 400]),
    recall=st.booleans(),
    tools=st.sampled_from([(), ("edit",)]),
)
ORDERS = st.permutations(["", "images", "thinking", "--with-thinking"])


def kept(content: Any, scope: str) -> list[Json]:
    """The blocks that this scope has no business with."""
    blocks = content if isinstance(content, list) else []
    replaced = {"elide": ("text",), "images": ("image", "text"), "thinking": ("thinking", "text")}[scope]
    return [block for block in blocks if block["type"] not in replaced]


def calls_and_results(contents: dict[str, Any], pi: PiSession) -> list[str]:
    found = []
    for entry_id, content in contents.items():
        message = pi.entry(entry_id).get("message", {})
        if content is not None and message.get("role") == "toolResult":
            found.append(message["toolCallId"])
        found += [block["id"] for block in content or [] if isinstance(block, dict) and block["type"] == "toolCall"]
    return found


@given(SESSIONS, RULES, st.sampled_from(SCOPES))
def test_a_plan_takes_nothing_away_that_is_not_its_to_take(pi: PiSession, rules: Rules, scope: str) -> None:
    before = shown(pi)
    made: Plan = plan(pi, scope, rules)
    assert [one.head.id for one in made.seen if one.head.type in ("message", "custom_message")] == list(before)
    for change in made.changes:
        old = before[change.seen.head.id]
        assert kept(change.content, scope) == kept(old, scope)
        assert change.content, "never nulled, never empty"
        assert change.tokens_before == content_tokens(old)
        assert change.tokens_after == content_tokens(change.content) < change.tokens_before
    shake(pi, scope, rules=rules)
    after = shown(pi)
    assert calls_and_results(after, pi) == calls_and_results(before, pi)
    assert after.keys() == before.keys()
    changed = {change.seen.head.id for change in made.changes}
    assert all(after[each] == before[each] for each in before if each not in changed)


@given(SESSIONS, RULES, st.sampled_from(SCOPES))
def test_a_second_plan_has_no_changes(pi: PiSession, rules: Rules, scope: str) -> None:
    shake(pi, scope, rules=rules)
    once, entries = shown(pi), len(pi.entries)
    shake(pi, scope, rules=rules)
    assert (shown(pi), len(pi.entries)) == (once, entries)


@given(SESSIONS, RULES, st.sampled_from(SCOPES))
def test_an_undo_restores_what_the_model_saw_before(pi: PiSession, rules: Rules, scope: str) -> None:
    before = shown(pi)
    shake(pi, scope, rules=rules)
    shake(pi, "undo")
    assert shown(pi) == before
    assert undoing(pi).changes == []


@given(SESSIONS, RULES, ORDERS)
def test_after_all_scopes_in_any_order_one_undo_restores_everything(
    pi: PiSession, rules: Rules, order: list[str]
) -> None:
    before, wall_before = shown(pi), folded(pi)
    for args in order:
        shake(pi, args, rules=rules)
    shake(pi, "undo")
    assert shown(pi) == before
    assert folded(pi) == wall_before
    for args in order:
        shake(pi, args, rules=rules)
    shake(pi, "undo")
    assert shown(pi) == before


@given(SESSIONS, ORDERS, st.lists(STEPS, max_size=8), st.data())
def test_folds_between_turns_and_from_any_leaf_are_undone_too(
    pi: PiSession, order: list[str], steps: list[Step], data: st.DataObject
) -> None:
    """The session goes on after each fold; somebody else's overlays and compactions come between."""
    numbers = itertools.count(1_000)
    for args in order:
        shake(pi, args, rules=rules(tail=300, block=50))
        for step in steps:
            step(pi, numbers)
    if pi.entries:
        pi.leaf = data.draw(st.sampled_from([entry["id"] for entry in pi.entries]))
    shake(pi, "undo")
    assert undoing(pi).changes == []
    assert shake(pi, "status").startswith("Nothing is folded.")
    theirs = {
        entry["targetId"]: plain(entry["replacement"]) for entry in pi.branch() if entry["type"] == "context_edit"
    }
    own = {entry["id"]: entry.get("message", entry).get("content") for entry in pi.branch()}
    for entry_id, content in shown(pi).items():
        assert content in (own[entry_id], theirs.get(entry_id, own[entry_id]))


def plain(replacement: Json | None) -> Any:
    return None if replacement is None else replacement["content"]


@given(SESSIONS, RULES, st.sampled_from(["", "images", "thinking", "--with-thinking", "undo"]), st.integers(0, 40))
def test_a_run_that_breaks_off_anywhere_is_undone_by_the_log_of_what_it_did(
    pi: PiSession, rules: Rules, args: str, cut: int
) -> None:
    before = shown(pi)
    if args == "undo":
        shake(pi, rules=rules)
    effects = run(request(pi, args, rules=rules)).effects
    append(pi, list(edits(effects)[:cut]))
    asked = request(pi)
    append(pi, logs_of_done(effects, asked.tree, asked.branch, None))
    shake(pi, "undo")
    assert shown(pi) == before


@given(SESSIONS, st.sampled_from(["", "images"]), st.integers(0, 40))
def test_a_fold_that_is_killed_anywhere_is_undone_by_its_placeholders(pi: PiSession, args: str, cut: int) -> None:
    before = shown(pi)
    append(pi, list(edits(run(request(pi, args, rules=rules(block=50))).effects)[:cut]))
    shake(pi, args, rules=rules(tail=100))
    shake(pi, "undo")
    assert shown(pi) == before


@given(SESSIONS, RULES)
def test_the_wall_is_what_differs_from_before(pi: PiSession, rules: Rules) -> None:
    before = shown(pi)
    shake(pi, rules=rules)
    after = shown(pi)
    assert sorted(folded(pi)) == sorted(each for each in before if before[each] != after[each])
    assert sum(entry.get("customType") == SHAKE for entry in pi.entries) == bool(folded(pi))


def test_the_plain_rules_are_the_default_profile() -> None:
    assert PLAIN.profile.name == "default"
