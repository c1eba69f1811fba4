"""Pi without Pi: sessions made entry by entry, and a player that does with a reply what Pi and its extension do.

Entry shapes are those of real files (facts: pi-lifecycle 15), navigation follows Pi's rules (facts: pi-lifecycle 5).
Nothing here may know what a reply ought to be: that is what the tests say.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, INTENT, NOTE_SNAPSHOT, WINDOW, EntryHead
from protocol.status import Versions
from state.moment import HostFacts, Moment
from state.session import Session
from state.tree import Tree

Json = dict[str, Any]

SESSION_ID = "01a22cc6-3957-7094-9bbc-9291af00941c"
START = 1_796_047_518_000
PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
SHOWN = ("message", "custom_message", "branch_summary")
FACTS = HostFacts(Versions("0.1.0", 1, "1.6.0", "3.11"), {}, {})


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def uuids() -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012d}"


def line_of(entry: object) -> bytes:
    return msgspec.json.encode(entry)


def head_of(entry: Json, offset: int = -1, length: int = 0) -> EntryHead:
    """What the index holds of an entry, told once more and as plainly as can be."""
    message = entry.get("message") or {}
    tag = {
        "branch_summary": entry.get("fromId", ""),
        "thinking_level_change": entry.get("thinkingLevel", ""),
        "context_edit": entry.get("targetId", ""),
        "compaction": entry.get("firstKeptEntryId") or "",
        "model_change": f"{entry['provider']}/{entry['modelId']}" if {"provider", "modelId"} <= entry.keys() else "",
        "custom_message": "text" if isinstance(entry.get("content"), str) else "",
        "message": message.get("toolName" if message.get("role") == "toolResult" else "stopReason", ""),
    }.get(entry["type"], "")
    kind = message.get("role") or entry.get("customType", "")
    return EntryHead(entry["id"], entry.get("parentId"), entry["type"], kind, tag, offset, length)


def tree_of(entries: Iterable[Json]) -> Tree:
    """A tree of these entries, with their bodies in memory."""
    entries = list(entries)
    lines = {entry["id"]: line_of(entry) for entry in entries}
    tree = Tree(lambda head: lines.get(head.id))
    tree.add(head_of(entry) for entry in entries)
    return tree


def chain_of(entries: Iterable[Json]) -> list[Json]:
    """The entries with each one hung from the one before."""
    chained: list[Json] = []
    for entry in entries:
        chained.append({**entry, "parentId": chained[-1]["id"] if chained else None})
    return chained


def identity(number: int, *, kind: str = "window") -> Json:
    previous = {"previousWindowId": f"window-{number - 1}"} if number else {}
    ids = {"firstWindowId": "window-0", "currentWindowId": f"window-{number}"}
    return {"protocol": 1, "kind": kind, **ids, **previous, "windowNumber": number}


def marker_details(number: int, *, kind: str = "window") -> Json:
    return {"protocol": 1, "id": f"marker-{number}", "contextManagement": identity(number, kind=kind)}


class PiSession:
    """A session as Pi holds it: entries, leaf, editor."""

    def __init__(self) -> None:
        self.entries: list[Json] = []
        self.leaf: str | None = None
        self.editor = ""
        self.clock = START
        self._ids = itertools.count(0xA0000001)

    def header(self) -> Json:
        return {"type": "session", "version": 3, "id": SESSION_ID, "timestamp": iso(START), "cwd": "/project"}

    def entry(self, entry_id: str) -> Json:
        return next(entry for entry in reversed(self.entries) if entry["id"] == entry_id)

    def append(self, entry_type: str, *, parent: str | None = "", **fields: Any) -> str:
        """Append below the leaf, or below `parent` when one is given."""
        self.clock += 1000
        entry_id = f"{next(self._ids):08x}"
        where = self.leaf if parent == "" else parent
        entry = {"type": entry_type, "id": entry_id, "parentId": where, "timestamp": iso(self.clock), **fields}
        self.entries.append(entry)
        self.leaf = entry_id
        return entry_id

    def message(self, role: str, content: Any, **fields: Any) -> str:
        return self.append("message", message={"role": role, "content": content, **fields, "timestamp": self.clock})

    def user(self, text: str) -> str:
        return self.message("user", [{"type": "text", "text": text}])

    def assistant(self, text: str = "done", *, stop: str = "stop", call: str | None = None) -> str:
        content: list[Json] = [{"type": "text", "text": text}] if text else []
        if call is not None:
            content.append({"type": "toolCall", "id": f"call_{call}", "name": call, "arguments": {}})
        return self.message("assistant", content, stopReason=stop)

    def tool_result(self, tool: str, text: str) -> str:
        content = [{"type": "text", "text": text}]
        return self.message("toolResult", content, toolCallId=f"call_{tool}", toolName=tool, isError=False)

    def custom(self, custom_type: str, data: Any) -> str:
        return self.append("custom", customType=custom_type, data=data)

    def custom_message(self, custom_type: str, content: Any, details: Any = None) -> str:
        return self.append("custom_message", customType=custom_type, content=content, display=True, details=details)

    def marker(self, number: int, *, kind: str = "window") -> str:
        return self.custom_message(WINDOW, f"WINDOW {number}", marker_details(number, kind=kind))

    def overlay(self, target_id: str, content: Any) -> str:
        """Let the model see this content in place of the target's, or nothing for None."""
        return self.append(
            "context_edit", targetId=target_id, replacement=None if content is None else {"content": content}
        )

    def compact(self, kept: str | None, text: str = "what happened") -> str:
        """Compact everything before this entry, or all of it for None."""
        return self.append("compaction", summary=text, firstKeptEntryId=kept, tokensBefore=1)

    def thinking(self, level: str) -> str:
        return self.append("thinking_level_change", thinkingLevel=level)

    def model(self, provider: str, model_id: str) -> str:
        return self.append("model_change", provider=provider, modelId=model_id)

    def summary(self, base: str | None, from_id: str | None, text: str = "what happened") -> str:
        return self.append("branch_summary", parent=base, fromId=from_id, summary=PREAMBLE + text, fromHook=False)

    def navigate(self, target_id: str, *, summarize: bool) -> Json | None:
        """Move the leaf as Pi's navigateTree does; the summary's entry, if one was made."""
        if target_id == self.leaf:
            return None
        old, target = self.leaf, self.entry(target_id)
        text = _editor_text(target)
        base = target_id if text is None else target["parentId"]
        self.leaf = base
        made = self.entry(self.summary(base, old)) if summarize else None
        if text is not None and not self.editor.strip():
            self.editor = text
        return made

    def branch(self) -> list[Json]:
        """From the root to the leaf."""
        by_id = {entry["id"]: entry for entry in self.entries}
        found: list[Json] = []
        at = self.leaf
        while at is not None and at in by_id:
            assert len(found) < len(self.entries), "the branch is a cycle"
            found.append(by_id[at])
            at = by_id[at]["parentId"]
        return found[::-1]

    def shape(self) -> list[str]:
        """The branch in words: custom types, roles, or else types."""
        return [
            entry.get("customType") or entry.get("message", {}).get("role") or entry["type"] for entry in self.branch()
        ]

    def last(self, custom_type: str) -> Json:
        """The youngest entry of this custom type, on any branch."""
        return next(entry for entry in reversed(self.entries) if entry.get("customType") == custom_type)

    def lines(self) -> list[bytes]:
        return [line_of(self.header()), *map(line_of, self.entries)]

    def write(self, path: Path) -> None:
        path.write_bytes(b"".join(line + b"\n" for line in self.lines()))


def roll_over(pi: PiSession, number: int, text: str = "what happened") -> str:
    """Window `number` is archived and the next one opened, as a rollover leaves them; the id of the summary."""
    markers = (entry for entry in pi.entries if entry.get("customType") == WINDOW)
    boundary = next(entry for entry in markers if entry["details"]["contextManagement"] == identity(number))
    old, base = pi.leaf, boundary["parentId"]
    summary = pi.summary(base, old, text)
    ids = {"boundaryEntryId": boundary["id"], "summaryEntryId": summary, "archivedLeafId": old, "branchBaseId": base}
    pi.custom(ARCHIVE, {"protocol": 1, "strategy": "codex-context-tree", "windowId": f"window-{number}", **ids})
    pi.custom(NOTE_SNAPSHOT, {"protocol": 1, "timestamp": 1, "files": []})
    pi.marker(number + 1)
    return summary


def _editor_text(entry: Json) -> str | None:
    if entry["type"] == "custom_message":
        return str(entry["content"])
    message = entry.get("message", {})
    if message.get("role") != "user":
        return None
    return "".join(block.get("text", "") for block in message["content"])


class KilledError(Exception):
    """Pi was killed in the middle of what it did."""


Failure = Literal["error", "cancelled", "no summary", "write"]


class Player:
    """Pi, the extension and a `Session`, so that whole rollovers run without a process.

    `fails` makes the next summarising navigation fail. `throws` names effects (`do`) that throw from now on, and
    `killed_before` an effect, or the custom type of an append, before which Pi dies.
    """

    def __init__(self, pi: PiSession | None = None, *, ui: ev.UiMode = "tui") -> None:
        self.pi = PiSession() if pi is None else pi
        self.ui = ui
        self.new_id = uuids()
        self.captured = False
        self.holding = False
        self.held: list[str] = []
        self.sent: list[str] = []
        self.notices: list[tuple[str, str]] = []
        self.emitted: list[Json] = []
        self.performed: list[fx.AnyEffect] = []
        self.turns_due = 0
        self.aborts = 0
        self.waits = 0
        self.in_flight: str | None = None
        self.fails: Failure | None = None
        self.during_summary: Callable[[], None] = lambda: None
        self.throws: set[str] = set()
        self.killed_before = ""
        self.restart_daemon()

    def restart_daemon(self) -> None:
        """Another daemon, which knows the file and nothing else."""
        self._lines: dict[str, bytes] = {}
        self.tree = Tree(lambda head: self._lines.get(head.id))
        self.session = Session(SESSION_ID, self.tree, ui=self.ui)
        self._known = 0

    def send(self, event_type: type[ev.SessionEvent], **fields: Any) -> fx.Reply:
        """Ask the session without performing what it answers."""
        for entry in self.pi.entries[self._known :]:
            self._lines[entry["id"]] = line_of(entry)
            self.tree.add([head_of(entry)])
        self._known = len(self.pi.entries)
        event = event_type(session_id=SESSION_ID, leaf_id=self.pi.leaf, **fields)
        reply = self.session.handle(event, Moment(now=self.pi.clock, new_id=self.new_id, host=FACTS))
        assert isinstance(reply, fx.Reply)
        return reply

    def tell(self, event_type: type[ev.SessionEvent], **fields: Any) -> fx.Reply:
        """Ask the session, and do as it says."""
        reply = self.send(event_type, **fields)
        self.perform(reply.effects)
        return reply

    def perform(self, effects: Iterable[fx.AnyEffect]) -> None:
        for effect in effects:
            name = str(effect.__struct_config__.tag)
            if self.killed_before in (name, getattr(effect, "custom_type", name)):
                raise KilledError
            if name in self.throws:
                self.tell(ev.EffectFailed, effect=name, error="ENOSPC")
                return
            if isinstance(effect, fx.ExpectLeaf) and effect.leaf_id != self.pi.leaf:
                self.tell(ev.EffectFailed, effect=name, error="the session went on meanwhile")
                return
            self.performed.append(effect)
            self._perform(effect)

    def _perform(self, effect: fx.AnyEffect) -> None:  # noqa: C901, PLR0912 - one case an effect
        match effect:
            case fx.Capture():
                self.captured = True
            case fx.AppendEntry():
                self.pi.custom(effect.custom_type, msgspec.to_builtins(effect.data))
            case fx.AppendMessage():
                details = msgspec.to_builtins(effect.details)
                self.pi.custom_message(effect.custom_type, effect.content, details)
                self.turns_due += effect.start_turn
                if effect.release_after == details["id"]:
                    self._release()
            case fx.AppendContextEdit():
                self.pi.overlay(effect.target_id, msgspec.json.decode(msgspec.json.encode(effect.replacement.content)))
            case fx.AppendThinkingLevel():
                self.pi.thinking(effect.level)
            case fx.AppendModel():
                self.pi.model(effect.provider, effect.model_id)
            case fx.Navigate():
                self._navigate(effect)
            case fx.Abort():
                self.aborts += 1
            case fx.HoldInput():
                self.holding = True
            case fx.ReleaseInput(to="run"):
                self._release()
            case fx.ReleaseInput():
                self.pi.editor = "\n\n".join([text for text in (self.pi.editor, *self.held) if text])
                self.holding, self.held = False, []
            case fx.Resend():
                self.held[:0] = [_editor_text(self.pi.entry(entry_id)) or "" for entry_id in effect.entry_ids]
            case fx.AwaitIdle():
                self.waits += 1
            case fx.SetEditor():
                self.pi.editor = effect.text if self.pi.editor == effect.if_text else self.pi.editor
            case fx.Notify():
                self.notices.append((effect.level, effect.text))
            case fx.Emit():
                self.emitted.append({"channel": effect.channel, **effect.data})

    def _release(self) -> None:
        self.sent += self.held
        self.holding, self.held = False, []

    def _navigate(self, effect: fx.Navigate) -> None:
        old, failure = self.pi.leaf, self.fails if effect.summarize else None
        in_flight = None if effect.intent_id is None else ev.InFlight(effect.intent_id)
        self.in_flight = effect.intent_id
        outcome: Json = {}
        self.during_summary()
        match failure:
            case "error":
                outcome = {"error": "Branch summarization failed: boom"}
            case "cancelled":
                outcome = {"cancelled": True}
            case "write":
                self.pi.leaf = self.pi.entry(effect.target_id)["parentId"]
                outcome = {"error": "ENOSPC: no space left on device"}
            case "no summary":
                pass
            case None if effect.target_id != old:
                self.travel(effect.target_id, summarize=effect.summarize, in_flight=in_flight)
        self.fails = None
        self.in_flight = None
        self.tell(ev.Navigated, intent_id=effect.intent_id, old_leaf_id=old, **outcome)

    def travel(self, target_id: str, *, summarize: bool, in_flight: ev.InFlight | None = None) -> fx.TreeReply:
        """Move the leaf and tell the session of it, as for any navigation, ours or the user's."""
        old = self.pi.leaf
        made = self.pi.navigate(target_id, summarize=summarize)
        summary = None if made is None else ev.SummaryRef(made["id"], made["fromId"], made["parentId"])
        reply = self.tell(ev.SessionTree, old_leaf_id=old, summary=summary, in_flight=in_flight)
        assert isinstance(reply, fx.TreeReply)
        return reply

    # What people and the model do

    def start(self, reason: ev.StartReason = "startup", **fields: Any) -> fx.Reply:
        in_flight = None if self.in_flight is None else ev.InFlight(self.in_flight)
        fields = {"in_flight": in_flight, "holding": self.holding, "held": len(self.held), **fields}
        return self.tell(ev.SessionStart, reason=reason, **fields)

    def type(self, text: str) -> None:
        """A person submits text."""
        (self.held if self.holding else self.sent).append(text)

    def work(self, text: str = "task") -> tuple[str, str]:
        """One prompt and its answer."""
        user = self.pi.user(text)
        self.look()
        answer = self.pi.assistant(f"answer to {text}")
        self.settle()
        return user, answer

    def turn(self) -> None:
        """The turn that a marker asked for."""
        self.turns_due -= 1
        self.look()
        self.pi.assistant("I go on.")
        self.settle()

    def settle(self, *, aborted: bool = False) -> fx.Reply:
        return self.tell(ev.AgentSettled, aborted=aborted, editor_text=self.pi.editor)

    def ask(self, *, captured: bool | None = None) -> fx.ToolReply:
        """The model calls new_context; the run ends with the empty message of an aborted turn."""
        self.pi.assistant("I need room.", stop="toolUse", call="new_context")
        reply = self.tell(
            ev.ToolExecute,
            tool="new_context",
            call_id="call_new_context",
            captured=self.captured if captured is None else captured,
        )
        assert isinstance(reply, fx.ToolReply)
        self.pi.tool_result("new_context", reply.text)
        if not reply.is_error:
            self.pi.assistant("", stop="aborted")
        return reply

    def rollover(self) -> None:
        """A whole rollover, up to the marker."""
        self.ask()
        self.settle(aborted=True)

    def command(self, args: str, *, idle: bool = True) -> fx.Reply:
        return self.tell(
            ev.Command, name="context", args=args, captured=self.captured, idle=idle, editor_text=self.pi.editor
        )

    def look(self) -> list[Json]:
        """A model request: the entries whose messages the model sees."""
        shown = [
            entry for entry in self.pi.branch() if entry["type"] in ("message", "custom_message", "branch_summary")
        ]
        outline = [item for at, entry in enumerate(shown) if (item := outline_item(at, entry)) is not None]
        reply = self.send(ev.Context, count=len(shown), outline=outline)
        assert isinstance(reply, fx.ContextReply)
        if reply.keep is None:
            return shown
        return [shown[at] for start, end in reply.keep for at in range(start, end)]

    def seen(self) -> list[str]:
        """What the model sees, in words."""
        return [
            entry.get("customType") or entry.get("message", {}).get("role") or entry["type"] for entry in self.look()
        ]

    @property
    def phase(self) -> str:
        return self.session.rollover.phase

    def intents(self) -> Iterator[Json]:
        return (entry["data"] for entry in self.pi.entries if entry.get("customType") == INTENT)


def outline_item(at: int, entry: Json) -> ev.OutlineItem | None:
    """What a `context` request tells of a message; None when it cannot matter."""
    if entry["type"] == "branch_summary":
        return ev.OutlineItem(
            at=at,
            role="branchSummary",
            from_id=entry["fromId"],
            timestamp=round(datetime.fromisoformat(entry["timestamp"]).timestamp() * 1000),
            hash=hashlib.sha256(entry["summary"].encode()).hexdigest()[:16],
        )
    if entry.get("customType") == WINDOW:
        return ev.OutlineItem(at=at, role="custom", custom_type=WINDOW, id=entry["details"]["id"])
    return None
