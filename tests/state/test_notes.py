"""Notes: snapshot and writes of the active branch (facts: tree-upstream 3.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Json, PiSession, tree_of
from protocol.entries import NOTE, NOTE_SNAPSHOT, Note, NoteFile, NoteSnapshot
from state.notes import MAX_FILE_BYTES, MAX_TIME, Notes, count_lines, snapshot_size
from state.windows import NoteLine


def write(pi: PiSession, path: str, text: str, /, *, at: int = 1, **changes: Any) -> str:
    note = {"protocol": 1, "action": "write", "path": path, "text": text, "timestamp": at}
    return pi.custom(NOTE, {**note, **changes})


def append(pi: PiSession, path: str, text: str, *, at: int = 1) -> str:
    return write(pi, path, text, at=at, action="append")


def snapshot(pi: PiSession, *files: Json, **changes: Any) -> str:
    return pi.custom(NOTE_SNAPSHOT, {"protocol": 1, "timestamp": 1, "files": list(files), **changes})


def file(path: str, text: str, **changes: Any) -> Json:
    return {"path": path, "text": text, "createdAt": 1, "updatedAt": 2, **changes}


def notes_of(pi: PiSession) -> Notes:
    tree = tree_of(pi.entries)
    return Notes.of(tree, tree.branch(pi.leaf))


def texts(pi: PiSession) -> dict[str, str]:
    return {path: found.text for path, found in notes_of(pi).files.items()}


def test_writes_and_appends_build_up_a_note_and_its_times() -> None:
    pi = PiSession()
    append(pi, "a", "one\n", at=10)
    append(pi, "a", "two\n", at=20)
    write(pi, "b", "old", at=30)
    write(pi, "b", "new", at=40)
    assert notes_of(pi).files == {"a": NoteFile("a", "one\ntwo\n", 10, 20), "b": NoteFile("b", "new", 30, 40)}


def test_the_latest_snapshot_replaces_everything_before_it() -> None:
    pi = PiSession()
    write(pi, "gone", "x")
    snapshot(pi, file("a", "early"))
    write(pi, "also gone", "x")
    snapshot(pi, file("a", "kept "))
    append(pi, "a", "and more", at=9)
    assert notes_of(pi).files == {"a": NoteFile("a", "kept and more", 1, 9)}


def test_notes_of_other_branches_are_not_there() -> None:
    pi = PiSession()
    fork = pi.user("task")
    write(pi, "side", "x")
    pi.leaf = fork
    write(pi, "here", "y")
    assert texts(pi) == {"here": "y"}


BAD_NOTES: dict[str, Json] = {
    "another protocol": {"protocol": 2},
    "unknown action": {"action": "delete"},
    "path of another type": {"path": 3},
    "text of another type": {"text": None},
    "timestamp of another type": {"timestamp": "now"},
    "timestamp before the epoch": {"timestamp": -1},
    "timestamp that no date can hold": {"timestamp": MAX_TIME + 1},
    "text beyond the limit": {"text": "x" * (MAX_FILE_BYTES + 1)},
}


@pytest.mark.parametrize("changes", BAD_NOTES.values(), ids=BAD_NOTES.keys())
def test_a_malformed_note_is_passed_over(changes: Json) -> None:
    pi = PiSession()
    write(pi, "a", "before")
    write(pi, "a", "bad", **changes)
    append(pi, "a", " after")
    assert texts(pi) == {"a": "before after"}


BAD_SNAPSHOTS: dict[str, Json] = {
    "another protocol": {"protocol": 2},
    "no list of files": {"files": {}},
    "a file without text": {"files": [{"path": "b", "createdAt": 1, "updatedAt": 1}]},
    "a file beyond the limit": {"files": [file("b", "x" * (MAX_FILE_BYTES + 1))]},
    "a time that no date can hold": {"files": [file("b", "x", updatedAt=MAX_TIME + 1)]},
    "a time before the epoch": {"files": [file("b", "x", createdAt=-1)]},
}


@pytest.mark.parametrize("changes", BAD_SNAPSHOTS.values(), ids=BAD_SNAPSHOTS.keys())
def test_a_malformed_snapshot_is_passed_over_whole(changes: Json) -> None:
    pi = PiSession()
    snapshot(pi, file("a", "good"))
    append(pi, "a", " and more")
    snapshot(pi, **changes)
    append(pi, "a", ", still")
    assert texts(pi) == {"a": "good and more, still"}


def test_an_append_that_would_break_the_limit_leaves_the_note_as_it_was() -> None:
    pi = PiSession()
    write(pi, "a", "x" * MAX_FILE_BYTES, at=1)
    append(pi, "a", "y", at=2)
    found = notes_of(pi).files["a"]
    assert (len(found.text), found.updated_at) == (MAX_FILE_BYTES, 1)


def test_the_limit_counts_bytes_and_not_characters() -> None:
    notes = Notes()
    notes.apply(Note(1, "write", "a", "é" * (MAX_FILE_BYTES // 2), 1))
    notes.apply(Note(1, "append", "a", "é", 1))
    assert len(notes.files["a"].text) == MAX_FILE_BYTES // 2


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), ("a\r\u2028b", 1)])
def test_lines_end_with_lf_alone_and_no_text_has_no_line(text: str, lines: int) -> None:
    """Facts: tree-upstream 3.2."""
    assert count_lines(text) == lines


def test_the_lines_of_the_hint_tell_size_in_bytes() -> None:
    pi = PiSession()
    write(pi, "a", "é\n", at=7)
    assert notes_of(pi).lines() == [NoteLine("a", 1, 3, 7)]


def test_a_snapshot_is_sorted_by_path_and_knows_its_size() -> None:
    pi = PiSession()
    write(pi, "b", "2", at=3)
    write(pi, "a", "1", at=4)
    taken = notes_of(pi).snapshot(99)
    assert taken == NoteSnapshot(1, 99, [NoteFile("a", "1", 4, 4), NoteFile("b", "2", 3, 3)])
    assert snapshot_size(taken) == len(
        '{"protocol":1,"timestamp":99,"files":[{"path":"a","text":"1","createdAt":4,"updatedAt":4},'
        '{"path":"b","text":"2","createdAt":3,"updatedAt":3}]}'
    )


operations = st.lists(
    st.tuples(st.sampled_from(["append", "write"]), st.sampled_from("abc"), st.text(max_size=5), st.integers(0, 99))
)


@given(operations, operations)
def test_a_snapshot_stands_for_all_writes_before_it(
    before: list[tuple[str, str, str, int]], after: list[tuple[str, str, str, int]]
) -> None:
    plain, with_snapshot = PiSession(), PiSession()
    for pi in (plain, with_snapshot):
        for action, path, text, at in before:
            write(pi, path, text, at=at, action=action)
    taken = notes_of(with_snapshot).snapshot(5)
    files = [
        {"path": f.path, "text": f.text, "createdAt": f.created_at, "updatedAt": f.updated_at} for f in taken.files
    ]
    snapshot(with_snapshot, *files)
    for pi in (plain, with_snapshot):
        for action, path, text, at in after:
            write(pi, path, text, at=at, action=action)
    assert notes_of(plain).files == notes_of(with_snapshot).files
