"""Forks: the chain of parent files, bounded and read only, and the archives that lie there (facts: pi-lifecycle 21)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from builders import Json, PiSession, line_of, roll_over
from daemon.host import Host
from daemon.journal import Journal
from daemon.lineage import MAX_DEPTH, Lineage
from protocol import effects as fx
from protocol import events as ev
from protocol.rpc import PROTOCOL
from protocol.status import StatusReport
from state.session import Search
from state.tree import Tree


def write(file: Path, entries: list[Json], parent: Path | str | None = None, session: str = "s") -> Path:
    header: Json = {"type": "session", "version": 3, "id": session, "cwd": "/project"}
    if parent is not None:
        header["parentSession"] = str(parent)
    file.write_bytes(b"".join(line_of(line) + b"\n" for line in [header, *entries]))
    return file


def opened(file: Path) -> tuple[Journal, Lineage]:
    journal = Journal(file)
    journal.refresh(Tree(journal.raw))
    return journal, Lineage(journal)


def chain(file: Path) -> list[tuple[str, int | None]]:
    """The ancestors: name, and how many entries each holds."""
    journal, lineage = opened(file)
    found = [(Path(one.file).name, None if one.tree is None else len(one.tree.heads)) for one in lineage.ancestors()]
    lineage.close()
    journal.close()
    return found


def some(count: int) -> list[Json]:
    pi = PiSession()
    for number in range(count):
        pi.user(f"{number}")
    return pi.entries


def test_a_fork_of_a_fork_has_two_ancestors_nearest_first(tmp_path: Path) -> None:
    first = write(tmp_path / "first", some(3))
    second = write(tmp_path / "second", some(2), first)
    third = write(tmp_path / "third", some(1), second)
    assert chain(third) == [("second", 2), ("first", 3)]
    assert chain(second) == [("first", 3)]
    assert chain(first) == []


@pytest.mark.parametrize("parent", ["", None, 7, ["x"]])
def test_a_header_that_names_no_file_has_no_ancestors(tmp_path: Path, parent: Any) -> None:
    header = {"type": "session", "version": 3, "id": "s", "parentSession": parent}
    file = tmp_path / "s"
    file.write_bytes(json.dumps(header).encode() + b"\n")
    assert chain(file) == []


@pytest.mark.parametrize("content", [b"", b"garbage\n", b'{"type":"message","id":"a"}\n', b"[1]\n", b"\xff\n"])
def test_a_file_without_a_header_has_no_ancestors(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s"
    file.write_bytes(content)
    assert chain(file) == []


def test_a_session_without_a_file_has_no_ancestors() -> None:
    assert Lineage(Journal(None)).ancestors() == []


def test_a_file_that_is_its_own_parent_has_no_ancestors(tmp_path: Path) -> None:
    file = tmp_path / "s"
    assert chain(write(file, some(1), file)) == []


def test_a_cycle_of_files_ends(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    write(first, some(1), third)
    write(second, some(2), first)
    write(third, some(3), second)
    assert chain(third) == [("second", 2), ("first", 1)]


def test_a_cycle_under_many_names_ends_at_the_bound(tmp_path: Path) -> None:
    """One file by ever longer paths is not known to be the same."""
    file = tmp_path / "s"
    write(file, some(1), tmp_path / "link0")
    for number in range(MAX_DEPTH + 5):
        link = tmp_path / f"link{number}"
        link.write_bytes(write(tmp_path / "x", some(1), tmp_path / f"link{number + 1}").read_bytes())
    assert len(chain(file)) == MAX_DEPTH == 16


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_a_parent_that_is_no_file_ends_the_chain_and_is_named(tmp_path: Path, kind: str) -> None:
    gone = tmp_path / "gone"
    if kind == "folder":
        gone.mkdir()
    if kind == "pipe":
        os.mkfifo(gone)
    second = write(tmp_path / "second", some(2), gone)
    assert chain(write(tmp_path / "third", some(1), second)) == [("second", 2), ("gone", None)]


def test_a_parent_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write(tmp_path / "first", some(3))
    second = write(tmp_path / "second", some(2), first)
    real = os.open

    def guarded(path: Any, flags: int) -> int:
        if Path(path) == first:
            raise PermissionError(13, "Permission denied")
        return real(path, flags)

    monkeypatch.setattr("daemon.journal.os.open", guarded)
    assert chain(second) == [("first", None)]


def test_a_parent_that_grows_is_read_on_and_one_that_is_rewritten_anew(tmp_path: Path) -> None:
    first = write(tmp_path / "first", some(2))
    journal, lineage = opened(write(tmp_path / "second", some(1), first))
    (before,) = lineage.ancestors()
    assert before.tree is not None
    assert len(before.tree.heads) == 2
    write(first, some(5))
    (after,) = lineage.ancestors()
    assert after.tree is before.tree
    assert len(before.tree.heads) == 5
    write(first, some(1))
    lineage.ancestors()
    assert len(before.tree.heads) == 1
    first.unlink()
    assert [one.tree for one in lineage.ancestors()] == [None]
    lineage.close()
    journal.close()


# Archives of a fork

PEER: Json = {"protocol": PROTOCOL, "pi_version": "1.6.0", "ui": "rpc", "cwd": "/project", "agent_dir": "/agent"}


class Forked:
    """A session with an archived window, and the same branch in the file of a fork, which lacks the side branch."""

    def __init__(self, folder: Path) -> None:
        self.pi = pi = PiSession()
        pi.marker(0)
        self.task = pi.user("the old task")
        self.answer = pi.assistant("its answer")
        self.summary = roll_over(pi, 0)
        pi.user("the new task")
        self.first = write(folder / "first.jsonl", pi.entries)
        self.second = write(folder / "second.jsonl", pi.branch(), self.first)
        self.third = write(folder / "third.jsonl", pi.branch(), self.second)

    def host(self, file: Path) -> Host:
        host = Host()
        host.handle("initialize", ev.Initialize(**PEER))
        start = ev.SessionStart(session_id="s", leaf_id=self.pi.leaf, reason="fork", file=str(file))
        host.handle("session_start", start)
        return host

    def ask(self, host: Host, **arguments: Any) -> fx.ToolReply:
        event = ev.ToolExecute(session_id="s", leaf_id=self.pi.leaf, tool="history", call_id="c", arguments=arguments)
        found = host.handle("tool_execute", event)
        assert isinstance(found, Search)
        return host.search(event, found)

    def result(self, host: Host, **arguments: Any) -> Json:
        answer = json.loads(self.ask(host, **arguments).text)
        assert isinstance(answer, dict)
        return answer

    def archives(self, host: Host) -> list[tuple[int, bool, str | None]]:
        status = host.handle("status", ev.Status(session_id="s"))
        assert isinstance(status, StatusReport)
        return [(archive.items, archive.hidden, archive.unavailable) for archive in status.archives]


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_an_archive_is_read_from_whichever_file_of_the_chain_has_it(tmp_path: Path, name: str) -> None:
    forked = Forked(tmp_path)
    host = forked.host(getattr(forked, name))
    assert forked.archives(host) == [(3, True, None)]
    windows = forked.result(host, action="list_windows")
    assert windows["windows"] == [
        {"window_id": "window-0", "item_count": 3},
        {"window_id": "window-1", "item_count": 1},
    ]
    assert "unavailable_windows" not in windows
    listed = forked.result(host, action="list_items", window_id="window-0")["items"]
    assert [item["item_id"] for item in listed] == [forked.summary, forked.task, forked.answer]
    read = forked.result(host, action="read_item", window_id="window-0", item_id=forked.answer)
    assert read["item"]["content"] == "its answer"
    found = forked.result(host, action="search_contents", query="task")["items"]
    assert forked.task in [item["item_id"] for item in found]


@pytest.mark.parametrize("gone", ["first", "second"])
def test_a_lost_parent_makes_the_archive_unavailable_and_names_the_file(tmp_path: Path, gone: str) -> None:
    forked = Forked(tmp_path)
    lost: Path = getattr(forked, gone)
    lost.unlink()
    host = forked.host(forked.third)
    why = f"its entries lie in {lost}, which cannot be read"
    assert forked.archives(host) == [(0, False, why)]
    windows = forked.result(host, action="list_windows")
    assert windows["unavailable_windows"] == ["window-0"]
    assert [window["window_id"] for window in windows["windows"]] == ["window-1"]
    reply = forked.ask(host, action="read_item", window_id="window-0", item_id=forked.answer)
    assert (reply.is_error, reply.text) == (True, f"This window cannot be read: {why}.")
    assert forked.result(host, action="search_contents", query="old task")["items"] == []


def test_a_chain_without_the_entries_says_which_one_is_missing(tmp_path: Path) -> None:
    forked = Forked(tmp_path)
    write(forked.first, some(0))
    host = forked.host(forked.third)
    assert forked.archives(host) == [(0, False, f"entry {forked.answer} is missing")]


def test_a_parent_that_is_back_is_read_at_the_next_start(tmp_path: Path) -> None:
    forked = Forked(tmp_path)
    away = forked.first.rename(tmp_path / "away")
    host = forked.host(forked.second)
    assert [why is None for _, _, why in forked.archives(host)] == [False]
    away.rename(forked.first)
    start = ev.SessionStart(session_id="s", leaf_id=forked.pi.leaf, reason="reload", file=str(forked.second))
    host.handle("session_start", start)
    assert forked.archives(host) == [(3, True, None)]


def test_parents_are_only_read(tmp_path: Path) -> None:
    forked = Forked(tmp_path)
    files = (forked.first, forked.second, forked.third)
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    forked.result(forked.host(forked.third), action="search_contents", query="task")
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before


def test_a_fork_rolls_over_and_its_own_archive_stands_beside_the_inherited_one(tmp_path: Path) -> None:
    forked = Forked(tmp_path)
    fork = PiSession()
    fork.entries, fork.leaf = list(forked.pi.branch()), forked.pi.leaf
    fork._ids = forked.pi._ids
    roll_over(fork, 1)
    forked.pi.leaf = fork.leaf
    host = forked.host(write(forked.second, fork.entries, forked.first))
    assert forked.archives(host) == [(3, True, None), (2, True, None)]
