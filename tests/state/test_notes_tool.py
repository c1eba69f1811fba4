"""The tool `notes`: five actions on files that are entries of the branch (facts: tree-upstream 2.2, 3.2)."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import Json, Player
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import NOTE, NOTE_SNAPSHOT
from protocol.tools import NotesArguments
from state import notes
from state.arguments import parse
from state.errors import RefusedError
from state.notes import LINE_CHARS, MAX_FILE_BYTES, MAX_SNAPSHOT_BYTES, OUTPUT_CHARS, READ_CHARS, Notes, Written

NOW = 1_796_047_518_123
ISO = "2026-11-30T14:05:18.123Z"


def ask(held: Notes, action: str, *, now: int = NOW, **arguments: Any) -> Json:
    """Carry out one call, and what it appends."""
    done = notes.run(held, parse("notes", {"action": action, **arguments}, NotesArguments), now)
    if isinstance(done, Written):
        held.apply(done.note)
        return done.result
    return done


def refused(held: Notes, action: str, **arguments: Any) -> str:
    before = dict(held.files)
    with pytest.raises(RefusedError) as error:
        ask(held, action, **arguments)
    assert held.files == before
    return str(error.value)


def holding(*paths: str, text: str = "x") -> Notes:
    held = Notes()
    for at, path in enumerate(paths):
        ask(held, "write_file", path=path, text=text, now=NOW + at)
    return held


def paths(result: Json) -> list[str]:
    return [file["path"].removeprefix("/root/notes/") for file in result["files"]]


# Writing


def test_a_file_is_written_appended_to_and_replaced() -> None:
    held = Notes()
    facts: Json = {"path": "/root/notes/a.md", "created_at": ISO}
    assert ask(held, "append_to_file", path="a.md", text="é\n") == {
        "source": "pi-session",
        "file": {**facts, "bytes": 3, "updated_at": ISO},
    }
    later = "2026-11-30T14:05:19.123Z"
    assert ask(held, "append_to_file", path="/root/notes/a.md", text="b", now=NOW + 1000) == {
        "source": "pi-session",
        "file": {**facts, "bytes": 4, "updated_at": later},
    }
    assert held.files["/root/notes/a.md"].text == "é\nb"
    assert ask(held, "write_file", path="a.md", text="", now=NOW + 1000)["file"] == {
        **facts,
        "bytes": 0,
        "updated_at": later,
    }


@pytest.mark.parametrize("action", ["append_to_file", "write_file"])
def test_writing_needs_a_path_and_a_text_which_may_be_empty(action: str) -> None:
    held = Notes()
    assert refused(held, action, text="x") == "path is required."
    assert refused(held, action, path="", text="x") == "path is required."
    assert refused(held, action, path="a") == "text is required; it may be empty."
    assert refused(held, action, path="a", text=5) == "notes: Expected `str | null`, got `int` - at `$.text`"
    assert ask(held, action, path="a", text="", query="ignored", recursive=1)["file"]["bytes"] == 0


def test_an_unknown_action_is_refused() -> None:
    """There is none that deletes (facts: tree-upstream 2.1)."""
    assert refused(Notes(), "delete_file", path="a") == "notes: Invalid enum value 'delete_file' - at `$.action`"


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("a", "/root/notes/a"),
        ("a/b c/d.md", "/root/notes/a/b c/d.md"),
        ("~", "/root/notes/~"),
        ("notes", "/root/notes/notes"),
        ("root/notes/a", "/root/notes/root/notes/a"),
        ("...", "/root/notes/..."),
        ("/root/notes/a", "/root/notes/a"),
        ("/root/child/notes/a", "/root/child/notes/a"),
        ("/x/notes/notes", "/x/notes/notes"),
        ("漢字\u2028😀", "/root/notes/漢字\u2028😀"),
    ],
)
def test_a_path_is_relative_to_the_agents_notes_or_names_them(path: str, whole: str) -> None:
    held = Notes()
    assert ask(held, "write_file", path=path, text="t")["file"]["path"] == whole
    assert ask(held, "read_file", path=path)["file"]["content"] == "t"


@pytest.mark.parametrize(
    "path",
    [
        *("..", ".", "a/../b", "./a", "a/.", "a//b", "a/", "/", "//", "/a", "/root", "/root/notes", "/root/notes/"),
        *("/notes/a", "/root/notes/../a", "/root//notes/a", "/root/note/a", "/root/notes/a/", "a\0b", "/root/notes/\0"),
        *("//notes/a", "/root/Notes/a"),
    ],
)
@pytest.mark.parametrize("action", ["append_to_file", "write_file", "read_file"])
def test_a_path_that_leads_elsewhere_is_refused(action: str, path: str) -> None:
    message = "path is not valid: use a relative path such as checkpoint.md, or /root/notes/<path>."
    assert refused(Notes(), action, path=path, text="x") == message


# list_files_by_prefix


def test_files_are_listed_by_name_with_size_and_times() -> None:
    held = holding("b", "a")
    assert ask(held, "list_files_by_prefix") == {
        "source": "pi-session",
        "files": [
            {
                "path": "/root/notes/a",
                "bytes": 1,
                "created_at": "2026-11-30T14:05:18.124Z",
                "updated_at": "2026-11-30T14:05:18.124Z",
            },
            {"path": "/root/notes/b", "bytes": 1, "created_at": ISO, "updated_at": ISO},
        ],
    }
    assert ask(Notes(), "list_files_by_prefix") == {"source": "pi-session", "files": []}


@pytest.mark.parametrize(
    ("by", "order", "expected"),
    [
        (None, None, "abc"),
        ("name", "ascending", "abc"),
        ("name", "descending", "cba"),
        ("created_at", None, "bca"),
        ("created_at", "descending", "acb"),
        ("updated_at", "ascending", "cab"),
        ("updated_at", "descending", "bac"),
    ],
)
def test_files_are_ordered(by: str | None, order: str | None, expected: str) -> None:
    held = holding("b", "c", "a")
    ask(held, "append_to_file", path="b", text="y", now=NOW + 99)
    assert "".join(paths(ask(held, "list_files_by_prefix", file_order_by=by, file_order=order))) == expected


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 20), (1, 1), (0, 1), (-5, 1), (100, 100), (101, 100), (10**30, 100), ("7", 7)]
)
def test_twenty_files_are_listed_and_at_most_a_hundred(limit: object, count: int) -> None:
    held = holding(*(f"{number:03}" for number in range(120)))
    found = ask(held, "list_files_by_prefix", max_results=limit)
    assert paths(found) == [f"{number:03}" for number in range(count)]
    assert found["has_more"] is True


PREFIXES = [
    (None, ["a/b", "abc", "notes", "notes.md", "x/notes/y"]),
    ("", ["a/b", "abc", "notes", "notes.md", "x/notes/y"]),
    ("/root/notes", ["a/b", "abc", "notes", "notes.md", "x/notes/y"]),
    ("/root/notes/", ["a/b", "abc", "notes", "notes.md", "x/notes/y"]),
    ("a", ["a/b", "abc"]),
    ("a/", ["a/b"]),
    ("/root/notes/ab", ["abc"]),
    ("notes", ["notes", "notes.md"]),
    ("/root/notes/notes", ["notes", "notes.md"]),
    ("x/notes", ["x/notes/y"]),
    ("A", []),
    ("/x/notes", ["/x/notes/other"]),
    ("/x/notes/", ["/x/notes/other"]),
    ("/x/notes/o", ["/x/notes/other"]),
    ("/x", ["/x/notes/other", "/xy/notes/z"]),
    ("../", []),
]


@pytest.mark.parametrize(("prefix", "expected"), PREFIXES)
def test_a_prefix_is_plain_text_but_for_the_folder_of_all_notes(prefix: str | None, expected: list[str]) -> None:
    """Upstream refuses `/root/notes/` (facts: tree-upstream 3.2)."""
    held = holding("abc", "a/b", "notes", "notes.md", "x/notes/y", "/x/notes/other", "/xy/notes/z")
    assert paths(ask(held, "list_files_by_prefix", prefix=prefix)) == expected
    assert paths(ask(held, "search_contents", path_prefix=prefix, query="x")) == expected


# read_file


def test_a_file_is_read_whole() -> None:
    held = Notes()
    ask(held, "write_file", path="a", text="one\ntwo\n")
    facts = {"path": "/root/notes/a", "bytes": 8, "created_at": ISO, "updated_at": ISO}
    lines = {"content": "one\ntwo\n", "start_line": 1, "stop_line": 3, "total_lines": 3}
    assert ask(held, "read_file", path="a") == {"source": "pi-session", "file": {**facts, **lines}}
    assert ask(held, "read_file", path="b") == {"source": "pi-session", "file": None}


def test_an_empty_file_has_one_empty_line() -> None:
    """Facts: tree-upstream 2.2."""
    found = ask(holding("a", text=""), "read_file", path="a")["file"]
    assert (found["content"], found["start_line"], found["stop_line"], found["total_lines"]) == ("", 1, 1, 1)


@pytest.mark.parametrize(
    ("start", "stop", "text", "numbers"),
    [
        (None, None, "1\n2\n3\n4", (1, 4)),
        (2, 3, "2\n3", (2, 3)),
        (2, 2, "2", (2, 2)),
        (0, 0, "1\n2\n3\n4", (1, 4)),
        (-1, None, "4", (4, 4)),
        (-3, -2, "2\n3", (2, 3)),
        (-99, 2, "1\n2", (1, 2)),
        (3, 99, "3\n4", (3, 4)),
        (99, None, "4", (4, 4)),
        (None, -99, "1", (1, 1)),
        (3, 2, "", (3, 2)),
        (-1, 1, "", (4, 1)),
        ("2", "-1", "2\n3\n4", (2, 4)),
        (-(10**30), 10**30, "1\n2\n3\n4", (1, 4)),
    ],
)
def test_lines_count_from_one_or_from_the_end(start: object, stop: object, text: str, numbers: tuple[int, int]) -> None:
    found = ask(holding("a", text="1\n2\n3\n4"), "read_file", path="a", start_line=start, stop_line=stop)["file"]
    assert (found["content"], (found["start_line"], found["stop_line"])) == (text, numbers)
    assert found["total_lines"] == 4
    assert "truncated" not in found


def test_lines_end_with_lf_alone() -> None:
    found = ask(holding("a", text="a\r\nb\u2028c\x85d\re"), "read_file", path="a")["file"]
    assert (found["content"], found["total_lines"]) == ("a\r\nb\u2028c\x85d\re", 2)


def test_a_long_file_is_read_in_pieces_that_join_to_the_whole() -> None:
    """Upstream answers with a megabyte (facts: tree-upstream 2.2)."""
    text = "\n".join(f"{number} " + "é" * (number % 300) for number in range(2000))
    held = holding("a", text=text)
    pieces, start = [], 1
    while start:
        found = ask(held, "read_file", path="a", start_line=start)["file"]
        assert len(found["content"]) <= READ_CHARS
        assert found["content"].count("\n") == found["stop_line"] - found["start_line"]
        pieces.append(found["content"])
        assert ("truncated" in found) == ("next_start_line" in found)
        start = found.get("next_start_line", 0)
    assert len(pieces) > 5
    assert "\n".join(pieces) == text


@pytest.mark.parametrize(
    ("text", "shown", "more"),
    [
        ("x" * READ_CHARS, READ_CHARS, {}),
        ("x" * (READ_CHARS + 1), READ_CHARS, {"truncated": True}),
        ("x" * (READ_CHARS + 1) + "\nnext", READ_CHARS, {"truncated": True, "next_start_line": 2}),
        ("x" * READ_CHARS + "\n", READ_CHARS, {"truncated": True, "next_start_line": 2}),
        ("x" * (READ_CHARS - 1) + "\n", READ_CHARS, {}),
    ],
)
def test_a_line_that_is_too_long_is_cut_and_says_so(text: str, shown: int, more: Json) -> None:
    found = ask(holding("a", text=text), "read_file", path="a")["file"]
    assert len(found["content"]) == shown
    assert {key: found[key] for key in ("truncated", "next_start_line") if key in found} == more


# search_contents


def test_lines_that_hold_the_query_are_found_with_their_numbers() -> None:
    held = Notes()
    ask(held, "write_file", path="b", text="one\nTwo\none two")
    ask(held, "write_file", path="a", text="nothing")
    ask(held, "write_file", path="c", text="\nat one")
    assert ask(held, "search_contents", query="one") == {
        "source": "pi-session",
        "files": [
            {
                "path": "/root/notes/b",
                "matches": [{"line_number": 1, "line": "one"}, {"line_number": 3, "line": "one two"}],
            },
            {"path": "/root/notes/c", "matches": [{"line_number": 2, "line": "at one"}]},
        ],
    }
    assert ask(held, "search_contents", query="two")["files"] == [
        {"path": "/root/notes/b", "matches": [{"line_number": 3, "line": "one two"}]}
    ]
    assert ask(held, "search_contents", query="one\ntwo")["files"] == []
    assert refused(held, "search_contents") == "query is required."
    assert refused(held, "search_contents", query="") == "query is required."


def test_recent_files_come_first_by_the_time_of_their_creation() -> None:
    """Facts: tree-upstream 2.2."""
    held = holding("b", "c", "a")
    ask(held, "append_to_file", path="b", text="x", now=NOW + 99)
    assert paths(ask(held, "search_contents", query="x")) == ["a", "b", "c"]
    assert paths(ask(held, "search_contents", query="x", recent_file_first=True)) == ["a", "c", "b"]


@pytest.mark.parametrize(("limit", "count"), [(None, 20), (0, 1), (-1, 1), (3, 3), (100, 100), (10**30, 100)])
def test_the_numbers_of_files_and_of_matches_have_a_limit(limit: object, count: int) -> None:
    held = holding(*(f"{number:03}" for number in range(120)), text="x\n" * 120)
    found = ask(held, "search_contents", query="x", max_files=limit, max_matches_per_file=1)
    assert (len(found["files"]), found["has_more"]) == (count, True)
    found = ask(held, "search_contents", query="x", max_files=1, max_matches_per_file=limit)
    assert (len(found["files"][0]["matches"]), found["has_more"]) == (count, True)


def test_nothing_more_is_told_of_all_that_was_found() -> None:
    assert "has_more" not in ask(holding(*"abc"), "search_contents", query="x", max_files=3)


def test_a_long_line_shows_what_surrounds_the_match() -> None:
    held = holding("a", text="<" * 5000 + "NEEDLE" + ">" * 5000)
    (match,) = ask(held, "search_contents", query="NEEDLE")["files"][0]["matches"]
    assert match == {"line_number": 1, "line": ("<" * 166 + "NEEDLE" + ">" * 5000)[:LINE_CHARS]}


@pytest.mark.parametrize(("files", "lines"), [(1, 100), (50, 2), (2, 100)])
def test_what_a_search_answers_is_bounded(files: int, lines: int) -> None:
    """Upstream returns whole lines without end (facts: tree-upstream 2.2)."""
    held = holding(*(f"{number:03}" for number in range(files)), text=("x" * 5000 + "\n") * lines)
    found = ask(held, "search_contents", query="x", max_files=100, max_matches_per_file=100)
    shown = [match["line"] for file in found["files"] for match in file["matches"]]
    assert all(file["matches"] for file in found["files"])
    assert (len(shown), found["has_more"]) == (OUTPUT_CHARS // LINE_CHARS, True)


# Limits


@pytest.mark.parametrize("unit", ["x", "é"])
def test_a_file_may_take_a_million_bytes_and_not_one_more(unit: str) -> None:
    held = Notes()
    size = len(unit.encode())
    ask(held, "write_file", path="a", text=unit * (MAX_FILE_BYTES // size))
    assert len(held.files["/root/notes/a"].text.encode()) == 1_000_000
    message = "The note would take 1,000,001 bytes; one file may take 1,000,000."
    assert refused(held, "append_to_file", path="a", text="y") == message
    assert refused(held, "write_file", path="b", text="y" * 1_000_001) == message
    assert ask(held, "write_file", path="a", text="short")["file"]["bytes"] == 5


def test_all_notes_as_json_may_take_ten_million_bytes_and_not_one_more() -> None:
    """Otherwise no rollover would be possible any more (facts: tree-upstream 3.2)."""
    held = Notes()
    for number in range(9):
        ask(held, "write_file", path=f"{number}", text="x" * MAX_FILE_BYTES)
    ask(held, "write_file", path="9", text="")
    room = MAX_SNAPSHOT_BYTES - len(msgspec.json.encode(held.snapshot(NOW)))
    quotes = '"' * (room // 2) + "x" * (room % 2)
    message = (
        "All notes together would take 10,000,001 bytes; 10,000,000 fit into a new context window. "
        "Shorten some with write_file first."
    )
    assert refused(held, "write_file", path="9", text=quotes + "x") == message
    ask(held, "write_file", path="9", text=quotes)
    assert len(msgspec.json.encode(held.snapshot(NOW))) == MAX_SNAPSHOT_BYTES
    assert refused(held, "append_to_file", path="9", text="x") == message
    ask(held, "write_file", path="0", text="short")


# In a session


def call(player: Player, **arguments: Any) -> fx.ToolReply:
    reply = player.tell(ev.ToolExecute, tool="notes", call_id="call", arguments=arguments)
    assert isinstance(reply, fx.ToolReply)
    return reply


def test_a_note_is_one_entry_and_the_answer_is_json() -> None:
    player = Player()
    player.start()
    reply = call(player, action="write_file", path="a", text="goal")
    assert player.pi.last(NOTE)["data"] == {
        "protocol": 1,
        "action": "write",
        "path": "/root/notes/a",
        "text": "goal",
        "timestamp": player.pi.clock - 1000,
    }
    assert json.loads(reply.text) == reply.details["codexHistoryNotes"]
    assert json.loads(reply.text)["file"]["bytes"] == 4
    entries = len(player.pi.entries)
    assert json.loads(call(player, action="read_file", path="a").text)["file"]["content"] == "goal"
    assert len(player.pi.entries) == entries


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "write_file", "path": "a", "text": "x" * 1_000_001},
        {"action": "write_file", "path": "../a", "text": "x"},
        {"action": "append_to_file", "path": "a"},
        {"action": "nothing"},
        {},
    ],
)
def test_a_call_that_is_refused_appends_nothing(arguments: Json) -> None:
    player = Player()
    player.start()
    entries = len(player.pi.entries)
    reply = call(player, **arguments)
    assert (reply.is_error, reply.effects, reply.details) == (True, [], {})
    assert len(player.pi.entries) == entries


names = st.sampled_from(["a", "b", "dir/a", "/root/notes/b", "/x/notes/a"])
texts = st.text(st.characters(codec="utf-8"), max_size=6)


class NotesOfASession(RuleBasedStateMachine):
    """Notes against a dict, whatever happens to the session that holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.player = Player()
        self.model: dict[str, str] = {}
        self.kept: list[tuple[str, dict[str, str]]] = []

    @initialize()
    def begin(self) -> None:
        self.player.start()
        self.player.work()

    def whole(self, path: str) -> str:
        return path if path.startswith("/") else f"/root/notes/{path}"

    @rule(path=names, text=texts)
    def write(self, path: str, text: str) -> None:
        assert not call(self.player, action="write_file", path=path, text=text).is_error
        self.model[self.whole(path)] = text

    @rule(path=names, text=texts)
    def append(self, path: str, text: str) -> None:
        assert not call(self.player, action="append_to_file", path=path, text=text).is_error
        self.model[self.whole(path)] = self.model.get(self.whole(path), "") + text

    @rule()
    def work(self) -> None:
        self.player.work()

    @rule()
    def roll_over(self) -> None:
        self.player.rollover()
        self.player.turn()
        assert self.player.phase == "idle"
        taken = self.player.pi.last(NOTE_SNAPSHOT)["data"]["files"]
        assert {file["path"]: file["text"] for file in taken} == self.model
        assert [file["path"] for file in taken] == sorted(self.model)

    @rule()
    def remember(self) -> None:
        self.kept.append((self.player.pi.assistant("a place to return to"), dict(self.model)))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        """To an earlier leaf, or to another branch; its notes are those of that time."""
        leaf, self.model = data.draw(st.sampled_from(self.kept))
        self.model = dict(self.model)
        if leaf != self.player.pi.leaf:
            self.player.travel(leaf, summarize=data.draw(st.booleans()))

    @rule()
    def reopen(self) -> None:
        """Another daemon reads the file."""
        self.player.restart_daemon()
        self.player.start("resume")

    @invariant()
    def notes_are_as_in_the_model(self) -> None:
        listed = json.loads(call(self.player, action="list_files_by_prefix", prefix="/", max_results=100).text)["files"]
        assert {file["path"]: file["bytes"] for file in listed} == {
            path: len(text.encode()) for path, text in self.model.items()
        }
        for path, text in self.model.items():
            found = json.loads(call(self.player, action="read_file", path=path).text)["file"]
            assert found["content"] == text


NotesOfASession.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestNotesOfASession = NotesOfASession.TestCase
