"""Whole sessions in any order of events: Pi, the extension, the daemon's session, and a real file between them.

Anything may fail or die at any point. What must hold nevertheless are the invariants of the machine; they are told by
models that know nothing of the product: who typed what, a dict of notes, and lists of what each window held.
"""

import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import FACTS, SESSION_ID, Failure, Json, KilledError, Player, outline_item
from daemon.journal import Journal
from daemon.lineage import MAX_DEPTH, Lineage
from disk import FilePi
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, NOTE, NOTE_SNAPSHOT, WINDOW
from state.archive import Archive
from state.errors import NotAllowedError, StateError
from state.moment import Moment
from state.session import PROJECTIONS, Search, Session
from state.tree import Tree

EXAMPLES = int(os.environ.get("WHOLE_SESSION_EXAMPLES", "100"))
STEPS = 40

ANSWERS_TO_FAILURE = 3
"""How often the extension asks what to do instead (shim/index.ts)."""

APPENDS = ("append_entry", "append_message", "append_thinking_level", "append_model")
BOMBS = ("pi dies", "append throws", "daemon dies before", "daemon dies after")


@dataclass
class Bomb:
    """Goes off when so many effects or events have passed, and again at once until its `times` are spent."""

    kind: str
    left: int
    times: int = 1


class FilePlayer(Player):
    """A `Player` whose daemon reads the session's file, and whose extension behaves as the one in shim/.

    `during` happens once, while Pi summarises. `archived` is what each summary was made of: the ids from the cut on.
    """

    def __init__(self, pi: FilePi, mode: str = "tree") -> None:
        self.file = pi.file
        self.mode = mode
        self.journal: Journal | None = None
        self.instance = 0
        self.bomb: Bomb | None = None
        self.during: Callable[[], None] | None = None
        self.archived: dict[str, list[str]] = {}
        self.started: Counter[str] = Counter()
        self.resent: list[str] = []
        super().__init__(pi)

    def restart_daemon(self) -> None:
        self.close()
        self.journal = Journal(self.file)
        self.lineage = Lineage(self.journal)
        self.tree = Tree(self.journal.raw, self.journal.scan)
        self.session = Session(SESSION_ID, self.tree, ui=self.ui, mode=self.mode, ancestors=self.lineage.ancestors)

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
            self.lineage.close()

    def send(self, event_type: type[ev.SessionEvent], **fields: Any) -> fx.Reply:
        reply = self.ask_session(self._event(event_type, fields))
        assert isinstance(reply, fx.Reply)
        return reply

    def ask_session(self, event: ev.SessionEvent) -> fx.Reply | Search:
        """One event. Whatever is refused changes nothing."""
        assert self.journal is not None
        if self.journal.refresh(self.tree):
            self.session.forget()
        session = self.session
        branch = self.tree.branch(event.leaf_id)
        assert branch.complete
        session.windows.observe(branch)  # what the file tells counts, whatever the event is
        before = (session.rollover, session.windows.last_error, session._reminded, session._cold, session._shake)
        try:
            return session.handle(event, Moment(now=self.pi.clock, new_id=self.new_id, host=FACTS))
        except StateError:
            assert (
                session.rollover,
                session.windows.last_error,
                session._reminded,
                session._cold,
                session._shake,
            ) == before
            raise

    def _event(self, event_type: type[ev.SessionEvent], fields: Json) -> ev.SessionEvent:
        return event_type(session_id=SESSION_ID, leaf_id=self.pi.leaf, **fields)

    def tell(self, event_type: type[ev.SessionEvent], **fields: Any) -> fx.Reply:
        """A daemon that dies over an event is asked once more, started anew."""
        event = self._event(event_type, fields)
        if self._goes_off("daemon dies before"):
            self._restart()
        elif self._goes_off("daemon dies after"):
            self.ask_session(event)
            self._restart()
        reply = self.ask_session(event)
        assert isinstance(reply, fx.Reply)
        self.perform(reply.effects)
        return reply

    def _restart(self) -> None:
        self.restart_daemon()
        self.start("resync")

    def _goes_off(self, kind: str) -> bool:
        bomb = self.bomb
        if bomb is None or bomb.kind != kind:
            return False
        if bomb.left > 0:
            bomb.left -= 1
            return False
        bomb.times -= 1
        if bomb.times == 0:
            self.bomb = None
        return True

    def perform(self, effects: Iterable[fx.AnyEffect]) -> None:
        failed = self._until_one_throws(effects)
        for _ in range(ANSWERS_TO_FAILURE):
            if failed is None:
                return
            instead = self.send(ev.EffectFailed, effect=failed, error="ENOSPC")
            failed = self._until_one_throws(instead.effects)
        if failed is not None:
            self._release()

    def _until_one_throws(self, effects: Iterable[fx.AnyEffect]) -> str | None:
        instance = self.instance
        for effect in effects:
            if self.instance != instance:
                return None
            if self._goes_off("pi dies"):
                raise KilledError
            name = str(effect.__struct_config__.tag)
            if name in APPENDS and self._goes_off("append throws"):
                return name
            self.performed.append(effect)
            self._perform(effect)
        return None

    def _perform(self, effect: fx.AnyEffect) -> None:
        if isinstance(effect, fx.AppendMessage) and effect.start_turn:
            self.started[msgspec.to_builtins(effect.details)["contextManagement"]["currentWindowId"]] += 1
        if isinstance(effect, fx.Resend):
            self.resent += effect.entry_ids
        super()._perform(effect)
        if isinstance(effect, fx.ReleaseInput):
            self.in_flight = None

    def _release(self) -> None:
        super()._release()
        self.in_flight = None

    def _navigate(self, effect: fx.Navigate) -> None:
        instance, old = self.instance, self.pi.leaf
        during = self.during if effect.summarize else None
        if effect.intent_id is not None:
            self.in_flight = effect.intent_id
        if during is not None:
            self.during = None
            during()
        failure = self.fails if effect.summarize else None
        outcome: Json = {}
        match failure:
            case "error":
                outcome = {"error": "Branch summarization failed: boom"}
            case "cancelled":
                outcome = {"cancelled": True}
            case "write":
                self.pi.leaf = self.pi.entry(effect.target_id)["parentId"]
                outcome = {"error": "ENOSPC: no space left on device"}
            case None if effect.target_id != self.pi.leaf:
                in_flight = None if effect.intent_id is None else ev.InFlight(effect.intent_id)
                self.travel(effect.target_id, summarize=effect.summarize, in_flight=in_flight)
        if effect.summarize:
            self.fails = None
        if self.instance == instance or self.in_flight == effect.intent_id:
            self.tell(ev.Navigated, intent_id=effect.intent_id, old_leaf_id=old, **outcome)

    def travel(self, target_id: str, *, summarize: bool, in_flight: ev.InFlight | None = None) -> fx.TreeReply:
        old, branch = self.pi.leaf, [entry["id"] for entry in self.pi.branch()]
        made = self.pi.navigate(target_id, summarize=summarize)
        if made is not None and target_id in branch:
            self.archived[made["id"]] = branch[branch.index(target_id) :]
        summary = None if made is None else ev.SummaryRef(made["id"], made["fromId"], made["parentId"])
        reply = self.tell(ev.SessionTree, old_leaf_id=old, summary=summary, in_flight=in_flight)
        assert isinstance(reply, fx.TreeReply)
        return reply

    def reload(self) -> None:
        """`/reload`: the instance is replaced, its memory is gone, what is process-wide stays."""
        self.instance += 1
        self.start("reload")

    def successor(self, pi: FilePi) -> "FilePlayer":
        """The player of another process, or of another session in this one; what the models know is kept."""
        self.close()
        after = FilePlayer(pi, self.mode)
        after.new_id, after.archived, after.started, after.resent = (
            self.new_id,
            self.archived,
            self.started,
            self.resent,
        )
        return after

    def newcomer(self) -> "FilePlayer":
        """Another daemon that looks at the same file and leaf, to ask it without disturbing the one at work."""
        return FilePlayer(self.pi, self.mode)  # type: ignore[arg-type]  # it is a FilePi


class WholeSession(RuleBasedStateMachine):
    """What people, the model, Pi and the daemon do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.files = (Path(self.folder.name) / f"{number}.jsonl" for number in itertools.count())
        self.texts = (f"text {number}." for number in itertools.count())
        self.running = False
        self.forks = 0
        self.typed: list[str] = []
        self.delivered = 0
        self.written: dict[str, tuple[str, str, str]] = {}

    def teardown(self) -> None:
        self.player.close()
        self.folder.cleanup()

    @initialize(mode=st.sampled_from(["tree", "tree", "tree", "local"]))
    def begin(self, mode: str) -> None:
        self.player = FilePlayer(FilePi(next(self.files)), mode)
        self.player.pi.model("fake", "fake-1")
        self.player.pi.thinking("medium")
        self.start("startup")

    # Dying and starting

    def alive(self, action: Callable[[], object]) -> None:
        """Do something; should Pi die over it, another process opens the file."""
        try:
            action()
        except KilledError:
            self.reopen()

    def reopen(self, reason: ev.StartReason = "startup") -> None:
        pi = self.player.pi
        assert isinstance(pi, FilePi)
        bomb = self.player.bomb
        self.player = self.player.successor(pi.reopened())
        self.player.bomb = bomb
        self.running, self.typed, self.delivered = False, [], 0
        self.start(reason)

    def start(self, reason: ev.StartReason) -> None:
        """However a session starts: a second start, in this or another process, changes nothing."""
        player = self.player
        armed = player.bomb is not None
        try:
            player.start(reason)
        except KilledError:
            self.reopen()
            return
        if not armed and not self.running:
            entries, phase = list(player.pi.entries), player.phase
            assert player.send(ev.SessionStart, reason=reason).effects == [fx.Capture()]
            assert (player.pi.entries, player.phase) == (entries, phase)

    @rule(reason=st.sampled_from(["startup", "resume"]))
    def another_process_opens_it(self, reason: ev.StartReason) -> None:
        self.reopen(reason)

    @precondition(lambda self: not self.running and self.forks < MAX_DEPTH)
    @rule()
    def it_is_forked(self) -> None:
        """In this process: what is held stays in the slot, what waits to be sent went to the old session."""
        self.forks += 1
        old = self.player
        assert isinstance(old.pi, FilePi)
        new = old.successor(old.pi.fork(next(self.files)))
        new.holding, new.held, new.sent, new.in_flight = old.holding, old.held, old.sent, None
        new.bomb = old.bomb
        self.player = new
        self.start("fork")

    @rule()
    def the_daemon_is_restarted(self) -> None:
        self.player.restart_daemon()
        self.start("resync")

    @rule()
    def the_extension_is_reloaded(self) -> None:
        self.player.instance += 1
        self.start("reload")

    # What goes wrong later

    @rule(kind=st.sampled_from(BOMBS), left=st.integers(0, 12), times=st.integers(1, 3))
    def a_bomb_is_laid(self, kind: str, left: int, times: int) -> None:
        self.player.bomb = Bomb(kind, left, times if kind == "append throws" else 1)

    @rule(failure=st.sampled_from(["error", "cancelled", "no summary", "write"]))
    def the_next_summary_fails(self, failure: Failure) -> None:
        self.player.fails = failure

    @rule(
        happens=st.sampled_from(
            ["reload", "daemon", "entry", "typing", "death", "other", "context", "compaction", "typing and reload"]
        )
    )
    def something_happens_during_the_next_summary(self, happens: str) -> None:
        player = self.player

        def during() -> None:
            if "typing" in happens:
                self.types()
            match happens.rpartition(" ")[2]:
                case "reload":
                    player.reload()
                case "daemon":
                    player._restart()
                case "entry":
                    player.pi.custom("foreign", {})
                case "other":
                    player.pi.custom_message("foreign", "foreign", {})
                case "death":
                    raise KilledError
                case "context":
                    player.look()
                case "compaction":
                    assert player.send(ev.SessionBeforeCompact) == fx.Verdict(cancel=True)

        player.during = during

    # People

    def types(self) -> None:
        text = next(self.texts)
        self.typed.append(text)
        self.player.type(text)

    @rule()
    def a_person_types(self) -> None:
        self.types()

    @precondition(lambda self: not self.running and self.delivered < len(self.player.sent))
    @rule()
    def what_was_sent_is_answered(self) -> None:
        text = self.player.sent[self.delivered]
        self.delivered += 1
        self.alive(lambda: self.player.work(text))

    @precondition(lambda self: not self.running)
    @rule(data=st.data(), summarize=st.booleans())
    def a_person_goes_elsewhere(self, data: st.DataObject, summarize: bool) -> None:  # noqa: FBT001
        entries = self.player.pi.entries
        back = data.draw(st.integers(1, min(12, len(entries))))
        target = entries[-back]
        if target["id"] != self.player.pi.leaf and (target.get("message") or {}).get("role") != "toolResult":
            self.alive(lambda: self.player.travel(target["id"], summarize=summarize))

    @rule()
    def a_person_asks_for_a_new_window(self) -> None:
        idle = not self.running
        self.alive(lambda: self.player.command("rollover", idle=idle))

    @rule()
    def another_extension_writes(self) -> None:
        pi = self.player.pi
        pi.custom("foreign", {"a": 1})
        pi.thinking(next(self.texts))
        pi.custom_message("foreign", "foreign", {})

    # The model

    @precondition(lambda self: not self.running)
    @rule()
    def a_run_begins(self) -> None:
        if self.player.holding:
            return
        self.running = True
        self.player.pi.user("task")
        self.player.look()

    @precondition(lambda self: self.running)
    @rule()
    def the_model_uses_a_tool(self) -> None:
        self.player.pi.assistant("", stop="toolUse", call="bash")
        self.player.pi.tool_result("bash", next(self.texts))

    @precondition(lambda self: self.running)
    @rule(action=st.sampled_from(["append_to_file", "write_file"]), path=st.sampled_from(["plan.md", "log.md"]))
    def the_model_takes_a_note(self, action: str, path: str) -> None:
        player, text = self.player, next(self.texts)
        length = len(player.pi.entries)
        arguments = {"action": action, "path": path, "text": text}
        self.alive(lambda: player.tell(ev.ToolExecute, tool="notes", call_id="c", arguments=arguments))
        for entry in player.pi.entries[length:]:
            if entry.get("customType") == NOTE:
                self.written[entry["id"]] = (action, f"/root/notes/{path}", text)

    @precondition(lambda self: self.running)
    @rule()
    def the_model_asks_for_a_new_window(self) -> None:
        self.alive(self.player.ask)

    @precondition(lambda self: self.running)
    @rule()
    def a_person_steers(self) -> None:
        self.player.pi.user(next(self.texts))

    @precondition(lambda self: self.running)
    @rule(aborted=st.booleans())
    def pi_settles(self, aborted: bool) -> None:  # noqa: FBT001
        self.running = False
        self.player.pi.assistant("", stop="aborted") if aborted else self.player.pi.assistant("done")
        self.alive(lambda: self.player.settle(aborted=aborted))

    @precondition(lambda self: not self.running and self.player.turns_due)
    @rule()
    def the_new_window_has_its_turn(self) -> None:
        self.alive(self.player.turn)

    # The protocol

    @rule(data=st.data())
    def an_event_comes_that_nothing_calls_for(self, data: st.DataObject) -> None:
        player, pi = self.player, self.player.pi
        known = [str(intent["intentId"]) for intent in player.intents() if intent["step"] == "request"]
        one = st.sampled_from([*known, "unheard-of", None])
        leaf = pi.leaf
        summaries = [entry for entry in pi.entries if entry["type"] == "branch_summary"]
        again = None
        if summaries:
            last = data.draw(st.sampled_from(summaries))
            again = ev.SummaryRef(last["id"], last["fromId"], last["parentId"])
        intent = data.draw(one)
        odd: list[tuple[type[ev.SessionEvent], Json]] = [
            (ev.Context, {"count": 3}),
            (ev.SessionBeforeCompact, {}),
            (ev.Navigated, {"intent_id": intent, "old_leaf_id": leaf}),
            (ev.Navigated, {"intent_id": intent, "old_leaf_id": leaf, "cancelled": True}),
            (ev.Navigated, {"intent_id": intent, "old_leaf_id": leaf, "error": "boom"}),
            (ev.SessionTree, {"old_leaf_id": leaf, "summary": again}),
            (ev.SessionTree, {"old_leaf_id": leaf, "summary": None}),
            (ev.ToolExecute, {"tool": "nothing", "call_id": "c"}),
            (ev.EffectFailed, {"effect": data.draw(st.sampled_from(APPENDS)), "error": "boom"}),
        ]
        if not self.running:
            odd.append((ev.AgentSettled, {}))
        event_type, fields = data.draw(st.sampled_from(odd))
        length, armed = len(pi.entries), player.bomb is not None

        def tell() -> None:
            try:
                player.tell(event_type, **fields)
            except NotAllowedError:
                assert armed or len(pi.entries) == length

        self.alive(tell)

    # What must hold

    @invariant()
    def a_window_is_opened_once_and_started_once(self) -> None:
        opened = Counter(
            entry["details"]["contextManagement"]["currentWindowId"]
            for entry in self.player.pi.entries
            if entry.get("customType") == WINDOW
        )
        assert max(opened.values(), default=0) <= 1
        assert max(self.player.started.values(), default=0) <= 1

    @invariant()
    def a_marker_follows_its_manifest_and_its_snapshot(self) -> None:
        if self.player.mode != "tree":
            return
        by_id = {entry["id"]: entry for entry in self.player.pi.entries}
        following = {intent["next"]["currentWindowId"] for intent in self.player.intents() if "next" in intent}
        for entry in self.player.pi.entries:
            if entry.get("customType") != WINDOW:
                continue
            if entry["details"]["contextManagement"]["currentWindowId"] in following:
                kinds = []
                at = by_id.get(entry["parentId"])
                while at is not None and at["type"] != "branch_summary":
                    kinds.append(at.get("customType"))
                    at = by_id.get(at["parentId"])
                assert at is not None
                assert {ARCHIVE, NOTE_SNAPSHOT} <= set(kinds)

    @invariant()
    def nothing_typed_is_lost(self) -> None:
        player = self.player
        for text in self.typed:
            assert player.held.count(text) + player.sent.count(text) <= 1 or player.resent
            assert text in player.held or text in player.sent or text in player.pi.editor

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        if self.running:
            return
        player = self.player
        assert not player.holding
        assert player.held == []
        assert player.phase in ("idle", "continuing", "sealing")
        assert player.turns_due or player.phase == "idle" or player.started

    @invariant()
    def what_is_hidden_can_be_read_and_what_was_sealed_is_hidden(self) -> None:
        if self.player.mode != "tree":
            return
        with_newcomer = self.player.newcomer()
        try:
            self.check_archives(with_newcomer)
        finally:
            with_newcomer.close()

    def check_archives(self, probe: FilePlayer) -> None:
        pi, live = self.player.pi, self.player
        branch = pi.branch()
        shown = [entry for entry in branch if entry["type"] in ("message", "custom_message", "branch_summary")]
        outline = [item for at, entry in enumerate(shown) if (item := outline_item(at, entry)) is not None]
        event = ev.Context(session_id=SESSION_ID, leaf_id=pi.leaf, count=len(shown), outline=outline)
        ranges = []
        for player in (probe, live):
            assert player.journal is not None
            player.journal.refresh(player.tree)
            ranges.append(PROJECTIONS["tree"](player.session, event, player.tree.branch(pi.leaf)))
        assert ranges[0] == ranges[1], "a restarted daemon shows the model the same"
        kept = set(range(len(shown)))
        if ranges[0] is not None:
            kept = {at for start, end in ranges[0] for at in range(start, end)}
        hidden = {entry["id"] for at, entry in enumerate(shown) if at not in kept}
        archives = {
            archive.summary.id: archive
            for archive in probe.session.archives.of(probe.tree.branch(pi.leaf))
            if isinstance(archive, Archive)
        }
        manifests = {entry["data"]["summaryEntryId"] for entry in branch if entry.get("customType") == ARCHIVE}
        last_marker = max((at for at, entry in enumerate(branch) if entry.get("customType") == WINDOW), default=-1)
        sealed = {
            entry["data"]["summaryEntryId"] for entry in branch[: last_marker + 1] if entry.get("customType") == ARCHIVE
        }
        assert hidden == sealed
        assert manifests == set(archives)
        for summary_id, archive in archives.items():
            assert self.items(probe, archive.window_id) == [summary_id, *self.expected_items(summary_id)]

    def expected_items(self, summary_id: str) -> list[str]:
        by_id = {entry["id"]: entry for entry in self.everything()}
        return [
            entry_id
            for entry_id in self.player.archived[summary_id]
            if by_id[entry_id]["type"] == "message"
            or (by_id[entry_id]["type"] == "custom_message" and by_id[entry_id]["customType"] != WINDOW)
        ]

    def everything(self) -> list[Json]:
        """All entries of this session and of those that it was forked from."""
        lines = itertools.chain.from_iterable(
            file.read_bytes().split(b"\n")[1:] for file in sorted(Path(self.folder.name).iterdir())
        )
        return [json.loads(line) for line in lines if line]

    def call(self, probe: FilePlayer, tool: str, **arguments: Any) -> Json:
        event = ev.ToolExecute(
            session_id=SESSION_ID, leaf_id=self.player.pi.leaf, tool=tool, call_id="c", arguments=arguments
        )
        answer = probe.ask_session(event)
        reply = answer.answer(lambda: False) if isinstance(answer, Search) else answer
        assert isinstance(reply, fx.ToolReply)
        assert not reply.is_error, reply.text
        result: Json = json.loads(reply.text)
        return result

    def items(self, probe: FilePlayer, window_id: str) -> list[str]:
        """Over all pages."""
        found: list[str] = []
        cursor: Json = {}
        while True:
            page = self.call(probe, "history", action="list_items", window_id=window_id, limit=4, **cursor)
            found += [item["item_id"] for item in page["items"]]
            if not page.get("has_more"):
                return found
            cursor = {"cursor": page["next_cursor"]}

    @invariant()
    def notes_are_as_they_were_written(self) -> None:
        probe = self.player.newcomer()
        try:
            listed = self.call(probe, "notes", action="list_files_by_prefix")["files"]
            found = {
                file["path"]: self.call(probe, "notes", action="read_file", path=file["path"])["file"]["content"]
                for file in listed
            }
        finally:
            probe.close()
        assert found == self.expected_notes(self.player.pi.leaf)

    def expected_notes(self, leaf: str | None) -> dict[str, str]:
        """A snapshot carries on what was in force where its summary came from."""
        by_id = {entry["id"]: entry for entry in self.everything()}
        writes: list[tuple[str, str, str]] = []
        at = leaf
        snapshot = False
        while at is not None:
            entry = by_id[at]
            if snapshot and entry["type"] == "branch_summary":
                at, snapshot = entry["fromId"], False
                continue
            if not snapshot and at in self.written:
                writes.append(self.written[at])
            snapshot = snapshot or entry.get("customType") == NOTE_SNAPSHOT
            at = entry["parentId"]
        found: dict[str, str] = {}
        for action, path, text in reversed(writes):
            found[path] = text if action == "write_file" else found.get(path, "") + text
        return found


TestWholeSession = WholeSession.TestCase
TestWholeSession.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
