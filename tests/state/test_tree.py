"""The session tree against a model that does everything anew, and on trees that no program should have written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import head_of, tree_of
from protocol.entries import NOTE, WINDOW, EntryHead, NoteEntry
from state.tree import Tree

NAMES = "abcdefghij"
KINDS = ["", WINDOW, NOTE]

ids = st.sampled_from(NAMES)
heads = st.builds(
    lambda name, parent, kind, offset: EntryHead(name, parent, "custom", kind, "", offset, 0),
    ids,
    st.one_of(st.none(), ids, st.sampled_from(["x", "y"])),
    st.sampled_from(KINDS),
    st.integers(0, 3),
)
"""Few names, so that duplicates, cycles and missing parents are frequent."""


def empty() -> Tree:
    return Tree(lambda _head: None)


def head(name: str, parent: str | None, kind: str = "") -> EntryHead:
    return EntryHead(name, parent, "custom", kind, "", 0, 0)


def path_model(entries: list[EntryHead], leaf: str | None) -> tuple[list[EntryHead], bool, str | None]:
    """The path, whether it is complete, and the parent that is missing: straight from the definition."""
    found: list[EntryHead] = []
    at = leaf
    while at is not None:
        if any(entry.id == at for entry in found):
            return found[::-1], False, None
        named = [entry for entry in entries if entry.id == at]
        if not named:
            return found[::-1], False, at
        found.append(named[-1])
        at = named[-1].parent_id
    return found[::-1], True, None


@given(st.lists(heads), st.one_of(st.none(), ids))
def test_a_path_is_what_a_plain_walk_finds(entries: list[EntryHead], leaf: str | None) -> None:
    tree = empty()
    tree.add(entries)
    path, complete, missing = path_model(entries, leaf)
    branch = tree.path(leaf)
    assert branch.heads == path
    assert (branch.leaf, branch.complete, branch.missing) == (leaf, complete, missing)
    assert branch.ours == [entry for entry in path if entry.kind in (WINDOW, NOTE)]
    assert list(tree.ancestors(leaf)) == path[::-1]


@given(st.lists(st.one_of(heads, st.tuples(st.one_of(st.none(), ids))), max_size=40))
def test_a_branch_of_a_growing_tree_equals_one_that_is_walked_anew(steps: list[EntryHead | tuple[str | None]]) -> None:
    """A tuple asks for a branch; what was asked for before may be extended in place, and must never show."""
    tree = empty()
    added: list[EntryHead] = []
    for one in steps:
        if isinstance(one, EntryHead):
            added.append(one)
            tree.add([one])
            continue
        path, complete, missing = path_model(added, one[0])
        branch = tree.branch(one[0])
        assert branch.heads == path
        assert branch.ours == [entry for entry in path if entry.kind in (WINDOW, NOTE)]
        assert (branch.leaf, branch.complete, branch.missing) == (one[0], complete, missing)
        assert tree.current is branch


@given(st.lists(heads))
def test_of_entries_with_one_id_the_later_counts(entries: list[EntryHead]) -> None:
    """Facts: tree-upstream 9."""
    tree = empty()
    tree.add(entries)
    last = {entry.id: entry for entry in entries}
    assert tree.heads == last
    for kind in (WINDOW, NOTE):
        assert sorted(entry.id for entry in tree.ours[kind]) == sorted(i for i, e in last.items() if e.kind == kind)


def test_the_same_entry_again_is_no_duplicate() -> None:
    tree = empty()
    tree.add([head("a", None), head("a", None), head("a", "b")])
    assert tree.duplicates == 1


@given(st.lists(heads), ids, st.one_of(st.none(), ids), st.integers(1, 8))
def test_an_interval_is_the_path_below_its_base_or_says_why_there_is_none(
    entries: list[EntryHead], leaf: str, base: str | None, limit: int
) -> None:
    tree = empty()
    tree.add(entries)
    path, complete, missing = path_model(entries, leaf)
    names = [entry.id for entry in path]
    whole = complete if base is None else base in (*names, missing)
    below = path[names.index(base) + 1 :] if base in names else path
    found = tree.interval(leaf, base, limit)
    if base == leaf:
        assert found == []
    elif whole and len(below) <= limit:
        assert found == below
    else:
        assert isinstance(found, str)


@pytest.mark.parametrize(
    ("entries", "leaf", "base", "limit", "why"),
    [
        ([("a", None), ("b", "a")], "b", "z", 9, "the archived leaf does not descend from the branch base"),
        ([("a", "b"), ("b", "a")], "b", None, 9, "the path is a cycle at b"),
        ([("a", "z"), ("b", "a")], "b", None, 9, "entry z is missing"),
        ([("a", None), ("b", "a"), ("c", "b")], "c", None, 2, "the path is longer than 2 entries"),
    ],
)
def test_an_interval_that_does_not_exist_has_a_reason(
    entries: list[tuple[str, str | None]], leaf: str, base: str | None, limit: int, why: str
) -> None:
    tree = empty()
    tree.add(head(*entry) for entry in entries)
    assert tree.interval(leaf, base, limit) == why


def test_a_path_ends_silently_at_a_missing_parent_and_names_it() -> None:
    """Pi's getBranch does the same (facts: tree-upstream 9)."""
    tree = empty()
    tree.add([head("b", "lost"), head("c", "b")])
    branch = tree.branch("c")
    assert [entry.id for entry in branch.heads] == ["b", "c"]
    assert (branch.complete, branch.missing) == (False, "lost")


def test_a_branch_is_whole_as_soon_as_the_lacking_entries_have_come() -> None:
    tree = empty()
    assert tree.branch("c").missing == "c"
    tree.add([head("b", "a"), head("c", "b")])
    assert tree.branch("c").missing == "a"
    tree.add([head("a", None)])
    assert [entry.id for entry in tree.branch("c").heads] == ["a", "b", "c"]
    assert tree.branch("c").complete


def test_a_chain_of_a_hundred_thousand_entries_is_walked() -> None:
    tree = empty()
    tree.add(head(str(n), str(n - 1) if n else None) for n in range(100_000))
    assert len(tree.branch("99999").heads) == 100_000
    assert len(tree.path("99999").heads) == 100_000
    assert sum(1 for _ in tree.ancestors("99999")) == 100_000
    assert tree.interval("99999", None, 50_000) == "the path is longer than 50,000 entries"
    tree.add([head("next", "99999")])
    assert len(tree.branch("next").heads) == 100_001


def test_a_branch_answers_where_its_entries_stand() -> None:
    tree = empty()
    tree.add([head("a", None), head("b", "a", NOTE), head("c", "b")])
    branch = tree.branch("c")
    assert [entry.id for entry in branch.after(None)] == ["a", "b", "c"]
    assert [entry.id for entry in branch.after("a")] == ["b", "c"]
    assert branch.after("elsewhere") == []
    assert branch.position("b") == 1
    assert branch.position("elsewhere") is None
    assert "c" in branch
    assert None not in branch
    last = branch.last(lambda entry: entry.kind == NOTE)
    assert last is not None
    assert last.id == "b"
    assert branch.last(lambda entry: entry.kind == WINDOW) is None


def test_a_cleared_tree_has_forgotten_everything() -> None:
    tree = empty()
    tree.add([head("a", None, NOTE), head("a", None, WINDOW)])
    tree.gaps.add("lost")
    tree.branch("a")
    tree.clear()
    assert (tree.heads, tree.duplicates, tree.gaps) == ({}, 0, set())
    assert not any(tree.ours.values())
    assert tree.branch("a").missing == "a"


@pytest.mark.parametrize(
    "raw",
    [None, b"", b"{", b'{"data":3}', b"[" * 5000, b'{"data":{"protocol":2}}', b"\xff"],
    ids=["gone", "empty", "torn", "mistyped", "too deep", "another protocol", "not text"],
)
def test_a_body_that_cannot_be_read_as_its_shape_is_none(raw: bytes | None) -> None:
    tree = Tree(lambda _head: raw)
    assert tree.body(head("a", None), NoteEntry) is None


def test_a_body_is_read_with_fields_that_nobody_knows() -> None:
    note: dict[str, Any] = {"protocol": 1, "action": "write", "path": "p", "text": "t", "timestamp": 1, "new": []}
    entry = {"type": "custom", "id": "a", "parentId": None, "customType": NOTE, "data": note, "extra": {}}
    tree = tree_of([entry])
    found = tree.body(head_of(entry), NoteEntry)
    assert found is not None
    assert found.data.path == "p"
