"""Session files that are damaged: nothing of them stops the reader, and what can be saved is saved beside the tree."""

import itertools
import json
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import Json, PiSession, line_of
from daemon.journal import Journal
from daemon.show import show
from generate import DAMAGES, Session, mixture, spoiled
from protocol.tools import HistoryArguments
from reading import everything
from state import history
from state.archive import Archive, ArchiveIndex
from state.tree import Tree

HEADER = line_of(PiSession().header())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.jsonl"


def read(path: Path) -> tuple[Journal, Tree]:
    journal = Journal(path)
    tree = Tree(journal.raw, journal.scan)
    journal.refresh(tree)
    return journal, tree


def entry(entry_id: str, parent: str | None, text: str = "text", **fields: object) -> bytes:
    message = {"role": "user", "content": text}
    return line_of(
        {"type": "message", "id": entry_id, "parentId": parent, "timestamp": "", "message": message} | fields
    )


def lines(*parts: bytes) -> bytes:
    return b"".join(part + b"\n" for part in parts)


def shape(tree: Tree) -> list[tuple[str, str | None]]:
    return [(head.id, head.parent_id) for head in tree.heads.values()]


# Generated ones


@pytest.mark.parametrize("damage", DAMAGES)
def test_all_that_can_be_asked_of_a_damaged_file_is_answered(damage: str, file: Path) -> None:
    for seed in range(6):
        file.write_bytes(spoiled(seed, [damage]).raw())
        everything(file)


def cuts(rng: random.Random, raw: bytes) -> Iterator[bytes]:
    """The file in pieces; some end within a character or a line."""
    places = sorted(rng.randrange(len(raw) + 1) for _ in range(4))
    for start, end in itertools.pairwise([0, *places, len(raw)]):
        yield raw[start:end]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_damaged_file_that_grows_is_read_like_one_that_was_there(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 100):
        raw = mixture(seed).raw()
        file = tmp_path / f"{seed}.jsonl"
        file.write_bytes(b"")
        journal, tree = read(file)
        for piece in cuts(random.Random(seed), raw):  # noqa: S311 - a fixed shape, no secret
            with file.open("ab") as appended:
                appended.write(piece)
            journal.refresh(tree)
        again, once = read(file)
        assert list(tree.heads.items()) == list(once.heads.items()), seed
        assert (journal.leaf, journal.offset, journal.anomalies) == (again.leaf, again.offset, again.anomalies), seed
        assert (tree.saved, tree.duplicates) == (once.saved, once.duplicates), seed
        journal.close()
        again.close()


# Lines that Pi drops


def archived() -> tuple[list[bytes], PiSession]:
    """A session with one archive."""
    pi = PiSession()
    base = pi.user("before")
    boundary = pi.marker(0)
    pi.user("the task")
    pi.assistant("the answer")
    leaf = pi.leaf
    summary = pi.summary(base, leaf)
    claims = {"boundaryEntryId": boundary, "summaryEntryId": summary, "archivedLeafId": leaf, "branchBaseId": base}
    manifest = {"protocol": 1, "strategy": "codex-context-tree", "windowId": "window-0", **claims}
    pi.custom("codex-context-tree-archive", manifest)
    pi.marker(1)
    return pi.lines(), pi


@pytest.mark.parametrize(
    "damage",
    [
        lambda one, other: [one + other],
        lambda one, other: [one, b'{"type":"message","id":"torn","parentId":"a","message":{"content":[{"ty' + other],
        lambda one, other: [one, b"\0" * 4096 + other],
        lambda one, other: [one, other.replace(b'"the ', b'"\\*the ', 1)],
        lambda one, other: [one, other.replace(b'"the ', b'"\x01the ', 1)],
    ],
    ids=["fused", "torn and whole", "nul block", "escape", "control character"],
)
def test_an_archive_is_whole_although_pi_drops_a_line_of_it(damage: object, file: Path) -> None:
    """Facts: real-sessions 2, rows 1 and 5; 3, #8575."""
    assert callable(damage)
    physical, pi = archived()
    physical[3:5] = damage(*physical[3:5])
    file.write_bytes(lines(*physical))
    journal, tree = read(file)
    found = ArchiveIndex(tree).of(tree.branch(journal.leaf))
    assert [len(archive.items) for archive in found if isinstance(archive, Archive)] == [3]
    lost = {one["id"] for one in pi.entries} - set(tree.heads)
    assert lost
    assert lost == set(tree.saved)
    assert journal.anomalies == {"unreadable lines": 1, "entries saved from unreadable lines": len(lost)}
    for head in tree.saved.values():
        assert json.loads(journal.raw(head) or b"")["id"] == head.id
    assert journal.leaf == pi.leaf


def test_a_manifest_that_stands_twice_does_not_hide_its_window(file: Path) -> None:
    physical, pi = archived()
    manifest = pi.last("codex-context-tree-archive")
    again = {**manifest, "id": "again", "parentId": pi.leaf}
    again = {**again, "data": {**manifest["data"], "summaryEntryId": "none"}}
    file.write_bytes(lines(*physical, line_of(again)))
    journal, tree = read(file)
    branch = tree.branch(journal.leaf)
    shelf = history.shelf(tree, branch, ArchiveIndex(tree).of(branch))
    asked = HistoryArguments(action="read_item", window_id="window-0", item_id=pi.entries[2]["id"])
    assert history.run(shelf, asked)["item"]["content"] == "the task"


def test_no_branch_leads_through_an_entry_that_pi_does_not_read(file: Path) -> None:
    file.write_bytes(lines(HEADER, entry("a", None), entry("b", "a") + entry("c", "b"), entry("d", "c")))
    journal, tree = read(file)
    branch = tree.branch(journal.leaf)
    assert ([head.id for head in branch.heads], branch.missing) == (["d"], "c")
    assert set(tree.saved) == {"b", "c"}


def test_a_saved_entry_is_no_leaf(file: Path) -> None:
    file.write_bytes(lines(HEADER, entry("a", None), b'{"type":"mess' + entry("b", "a")))
    journal, tree = read(file)
    assert journal.leaf == "a"
    assert set(tree.saved) == {"b"}


def test_pi_is_asked_for_a_saved_entry_from_its_parent_on(file: Path) -> None:
    """While it runs Pi still holds what it will drop when it opens the file again."""
    file.write_bytes(lines(HEADER, entry("a", None), b'{"type":"mess' + entry("b", "a"), entry("c", "b")))
    journal, tree = read(file)
    assert tree.branch("c").missing == "b"
    assert tree.known_before("b") == "a"
    assert tree.known_before("unheard of") == "c"
    journal.remember(tree, [{"type": "custom", "id": "b", "parentId": "a"}])
    assert [head.id for head in tree.branch("c").heads] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"message","id":"x","details":{"entries":[{"type":"message","id":"n","parentId":null},{"ty',
        b'{"type":"toolCall","id":"call_1","name":"bash"}{"type":"text","text":"x"}',
        b'{"type":"' * 5_000,
        b'[{"type":"a","b":' * 5_000,
        b'{"type":"custom","id":7,"parentId":',
    ],
    ids=["entry within", "blocks", "starts", "nested starts", "cut"],
)
def test_of_a_line_without_a_whole_entry_nothing_is_saved(line: bytes, file: Path) -> None:
    file.write_bytes(lines(HEADER, entry("a", None), line, entry("b", "a")))
    journal, tree = read(file)
    assert list(tree.heads) == ["a", "b"]
    assert tree.saved == {}
    assert journal.anomalies == {"unreadable lines": 1}


def test_a_last_line_that_counted_and_then_got_a_neighbour_counts_no_more(file: Path) -> None:
    """Pi before 0.84.4 appends behind a line whose end was lost (facts: tree-upstream 8.2, row 3)."""
    file.write_bytes(lines(HEADER, entry("a", None)) + entry("b", "a"))
    journal, tree = read(file)
    assert (journal.leaf, list(tree.heads)) == ("b", ["a", "b"])
    with file.open("ab") as appended:
        appended.write(lines(entry("c", "b"), entry("d", "c")))
    assert journal.refresh(tree) is True
    assert list(tree.heads) == ["a", "d"]
    assert set(tree.saved) == {"b", "c"}


# Headers


@pytest.mark.parametrize(
    ("start", "oddity"),
    [
        (b"", "header missing"),
        (b"garbage\n", "header missing"),
        (b"\xef\xbb\xbf" + HEADER + b"\n", "byte order mark before the header"),
        (lines(HEADER, HEADER), "headers after the first"),
        (lines(HEADER.replace(b'"id":"', b'"id":7,"x":"')), "header without id"),
    ],
    ids=["absent", "corrupt", "bom", "twice", "no id"],
)
def test_a_file_with_a_bad_header_is_read_all_the_same(start: bytes, oddity: str, file: Path) -> None:
    """Facts: tree-upstream 8.2, rows 14, 24 and 25; Pi opens one of them."""
    file.write_bytes(start + lines(entry("a", None), entry("b", "a")))
    journal, tree = read(file)
    assert shape(tree) == [("a", None), ("b", "a")]
    assert journal.anomalies[oddity] == 1


def test_a_header_after_the_first_entry_is_none(file: Path) -> None:
    file.write_bytes(lines(entry("a", None), HEADER, entry("b", "a")))
    journal, tree = read(file)
    assert journal.header() is None
    assert shape(tree) == [("a", None), ("b", "a")]


def test_a_header_is_read_although_a_field_of_it_is_of_another_type(file: Path) -> None:
    file.write_bytes(lines(line_of({"type": "session", "id": "s", "cwd": 7, "version": "3", "parentSession": "/p"})))
    header = read(file)[0].header()
    assert header is not None
    assert (header.id, header.cwd, header.parent_session) == ("s", "", "/p")


# Older versions


def old(version: int | None, *entries: Json) -> bytes:
    header: Json = {"type": "session", "id": "s", "cwd": "/"} | ({} if version is None else {"version": version})
    return lines(line_of(header), *map(line_of, entries))


def test_entries_without_ids_are_chained_in_the_order_of_the_file(file: Path) -> None:
    custom = {"type": "message", "message": {"role": "hookMessage", "content": "x"}}
    file.write_bytes(old(None, {"type": "message", "message": {"role": "user", "content": "x"}}, custom))
    journal, tree = read(file)
    assert shape(tree) == [("00000001", None), ("00000002", "00000001")]
    assert [head.kind for head in tree.heads.values()] == ["user", "custom"]
    body = json.loads(journal.raw(tree.heads["00000002"]) or b"")
    assert (body["id"], body["parentId"], body["message"]["role"]) == ("00000002", "00000001", "custom")
    with file.open("ab") as appended:
        appended.write(b'{"type":"custom"}')
    journal.refresh(tree)
    with file.open("ab") as appended:
        appended.write(b'\n{"type":"custom"}\n')
    journal.refresh(tree)
    assert shape(tree)[2:] == [("00000003", "00000002"), ("00000004", "00000003")]
    assert tree.duplicates == 0


def test_ids_in_a_file_without_a_version_are_replaced(file: Path) -> None:
    """As Pi does (facts: real-sessions 2, row 3)."""
    file.write_bytes(old(None, {"type": "custom", "id": "a", "parentId": "b"}, {"type": "custom", "id": "a"}))
    assert shape(read(file)[1]) == [("00000001", None), ("00000002", "00000001")]


def test_the_second_version_keeps_its_ids_and_renames_a_role(file: Path) -> None:
    file.write_bytes(old(2, {"type": "message", "id": "a", "parentId": None, "message": {"role": "hookMessage"}}))
    journal, tree = read(file)
    assert [(head.id, head.kind) for head in tree.heads.values()] == [("a", "custom")]
    assert json.loads(journal.raw(tree.heads["a"]) or b"")["message"]["role"] == "custom"


@pytest.mark.parametrize(
    ("index", "kept"), [(0, None), (1, "00000001"), (3, "00000003"), (9, None), (-1, None), ("1", None)]
)
def test_a_compaction_keeps_from_a_position_only_if_an_entry_stands_there(
    index: object, kept: str | None, file: Path
) -> None:
    compaction = {"type": "compaction", "summary": "S", "firstKeptEntryIndex": index}
    file.write_bytes(old(1, {"type": "custom"}, {"type": "custom"}, compaction))
    journal, tree = read(file)
    head = tree.heads["00000003"]
    assert head.tag == (kept or "")
    assert json.loads(journal.raw(head) or b"").get("firstKeptEntryId") == kept


def test_a_file_that_pi_migrates_in_place_is_read_anew(file: Path) -> None:
    """Truncate and write, not at once, with other ids (facts: real-sessions 2, row 3)."""
    file.write_bytes(old(None, *({"type": "custom", "n": n} for n in range(50))))
    journal, tree = read(file)
    new = [entry(f"{n:08x}", f"{n - 1:08x}" if n else None) for n in range(0xA000, 0xA032)]
    new[0] = entry("0000a000", None)
    with file.open("r+b") as out:
        out.truncate(0)
        for at, piece in enumerate([HEADER, *new]):
            out.write(piece + b"\n")
            if at % 10 == 0:
                out.flush()
                journal.refresh(tree)
    journal.refresh(tree)
    assert list(tree.heads) == [f"{n:08x}" for n in range(0xA000, 0xA032)]
    assert len(tree.branch(journal.leaf).heads) == 50


def test_a_file_that_is_rewritten_while_it_is_read_is_read_anew(file: Path) -> None:
    """What was read is remembered by its own bytes, not by those that stand there afterwards."""
    first = lines(HEADER, *(entry(f"a{n}", None) for n in range(20)))
    second = lines(HEADER, *(entry(f"b{n}", None) for n in range(30)))

    class Rewritten(Journal):
        def _lines(self, size: int) -> Iterator[tuple[bytes, int, bool]]:
            yield from super()._lines(size)
            file.write_bytes(second)

    file.write_bytes(first)
    journal = Rewritten(file)
    tree = Tree(journal.raw)
    journal.refresh(tree)
    assert "a0" in tree.heads
    assert journal.refresh(tree) is True
    assert list(tree.heads) == [f"b{n}" for n in range(30)]


# Trees that are none


@pytest.mark.parametrize(
    ("parents", "branch"),
    [
        ({"a": "a"}, ["a"]),
        ({"a": "c", "b": "a", "c": "b"}, ["a", "b", "c"]),
        ({"a": None, "b": "b", "c": "b"}, ["b", "c"]),
        ({"a": None, "b": "01a22cc6-3957-7094-9bbc-9291af00941c"}, ["b"]),
    ],
    ids=["itself", "circle", "tail of a circle", "session id"],
)
def test_a_walk_over_parents_that_lead_nowhere_ends(
    parents: dict[str, str | None], branch: list[str], file: Path
) -> None:
    """Pi's own would not, in the first three."""
    file.write_bytes(lines(HEADER, *(entry(one, parent) for one, parent in parents.items())))
    journal, tree = read(file)
    found = tree.branch(journal.leaf)
    assert ([head.id for head in found.heads], found.complete) == (branch, False)
    odd = tree.oddities()
    assert odd["entries in a circle"] + odd["parents missing"] >= 1
    show(file)


def test_a_line_without_an_id_at_the_end_leaves_pi_without_a_leaf(file: Path) -> None:
    """Facts: tree-upstream 8.2, row 8."""
    file.write_bytes(lines(HEADER, entry("a", None), b'{"type":"foreign"}'))
    journal, tree = read(file)
    assert (journal.leaf, list(tree.heads)) == (None, ["a"])
    assert journal.anomalies == {"entries without id": 1}


def test_an_earlier_entry_that_stands_again_at_the_end_is_the_leaf(file: Path) -> None:
    file.write_bytes(lines(HEADER, entry("a", None), entry("b", "a"), entry("a", None)))
    journal, tree = read(file)
    assert (journal.leaf, tree.duplicates) == ("a", 1)
    assert [head.id for head in tree.branch(journal.leaf).heads] == ["a"]


def test_two_writers_make_two_leaves_and_the_last_line_counts(file: Path) -> None:
    file.write_bytes(lines(HEADER, entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "b")))
    journal, tree = read(file)
    assert [head.id for head in tree.branch(journal.leaf).heads] == ["a", "b", "d"]
    assert [head.id for head in tree.branch("c").heads] == ["a", "c"]


def test_numbers_can_be_ids_as_they_can_for_pi(file: Path) -> None:
    numbered = [entry("x", None, id=7), entry("b", "", parentId=7), entry("c", "b", parentId=0)]
    file.write_bytes(lines(HEADER, *numbered))
    journal, tree = read(file)
    assert shape(tree) == [("7", None), ("b", "7"), ("c", None)]
    assert json.loads(journal.raw(tree.heads["7"]) or b"")["id"] == "7"


# Size


def test_a_chain_of_a_hundred_thousand_entries_is_walked(file: Path) -> None:
    parents = [None, *(f"{n:08x}" for n in range(100_000))]
    file.write_bytes(lines(HEADER, *(entry(f"{n:08x}", parent) for n, parent in enumerate(parents[:-1]))))
    journal, tree = read(file)
    assert len(tree.branch(journal.leaf).heads) == 100_000
    assert tree.oddities() == {"duplicate ids": 0, "parents missing": 0, "entries in a circle": 0}


def test_a_hundred_thousand_notes_that_stand_twice_take_no_longer_than_as_many_others(file: Path) -> None:
    """Counted, not timed: every list is gone over once (facts: real-sessions 3, #3930)."""
    note = [
        entry(f"{n:08x}", None, type="custom", customType="codex-context-note", message=None) for n in range(50_000)
    ]
    file.write_bytes(lines(HEADER, *note, *note[::-1]))
    _journal, tree = read(file)
    assert tree.duplicates == 50_000
    assert len(tree.ours["codex-context-note"]) == 50_000


@pytest.mark.parametrize("fold", [lambda line: line, lambda line: line[:-9] + entry("b", "a")], ids=["whole", "torn"])
def test_the_index_holds_nothing_of_a_line_of_65_megabytes(fold: object, file: Path) -> None:
    assert callable(fold)
    file.write_bytes(lines(HEADER, fold(entry("a", None, "A" * 65_000_000)), entry("c", "b")))
    tracemalloc.start()
    try:
        journal, tree = read(file)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (journal.leaf, "b" in tree.saved) == ("c", "a" not in tree.heads)
    assert held < 1_000_000
    assert peak < 300_000_000


def test_an_entry_takes_at_most_five_hundred_bytes_of_the_index(file: Path) -> None:
    made = Session(random.Random(1))  # noqa: S311 - a fixed shape, no secret
    for _ in range(20_000):
        made.append("message", message={"role": "assistant", "content": "x", "stopReason": "stop"})
    file.write_bytes(made.raw())
    tracemalloc.start()
    try:
        _journal, tree = read(file)
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(tree.heads) <= 500
