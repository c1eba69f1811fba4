"""Kills, hangs and failing writes at every point of a rollover and of a fold, and whether anything was lost by them.

A `Life` is one session and the Pi processes that go on with it one after the other. It suffers one point after the
other; after each, `losses` says what is missing, and one more prompt and one more rollover have to work. What strikes
at the exact point is torture.ts.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from daemon.journal import Journal
from pi.harness import (
    HERE,
    PROVIDER,
    SHIM,
    VERSIONS,
    Call,
    Json,
    PiEndedError,
    PiHome,
    RpcPi,
    Step,
    entry_type,
    message_text,
    wait_until,
)
from pi.product import INTENT, MARKER, NEW, SNAPSHOT, notices
from protocol.tools import HistoryArguments
from state import history
from state.archive import Archive, ArchiveIndex
from state.history import Shelf
from state.notes import Notes
from state.render import is_item, render
from state.tree import Branch, Tree
from state.windows import identity_of

TORTURE = HERE / "torture.ts"

Victim = Literal["pi", "daemon", "hung", "disk", "full"]
Act = Literal["idle", "note", "roll", "say", "fold", "undo"]
How = Literal["completed", "closed", "went on"]

PATIENCE = 15.0
"""Seconds for anything that Pi does by itself, deadlines that a hung daemon runs into among them."""

FOLDS = ("1.6.0",)
"""The versions that can fold."""

HEAVY = "".join(f"{number:05d} a line of a long output\n" for number in range(600))
TALK = "we talk about it " * 1_100
NOTES = "log.md"

_INTENT = "codex-context-tree-intent"
_ARCHIVE = "codex-context-tree-archive"
_SNAPSHOT = "codex-context-note-snapshot"
_MARKER = "codex-context-window"
_NOTE = "codex-context-note"
_SUMMARY_GATE = "gate summary"


class Point(msgspec.Struct, frozen=True):
    """Where it strikes: the act during which, and the occurrences that come before (see torture.ts).

    `then` is a second strike, at Pi's next start; `first`: there is such a point in a session's first rollover alone.
    """

    name: str
    victim: Victim
    act: Act
    at: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    versions: tuple[str, ...] = VERSIONS
    first: bool = False

    def __str__(self) -> str:
        return f"{self.victim}: {self.name}"


def _points() -> Iterator[Point]:
    new_window = (f"wrote {_MARKER}",)
    yield from (
        Point("after the intent", "pi", "roll", (f"wrote {_INTENT}",)),
        Point("between the tool and settle", "pi", "roll", (f"wrote {_INTENT}", "event agent_end")),
        Point("during the summary", "pi", "roll", (_SUMMARY_GATE,)),
        Point("after the summary", "pi", "roll", ("wrote branch_summary",)),
        Point("when the leaf has moved", "pi", "roll", ("event session_tree",)),
        Point("after the manifest", "pi", "roll", (f"wrote {_ARCHIVE}",)),
        Point("after the snapshot", "pi", "roll", (f"wrote {_SNAPSHOT}",)),
        Point("before the marker", "pi", "roll", (f"write {_MARKER}",)),
        Point("after the marker", "pi", "roll", new_window),
        Point("before the first answer", "pi", "roll", (*new_window, "event context")),
        Point("while the new window streams", "pi", "roll", (*new_window, "event message_update")),
        Point("before a note is written", "pi", "note", (f"write {_NOTE}",)),
        Point("after a note is written", "pi", "note", (f"wrote {_NOTE}",)),
        Point("and again, sealing", "pi", "roll", ("wrote branch_summary",), (f"wrote {_ARCHIVE}",)),
        Point("and again, closing", "pi", "roll", (_SUMMARY_GATE,), (f"write {_INTENT}",)),
        Point("between two overlays", "pi", "fold", ("wrote context_edit",), versions=FOLDS),
        Point("between overlays and log", "pi", "fold", ("write shake",), versions=FOLDS),
        Point("during an undo", "pi", "undo", ("wrote context_edit",), versions=FOLDS),
    )
    yield from (
        Point("while idle", "daemon", "idle"),
        Point("during a call of notes", "daemon", "note", ("asked tool_execute",)),
        Point("after a call of notes", "daemon", "note", ("answered tool_execute",)),
        Point("during the tool call", "daemon", "roll", ("asked tool_execute",)),
        Point("after the tool call", "daemon", "roll", ("answered tool_execute",)),
        Point("after the intent", "daemon", "roll", (f"wrote {_INTENT}",)),
        Point("before settle is answered", "daemon", "roll", (f"wrote {_INTENT}", "asked agent_settled")),
        Point("after settle is answered", "daemon", "roll", (f"wrote {_INTENT}", "answered agent_settled")),
        Point("during the summary", "daemon", "roll", (_SUMMARY_GATE,)),
        Point("before session_tree is answered", "daemon", "roll", ("asked session_tree",)),
        Point("after session_tree", "daemon", "roll", ("answered session_tree",)),
        Point("before navigated is answered", "daemon", "roll", ("asked navigated",)),
        Point("after navigated is answered", "daemon", "roll", ("answered navigated",)),
        Point("after the manifest", "daemon", "roll", (f"wrote {_ARCHIVE}",)),
        Point("after the snapshot", "daemon", "roll", (f"wrote {_SNAPSHOT}",)),
        Point("after the marker", "daemon", "roll", new_window),
        Point("before the first request", "daemon", "roll", (*new_window, "asked context")),
        Point("while the new window streams", "daemon", "roll", (*new_window, "event message_update")),
        Point("before a fold is answered", "daemon", "fold", ("asked command",), versions=FOLDS),
        Point("during a fold", "daemon", "fold", ("wrote context_edit",), versions=FOLDS),
        Point("during an undo", "daemon", "undo", ("wrote context_edit",), versions=FOLDS),
    )
    yield from (
        Point("while idle", "hung", "idle"),
        Point("during the tool call", "hung", "roll", ("asked tool_execute",)),
        Point("before settle is answered", "hung", "roll", (f"wrote {_INTENT}", "asked agent_settled")),
        Point("during the summary", "hung", "roll", (_SUMMARY_GATE,)),
        Point("before session_tree is answered", "hung", "roll", ("asked session_tree",)),
        Point("before navigated is answered", "hung", "roll", ("asked navigated",)),
        Point("before the first request", "hung", "roll", (*new_window, "asked context")),
    )
    yield from (
        Point("the intent", "disk", "roll", (f"write {_INTENT}",)),
        Point("the new_context result", "disk", "roll", (f"wrote {_INTENT}", "write message/toolResult")),
        Point("the summary", "disk", "roll", ("write branch_summary",)),
        Point("the manifest", "disk", "roll", (f"write {_ARCHIVE}",)),
        Point("the snapshot", "disk", "roll", (f"write {_SNAPSHOT}",)),
        Point("the thinking level", "disk", "roll", ("wrote branch_summary", "write thinking_level_change")),
        Point(
            "what Pi declares before the marker",
            "disk",
            "roll",
            (f"wrote {_SNAPSHOT}", "write message/system"),
            versions=FOLDS,
            first=True,
        ),
        Point("the marker", "disk", "roll", (f"write {_MARKER}",)),
        Point("the first answer", "disk", "roll", (*new_window, "write message/assistant")),
        Point("a held message", "disk", "roll", (*new_window, "write message/user")),
        Point("a user message", "disk", "say", ("write message/user",)),
        Point("a note", "disk", "note", (f"write {_NOTE}",)),
        Point("the first overlay", "disk", "fold", ("write context_edit",), versions=FOLDS),
        Point("the second overlay", "disk", "fold", ("wrote context_edit", "write context_edit"), versions=FOLDS),
        Point("the log of a fold", "disk", "fold", ("write shake",), versions=FOLDS),
        Point("an overlay of an undo", "disk", "undo", ("wrote context_edit", "write context_edit"), versions=FOLDS),
    )
    yield from (
        Point("from the intent on", "full", "roll", (f"write {_INTENT}",)),
        Point("from the summary on", "full", "roll", ("write branch_summary",)),
        Point("from the manifest on", "full", "roll", (f"write {_ARCHIVE}",)),
        Point("from the snapshot on", "full", "roll", (f"write {_SNAPSHOT}",)),
        Point("from the marker on", "full", "roll", (f"write {_MARKER}",)),
        Point("from the first answer on", "full", "roll", (*new_window, "write message/assistant")),
        Point("from a held message on", "full", "roll", (*new_window, "write message/user")),
        Point("from a note on", "full", "note", (f"write {_NOTE}",)),
        Point("from the first overlay on", "full", "fold", ("write context_edit",), versions=FOLDS),
        Point("from the log of a fold on", "full", "fold", ("write shake",), versions=FOLDS),
        Point("from an overlay of an undo on", "full", "undo", ("wrote context_edit",), versions=FOLDS),
    )


POINTS = tuple(_points())


class Fate(msgspec.Struct, frozen=True):
    """What became of one strike: how it went on, and what was lost."""

    how: How
    lost: list[str]


class MissedError(Exception):
    """The point was not reached, so nothing was struck."""


@dataclass(slots=True)
class Ledger:
    """What must be found again: what Pi accepted and what the model was told that it wrote."""

    texts: list[str] = field(default_factory=list)
    unsent: set[str] = field(default_factory=set)
    """What a killed Pi held in memory alone, or what went back to the editor."""
    notes: dict[str, bool | None] = field(default_factory=dict)
    """Lines of the note, by whether the model saw that it was written; None when it saw no answer."""
    bytes: bytes = b""
    """What the file held last."""


class Life:
    """One session, from one misfortune to the next."""

    def __init__(self, home: PiHome) -> None:
        self.home = home
        self.ledger = Ledger()
        self._struck = home.root / "struck.jsonl"
        self._replies: dict[str, Step] = {}
        self._number = 0
        self._levels = 0
        self._full = False
        self._pi: RpcPi | None = None

    # One point

    def suffer(self, point: Point) -> Fate:
        """Let it strike, recover, and say what came of it."""
        if self._pi is None:
            self._start()
        self._work(point)
        before = len(self._intents())
        struck = self._strikes()
        self._full = point.victim == "full"
        self._arm(point)
        self._act(point)
        if self._strikes() == struck:
            raise MissedError(f"{point}: nothing was struck")
        if point.victim == "pi":
            self._running().end()
            self.ledger.unsent |= set(self._held())
            if point.then:
                self._die_again(point)
            self._start()
            self._stop()
        else:
            if point.victim == "full":
                self._free()
            lost = self._not_in_the_running_pi()
            if lost:
                return Fate(self._how(before), lost)
            self._stop()
            if point.victim == "full":  # what could not be written is written at the next start
                self._start()
                self._stop()
        lost = self._losses("after the strike")
        how = self._how(before)
        lost += self._second_resume()
        if point.act in ("fold", "undo"):
            lost += self._unfolded()
        lost += self._one_more_prompt_and_rollover()
        return Fate(how, lost)

    def close(self) -> None:
        """End what runs."""
        self.home.close()

    # Driving

    @property
    def file(self) -> Path:
        return self.home.session_files()[-1]

    def _start(self, **env: str) -> None:
        args = ["--session", str(self.file)] if self.home.session_files() else []
        environment = {"CONTEXTD_TEST_STRUCK": str(self._struck), **env}
        self._pi = self.home.rpc(args=args, extensions=[PROVIDER, TORTURE, SHIM], env=environment)
        self._pi.call("get_state", deadline=PATIENCE)

    def _stop(self) -> None:
        """Quit Pi, whose session file may have grown and nothing else."""
        pi = self._running()
        pi.close(PATIENCE)
        pi.end()
        self._pi = None

    def _running(self) -> RpcPi:
        assert self._pi is not None
        return self._pi

    def _arm(self, point: Point) -> None:
        at = [f"gate {self._gate()}" if one == _SUMMARY_GATE else one for one in point.at]
        strike = {"at": at, "on": point.victim}
        self._running().prompt(f"/strike {json.dumps(strike)}")

    def _die_again(self, point: Point) -> None:
        strike = json.dumps({"at": point.then, "on": "pi"})
        struck = self._strikes()
        with suppress(PiEndedError):
            self._start(CONTEXTD_TEST_STRIKE=strike)
        if self._strikes() == struck:
            raise MissedError(f"{point}: Pi did not die again")
        self._running().end()

    def _strikes(self) -> int:
        return self._struck.read_bytes().count(b"\n") if self._struck.exists() else 0

    def _held(self) -> list[str]:
        """What the shim or Pi's own queue held when it struck last."""
        last = json.loads(self._struck.read_bytes().split(b"\n")[-2])
        queues = [event for event in self._running().events if event["type"] == "queue_update"]
        queued = [*queues[-1]["steering"], *queues[-1]["followUp"]] if queues else []
        return [*(content_text(content) for content in [*last["held"], *last["queued"]]), *queued]

    def _gate(self) -> str:
        return f"summary-{self._number}"

    def _say(self, text: str, reply: Step, *, deadline: float = PATIENCE) -> None:
        """Prompt, and keep in mind that Pi has accepted it."""
        self._replies[text] = reply
        self._script()
        name = self._running().send("prompt", message=text, streamingBehavior="followUp")
        if self._running().response(name, deadline)["success"]:
            self.ledger.texts.append(text)

    def _script(self) -> None:
        self._replies = dict(list(self._replies.items())[-30:])
        summary = Step(text=f"SUMMARY {self._number}", wait_for=self._gate())
        self.home.script(replies={**self._replies, "(summary)": summary})

    def _work(self, point: Point) -> None:
        """Something in the window that can be lost."""
        self._number += 1
        number = self._number
        self._levels += 1
        self._running().call("set_thinking_level", level=("high", "low")[self._levels % 2])
        self._note(f"work {number}")
        self._calm()
        if point.act in ("fold", "undo"):
            for name in ("one", "two"):
                (self.home.work / f"{name}.txt").write_text(f"{name} {number}\n{HEAVY}")
            calls = [Call("read", {"path": f"{name}.txt"}, id=f"read-{name}-{number}") for name in ("one", "two")]
            self._say(f"read {number}", Step(tools=calls))
            self._calm()
            self._say(f"talk {number}", Step(text=TALK))
            self._calm()
        if point.act == "undo":
            self._running().prompt("/shake")

    def _note(self, text: str) -> None:
        line = f"line of {text}"
        arguments = {"action": "append_to_file", "path": NOTES, "text": f"{line}\n"}
        self.ledger.notes[line] = None
        self._say(text, Step(tools=[Call("notes", arguments, id=f"note {text}")]))

    def _act(self, point: Point) -> None:
        """What it strikes during; returns when Pi is dead or calm."""
        number = self._number
        try:
            match point.act:
                case "idle":
                    self._say(f"idle {number}", Step(text="well"))
                case "say":
                    self._say(f"said {number}", Step(text="well"))
                case "note":
                    self._note(f"note {number}")
                case "roll":
                    self._roll()
                case "fold":
                    self._running().prompt("/shake")
                case "undo":
                    self._running().prompt("/shake undo")
            if point.victim == "pi":
                wait_until(lambda: not self._running().alive, "end of Pi", PATIENCE)
            else:
                self._calm()
        except PiEndedError:
            if point.victim != "pi":
                raise
        finally:
            self._hear_notes()

    def _roll(self) -> None:
        """A rollover with input held during its summary."""
        pi, number, gate = self._running(), self._number, self.home.gate(self._gate())
        after = pi.mark
        self._say(f"roll {number}", Step(text=f"leaving {number}", tools=[NEW]))
        reached = gate.folder / f"{gate.name}.reached"

        def decided() -> bool:
            settled = any(event["type"] == "agent_settled" for event in pi.events[after:])
            return reached.exists() or settled or not pi.alive

        wait_until(decided, "summary or end", PATIENCE)
        if not reached.exists():
            gate.open()
            return
        held = f"held {number}"
        self._replies[held] = Step(text=f"answered {number}")
        self._script()
        name = pi.send("prompt", message=held, streamingBehavior="followUp")
        pi.call("get_state")
        gate.open()
        try:
            accepted = pi.response(name, PATIENCE)["success"]
        except PiEndedError:
            accepted = any(event.get("id") == name and event["success"] for event in pi.events)
        if accepted:
            self.ledger.texts.append(held)
        if not pi.alive:
            raise PiEndedError

    def _hear_notes(self) -> None:
        """What the model saw of its writing."""
        for event in self._running().events:
            if event["type"] == "tool_execution_end" and event["toolCallId"].startswith("note "):
                self.ledger.notes[f"line of {event['toolCallId'].removeprefix('note ')}"] = not event["isError"]

    def _free(self) -> None:
        """There is room on the disk again, and Pi goes on, with what is left in its queue as well."""
        self._running().prompt(f"/strike {json.dumps({'at': [], 'on': 'free'})}")
        self._full = False
        self._say(f"freed {self._number}", Step(text="well"))
        self._calm()

    def _calm(self) -> None:
        """Wait until Pi and the shim have nothing more to do. A full disk leaves Pi idle with its queue."""
        pi = self._running()
        quiet = 0

        def is_calm() -> bool:
            nonlocal quiet
            state = pi.call("get_state", deadline=PATIENCE)["data"]
            queued = state["pendingMessageCount"] and not self._full
            busy = state["isStreaming"] or state["isCompacting"] or queued
            slot = self._slot()
            quiet = 0 if busy or slot["holding"] or slot["held"] or slot["queued"] else quiet + 1
            return quiet >= 2

        wait_until(is_calm, "calm", PATIENCE)
        self._hear_notes()

    def _slot(self) -> Json:
        pi = self._running()
        after = len(notices(pi))
        pi.prompt("/slot")
        said = [text for text in notices(pi)[after:] if text.startswith("slot ")]
        return dict(json.loads(said[-1].removeprefix("slot ")))

    # Judging

    def _how(self, before: int) -> How:
        session = self.home.session()
        new = self._intents()[before:]
        if not new:
            return "went on"
        opened = {entry["details"]["contextManagement"]["currentWindowId"] for entry in session.of_type(MARKER)}
        done = new[-1]["next"]["currentWindowId"] in opened
        return "completed" if done else "closed"

    def _intents(self) -> list[Json]:
        if not self.home.session_files():
            return []
        return [e["data"] for e in self.home.session().of_type(INTENT) if e["data"]["step"] == "request"]

    def _losses(self, when: str) -> list[str]:
        lost = losses(self.file, self.ledger)
        self.ledger.bytes = self.file.read_bytes()
        return [f"{when}: {one}" for one in lost]

    def _not_in_the_running_pi(self) -> list[str]:
        """A text that is neither in the file nor in the shim's hands nor in the editor."""
        pi = self._running()
        slot = self._slot()
        kept = [content_text(content) for content in [*slot["held"], *slot["queued"]]]
        edited = [shown["text"] for shown in pi.ui("set_editor_text")]
        kept += edited
        in_file = user_texts(self.home.session().entries)
        self.ledger.unsent |= {text for text in self.ledger.texts if any(text in one for one in edited)}
        return [
            f"the text {text!r} that Pi had accepted is nowhere"
            for text in self.ledger.texts
            if text not in in_file and text not in self.ledger.unsent and not any(text in one for one in kept)
        ]

    def _second_resume(self) -> list[str]:
        """Recovered once, there is nothing more to append; the Pi that shows it goes on."""
        self._start()
        grown = self.file.read_bytes()[len(self.ledger.bytes) :].split(b"\n")[:-1]
        kinds = [entry_type(json.loads(line)) for line in grown]
        return [f"a second resume appended {', '.join(kinds)}"] if kinds else []

    def _unfolded(self) -> list[str]:
        """An undo brings back all that was folded, recorded or not."""
        number = self._number
        self._running().prompt("/shake undo")
        self._say(f"unfolded {number}", Step(text="well"))
        self._calm()
        shown = "\n".join(self.home.requests("main")[-1].texts)
        return [f"{name}.txt does not come back" for name in ("one", "two") if f"{name} {number}\n{HEAVY}" not in shown]

    def _one_more_prompt_and_rollover(self) -> list[str]:
        """What has to work when all is well again."""
        pi, number = self._running(), self._number
        self._say(f"check {number}", Step(text="checked"))
        self._calm()
        lost = hidden_and_shown(self.home, self.file)
        markers = len(self.home.session().of_type(MARKER))
        self.home.gate(self._gate() + "b").open()
        self._replies[f"again {number}"] = Step(tools=[NEW])
        summary = Step(text=f"SUMMARY {number}b", wait_for=self._gate() + "b")
        self.home.script(replies={**self._replies, "(summary)": summary})
        name = pi.send("prompt", message=f"again {number}", streamingBehavior="followUp")
        if pi.response(name, PATIENCE)["success"]:
            self.ledger.texts.append(f"again {number}")
        self._calm()
        if len(self.home.session().of_type(MARKER)) != markers + 1:
            lost.append(f"the next rollover did not work: {notices(pi, 'error')[-1:]}")
        lost += [f"an extension threw: {event['error']}" for event in pi.extension_errors]
        return [*lost, *self._losses("after one more rollover")]


def losses(file: Path, ledger: Ledger) -> list[str]:
    """What the file has lost, of all that must be there once Pi has recovered or ended.

    Nothing is lost when
    - the file only grew: it begins with what it held before, byte for byte, and no entry hangs from a missing one;
    - every user text that Pi accepted is in it, unless a killed Pi held it unsent, and history finds each one;
    - every message that ever was in it is an item of a window that history lists, archived or current;
    - every archived window is listed with a sealed, readable archive, and each of its items reads whole page by page;
    - a summary of ours on the active branch is followed by its manifest, snapshot and marker: the old window or the
      sealed new one, never between;
    - no window has two markers;
    - the notes are what the model was told that it wrote, in order, each line once.
    """
    lost: list[str] = []
    data = file.read_bytes()
    if not data.startswith(ledger.bytes):
        lost.append("the file did not only grow")
    with opened(file) as (tree, branch, entries):
        archives = ArchiveIndex(tree).of(branch)
        shelf = history.shelf(tree, branch, archives)
        lost += _missing_parents(entries)
        lost += _missing_texts(shelf, entries, ledger)
        lost += _unreachable(shelf, tree, branch)
        lost += _unreadable(shelf, archives)
        lost += _unsealed(branch, archives)
        lost += _markers_twice(tree)
        lost += _wrong_notes(tree, branch, ledger)
    return lost


@contextmanager
def opened(file: Path) -> Iterator[tuple[Tree, Branch, list[Json]]]:
    """The session as the daemon reads it, at the leaf where Pi would go on."""
    journal = Journal(file)
    try:
        tree = Tree(journal.raw, journal.scan)
        journal.refresh(tree)
        entries = [json.loads(line) for line in file.read_bytes().split(b"\n")[1:-1]]
        yield tree, tree.branch(journal.leaf), entries
    finally:
        journal.close()


def _missing_parents(entries: list[Json]) -> Iterator[str]:
    ids = {entry["id"] for entry in entries}
    for entry in entries:
        if entry["parentId"] is not None and entry["parentId"] not in ids:
            yield f"the parent of {entry_type(entry)} {entry['id']} is not in the file"


def _missing_texts(shelf: Shelf, entries: list[Json], ledger: Ledger) -> Iterator[str]:
    there = user_texts(entries)
    for text in ledger.texts:
        if text not in there:
            if text not in ledger.unsent:
                yield f"the text {text!r} that Pi had accepted is not in the file"
        elif not history.run(shelf, HistoryArguments(action="search_contents", query=text))["items"]:
            yield f"history does not find the text {text!r}"


def _unreachable(shelf: Shelf, tree: Tree, branch: Branch) -> Iterator[str]:
    listed = {head.id for window in shelf.windows for head in window.items}
    before = next((at for at, head in enumerate(branch.heads) if identity_of(tree, head) is not None), 0)
    listed |= {head.id for head in branch.heads[:before]}
    # The last answer on the branch is what would make the call, and so no history yet.
    last = branch.last(lambda head: head.type == "message" and head.kind == "assistant")
    for head in tree.heads.values():
        # An answer that tells of an error has no content that could be lost.
        empty = head.kind == "assistant" and head.tag in ("error", "aborted")
        if is_item(head) and head.id not in listed and head is not last and not empty:
            yield f"the {head.kind} message {head.id} is in no window"


def _unreadable(shelf: Shelf, archives: Sequence[object]) -> Iterator[str]:
    for archive in archives:
        if not isinstance(archive, Archive):
            yield f"an archive is unavailable: {archive}"
    for missing in shelf.missing:
        yield f"window {missing.id} is missing: {missing.why}"
    for window in shelf.windows:
        summary = [window.summary] if window.summary is not None else []
        for head in [*summary, *(head for head in window.items if is_item(head))]:
            whole = render(window.tree, head)
            if whole is None or _paged(shelf, window.id, head.id) != whole.text:
                yield f"item {head.id} of window {window.id} does not read whole"


def _paged(shelf: Shelf, window_id: str, item_id: str) -> str | None:
    text, offset = "", 0
    while True:
        place: Mapping[str, Any] = {"window_id": window_id, "item_id": item_id, "offset_chars": offset}
        item = history.run(shelf, HistoryArguments(action="read_item", **place))["item"]
        if item is None:
            return None
        text += str(item["content"])
        if "next_offset_chars" not in item:
            return text
        offset = item["next_offset_chars"]


def _unsealed(branch: Branch, archives: Sequence[object]) -> Iterator[str]:
    sealed = {archive.summary.id for archive in archives if isinstance(archive, Archive) and archive.sealed}
    for head in branch.heads:
        if head.type == "branch_summary" and head.id not in sealed:
            yield f"the summary {head.id} on the active branch has no sealed archive"
    for at, head in enumerate(branch.heads):
        if head.kind == _ARCHIVE and SNAPSHOT not in [f"custom/{one.kind}" for one in branch.heads[at:]]:
            yield f"no snapshot follows the manifest {head.id}"


def _markers_twice(tree: Tree) -> Iterator[str]:
    identities = [identity_of(tree, head) for head in tree.ours[_MARKER]]
    windows = [identity.current_window_id for identity in identities if identity is not None]
    for window in {one for one in windows if windows.count(one) > 1}:
        yield f"window {window} has {windows.count(window)} markers"


def _wrong_notes(tree: Tree, branch: Branch, ledger: Ledger) -> Iterator[str]:
    note = Notes.of(tree, branch).files.get(f"/root/notes/{NOTES}")
    lines = [] if note is None else note.text.split("\n")[:-1]
    due = [line for line, seen in ledger.notes.items() if seen or (seen is None and line in lines)]
    if lines != due:
        odd = [line for line in lines if line not in due or lines.count(line) > 1]
        yield f"the notes lack {[line for line in due if line not in lines]} and have {odd} that they should not"
    for line in due:
        ledger.notes[line] = True


def hidden_and_shown(home: PiHome, file: Path) -> list[str]:
    """Whether the last request showed just the summaries that no valid successor stands for."""
    request = "\n".join(home.requests("main")[-1].texts)
    with opened(file) as (tree, branch, entries):
        text_of = {entry["id"]: entry["summary"] for entry in entries if entry["type"] == "branch_summary"}
        archives = ArchiveIndex(tree).of(branch)
        sealed = {archive.summary.id for archive in archives if isinstance(archive, Archive) and archive.sealed}
        return [
            f"the summary {head.id} is {'shown' if head.id in sealed else 'hidden and unreadable'}"
            for head in branch.heads
            if head.type == "branch_summary" and (text_of[head.id] in request) == (head.id in sealed)
        ]


def user_texts(entries: Sequence[Json]) -> set[str]:
    return {message_text(entry["message"]) for entry in entries if entry_type(entry) == "message/user"}


def content_text(content: Any) -> str:
    return message_text({"content": content})


def endure(home: PiHome, points: Sequence[Point], keep: Path | None = None) -> Iterator[tuple[Point, Fate]]:
    """One life: these points in a row, until something is lost. A file that lost is copied to `keep`."""
    life = Life(home)
    try:
        for point in sorted(points, key=lambda point: not point.first):
            try:
                fate = life.suffer(point)
            except (AssertionError, TimeoutError, PiEndedError, MissedError) as error:
                fate = Fate("went on", [f"{type(error).__name__}: {error}"[:3_000]])
            if fate.lost and keep is not None and home.session_files():
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(life.file, keep / f"{home.version} {point}.jsonl")
            yield point, fate
            if fate.lost:
                return
    finally:
        life.close()
