"""Windows: identity, the exact text of marker and hint, and markers that are none."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import Json, PiSession, head_of, marker_details, tree_of, uuids
from protocol.entries import WINDOW, MarkerDetails, WindowIdentity
from state.windows import (
    GUIDANCE,
    HINT_BYTES,
    NoteLine,
    Recovery,
    current_boundary,
    first_window,
    hint,
    identity_of,
    is_marker,
    marker,
    marker_text,
    next_window,
)

FIRST = "00000000-0000-4000-8000-000000000001"
SECOND = "00000000-0000-4000-8000-000000000002"
THIRD = "00000000-0000-4000-8000-000000000003"


def test_the_first_window_starts_at_number_zero_without_a_previous_one() -> None:
    """Facts: tree-upstream 1.1."""
    assert first_window(uuids()) == WindowIdentity(
        protocol=1, kind="window", first_window_id=FIRST, current_window_id=FIRST, window_number=0
    )


def test_the_next_window_keeps_the_first_id_and_names_the_previous_one() -> None:
    """Facts: tree-upstream 1.1."""
    new_id = uuids()
    third = next_window(next_window(first_window(new_id), new_id), new_id)
    assert third == WindowIdentity(
        protocol=1,
        kind="window",
        first_window_id=FIRST,
        current_window_id=THIRD,
        previous_window_id=SECOND,
        window_number=2,
    )


def test_the_marker_text_has_the_lines_and_their_order_of_the_format() -> None:
    """Facts: tree-upstream 1.2."""
    new_id = uuids()
    identity = next_window(first_window(new_id), new_id)
    assert marker_text(identity, "the hint") == (
        f"{GUIDANCE}\n\n"
        "<context_window>\n"
        "Agent name: /root\n"
        f"First context window id: {FIRST}\n"
        f"Current context window id: {SECOND}\n"
        f"Previous context window id: {FIRST}\n"
        "the hint\n"
        "</context_window>"
    )


def test_the_first_marker_without_a_hint_has_neither_previous_id_nor_empty_line() -> None:
    text = marker_text(first_window(uuids()), "")
    assert text.startswith("<context_window_guidance>\n")
    assert text.split("</context_window_guidance>")[1] == (
        "\n\n<context_window>\nAgent name: /root\n"
        f"First context window id: {FIRST}\nCurrent context window id: {FIRST}\n</context_window>"
    )


def test_an_agent_of_another_name_is_named() -> None:
    identity = WindowIdentity(
        protocol=1,
        kind="window",
        first_window_id="w",
        current_window_id="w",
        window_number=0,
        agent_name="/root/other",
    )
    assert "\nAgent name: /root/other\n" in marker_text(identity, "")


def test_the_hint_is_exactly_that_of_the_format() -> None:
    """The value that upstream asserts (facts: tree-upstream 1.3)."""
    notes = [NoteLine("/root/notes/checkpoint.md", 1, 8, 5)]
    recovery = Recovery("window-0", ["user-entry"], "tree-summary")
    assert hint(notes, recovery) == (
        "Recent notes (up to 5, most-recent first):\n"
        "- /root/notes/checkpoint.md (1 line, 8 UTF-8 bytes)\n"
        'Previous window history IDs: {"window_id":"window-0","summary_item_id":"tree-summary",'
        '"user_item_ids":["user-entry"]}'
    )


def test_a_hint_without_notes_has_no_heading_and_without_a_summary_no_key_for_it() -> None:
    expected = 'Previous window history IDs: {"window_id":"w","user_item_ids":[]}'
    assert hint([], Recovery("w", [])) == expected


def test_there_is_no_hint_of_nothing() -> None:
    assert hint([], None) == ""


def test_five_notes_are_hinted_at_latest_first_and_then_by_path() -> None:
    notes = [NoteLine(path, 2, 3, updated) for path, updated in zip("fbadce", [1, 7, 7, 2, 3, 4], strict=True)]
    lines = hint(notes, None).split("\n")
    assert lines == [
        "Recent notes (up to 5, most-recent first):",
        *(f"- {path} (2 lines, 3 UTF-8 bytes)" for path in "abecd"),
    ]


def test_a_note_that_does_not_fit_is_left_out_and_shorter_ones_after_it_are_not() -> None:
    """Facts: tree-upstream 1.3."""
    notes = [NoteLine("x" * 5_000, 1, 1, 3), NoteLine("a", 1, 1, 2), NoteLine("b", 1, 1, 1)]
    assert [line[:3] for line in hint(notes, None).split("\n")] == ["Rec", "- a", "- b"]


def test_a_recovery_line_that_is_too_long_drops_the_whole_hint() -> None:
    """Facts: tree-upstream 1.3."""
    assert hint([NoteLine("a", 1, 1, 1)], Recovery("w" * 4_000, [])) == ""


note_lines = st.builds(
    NoteLine,
    st.one_of(st.text(max_size=40), st.text(min_size=500, max_size=2_000)),
    st.integers(0, 10_000),
    st.integers(0, 1_000_000),
    st.integers(0, 50),
)
recoveries = st.one_of(
    st.none(),
    st.builds(
        Recovery, st.text(max_size=3_000), st.lists(st.text(max_size=40), max_size=5), st.none() | st.text(max_size=40)
    ),
)


@given(st.lists(note_lines, max_size=9), recoveries)
@example([NoteLine("a" * 3_932, 1, 1, 1)], None)
@example([NoteLine("a" * 3_933, 1, 1, 1)], None)
def test_a_hint_takes_at_most_four_thousand_bytes_and_never_half_a_line(
    notes: list[NoteLine], recovery: Recovery | None
) -> None:
    text = hint(notes, recovery)
    assert len(text.encode()) <= HINT_BYTES == 4_000
    whole = {f"- {n.path} ({n.lines} {'line' if n.lines == 1 else 'lines'}, {n.size} UTF-8 bytes)" for n in notes}
    rest = text.removeprefix("Recent notes (up to 5, most-recent first):\n")
    if recovery is not None and text:
        rest, _, ids = rest.rpartition("Previous window history IDs: ")
        assert ids
    while rest:
        line = next(line for line in sorted(whole, key=len, reverse=True) if rest.startswith(line))
        rest = rest[len(line) :].removeprefix("\n")


def test_a_marker_carries_its_identity_and_starts_a_turn_only_on_demand() -> None:
    identity = first_window(uuids())
    quiet = marker(identity, [], None)
    assert quiet.custom_type == WINDOW
    assert quiet.details == MarkerDetails(protocol=1, id=FIRST, context_management=identity)
    assert (quiet.start_turn, quiet.release_after) == (False, None)
    loud = marker(identity, [], None, start_turn=True)
    assert (loud.start_turn, loud.release_after) == (True, FIRST)


def marker_entry(**changes: Any) -> Json:
    pi = PiSession()
    pi.marker(3)
    return {**pi.entries[0], **changes}


def details(**changes: Any) -> Json:
    found = marker_details(3)
    management = {**found["contextManagement"], **changes.pop("management", {})}
    return {**found, "contextManagement": management, **changes}


def test_a_valid_marker_opens_its_window() -> None:
    entry = marker_entry()
    found = identity_of(tree_of([entry]), head_of(entry))
    assert found is not None
    assert (found.window_number, found.current_window_id, found.previous_window_id) == (3, "window-3", "window-2")


MALFORMED: dict[str, Json] = {
    "no details": {"details": None},
    "details of another protocol": {"details": details(protocol=2)},
    "no message id": {"details": details(id="")},
    "identity of another protocol": {"details": details(management={"protocol": 2})},
    "unknown kind": {"details": details(management={"kind": "door"})},
    "no first window": {"details": details(management={"firstWindowId": ""})},
    "no current window": {"details": details(management={"currentWindowId": ""})},
    "window id of another type": {"details": details(management={"currentWindowId": 7})},
    "negative number": {"details": details(management={"windowNumber": -1})},
    "half a number": {"details": details(management={"windowNumber": 1.5})},
    "trim that is not true": {"details": details(management={"trimPreviousWindow": False})},
    "previous of another type": {"details": details(management={"previousWindowId": 3})},
    "content that is no text": {"content": [{"type": "text", "text": "WINDOW"}]},
    "a reminder": {"details": details(management={"kind": "reminder"})},
    "a fallback": {"details": details(management={"kind": "fallback"})},
}


@pytest.mark.parametrize("changes", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_marker_that_opens_no_window_is_passed_over(changes: Json) -> None:
    """Upstream fails every request over one (facts: tree-upstream 1.1); here the one before it counts."""
    pi = PiSession()
    good = pi.marker(0)
    pi.user("task")
    bad = pi.custom_message(WINDOW, "WINDOW 3", None)
    pi.entries[-1] = {**marker_entry(**changes), "id": bad, "parentId": pi.entries[-1]["parentId"]}
    tree = tree_of(pi.entries)
    assert identity_of(tree, tree.heads[bad]) is None
    boundary = current_boundary(tree, tree.branch(bad))
    assert boundary is not None
    assert boundary[0].id == good


def test_details_that_nobody_knows_do_not_spoil_a_marker() -> None:
    """Later versions write more (facts: tree-upstream 1.6)."""
    entry = marker_entry(details=details(management={"trimPreviousWindow": True, "agentName": "/root", "late": 1}))
    assert identity_of(tree_of([entry]), head_of(entry)) is not None


def test_only_a_custom_message_of_our_type_is_a_marker() -> None:
    pi = PiSession()
    pi.custom(WINDOW, {})
    pi.custom_message("other", "text")
    pi.marker(0)
    assert [is_marker(head_of(entry)) for entry in pi.entries] == [False, False, True]


def test_the_latest_marker_of_the_branch_is_the_boundary_and_other_branches_do_not_count() -> None:
    pi = PiSession()
    first = pi.marker(0)
    fork = pi.user("task")
    pi.marker(1)
    pi.leaf = fork
    leaf = pi.assistant()
    tree = tree_of(pi.entries)
    boundary = current_boundary(tree, tree.branch(leaf))
    assert boundary is not None
    assert boundary[0].id == first
    assert current_boundary(tree, tree.path(None)) is None
