"""One session: the aggregate that answers every event, `handle(event, moment) -> reply`.

What a reply says is decided here and in the modules that this one calls; how it gets there is the daemon's
and the shim's affair. Every handler either answers or raises before it has changed anything. Who answers what
stands in the tables at the end; windows and rollovers are the coordinator's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from protocol import effects as fx
from protocol import events as ev
from protocol.entries import NOTE, EntryHead, SummaryEntry
from protocol.tools import HistoryArguments, NotesArguments
from state import commands, history, notes
from state.archive import Ancestors, Archive, ArchiveIndex
from state.arguments import parse
from state.budget import REMINDER, budget, reminder, sentence
from state.coordinator import Coordinator
from state.errors import NotAllowedError, RefusedError
from state.modes import DEFAULT, MODES
from state.moment import Effects, Moment
from state.notes import Notes
from state.projection import Ranges, Signature, local_projection, off_projection, tree_projection
from state.rollover import Rollover
from state.shake import command as shake
from state.shake.command import Shaking, folded_now
from state.shake.economics import CACHE_SECONDS
from state.status import render, report
from state.times import ms_of, time_of
from state.tree import Branch, Cancelled, Tree
from state.windows import current_boundary, is_marker, message_id_of


class Session:
    """The state of one session. The daemon fills `tree` before it hands an event over."""

    def __init__(
        self,
        session_id: str,
        tree: Tree,
        *,
        ui: ev.UiMode,
        mode: str = DEFAULT,
        reserve: int = 0,
        shaking: Shaking = Shaking(),  # noqa: B008 - a frozen value
        ancestors: Ancestors = lambda: (),
    ) -> None:
        self.id = session_id
        self.tree = tree
        self.ui = ui
        self.mode = mode
        self.reserve = reserve
        self.shaking = shaking
        self.archives = ArchiveIndex(tree, ancestors)
        self.windows = Coordinator(tree, self.archives, ui=ui, mode=mode)
        self._reminded: str | None = None
        self._cold: str | None = None
        self._shake: PendingShake | None = None
        self._signatures: dict[str, Signature | None] = {}

    def forget(self) -> None:
        """The file was rewritten: what was derived from it counts no more."""
        self.archives.clear()
        self._signatures.clear()

    @property
    def rollover(self) -> Rollover:
        """Where a rollover stands."""
        return self.windows.rollover

    @property
    def managed(self) -> bool:
        """Whether there are windows at all in this mode."""
        return MODES[self.mode].managed

    def handle(self, event: ev.SessionEvent, moment: Moment) -> fx.Reply | Search:
        """Answer one event."""
        branch = self.tree.branch(event.leaf_id)
        self.windows.observe(branch)
        return HANDLERS[type(event)](self, event, branch, moment)

    # What the coordinator answers

    def _start(self, event: ev.SessionStart, branch: Branch, moment: Moment) -> fx.Reply:
        self.archives.clear()
        self._cold = "the first request of a fork is cold anyway" if event.reason == "fork" else None
        return self.windows.start(event, branch, moment)

    def _moved(self, event: ev.SessionTree, branch: Branch, moment: Moment) -> fx.TreeReply:
        reply = self.windows.moved(event, branch, moment)
        if not reply.internal:
            self._cold = "the first request after moving in the tree is cold anyway"
        return reply

    def _settled(self, event: ev.AgentSettled, branch: Branch, moment: Moment) -> fx.Reply:
        return self.windows.settled(event, branch, moment)

    def _navigated(self, event: ev.Navigated, branch: Branch, moment: Moment) -> fx.Reply:
        return self.windows.navigated(event, branch, moment)

    def _effect_failed(self, event: ev.EffectFailed, branch: Branch, moment: Moment) -> fx.Reply:
        if event.effect in SHAKE_EFFECTS or (event.effect == "append_entry" and self._log_is_missing(branch)):
            return self._shake_failed(event, branch, moment)
        return self.windows.effect_failed(event, branch, moment)

    # What the model sees

    def _context(self, event: ev.Context, branch: Branch, moment: Moment) -> fx.ContextReply:
        self._cold = None
        self.windows.turn_began()
        keep = PROJECTIONS[self.mode](self, event, branch) if event.outline else None
        return fx.ContextReply(keep=keep, effects=self._remind(event.usage, branch, moment))

    def _project_tree(self, event: ev.Context, branch: Branch) -> Ranges | None:
        signatures = (self._signature(archive.summary) for archive in self._sealed(branch))
        hidden = {signature for signature in signatures if signature is not None}
        return tree_projection(event.count, event.outline, hidden)

    def _sealed(self, branch: Branch) -> list[Archive]:
        """The archives whose summaries the model does not see."""
        if self.mode != "tree":
            return []
        return [archive for archive in self.archives.of(branch) if isinstance(archive, Archive) and archive.sealed]

    def _project_local(self, event: ev.Context, branch: Branch) -> Ranges | None:
        boundary = current_boundary(self.tree, branch)
        marker_id = None if boundary is None else message_id_of(self.tree, boundary[0])
        return local_projection(event.count, event.outline, marker_id)

    def _project_off(self, event: ev.Context, branch: Branch) -> Ranges | None:
        del branch
        return off_projection(event.count, event.outline)

    def _remind(self, usage: ev.Usage | None, branch: Branch, moment: Moment) -> Effects:
        """Once a window, when little room is left; the branch remembers it across restarts."""
        left = budget(usage, self.reserve)
        if not self.managed or self.rollover.pending or left is None or left.remaining is None:
            return []
        boundary = current_boundary(self.tree, branch)
        if left.remaining > REMINDER or boundary is None or self._reminded == boundary[1].current_window_id:
            return []
        head, identity = boundary
        self._reminded = identity.current_window_id
        if any(is_marker(later) for later in branch.ours[branch.ours.index(head) + 1 :]):
            return []
        return [reminder(identity, left.remaining, moment.new_id())]

    def _signature(self, summary: EntryHead) -> Signature | None:
        if summary.id not in self._signatures:
            body = self.tree.body(summary, SummaryEntry)
            self._signatures[summary.id] = None if body is None else _sign(body)
        return self._signatures[summary.id]

    # What Pi asks before it acts

    def _before_compact(self, event: ev.SessionBeforeCompact, branch: Branch, moment: Moment) -> fx.Verdict:
        """Cancel while a rollover is pending: Pi would compact before it settles (facts: pi-lifecycle 4.4).

        Otherwise what is folded is summarised in full, or the summary would remember placeholders only. After
        an overflow there is no room for that.
        """
        del moment
        if self.rollover.pending:
            return fx.Verdict(cancel=True)
        if event.reason == "overflow":
            return fx.Verdict()
        return fx.Verdict(unfold=[one.target.id for one in folded_now(self.tree, branch, self._since(branch))])

    # Tools and commands

    def _tool(self, event: ev.ToolExecute, branch: Branch, moment: Moment) -> fx.ToolReply | Search:
        tool = TOOL_RULES.get(event.tool) if self.managed else None
        if tool is None:
            raise NotAllowedError(f"there is no such tool in mode {self.mode}")
        try:
            return tool(self, event, branch, moment)
        except RefusedError as error:
            return fx.ToolReply(text=str(error), is_error=True)

    def _tool_new_context(self, event: ev.ToolExecute, branch: Branch, moment: Moment) -> fx.ToolReply:
        effects = self.windows.ask(branch, moment, captured=event.captured)
        return fx.ToolReply(
            text="A new context window is scheduled and starts when this turn has ended. No summary is carried over.",
            details={"started": True},
            effects=[*effects, fx.Abort()],
        )

    def _tool_remaining(self, event: ev.ToolExecute, branch: Branch, moment: Moment) -> fx.ToolReply:
        del moment
        left = budget(event.usage, self.reserve)
        boundary = current_boundary(self.tree, branch)
        details: dict[str, Any] = {} if left is None else {"contextWindow": left.limit}
        if left is not None and left.remaining is not None:
            details["remainingTokens"] = left.remaining
        if boundary is not None:
            details["windowId"] = boundary[1].current_window_id
        return fx.ToolReply(text=sentence(left), details=details)

    def _tool_history(self, event: ev.ToolExecute, branch: Branch, moment: Moment) -> Search:
        del moment
        arguments = parse("history", event.arguments, HistoryArguments)
        return Search(history.shelf(self.tree, branch, self.archives.of(branch)), arguments)

    def _tool_notes(self, event: ev.ToolExecute, branch: Branch, moment: Moment) -> fx.ToolReply:
        arguments = parse("notes", event.arguments, NotesArguments)
        done = notes.run(Notes.of(self.tree, branch), arguments, moment.now)
        if isinstance(done, notes.Written):
            return _answer(done.result, [fx.AppendEntry(custom_type=NOTE, data=done.note)])
        return _answer(done)

    def _command(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        command = COMMAND_RULES.get(event.name)
        if command is None:
            raise NotAllowedError("there is no such command")
        return command(self, event, branch, moment)

    def _command_context(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        action = CONTEXT_ACTIONS.get(event.args.strip())
        if action is None:
            return fx.Reply(effects=[fx.Notify(text=commands.usage(event.name), level="warning")])
        return action(self, event, branch, moment)

    def _command_status(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        del event
        return fx.Reply(effects=[fx.Notify(text=render(report(self.id, self.windows, branch, moment.host)))])

    def _command_rollover(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        """While a run is going on it is aborted, and settles; otherwise nothing will settle, so depart at once."""
        try:
            effects = self.windows.ask(branch, moment, captured=event.captured)
        except RefusedError as error:
            return fx.Reply(effects=[fx.Notify(text=str(error), level="error")])
        intent = self.rollover.intent
        if event.idle and intent is not None:
            return fx.Reply(effects=[*effects, *self.windows.depart(intent, branch, event.editor_text, old_leaf=None)])
        return fx.Reply(effects=[*effects, fx.Abort()])

    # Folds

    def _command_shake(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        rules = structs.replace(self.shaking.rules, skills=tuple(event.skills), recall=self.managed)
        answer = shake.run(
            shake.Request(
                args=event.args,
                tree=self.tree,
                branch=branch,
                since=self._since(branch),
                rules=rules,
                source=self.shaking.source,
                model=event.model,
                idle=event.idle,
                context_edit=event.context_edit,
                has_ui=self.ui in ("tui", "rpc"),
                cold=self._cold or self._cold_by_time(branch, moment.now),
                keep_recent=self.shaking.keep_recent,
                version=moment.host.versions.contextd,
                hidden=frozenset(archive.summary.id for archive in self._sealed(branch)),
            )
        )
        self._shake = PendingShake(event, answer.effects) if answer.folds else None
        return fx.Reply(effects=answer.effects)

    def _shake_failed(self, event: ev.EffectFailed, branch: Branch, moment: Moment) -> fx.Reply:
        """Plan once more when the leaf had changed; account for what was folded when an append failed."""
        pending, self._shake = self._shake, None
        if event.effect == "expect_leaf":
            if pending is None or pending.again:
                text = f"/shake: {event.error}. Nothing was changed."
                return fx.Reply(effects=[fx.Notify(text=text, level="warning")])
            again = self._command_shake(pending.event, branch, moment)
            self._shake = None if self._shake is None else structs.replace(self._shake, again=True)
            return again
        logs = [] if pending is None else shake.logs_of_done(pending.effects, self.tree, branch, self._since(branch))
        text = f"/shake broke off: {event.error}. /shake status shows what is folded."
        return fx.Reply(effects=[*logs, fx.Notify(text=text, level="error")])

    def _log_is_missing(self, branch: Branch) -> bool:
        """Whether the branch ends within a run of `/shake`: its overlays are there, its log is not."""
        return self._shake is not None and bool(branch.heads) and branch.heads[-1].type == "context_edit"

    def _since(self, branch: Branch) -> str | None:
        """In local mode the model sees nothing before the latest marker."""
        boundary = current_boundary(self.tree, branch) if self.mode == "local" else None
        return None if boundary is None else boundary[0].id

    def _cold_by_time(self, branch: Branch, now: int) -> str | None:
        """Why a provider has forgotten what it read last, if it has."""
        last = branch.last(lambda head: head.type == "usage" or (head.type == "message" and head.kind == "assistant"))
        read = time_of(self.tree, last)
        if read is None:
            return "nothing was read yet"
        idle = (now - read) // 1_000
        return f"the cache is cold after {idle // 60:,} minutes" if idle > CACHE_SECONDS else None


class PendingShake(Struct, frozen=True):
    """A `/shake` whose effects are under way; `again` when it was planned anew."""

    event: ev.Command
    effects: Effects
    again: bool = False


class Search(Struct, frozen=True):
    """A call of `history` that may take a while: it reads much and changes nothing, so it may run elsewhere."""

    shelf: history.Shelf
    arguments: HistoryArguments

    def answer(self, cancelled: Cancelled) -> fx.ToolReply:
        """Carry it out."""
        try:
            return _answer(history.run(self.shelf, self.arguments, cancelled))
        except RefusedError as error:
            return fx.ToolReply(text=str(error), is_error=True)


def _answer(result: history.Result, effects: Effects | None = None) -> fx.ToolReply:
    """The envelope of history and notes (facts: tree-upstream 2.2)."""
    text = msgspec.json.encode(result).decode()
    return fx.ToolReply(text=text, details={"codexHistoryNotes": result}, effects=effects or [])


def _sign(summary: SummaryEntry) -> Signature | None:
    made = ms_of(summary.timestamp)
    digest = hashlib.sha256(summary.summary.encode()).hexdigest()[:16]
    return None if made is None else Signature(summary.from_id, made, digest)


Handler = Callable[[Session, Any, Branch, Moment], fx.Reply | Search]

HANDLERS: Final[dict[type[ev.SessionEvent], Handler]] = {
    ev.SessionStart: Session._start,
    ev.SessionTree: Session._moved,
    ev.Navigated: Session._navigated,
    ev.AgentSettled: Session._settled,
    ev.EffectFailed: Session._effect_failed,
    ev.Context: Session._context,
    ev.SessionBeforeCompact: Session._before_compact,
    ev.ToolExecute: Session._tool,
    ev.Command: Session._command,
}

PROJECTIONS: Final[dict[str, Callable[[Session, ev.Context, Branch], Ranges | None]]] = {
    "tree": Session._project_tree,
    "local": Session._project_local,
    "off": Session._project_off,
}

TOOL_RULES: Final[dict[str, Callable[[Session, ev.ToolExecute, Branch, Moment], fx.ToolReply | Search]]] = {
    "new_context": Session._tool_new_context,
    "get_context_remaining": Session._tool_remaining,
    "history": Session._tool_history,
    "notes": Session._tool_notes,
}

COMMAND_RULES: Final[dict[str, Callable[[Session, ev.Command, Branch, Moment], fx.Reply]]] = {
    "context": Session._command_context,
    "shake": Session._command_shake,
}

CONTEXT_ACTIONS: Final[dict[str, Callable[[Session, ev.Command, Branch, Moment], fx.Reply]]] = {
    "status": Session._command_status,
    "rollover": Session._command_rollover,
}

SHAKE_EFFECTS: Final = frozenset({"expect_leaf", "append_context_edit"})
"""Effects that only `/shake` makes."""
