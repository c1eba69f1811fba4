"""One session: the aggregate that answers every event, `handle(event, moment) -> reply`.

What a reply says is decided here and in the modules that this one calls; how it gets there is the daemon's
and the shim's affair. Every handler either answers or raises before it has changed anything. Which handler
an event goes to is the table `HANDLERS`; the steps of a rollover are numbered as in design 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from protocol import effects as fx
from protocol import events as ev
from protocol.entries import (
    ARCHIVE,
    INTENT,
    NOTE,
    Body,
    EntryHead,
    Intent,
    IntentClosed,
    MarkerDetails,
    Stamped,
    SummaryEntry,
)
from protocol.tools import HistoryArguments, NotesArguments
from state import commands, history, notes
from state.archive import MAX_INTERVAL, Ancestors, Archive, ArchiveIndex, recovery_of
from state.arguments import parse
from state.budget import REMINDER, budget, reminder, sentence
from state.errors import NotAllowedError, RefusedError
from state.intents import is_known, open_intents, summary_of, unanswered
from state.modes import DEFAULT, LEAVING_TREE, MODES
from state.notes import MAX_SNAPSHOT_BYTES, Notes, snapshot_size
from state.projection import Ranges, Signature, local_projection, off_projection, tree_projection
from state.rollover import Phase, Rollover, Step, step
from state.seal import seal
from state.shake import command as shake
from state.shake.command import Shaking, folded_now
from state.shake.economics import CACHE_SECONDS
from state.status import HostFacts, render, report
from state.tree import Branch, Cancelled, Tree
from state.windows import current_boundary, first_window, identity_of, is_marker, marker, message_id_of, next_window

BUS: Final = "contextd:tree"
"""The channel on Pi's extension bus that tells owners of live runtimes what a navigation was."""

Effects = list[fx.AnyEffect]


class Moment(Struct, frozen=True):
    """What the outside gives with an event: the time in ms, a source of new UUIDs, the daemon's facts."""

    now: int
    new_id: Callable[[], str]
    host: HostFacts


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
        self.rollover = Rollover()
        self.last_error: str | None = None
        self._reminded: str | None = None
        self._cold: str | None = None
        self._shake: PendingShake | None = None
        self._signatures: dict[str, Signature | None] = {}

    def forget(self) -> None:
        """The file was rewritten: what was derived from it counts no more."""
        self.archives.clear()
        self._signatures.clear()

    @property
    def managed(self) -> bool:
        """Whether there are windows at all in this mode."""
        return MODES[self.mode].managed

    def handle(self, event: ev.SessionEvent, moment: Moment) -> fx.Reply | Search:
        """Answer one event."""
        branch = self.tree.branch(event.leaf_id)
        self._observe_marker(branch)
        return HANDLERS[type(event)](self, event, branch, moment)

    # Starting, and moving about in the tree

    def _start(self, event: ev.SessionStart, branch: Branch, moment: Moment) -> fx.Reply:
        self.rollover = Rollover()
        self.archives.clear()
        self._cold = "the first request of a fork is cold anyway" if event.reason == "fork" else None
        effects: Effects = [fx.Capture()] if self.managed else []
        if self._resume(event, branch):
            return fx.Reply(effects=[*effects, *self._seal_for_the_lost(branch, moment)])
        same_process = event.reason in ("reload", "resync")
        effects += self._recover(branch, moment, start_turn=event.reason == "resync" and event.holding)
        effects += self._first_marker(branch, effects, moment)
        if self.mode != "tree" and not same_process and any(isinstance(a, Archive) for a in self.archives.of(branch)):
            text = f"This session has archived windows and runs in mode {self.mode} now. {LEAVING_TREE}"
            effects.append(fx.Notify(text=text, level="warning"))
        frees = any(isinstance(effect, fx.AppendMessage) and effect.release_after for effect in effects)
        waiting = event.held > 0 or _resends(effects)
        if (event.holding or waiting) and not frees:
            effects += [fx.ReleaseInput(to="run")] if same_process else _back_to_editor(waiting=waiting)
        return fx.Reply(effects=effects)

    def _moved(self, event: ev.SessionTree, branch: Branch, moment: Moment) -> fx.TreeReply:
        """Step 4. The event names no target; ours is told by where it came from and what it hangs from."""
        rollover, intent, summary = self.rollover, self.rollover.intent, event.summary
        if rollover.phase is Phase.FAILED:
            return fx.TreeReply(internal=True)
        if rollover.phase is Phase.NAVIGATING and intent is not None and summary is not None:
            from_here = rollover.old_leaf is None or event.old_leaf_id == rollover.old_leaf
            if from_here and summary.parent_id == intent.base_id:
                return self._our_summary(intent, summary.id, branch, moment)
        self._cold = "the first request after moving in the tree is cold anyway"
        effects: Effects = []
        if rollover.phase is Phase.IDLE:
            effects += self._recover(branch, moment, start_turn=False)
            effects += self._first_marker(branch, effects, moment)
            effects += _back_to_editor(waiting=True) if _resends(effects) else []
        boundary = current_boundary(self.tree, branch)
        window = _opened(effects) or (None if boundary is None else boundary[1].current_window_id)
        return fx.TreeReply(effects=[*effects, _announce(internal=False, window=window, previous=None)])

    def _our_summary(self, intent: Intent, summary_id: str, branch: Branch, moment: Moment) -> fx.TreeReply:
        effects: Effects = [
            _announce(internal=True, window=intent.next.current_window_id, previous=intent.identity.current_window_id)
        ]
        if self.rollover.inherited:
            effects += seal(self.tree, intent, summary_id, branch, moment.now, start_turn=True)
            self.rollover = step(self.rollover, Step.NAVIGATED, summary_id=summary_id)
        else:
            self.rollover = step(self.rollover, Step.SUMMARY, summary_id=summary_id)
        return fx.TreeReply(internal=True, effects=effects)

    def _first_marker(self, branch: Branch, planned: Sequence[fx.AnyEffect], moment: Moment) -> Effects:
        """A marker for a branch that has none, unless one is planned; after archives it carries on from them."""
        if not self.managed or any(isinstance(effect, fx.AppendMessage) for effect in planned):
            return []
        if current_boundary(self.tree, branch) is not None:
            return []
        lines = Notes.of(self.tree, branch).lines()
        archived = [archive for archive in self.archives.of(branch) if isinstance(archive, Archive)]
        if not archived:
            return [marker(first_window(moment.new_id), lines, None)]
        last = archived[-1]
        markers = (identity_of(self.tree, head) for head in reversed(last.items) if is_marker(head))
        before = next((identity for identity in markers if identity is not None), None)
        identity = first_window(moment.new_id) if before is None else next_window(before, moment.new_id)
        return [marker(identity, lines, recovery_of(last.window_id, last.summary.id, last.items))]

    # A rollover, step by step

    def _ask(self, branch: Branch, moment: Moment, *, captured: bool) -> Effects:
        """Step 1: record the intent, unless the window could not be read back once it is gone."""
        if self.rollover.phase is not Phase.IDLE:
            raise RefusedError("A new context window is already on its way.")
        if not captured:
            raise RefusedError("A new context window cannot be started: Pi has given no command context yet.")
        boundary = current_boundary(self.tree, branch)
        if boundary is None or branch.leaf is None:
            raise RefusedError("A new context window cannot be started: this branch has no window to end.")
        head, identity = boundary
        cut = self._cut(branch, head)
        window = self.tree.interval(branch.leaf, cut.parent_id, MAX_INTERVAL)
        if isinstance(window, str):
            raise RefusedError(f"A new context window cannot be started: {window}.")
        size = snapshot_size(Notes.of(self.tree, branch).snapshot(moment.now))
        if size > MAX_SNAPSHOT_BYTES:
            raise RefusedError(
                f"A new context window cannot be started: the notes take {size:,} bytes and {MAX_SNAPSHOT_BYTES:,} "
                "are allowed. Shorten some with notes write_file."
            )
        intent = Intent(
            intent_id=moment.new_id(),
            identity=identity,
            next=next_window(identity, moment.new_id),
            boundary_id=head.id,
            cut_id=cut.id,
            base_id=cut.parent_id,
            leaf_id=branch.leaf,
            requested_at=moment.now,
        )
        self.rollover = step(self.rollover, Step.ASKED, intent=intent)
        self.last_error = None
        return [fx.AppendEntry(custom_type=INTENT, data=intent), fx.HoldInput()]

    def _cut(self, branch: Branch, boundary: EntryHead) -> EntryHead:
        """Where the branch is cut: the boundary, or the first message of work that is older than any marker."""
        if any(head.kind == ARCHIVE for head in branch.ours):
            return boundary
        return next(
            head
            for head in branch.heads
            if head is boundary or head.type == "custom_message" or (head.type == "message" and head.kind == "user")
        )

    def _settled(self, event: ev.AgentSettled, branch: Branch, moment: Moment) -> fx.Reply:
        """Step 3, re-checking what may have changed since the intent."""
        del moment
        if self.rollover.phase is Phase.CONTINUING:
            self.rollover = step(self.rollover, Step.TURN)
        intent = self.rollover.intent
        if self.rollover.phase is not Phase.REQUESTED or intent is None:
            return fx.Reply()
        if intent.leaf_id not in branch or intent.boundary_id not in branch:
            why = "the session moved to another branch meanwhile"
            return fx.Reply(effects=self._give_up(intent, branch, why))
        return fx.Reply(effects=self._depart(intent, branch, event.editor_text, old_leaf=branch.leaf))

    def _depart(self, intent: Intent, branch: Branch, editor_text: str, *, old_leaf: str | None) -> Effects:
        """Leave the old window: by navigation, or in local mode by a marker on the same branch."""
        if self.mode != "tree":
            self.rollover = step(self.rollover, Step.CUT, old_leaf=old_leaf)
            window = intent.identity.current_window_id
            recovery = recovery_of(window, None, branch.after(intent.boundary_id))
            opening = marker(intent.next, Notes.of(self.tree, branch).lines(), recovery, start_turn=True)
            return [*_resend(unanswered(branch, intent)), opening, *self._await_idle()]
        blank = not editor_text.strip()
        self.rollover = step(self.rollover, Step.SETTLED, old_leaf=old_leaf, blank_editor=blank)
        status = f"Pi summarises context window {intent.identity.window_number}; what you type goes to the next one"
        return [fx.Navigate(target_id=intent.cut_id, summarize=True, intent_id=intent.intent_id, status=status)]

    def _await_idle(self) -> Effects:
        """Print and json mode would exit before the new window has run (facts: pi-lifecycle 6)."""
        return [fx.AwaitIdle()] if self.ui in ("print", "json") else []

    def _navigated(self, event: ev.Navigated, branch: Branch, moment: Moment) -> fx.Reply:
        """Step 5, or 7 where navigation failed."""
        if self.rollover.phase is Phase.FAILED:
            self.rollover = step(self.rollover, Step.RETURNED)
            return fx.Reply()
        if event.intent_id is None and self.rollover.phase is Phase.NAVIGATING and self.rollover.old_leaf is None:
            # Another daemon has sent Pi back, and what closes the rollover comes after this very report.
            self.rollover = step(self.rollover, Step.GAVE_UP)
            return fx.Reply()
        rollover = self._rollover_of(event.intent_id)
        if rollover is None:
            return fx.Reply()
        intent = rollover.intent
        if rollover.phase is Phase.SEALING and rollover.inherited:
            return fx.Reply()  # it was sealed as soon as its summary came
        if rollover.phase is not Phase.NAVIGATING or intent is None:
            raise NotAllowedError(f"navigated is not possible while the rollover is {rollover.phase}")
        self.rollover = rollover
        summary_id = rollover.summary_id or summary_of(self.tree, intent, branch)
        if event.error is None and not event.cancelled and summary_id is not None:
            effects = seal(self.tree, intent, summary_id, branch, moment.now, start_turn=True)
            if rollover.blank_editor and (text := self._editor_text_of(intent.cut_id)):
                effects.append(fx.SetEditor(text="", if_text=text))
            effects += self._await_idle()
            old_leaf = rollover.old_leaf or event.old_leaf_id
            self.rollover = step(rollover, Step.NAVIGATED, summary_id=summary_id, old_leaf=old_leaf)
            return fx.Reply(effects=effects)
        why = event.error or ("it was cancelled" if event.cancelled else "Pi made no summary")
        if event.old_leaf_id is not None and event.leaf_id != event.old_leaf_id:
            return fx.Reply(effects=self._go_back(intent, event.old_leaf_id, why))
        return fx.Reply(effects=self._give_up(intent, branch, why))

    def _rollover_of(self, intent_id: str | None) -> Rollover | None:
        """The rollover that this intent began, taken up from the file if need be; None when it is over."""
        pending = self.rollover.intent
        if pending is not None and pending.intent_id == intent_id:
            return None if self.rollover.phase is Phase.CONTINUING else self.rollover
        found = open_intents(self.tree).get(intent_id) if intent_id is not None else None
        if found is not None and self.rollover.phase is Phase.IDLE:
            return step(self.rollover, Step.RESUMED_NAVIGATION, intent=found.intent)
        if not is_known(self.tree, intent_id):
            raise NotAllowedError("navigated names no rollover of this session")
        return None

    def _go_back(self, intent: Intent, old_leaf: str, why: str) -> Effects:
        """Step 7: a failed write has moved the leaf (facts: pi-lifecycle 21); return before anything else."""
        closing = self._close(intent, self.tree.path(old_leaf), why)
        self.rollover = step(self.rollover, Step.BROKE)
        return [fx.Navigate(target_id=old_leaf, intent_id=None), *closing]

    def _give_up(self, intent: Intent, branch: Branch, why: str) -> Effects:
        closing = self._close(intent, branch, why)
        self.rollover = step(self.rollover, Step.GAVE_UP)
        return closing

    def _close(self, intent: Intent, branch: Branch, why: str) -> Effects:
        """Say so, close the intent, and put everything that was typed to work in the old window."""
        self.last_error = why
        number = intent.next.window_number
        text = f"Context window {number} was not started: {why}. Window {number - 1} goes on."
        return [
            fx.Notify(text=text, level="error"),
            fx.AppendEntry(custom_type=INTENT, data=IntentClosed(intent_id=intent.intent_id, why=why)),
            *_resend(unanswered(branch, intent)),
            fx.ReleaseInput(to="run"),
        ]

    def _effect_failed(self, event: ev.EffectFailed, branch: Branch, moment: Moment) -> fx.Reply:
        """An effect threw: before navigation the old window goes on, after it Pi returns to the old window."""
        if event.effect in SHAKE_EFFECTS or (event.effect == "append_entry" and self._log_is_missing(branch)):
            return self._shake_failed(event, branch, moment)
        del moment
        rollover, intent = self.rollover, self.rollover.intent
        why = f"Pi could not {event.effect.replace('_', ' ')} ({event.error})"
        if intent is not None and rollover.phase in (Phase.NAVIGATING, Phase.SEALING):
            return fx.Reply(effects=self._go_back(intent, rollover.old_leaf or intent.leaf_id, why))
        if intent is not None and rollover.phase is Phase.REQUESTED:
            return fx.Reply(effects=self._give_up(intent, branch, why))
        if rollover.phase is Phase.FAILED:
            self.rollover = step(rollover, Step.RETURNED)
        return fx.Reply(effects=[fx.ReleaseInput(to="run"), fx.Notify(text=f"contextd: {why}.", level="error")])

    def _observe_marker(self, branch: Branch) -> None:
        """The marker of the pending rollover has arrived, whoever appended it."""
        intent = self.rollover.intent
        if intent is None or self.rollover.phase not in (Phase.NAVIGATING, Phase.SEALING):
            return
        boundary = current_boundary(self.tree, branch)
        if boundary is not None and boundary[1].current_window_id == intent.next.current_window_id:
            self.rollover = step(self.rollover, Step.SEALED)

    # Taking up what another daemon, or a killed Pi, left behind

    def _resume(self, event: ev.SessionStart, branch: Branch) -> bool:
        """Go on with a rollover of this very Pi process, if one is under way."""
        pending = open_intents(self.tree)
        if event.in_flight is not None and (found := pending.get(event.in_flight.intent_id)) is not None:
            self.rollover = step(
                self.rollover,
                Step.RESUMED_NAVIGATION,
                intent=found.intent,
                summary_id=summary_of(self.tree, found.intent, branch),
                inherited=event.reason != "resync",
            )
            return True
        # A shim that had nobody to ask has let go of its input; then the rollover is over.
        if event.reason == "resync" and event.in_flight is None and event.holding:
            for one in pending.values():
                if one.head.id in branch and summary_of(self.tree, one.intent, branch) is None:
                    self.rollover = step(self.rollover, Step.RESUMED_REQUEST, intent=one.intent)
                    return True
        return False

    def _seal_for_the_lost(self, branch: Branch, moment: Moment) -> Effects:
        """The instance that navigated was replaced after the summary and before the manifest: nobody else seals."""
        intent, summary_id = self.rollover.intent, self.rollover.summary_id
        if intent is None or summary_id is None or not self.rollover.inherited:
            return []
        if any(head.kind == ARCHIVE for head in branch.after(summary_id)):
            return []
        effects = seal(self.tree, intent, summary_id, branch, moment.now, start_turn=True)
        self.rollover = step(self.rollover, Step.NAVIGATED)
        return effects

    def _recover(self, branch: Branch, moment: Moment, *, start_turn: bool) -> Effects:
        """Step 8: complete what has its summary on this branch, close what was interrupted before it left."""
        effects: Effects = []
        for one in open_intents(self.tree).values():
            intent, number = one.intent, one.intent.next.window_number
            summary_id = summary_of(self.tree, intent, branch)
            if summary_id is not None:
                effects += seal(self.tree, intent, summary_id, branch, moment.now, start_turn=start_turn)
                effects.append(fx.Notify(text=f"Context window {number} was interrupted; it is complete now."))
            elif one.head.id in branch:
                why = "it was interrupted before the old window was left"
                effects.append(
                    fx.AppendEntry(custom_type=INTENT, data=IntentClosed(intent_id=intent.intent_id, why=why))
                )
                effects.append(fx.Notify(text=f"Context window {number} was not started: {why}.", level="warning"))
        return effects

    def _editor_text_of(self, entry_id: str) -> str | None:
        """What Pi puts into a blank editor when the leaf moves to this entry (facts: pi-lifecycle 10)."""
        head = self.tree.heads.get(entry_id)
        body = self.tree.body(head, Body) if head is not None else None
        if body is None:
            return None
        content = body.content if body.message is None else body.message.get("content")
        if isinstance(content, str):
            return content
        blocks = content if isinstance(content, list) else []
        return "".join(block["text"] for block in blocks if isinstance(block, dict) and block.get("type") == "text")

    # What the model sees

    def _context(self, event: ev.Context, branch: Branch, moment: Moment) -> fx.ContextReply:
        self._cold = None
        if self.rollover.phase is Phase.CONTINUING:
            self.rollover = step(self.rollover, Step.TURN)
        keep = PROJECTIONS[self.mode](self, event, branch) if event.outline else None
        return fx.ContextReply(keep=keep, effects=self._remind(event.usage, branch, moment))

    def _project_tree(self, event: ev.Context, branch: Branch) -> Ranges | None:
        hidden = {
            signature
            for archive in self.archives.of(branch)
            if isinstance(archive, Archive) and archive.sealed and (signature := self._signature(archive.summary))
        }
        return tree_projection(event.count, event.outline, hidden)

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
        effects = self._ask(branch, moment, captured=event.captured)
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
        return fx.Reply(effects=[fx.Notify(text=render(report(self, branch, moment.host)))])

    def _command_rollover(self, event: ev.Command, branch: Branch, moment: Moment) -> fx.Reply:
        """While a run is going on it is aborted, and settles; otherwise nothing will settle, so depart at once."""
        try:
            effects = self._ask(branch, moment, captured=event.captured)
        except RefusedError as error:
            return fx.Reply(effects=[fx.Notify(text=str(error), level="error")])
        intent = self.rollover.intent
        if event.idle and intent is not None:
            return fx.Reply(effects=[*effects, *self._depart(intent, branch, event.editor_text, old_leaf=None)])
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
        entry = self.tree.body(last, Stamped) if last is not None else None
        read = None if entry is None else _ms(entry.timestamp)
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


def _resend(entry_ids: list[str]) -> Effects:
    return [fx.Resend(entry_ids=entry_ids)] if entry_ids else []


def _resends(effects: Effects) -> bool:
    """Whether there is something to send that no assistant has answered."""
    return any(isinstance(effect, fx.Resend) for effect in effects)


def _back_to_editor(*, waiting: bool) -> Effects:
    """Where nothing goes on by itself, a person decides about what waits."""
    release = fx.ReleaseInput(to="editor")
    text = "What was typed during the rollover is back in the editor."
    return [release, fx.Notify(text=text, level="warning")] if waiting else [release]


def _opened(effects: Effects) -> str | None:
    """The window that one of these effects opens."""
    details = [effect.details for effect in effects if isinstance(effect, fx.AppendMessage)]
    markers = [each for each in details if isinstance(each, MarkerDetails)]
    return markers[-1].context_management.current_window_id if markers else None


def _announce(*, internal: bool, window: str | None, previous: str | None) -> fx.Emit:
    return fx.Emit(channel=BUS, data={"internal": internal, "windowId": window, "previousWindowId": previous})


def _sign(summary: SummaryEntry) -> Signature | None:
    made = _ms(summary.timestamp)
    digest = hashlib.sha256(summary.summary.encode()).hexdigest()[:16]
    return None if made is None else Signature(summary.from_id, made, digest)


def _ms(timestamp: str) -> int | None:
    """An entry's time in ms."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


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
