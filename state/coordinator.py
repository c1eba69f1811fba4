"""The coordinator: one session's windows, from the request of a new one to its first turn, and back on failure.

It decides what each step does, and when it is refused; `rollover` says which step may follow which, `seal` what
makes a window whole, `intents` what the session file tells of a rollover. Steps are numbered as in design 4.
Every method either answers or raises before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, INTENT, Body, EntryHead, Intent, IntentClosed, MarkerDetails
from state.archive import MAX_INTERVAL, Archive, ArchiveIndex, recovery_of
from state.errors import NotAllowedError, RefusedError
from state.intents import is_known, open_intents, summary_of, unanswered, went_on
from state.modes import LEAVING_TREE, MODES
from state.moment import Effects, Moment
from state.notes import MAX_SNAPSHOT_BYTES, Notes, snapshot_size
from state.rollover import Phase, Rollover, Step, step
from state.seal import seal
from state.tree import Branch, Tree
from state.windows import current_boundary, first_window, identity_of, is_marker, marker, next_window

BUS: Final = "contextd:tree"
"""The channel on Pi's extension bus that tells owners of live runtimes what a navigation was."""


class Coordinator:
    """The windows of one session; `rollover` is the machine's value, `last_error` why the last one failed."""

    def __init__(self, tree: Tree, archives: ArchiveIndex, *, ui: ev.UiMode, mode: str) -> None:
        self.tree = tree
        self.archives = archives
        self.ui = ui
        self.mode = mode
        self.rollover = Rollover()
        self.last_error: str | None = None

    def turn_began(self) -> None:
        """Notice that the model is asked in the new window."""
        if self.rollover.phase is Phase.CONTINUING:
            self.rollover = step(self.rollover, Step.TURN)

    # Starting, and moving about in the tree

    def start(self, event: ev.SessionStart, branch: Branch, moment: Moment) -> fx.Reply:
        """Take up what is under way in this process, recover what was interrupted, open the first window."""
        self.rollover = Rollover()
        effects: Effects = [fx.Capture()] if MODES[self.mode].managed else []
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

    def moved(self, event: ev.SessionTree, branch: Branch, moment: Moment) -> fx.TreeReply:
        """Step 4. The event names no target; ours is told by where it came from and what it hangs from."""
        rollover, intent, summary = self.rollover, self.rollover.intent, event.summary
        if rollover.phase is Phase.FAILED:
            return fx.TreeReply(internal=True)
        if rollover.phase is Phase.NAVIGATING and intent is not None and summary is not None:
            from_here = rollover.old_leaf is None or event.old_leaf_id == rollover.old_leaf
            if from_here and summary.parent_id == intent.base_id and summary.id in branch:
                return self._our_summary(intent, summary.id, branch, moment)
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
        if not MODES[self.mode].managed or any(isinstance(effect, fx.AppendMessage) for effect in planned):
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

    def ask(self, branch: Branch, moment: Moment, *, captured: bool) -> Effects:
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

    def settled(self, event: ev.AgentSettled, branch: Branch, moment: Moment) -> fx.Reply:
        """Step 3, re-checking what may have changed since the intent; or 7, when the new window has no marker."""
        del moment
        intent = self.rollover.intent
        if intent is not None and event.unwritten == intent.next.current_window_id:
            if not self._is_written(intent, branch):
                why = "Pi could not write the start of the new window"
                return fx.Reply(effects=self._go_back(intent, self._left(intent, branch), why))
            self.turn_began()
            return fx.Reply(effects=[fx.ReleaseInput(to="run")])
        self.turn_began()
        if event.swallowed and not self.rollover.pending:
            text = "Pi could not write what you sent; it is back in the editor."
            return fx.Reply(effects=[fx.ReleaseInput(to="editor"), fx.Notify(text=text, level="error")])
        if self.rollover.phase is not Phase.REQUESTED or intent is None:
            return fx.Reply()
        if intent.leaf_id not in branch or intent.boundary_id not in branch:
            why = "the session moved to another branch meanwhile"
            return fx.Reply(effects=self._give_up(intent, branch, why))
        return fx.Reply(effects=self.depart(intent, branch, event.editor_text, old_leaf=branch.leaf))

    def depart(self, intent: Intent, branch: Branch, editor_text: str, *, old_leaf: str | None) -> Effects:
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
        return [
            fx.Navigate(
                target_id=intent.cut_id,
                summarize=True,
                intent_id=intent.intent_id,
                status=status,
                blank_editor=blank,
            )
        ]

    def _await_idle(self) -> Effects:
        """Print and json mode would exit before the new window has run (facts: pi-lifecycle 6)."""
        return [fx.AwaitIdle()] if self.ui in ("print", "json") else []

    def navigated(self, event: ev.Navigated, branch: Branch, moment: Moment) -> fx.Reply:
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
        if rollover.phase is not Phase.NAVIGATING or intent is None:
            raise NotAllowedError(f"navigated is not possible while the rollover is {rollover.phase}")
        self.rollover = rollover
        summary_id = rollover.summary_id or summary_of(self.tree, intent, branch)
        if event.error is None and not event.cancelled and summary_id is not None:
            old_leaf = rollover.old_leaf or event.old_leaf_id
            self.rollover = step(rollover, Step.NAVIGATED, summary_id=summary_id, old_leaf=old_leaf)
            return fx.Reply(effects=self._arrive(rollover, intent, summary_id, branch, moment))
        why = event.error or ("it was cancelled" if event.cancelled else "Pi made no summary")
        if event.old_leaf_id is not None and event.leaf_id != event.old_leaf_id:
            return fx.Reply(effects=self._go_back(intent, event.old_leaf_id, why))
        return fx.Reply(effects=self._give_up(intent, branch, why))

    def _arrive(self, rollover: Rollover, intent: Intent, summary_id: str, branch: Branch, moment: Moment) -> Effects:
        """Seal the new window, and leave nothing of ours in an editor that was blank."""
        effects = seal(self.tree, intent, summary_id, branch, moment.now, start_turn=True)
        if rollover.blank_editor and (text := self._editor_text_of(intent.cut_id)):
            effects.append(fx.SetEditor(text="", if_text=text))
        return [*effects, *self._await_idle()]

    def _rollover_of(self, intent_id: str | None) -> Rollover | None:
        """The rollover that this intent began, taken up from the file if need be; None when it is over."""
        pending = self.rollover.intent
        if pending is not None and pending.intent_id == intent_id:
            # An inherited one was sealed as soon as its summary came.
            sealed = self.rollover.phase is Phase.SEALING and self.rollover.inherited
            return None if sealed or self.rollover.phase is Phase.CONTINUING else self.rollover
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

    def _is_written(self, intent: Intent, branch: Branch) -> bool:
        """Whether the marker stands on the branch after all."""
        boundary = current_boundary(self.tree, branch)
        return boundary is not None and boundary[1] == intent.next

    def _left(self, intent: Intent, branch: Branch) -> str:
        """The leaf that was left for the new window."""
        summary_id = self.rollover.summary_id or summary_of(self.tree, intent, branch)
        return self.rollover.old_leaf or (intent.leaf_id if summary_id is None else self.tree.heads[summary_id].tag)

    def effect_failed(self, event: ev.EffectFailed, branch: Branch, moment: Moment) -> fx.Reply:
        """An effect threw: before navigation the old window goes on, after it Pi returns to the old window."""
        del moment
        rollover, intent = self.rollover, self.rollover.intent
        why = f"Pi could not {event.effect.replace('_', ' ')} ({event.error})"
        if intent is not None and rollover.phase in (Phase.NAVIGATING, Phase.SEALING):
            return fx.Reply(effects=self._go_back(intent, self._left(intent, branch), why))
        if intent is not None and rollover.phase is Phase.REQUESTED:
            return fx.Reply(effects=self._give_up(intent, branch, why))
        if rollover.phase is Phase.FAILED:
            self.rollover = step(rollover, Step.RETURNED)
        return fx.Reply(effects=[fx.ReleaseInput(to="run"), fx.Notify(text=f"contextd: {why}.", level="error")])

    def observe(self, branch: Branch) -> None:
        """Notice that the marker of the pending rollover has arrived, whoever appended it."""
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
                blank_editor=event.in_flight.blank_editor,
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
            theirs = summary_id is not None and went_on(self.tree, intent, self.tree.heads[summary_id].tag)
            if summary_id is not None and not theirs:
                effects += seal(self.tree, intent, summary_id, branch, moment.now, start_turn=start_turn)
                effects.append(fx.Notify(text=f"Context window {number} was interrupted; it is complete now."))
            elif theirs or one.head.id in branch:
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
