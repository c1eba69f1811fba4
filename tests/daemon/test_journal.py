"""Session files: what a plain parser finds in them, however they grow, and whatever is wrong with them."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Json, PiSession, head_of, line_of
from daemon.journal import Journal
from protocol.entries import EntryHead
from state.tree import Tree

numbers = itertools.count()


def reader(path: Path) -> tuple[Journal, Tree]:
    journal = Journal(path)
    return journal, Tree(journal.raw)


HEADER = line_of(PiSession().header()) + b"\n"


def read(path: Path) -> tuple[Journal, Tree]:
    journal, tree = reader(path)
    journal.refresh(tree)
    return journal, tree


def plain(raw: bytes) -> list[EntryHead]:
    """The index as a few lines of ordinary Python would make it."""
    found: dict[str, EntryHead] = {}
    offset = 0
    for line in raw.split(b"\n"):
        text = line.removesuffix(b"\r")
        try:
            entry = json.loads(text.decode("utf-8", "replace"))
        except ValueError:
            entry = None
        if isinstance(entry, dict) and entry.get("id") and entry.get("type") != "session":
            found[entry["id"]] = head_of(entry, offset, len(text))
        offset += len(line) + 1
    return list(found.values())


def session() -> PiSession:
    """One entry of nearly every kind."""
    pi = PiSession()
    pi.thinking("medium")
    pi.model("openrouter", "vendor/model")
    pi.marker(0)
    pi.user("a\u2028b\u2029\u0085c \u0000 é 😀")
    pi.assistant("working", stop="toolUse", call="bash")
    pi.tool_result("bash", "out")
    pi.message("bashExecution", "", command="ls", output="x\n")
    pi.custom("elsewhere", {"id": "inner", "type": "trap"})
    pi.custom_message("elsewhere", [{"type": "text", "text": "x"}])
    pi.summary(pi.leaf, "a0000001")
    pi.append("compaction", summary="S", firstKeptEntryId="a0000001", tokensBefore=1)
    pi.append("context_edit", targetId="a0000001", replacement=None)
    pi.append("label", targetId="a0000001", label="l")
    pi.append("unheard_of", anything=[1, {"a": None}])
    return pi


def test_the_index_equals_that_of_a_plain_parser(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    session().write(file)
    journal, tree = read(file)
    assert list(tree.heads.values()) == plain(file.read_bytes())
    assert (journal.offset, dict(journal.anomalies)) == (file.stat().st_size, {})
    assert journal.refresh(tree) is False


def test_bodies_are_read_back(tmp_path: Path) -> None:
    pi = session()
    file = tmp_path / "s.jsonl"
    pi.write(file)
    journal, tree = read(file)
    assert [json.loads(journal.raw(head) or b"") for head in tree.heads.values()] == pi.entries


# Growing


ends = st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r\n \r\n"])
texts = st.text(st.characters(codec="utf-8"), max_size=20)
entries = st.builds(
    lambda name, parent, kind, text: {
        "type": "message",
        "id": name,
        "parentId": parent,
        "message": {"role": kind, "c": text},
    },
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=3),
    st.one_of(st.none(), st.sampled_from("abc")),
    st.sampled_from(["user", "assistant", "toolResult"]),
    texts,
)
good_lines = entries.map(line_of)
bad_lines = st.sampled_from(
    [
        b"",
        b"garbage",
        b'{"type":"custom","id":"torn',
        b"[]",
        b"7",
        b'"id"',
        b"{}",
        b'{"type":"custom"}',
        b"\xff",
        b"nul",
    ]
)


@given(st.lists(st.tuples(st.one_of(good_lines, good_lines, bad_lines), ends), max_size=12), st.data())
def test_a_file_that_grows_at_any_byte_gives_the_tree_of_one_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    raw = HEADER + b"".join(line + end for line, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6), "cuts"))
    file = tmp_path_factory.getbasetemp() / f"grows-{next(numbers)}.jsonl"
    journal, tree = reader(file)
    for start, end in itertools.pairwise([0, *cuts, len(raw)]):
        with file.open("ab") as appended:
            appended.write(raw[start:end])
        journal.refresh(tree)
    again, once = read(file)
    assert list(tree.heads.items()) == list(once.heads.items())
    assert sorted(tree.heads) == sorted(head.id for head in plain(raw))
    assert [journal.raw(head) for head in tree.heads.values()] == [again.raw(head) for head in once.heads.values()]
    assert (journal.offset, tree.duplicates) == (again.offset, once.duplicates)
    assert (journal.leaf, journal.anomalies, tree.saved) == (again.leaf, again.anomalies, once.saved)
    journal.close()
    again.close()
    file.unlink()


def test_only_the_tail_is_read_of_a_file_that_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pi = session()
    file = tmp_path / "s.jsonl"
    pi.write(file)
    journal, tree = read(file)
    pi.user("more")
    tail = line_of(pi.entries[-1]) + b"\n"
    with file.open("ab") as appended:
        appended.write(tail)
    assert journal.pending() == len(tail)
    seen: list[int] = []
    pread = os.pread

    def counting(fd: int, length: int, offset: int) -> bytes:
        seen.append(length)
        return pread(fd, length, offset)

    monkeypatch.setattr("daemon.journal.os.pread", counting)
    journal.refresh(tree)
    assert list(tree.heads)[-1] == pi.leaf
    assert sum(seen) <= len(tail) + 4 * 256
    assert journal.pending() == 0


def test_a_last_line_without_its_end_counts_once_it_is_whole(tmp_path: Path) -> None:
    """As it does for Pi (facts: real-sessions 2, row 4)."""
    pi = session()
    line = line_of(pi.entries[-1])
    file = tmp_path / "s.jsonl"
    pi.write(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: -len(line) - 1])
    journal, tree = read(file)
    known = len(tree.heads)
    for part, count in [(line[:20], known), (line[20:], known + 1), (b"\r", known + 1), (b"\n", known + 1)]:
        with file.open("ab") as appended:
            appended.write(part)
        assert journal.refresh(tree) is False
        assert len(tree.heads) == count
    assert tree.duplicates == 0
    assert journal.offset == file.stat().st_size


def test_a_newline_that_pi_adds_to_a_torn_tail_changes_nothing(tmp_path: Path) -> None:
    """Facts: real-sessions 2, row 4."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(b'{"type":"custom","id":"a","parentId":null}\n{"type":"cus')
    journal, tree = read(file)
    with file.open("ab") as appended:
        appended.write(b'\n{"type":"custom","id":"b","parentId":"a"}\n')
    journal.refresh(tree)
    assert list(tree.heads) == ["a", "b"]


# Rewriting


def rewritten(journal: Journal, tree: Tree, file: Path) -> bool:
    fresh = journal.refresh(tree)
    assert list(tree.heads.values()) == plain(file.read_bytes())
    for head in tree.heads.values():
        assert json.loads(journal.raw(head) or b"")["id"] == head.id
    return fresh


def renamed(pi: PiSession, prefix: str) -> PiSession:
    """Pi gives new ids to all entries when it migrates a file (facts: real-sessions 2, row 3)."""
    for entry in pi.entries:
        entry["id"] = prefix + entry["id"][1:]
        entry["parentId"] = entry["parentId"] and prefix + entry["parentId"][1:]
    return pi


def test_a_file_that_was_rewritten_in_place_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    session().write(file)
    journal, tree = read(file)
    longer = renamed(session(), "b")
    longer.user("more")
    inode = file.stat().st_ino
    longer.write(file)
    assert file.stat().st_ino == inode
    assert rewritten(journal, tree, file)
    assert len(tree.heads) == len(longer.entries)


def test_a_file_of_the_same_size_with_other_bytes_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    session().write(file)
    journal, tree = read(file)
    size = file.stat().st_size
    renamed(session(), "b").write(file)
    os.utime(file, ns=(1, 1))
    assert file.stat().st_size == size
    assert rewritten(journal, tree, file)


@pytest.mark.parametrize("where", ["head", "tail"])
def test_a_fingerprint_of_head_and_tail_tells_a_rewrite_from_growth(tmp_path: Path, where: str) -> None:
    file = tmp_path / "s.jsonl"
    pi = session()
    pi.write(file)
    journal, tree = read(file)
    changed = pi.entries[0 if where == "head" else -1]
    changed["id"] = "f" + changed["id"][1:]
    pi.user("and it grew as well")
    pi.write(file)
    assert rewritten(journal, tree, file)
    assert changed["id"] in tree.heads


def test_a_file_that_shrank_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    pi = session()
    pi.write(file)
    journal, tree = read(file)
    del pi.entries[5:]
    pi.write(file)
    assert rewritten(journal, tree, file)
    assert len(tree.heads) == 5


def test_a_file_that_was_replaced_by_another_inode_is_read_anew(tmp_path: Path) -> None:
    file, other = tmp_path / "s.jsonl", tmp_path / "other.jsonl"
    session().write(file)
    stat = file.stat()
    journal, tree = read(file)
    renamed(session(), "b").write(other)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)
    assert rewritten(journal, tree, file)


def test_anomalies_of_a_file_that_was_rewritten_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"garbage\n")
    journal, tree = read(file)
    assert journal.anomalies == {"unreadable lines": 1}
    assert journal.header() is None
    session().write(file)
    journal.refresh(tree)
    assert journal.anomalies == {}


def test_a_file_that_is_gone_keeps_what_was_read_of_it(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    session().write(file)
    journal, tree = read(file)
    file.unlink()
    assert journal.refresh(tree) is False
    assert journal.pending() == 0
    assert journal.raw(next(iter(tree.heads.values()))) is not None


def test_a_journal_that_was_closed_reads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    session().write(file)
    journal, tree = read(file)
    journal.close()
    journal.close()
    assert journal.raw(next(iter(tree.heads.values()))) is None


# Entries that only Pi's memory holds


@pytest.mark.parametrize("what", ["folder", "pipe", "name that no file can have"])
def test_what_is_no_file_to_read_is_as_a_file_that_is_not_there(tmp_path: Path, what: str) -> None:
    """Nobody must wait for a pipe, and no error may leave the journal."""
    path = tmp_path / "s.jsonl"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path = tmp_path / "a\0b"
    journal, tree = read(path)
    assert tree.heads == {}
    entry = {"type": "custom", "id": "a", "parentId": None, "customType": "x", "data": 1}
    journal.remember(tree, [entry])
    assert journal.pending() >= 0
    assert list(tree.heads) == ["a"]
    journal.close()


def test_entries_from_memory_count_until_the_file_exists(tmp_path: Path) -> None:
    """Pi writes the file only with the first message (facts: pi-lifecycle 15)."""
    file = tmp_path / "s.jsonl"
    pi = session()
    journal, tree = read(file)
    journal.remember(tree, pi.entries[:3])
    assert [json.loads(journal.raw(head) or b"") for head in tree.heads.values()] == pi.entries[:3]
    pi.write(file)
    assert journal.refresh(tree) is True
    assert list(tree.heads.values()) == plain(file.read_bytes())


def test_without_a_file_everything_comes_from_memory() -> None:
    pi = session()
    journal = Journal(None)
    tree = Tree(journal.raw)
    assert journal.refresh(tree) is False
    assert journal.pending() == 0
    journal.remember(tree, pi.entries)
    journal.remember(tree, pi.entries)
    assert list(tree.heads.values()) == [head_of(entry, -1, len(line_of(entry))) for entry in pi.entries]
    assert tree.duplicates == 0


def test_what_is_no_entry_is_not_remembered() -> None:
    journal = Journal(None)
    tree = Tree(journal.raw)
    journal.remember(tree, [{}, {"type": "session", "id": "s"}, {"id": ""}, {"id": [], "type": "custom"}])
    assert tree.heads == {}


# Oddities


def entry_line(**fields: Any) -> bytes:
    return json.dumps({"type": "message", "id": "a", "parentId": None, **fields}).encode()


def one(tmp_path: Path, line: bytes) -> tuple[Journal, Tree, Json | None]:
    file = tmp_path / "s.jsonl"
    file.write_bytes(HEADER + line + b"\n" + b'{"type":"custom","id":"next","parentId":"a"}\n')
    journal, tree = read(file)
    assert "next" in tree.heads, "a line must not take the next one with it"
    raw = journal.raw(tree.heads["a"]) if "a" in tree.heads else None
    return journal, tree, None if raw is None else json.loads(raw.decode())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (entry_line(message={"role": "user", "content": "x\ud83dy"}), "x\ufffdy"),
        (entry_line(message={"role": "user", "content": "\udc00"}), "\ufffd"),
        (entry_line(message={"role": "user", "content": "XY"}).replace(b"X", b"\xed\xa0\x80"), "\ufffd" * 3 + "Y"),
        (entry_line(message={"role": "user", "content": "XY"}).replace(b"X", b"\xff"), "\ufffdY"),
        (entry_line(message={"role": "user", "content": "x\u0000y"}), "x\u0000y"),
        (
            entry_line(message={"role": "user", "content": "XY"}).replace(b"X", "\u2028\u2029\x85".encode()),
            "\u2028\u2029\x85Y",
        ),
        (entry_line(message={"role": "user", "content": "😀"}), "😀"),
    ],
    ids=["high surrogate", "low surrogate", "encoded surrogate", "no utf-8", "nul", "line separators", "astral"],
)
def test_text_that_is_odd_is_indexed_and_read_back(tmp_path: Path, line: bytes, text: str) -> None:
    """Facts: codex-and-sidecar 2.4."""
    journal, tree, body = one(tmp_path, line)
    assert body is not None
    assert body["message"]["content"] == text
    assert tree.heads["a"].kind == "user"
    assert journal.anomalies == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"parentId": []}, (None, "message", "user", "")),
        ({"type": 7, "message": None}, (None, "", "", "")),
        ({"message": {"role": 7, "stopReason": "stop"}}, (None, "message", "", "stop")),
        ({"message": [1]}, (None, "message", "", "")),
        ({"type": "custom", "message": None, "customType": []}, (None, "custom", "", "")),
        ({"type": "branch_summary", "message": None, "fromId": 3}, (None, "branch_summary", "", "")),
    ],
)
def test_a_field_of_another_type_counts_as_absent(
    tmp_path: Path, fields: Json, expected: tuple[str | None, str, str, str]
) -> None:
    _journal, tree, _body = one(tmp_path, entry_line(**{"message": {"role": "user"}, **fields}))
    head = tree.heads["a"]
    assert (head.parent_id, head.type, head.kind, head.tag) == expected


def test_a_model_without_a_provider_is_no_selection(tmp_path: Path) -> None:
    """A fork of Pi writes `model` and `role` (facts: real-sessions 2, row 15)."""
    _journal, tree, _body = one(tmp_path, entry_line(type="model_change", model="m", role="default"))
    assert tree.heads["a"].tag == ""


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"garbage", "unreadable lines"),
        (b'{"id":"a","x":NaN}', "unreadable lines"),
        (b'{"id":"a","x":' + b"[" * 200_000 + b"}", "unreadable lines"),
        (entry_line(id=""), "entries without id"),
        (b'{"type":"message"}', "entries without id"),
        (b"[1]", "entries without id"),
        (b"true", "entries without id"),
    ],
    ids=["text", "nan", "deep garbage", "empty id", "no id", "array", "word"],
)
def test_a_line_that_is_no_entry_is_counted_and_skipped(tmp_path: Path, line: bytes, kind: str) -> None:
    journal, tree, _body = one(tmp_path, line)
    assert list(tree.heads) == ["next"]
    assert tree.saved == {}
    assert journal.anomalies == {kind: 1}


@pytest.mark.parametrize("depth", [300, 480, 600, 900, 1_000, 5_000, 200_000])
@pytest.mark.parametrize("odd", ["", "\\ud800"])
def test_a_line_that_is_nested_deeply_is_an_entry_as_it_is_for_pi(tmp_path: Path, depth: int, odd: str) -> None:
    """How deep a recursive reader may go is a matter of the Python that runs it; then its body may not be."""
    line = b'{"id":"a","s":"' + odd.encode() + b'","x":' + b"[" * depth + b"]" * depth + b',"parentId":"b"}'
    file = tmp_path / "s.jsonl"
    file.write_bytes(HEADER + line + b"\n")
    journal, tree = read(file)
    assert tree.heads["a"].parent_id == "b"
    assert journal.anomalies in ({}, {"lines nested too deeply": 1})
    journal.raw(tree.heads["a"])


@pytest.mark.parametrize("depth", range(900, 1000, 9))
def test_a_body_that_is_nested_to_the_limit_is_read_or_not_but_never_an_error(tmp_path: Path, depth: int) -> None:
    """How deep a reader may go depends on how deep it was called."""
    file = tmp_path / "s.jsonl"
    file.write_bytes(b'{"type":"custom","id":"a","data":' + b"[" * depth + b"]" * depth + b"}\n")
    journal, tree = read(file)

    def deeper(calls: int) -> bytes | None:
        return deeper(calls - 1) if calls else journal.raw(head)

    for head in tree.heads.values():
        assert deeper(80) in (None, journal.raw(head))


def test_a_line_of_five_megabytes_is_one_entry(tmp_path: Path) -> None:
    """Images make such lines (facts: real-sessions 3, #9613)."""
    _journal, tree, body = one(tmp_path, entry_line(message={"role": "user", "content": "x" * 5_000_000}))
    assert body is not None
    assert len(body["message"]["content"]) == 5_000_000
    assert tree.heads["next"].offset == tree.heads["a"].offset + tree.heads["a"].length + 1


def test_a_line_that_stands_twice_is_one_entry_and_a_duplicate(tmp_path: Path) -> None:
    """Facts: tree-upstream 8.2, pi 3930."""
    file = tmp_path / "s.jsonl"
    line = entry_line() + b"\n"
    file.write_bytes(line + line)
    _journal, tree = read(file)
    assert list(tree.heads) == ["a"]
    assert tree.duplicates == 1
    assert tree.heads["a"].offset == len(line), "the later one counts"


def test_a_file_without_anything_is_an_empty_session(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(b"")
    journal, tree = read(file)
    assert (tree.heads, journal.anomalies) == ({}, {})
    session().write(file)
    journal.refresh(tree)
    assert len(tree.heads) == len(session().entries)
