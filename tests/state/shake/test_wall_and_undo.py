"""What is folded now, as the logs tell it, and how all of it comes back (seed: "The wall", "Lifecycle")."""

import json
from typing import Any

import pytest
from msgspec import Raw
from shaking import (
    append,
    call,
    calls,
    done,
    edits,
    fenced,
    folded,
    fork,
    image,
    later,
    logs,
    one_result,
    plan,
    ran,
    request,
    result,
    rules,
    says,
    shake,
    shown,
    targets,
    text,
    thinking,
    undoing,
    words,
)

from builders import Json, PiSession, head_of, line_of
from protocol import effects as fx
from protocol.entries import SHAKE, EntryHead
from state.shake.command import folded_now, logs_of_done, run
from state.shake.planner import SCOPES, Rules, undo
from state.shake.view import view
from state.shake.wall import wall
from state.tree import Tree


def three_results() -> tuple[PiSession, list[str]]:
    pi = PiSession()
    pi.user("go")
    found = [ran(pi, number, words(1_000)) for number in range(3)]
    return later(pi), found


def log(op: str, scope: str, *ids: str) -> Json:
    named = [{"id": each, "hash": "0" * 16, "tokensBefore": 9, "tokensAfter": 1} for each in ids]
    return {
        "v": 1,
        "op": op,
        "scope": scope,
        "profile": "default",
        "targets": named,
        "leafAtPlan": None,
        "version": "1",
    }


# The log


def test_a_fold_is_overlays_oldest_first_and_then_one_log() -> None:
    pi, found = three_results()
    leaf = pi.leaf
    effects = run(request(pi)).effects
    assert [effect.__struct_config__.tag for effect in effects] == [
        "expect_leaf",
        *["append_context_edit"] * 3,
        "append_entry",
        "notify",
    ]
    assert [edit.target_id for edit in edits(effects)] == found
    append(pi, effects)
    [entry] = logs(pi)
    assert {key: entry[key] for key in ("v", "op", "scope", "profile", "leafAtPlan", "version")} == {
        "v": 1,
        "op": "fold",
        "scope": "elide",
        "profile": "default",
        "leafAtPlan": leaf,
        "version": "0.1.0",
    }
    assert [(target["id"], target["tokensBefore"], target["tokensAfter"]) for target in entry["targets"]] == [
        (each, 1_000, 10) for each in found
    ]


@pytest.mark.parametrize("args", ["", "images", "thinking", "undo"])
def test_a_run_that_changes_nothing_appends_nothing(args: str) -> None:
    pi = done(PiSession())
    before = len(pi.entries)
    shake(pi, args)
    assert len(pi.entries) == before


@pytest.mark.parametrize("scope", SCOPES)
def test_a_fold_repeated_appends_nothing(scope: str) -> None:
    pi = PiSession()
    pi.message("user", [text(fenced(1_000)), image()])
    calls(pi, thinking(), call("c1"))
    result(pi, "c1", [text(words(1_000)), image()])
    later(pi)
    shake(pi, scope)
    before = len(pi.entries)
    assert "to shake." in shake(pi, scope)
    assert len(pi.entries) == before


def test_a_repeated_fold_with_another_profile_leaves_what_is_folded() -> None:
    """The frontier is monotonic (seed: "The skip-set")."""
    pi = PiSession()
    target = pi.user(f"{fenced(1_000)}\n{fenced(300)}")
    later(pi)
    shake(pi)
    assert targets(plan(pi, rules=rules(block=200))) == []
    assert fenced(300) in shown(pi)[target][0]["text"]


# The wall


@pytest.mark.parametrize(
    ("entries", "wall_is"),
    [
        ([], []),
        ([log("fold", "elide", "a", "b")], ["a", "b"]),
        ([log("fold", "elide", "a", "b"), log("undo", "undo", "a")], ["b"]),
        ([log("fold", "elide", "a"), log("undo", "undo", "a"), log("fold", "images", "a")], ["a"]),
        ([log("undo", "undo", "a"), log("fold", "elide", "a")], ["a"]),
        ([log("fold", "elide", "a"), log("fold", "images", "a")], ["a"]),
        ([log("fold", "elide", "a"), log("fold", "elide", "b"), log("undo", "undo", "a", "b")], []),
    ],
)
def test_of_several_operations_on_an_entry_the_last_one_counts(entries: list[Json], wall_is: list[str]) -> None:
    pi = PiSession()
    for entry in entries:
        pi.custom(SHAKE, entry)
    assert folded(pi) == wall_is


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        "fold",
        {**log("fold", "elide", "b"), "v": 2},
        {**log("fold", "elide", "b"), "op": "melt"},
        {**log("fold", "elide", "b"), "targets": ["b"]},
        {"op": "elide", "targets": ["b"], "profile": "default"},
    ],
)
def test_a_log_of_another_make_counts_for_nothing_and_harms_none(data: Any) -> None:
    pi = PiSession()
    pi.custom(SHAKE, log("fold", "elide", "a"))
    pi.custom(SHAKE, data)
    assert folded(pi) == ["a"]


def test_scopes_of_an_entry_add_up_until_it_is_restored() -> None:
    pi = PiSession()
    target = pi.message("user", [text(fenced(1_000)), image()])
    later(pi)
    shake(pi)
    shake(pi, "images")
    asked = request(pi)
    assert wall(asked.tree, asked.branch)[target].scopes == {"elide", "images"}
    shake(pi, "undo")
    shake(pi, "images")
    asked = request(pi)
    assert wall(asked.tree, asked.branch)[target].scopes == {"images"}


def test_entries_are_counted_and_not_the_overlays_that_gather_on_them() -> None:
    pi, found = three_results()
    for _ in range(3):
        shake(pi)
        shake(pi, "undo")
    shake(pi)
    assert sum(entry["type"] == "context_edit" for entry in pi.entries) == 21
    assert folded(pi) == found
    assert shake(pi, "status").startswith("3 entries are folded (~2,970 tokens).")


# Undo


@pytest.mark.parametrize("scope", SCOPES)
def test_undo_restores_everything_and_twice_is_once(scope: str) -> None:
    pi = PiSession()
    pi.message("user", [text(f"a\n{fenced(1_000)}"), image()])
    calls(pi, thinking(), text("b", textSignature="s"), {**call("c1"), "thoughtSignature": "t"})
    result(pi, "c1", [text(words(1_000)), image()])
    later(pi)
    raw = shown(pi)
    shake(pi, scope)
    assert shown(pi) != raw
    shake(pi, "undo")
    assert shown(pi) == raw
    assert folded(pi) == []
    before = len(pi.entries)
    assert shake(pi, "undo") == "Nothing to restore."
    assert len(pi.entries) == before


def test_one_undo_restores_folds_of_every_scope() -> None:
    pi = PiSession()
    pi.message("user", [text(fenced(1_000)), image()])
    says(pi, thinking(), text(fenced(1_000)))
    later(pi)
    raw = shown(pi)
    for scope in ("thinking", "elide", "images"):
        shake(pi, scope)
    assert shake(pi, "undo").startswith("Restored 2 entries (~")
    assert shown(pi) == raw


def test_fold_undo_fold_leaves_one_set_of_folds() -> None:
    pi, found = three_results()
    shake(pi)
    once = shown(pi)
    shake(pi, "undo")
    assert targets(plan(pi)) == found
    assert plan(pi).left == 0
    shake(pi)
    assert shown(pi) == once
    assert folded(pi) == found


STORED = (
    b'[ {"text":"' + b"\\u00e9\\/ \\ud83d\\ude00 a\\tb" + "\N{PILE OF POO}".encode() + b'" , "type" :"text"},'
    b' {"type":"toolCall","id":"c1","name":"f","arguments":{"n":1.0,"e":1E5,"big":12345678901234567890,"b":2,"a":1}},'
    b' {"type":"thinking","thinking":"' + b"hm, " * 99 + b'","thinkingSignature":"sig=="} ]'
)


@pytest.mark.parametrize("where", ["message", "custom_message"])
def test_undo_appends_the_very_bytes_that_are_stored(where: str) -> None:
    """Whatever the order of keys, the escapes and the form of numbers."""
    open_, close = (b'{"role":"assistant","content":', b"}") if where == "message" else (b"", b"")
    body = b'"message":' + open_ + STORED + close if where == "message" else b'"customType":"x","content":' + STORED
    lines = {
        "a": b'{"type":"%s","id":"a","parentId":null,"timestamp":"t",%s}' % (where.encode(), body),
        "b": b'{"type":"context_edit","id":"b","parentId":"a","targetId":"a","replacement":{"content":'
        b'[{"type":"text","text":"[x omitted (~9 tokens); history item a]"}]}}',
    }
    tree = Tree(lambda head: lines.get(head.id))
    tree.add(
        [
            EntryHead("a", None, where, "assistant" if where == "message" else "x", "", -1, 0),
            EntryHead("b", "a", "context_edit", "", "a", -1, 0),
        ]
    )
    branch = tree.path("b")
    [change] = undo(tree, view(tree, branch), wall(tree, branch)).changes
    assert isinstance(change.content, Raw)
    assert bytes(change.content) == STORED


def test_an_undo_is_logged_with_what_it_has_restored() -> None:
    pi, found = three_results()
    shake(pi)
    shake(pi, "undo")
    entry = logs(pi)[-1]
    assert (entry["op"], entry["scope"]) == ("undo", "undo")
    assert [target["id"] for target in entry["targets"]] == found


def test_an_overlay_of_somebody_else_after_ours_stays_while_the_others_are_undone() -> None:
    pi, found = three_results()
    shake(pi)
    pi.overlay(found[1], [text("theirs")])
    assert shake(pi, "undo").endswith(" 1 entry under another overlay left alone.")
    contents = shown(pi)
    assert [contents[each] for each in found] == [[text(words(1_000))], [text("theirs")], [text(words(1_000))]]
    assert plan(pi).left == 1
    assert targets(plan(pi)) == [found[0], found[2]]


def test_an_overlay_of_somebody_else_is_theirs_also_when_it_keeps_our_placeholder() -> None:
    pi, target = one_result()
    shake(pi, rules=Rules())
    theirs = [*shown(pi)[target], text("a note of theirs")]
    pi.overlay(target, theirs)
    made = undoing(pi)
    assert (targets(made), made.left) == ([], 1)
    assert shake(pi, "status").startswith("Nothing is folded.")


def test_what_somebody_else_restored_needs_no_undo_and_can_be_folded_again() -> None:
    pi, found = three_results()
    shake(pi)
    pi.overlay(found[1], [text(words(1_000))])
    assert targets(undoing(pi)) == [found[0], found[2]]
    assert targets(plan(pi)) == [found[1]]


def test_what_pi_omitted_after_a_fold_is_neither_restored_nor_counted() -> None:
    pi, found = three_results()
    shake(pi)
    pi.overlay(found[1], None)
    made = undoing(pi)
    assert targets(made) == [found[0], found[2]]
    assert shake(pi, "status").startswith("2 entries are folded")
    shake(pi, "undo")
    assert shown(pi)[found[1]] is None


def test_overlays_of_somebody_else_alone_are_nothing_to_undo() -> None:
    pi, found = three_results()
    pi.overlay(found[0], [text("[bash output omitted (~1,000 tokens)]")])
    pi.overlay(found[1], [text(f"[bash output omitted (~1,000 tokens); history item {found[0]}]")])
    made = undoing(pi)
    assert (targets(made), made.left) == ([], 0)


# Runs that broke off


@pytest.mark.parametrize("done_edits", [1, 2, 3])
@pytest.mark.parametrize("args", ["", "images"])
def test_folds_without_a_log_are_recognised_and_undone(args: str, done_edits: int) -> None:
    """Pi was killed between the overlays and their log."""
    pi = PiSession()
    pi.user("go")
    for number in range(3):
        ran(pi, number, [image()] if args else words(1_000))
    later(pi)
    raw = shown(pi)
    effects = run(request(pi, args, rules=Rules())).effects
    append(pi, list(edits(effects)[:done_edits]))
    assert folded(pi) == []
    assert len(undoing(pi).changes) == done_edits
    assert shake(pi, "status").startswith(f"{done_edits} entr")
    shake(pi, "undo")
    assert shown(pi) == raw


def test_folds_without_a_log_are_not_folded_again_and_the_rest_is() -> None:
    pi, found = three_results()
    append(pi, list(edits(run(request(pi, rules=Rules())).effects)[:2]))
    made = plan(pi, rules=Rules())
    assert (targets(made), made.left) == ([found[2]], 0)
    raw = shown(fork(pi, found[-1]))
    shake(pi)
    shake(pi, "undo")
    assert all(shown(pi)[each] == raw[each] for each in found)


def test_a_run_that_broke_off_logs_what_it_has_done() -> None:
    pi, found = three_results()
    effects = run(request(pi)).effects
    append(pi, list(edits(effects)[:2]))
    asked = request(pi)
    [entry] = logs_of_done(effects, asked.tree, asked.branch, None)
    assert isinstance(entry, fx.AppendEntry)
    append(pi, [entry])
    assert folded(pi) == found[:2]
    assert [own.target.id for own in folded_now(request(pi).tree, request(pi).branch, None)] == found[:2]


def test_a_run_that_broke_off_at_once_logs_nothing() -> None:
    pi, _ = three_results()
    effects = run(request(pi)).effects
    asked = request(pi)
    assert logs_of_done(effects, asked.tree, asked.branch, None) == []


def test_a_run_over_two_scopes_that_broke_off_logs_both() -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(1_000))
    answer = says(pi, thinking(), text("done"))
    later(pi)
    raw = shown(pi)
    effects = run(request(pi, "--with-thinking")).effects
    append(pi, list(edits(effects)))
    asked = request(pi)
    append(pi, logs_of_done(effects, asked.tree, asked.branch, None))
    assert [(entry["scope"], [each["id"] for each in entry["targets"]]) for entry in logs(pi)] == [
        ("elide", [target]),
        ("thinking", [answer]),
    ]
    assert folded(pi) == [target, answer]
    shake(pi, "undo")
    assert shown(pi) == raw


def test_an_undo_that_broke_off_logs_what_it_has_restored_and_can_be_repeated() -> None:
    pi, found = three_results()
    raw = shown(pi)
    shake(pi)
    effects = run(request(pi, "undo")).effects
    append(pi, list(edits(effects)[:2]))
    asked = request(pi)
    append(pi, logs_of_done(effects, asked.tree, asked.branch, None))
    assert folded(pi) == found[2:]
    shake(pi, "undo")
    assert shown(pi) == raw


def test_an_undo_that_was_killed_before_its_log_is_finished_by_another_one() -> None:
    pi, found = three_results()
    raw = shown(pi)
    shake(pi)
    append(pi, list(edits(run(request(pi, "undo")).effects)[:2]))
    assert shake(pi, "status").startswith("1 entry is folded")
    assert targets(undoing(pi)) == found[2:]
    assert targets(plan(pi)) == found[:2], "what is restored can be folded"
    shake(pi, "undo")
    assert shown(pi) == raw


# Moving about in the tree


def test_a_rewind_shows_the_raw_text_and_a_return_the_folds() -> None:
    """Seed, Lifecycle: the timeline that one rewinds to never made the fold."""
    pi, found = three_results()
    before, raw = pi.leaf, shown(pi)
    shake(pi)
    after, once = pi.leaf, shown(pi)
    pi.leaf = before
    assert (shown(pi), folded(pi)) == (raw, [])
    assert targets(plan(pi)) == found
    pi.user("another way")
    assert folded(pi) == []
    pi.leaf = after
    assert (shown(pi), folded(pi)) == (once, found)


def test_a_branch_from_between_the_overlays_has_those_before_it() -> None:
    pi, found = three_results()
    shake(pi, rules=Rules())
    overlays = [entry["id"] for entry in pi.entries if entry["type"] == "context_edit"]
    pi.leaf = overlays[1]
    assert targets(undoing(pi)) == found[:2]


def test_a_fork_at_the_leaf_has_the_folds_and_can_undo_them() -> None:
    pi, found = three_results()
    raw = shown(pi)
    shake(pi)
    forked = fork(pi)
    assert folded(forked) == found
    shake(forked, "undo")
    assert shown(forked) == raw
    assert shown(pi) != raw


def test_a_fork_at_an_earlier_message_is_raw() -> None:
    pi, found = three_results()
    shake(pi)
    forked = fork(pi, found[-1])
    assert folded(forked) == []
    assert all(shown(forked)[each] == [text(words(1_000))] for each in found)


def test_an_undo_on_one_branch_is_none_on_another() -> None:
    pi, found = three_results()
    shake(pi)
    after = pi.leaf
    shake(pi, "undo")
    pi.leaf = after
    assert folded(pi) == found


def test_a_compaction_after_a_fold_leaves_the_kept_folds() -> None:
    pi = PiSession()
    pi.user("go")
    old = ran(pi, 1, words(1_000))
    done(pi)
    kept = pi.user("more")
    new = ran(pi, 2, words(1_000))
    later(pi)
    shake(pi)
    pi.compact(kept)
    asked = request(pi)
    assert [own.target.id for own in folded_now(asked.tree, asked.branch, None)] == [new]
    assert shake(pi, "undo") == "Restored 1 entry (~990 tokens)."
    assert old not in shown(pi)
    assert shown(pi)[new] == [text(words(1_000))]
    assert folded(pi) == [old], "its log stands, but the model sees nothing of it"
    assert shake(pi, "undo") == "Nothing to restore."


def test_what_is_read_of_a_session_is_told_as_the_index_tells_it() -> None:
    """The oracle's lines are lines that the product reads."""
    pi, found = three_results()
    entry = pi.entry(found[0])
    assert json.loads(line_of(entry)) == entry
    assert head_of(entry).tag == "bash"
