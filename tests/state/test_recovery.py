"""Rollovers that were cut short: Pi killed, the daemon restarted, the extension reloaded (design 4, step 8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import KilledError, Player
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, INTENT, NOTE, NOTE_SNAPSHOT, WINDOW
from state.errors import NotAllowedError
from state.rollover import Phase, Rollover

SEALED = ["branch_summary", ARCHIVE, NOTE_SNAPSHOT, WINDOW]


def started() -> Player:
    player = Player()
    player.start()
    player.work("task")
    return player


def killed(before: str) -> Player:
    """Pi died in the middle of a rollover; another process, with another daemon, opens its file."""
    player = started()
    player.ask()
    player.type("held")
    player.killed_before = before
    with pytest.raises(KilledError):
        player.settle(aborted=True)
    return reopened(player)


def reopened(player: Player) -> Player:
    """The leaf is the last line of the file (facts: tree-upstream 9)."""
    after = Player(player.pi)
    after.new_id = player.new_id
    player.pi.leaf = player.pi.entries[-1]["id"]
    return after


def due(player: Player) -> fx.Navigate:
    """Pi has settled and is about to navigate; what it was told to do is not done yet."""
    player.ask()
    (navigate,) = player.send(ev.AgentSettled, aborted=True).effects
    assert isinstance(navigate, fx.Navigate)
    player.in_flight = navigate.intent_id
    return navigate


def summarised(player: Player, navigate: fx.Navigate) -> tuple[str | None, ev.SummaryRef]:
    """Pi has moved the leaf, and nobody knows yet."""
    old = player.pi.leaf
    made = player.pi.navigate(navigate.target_id, summarize=True)
    assert made is not None
    return old, ev.SummaryRef(made["id"], made["fromId"], made["parentId"])


# A killed Pi


@pytest.mark.parametrize("before", ["emit", ARCHIVE, NOTE_SNAPSHOT, WINDOW])
def test_a_rollover_that_was_killed_after_its_summary_is_completed_at_the_next_start(before: str) -> None:
    """Facts: pi-lifecycle 21."""
    player = killed(before)
    player.start()
    assert player.pi.shape() == SEALED
    assert player.notices == [("info", "Context window 1 was interrupted; it is complete now.")]
    assert player.turns_due == 0, "a Pi that was restarted does not go on by itself"
    player.work("more")
    assert player.seen() == [WINDOW, "user", "assistant"]


@pytest.mark.parametrize("how", ["startup", "navigation", "reload"])
def test_a_steer_that_a_killed_rollover_left_unanswered_does_not_wait_for_ever(how: str) -> None:
    """It goes to the editor, since nothing goes on by itself; in the same process it goes to work."""
    player = started()
    player.ask()
    player.pi.user("steered")
    player.killed_before = ARCHIVE
    with pytest.raises(KilledError):
        player.settle(aborted=True)
    player = reopened(player)
    player.pi.editor = ""
    orphan = str(player.pi.leaf)
    if how == "navigation":
        player.pi.leaf = player.pi.entries[0]["id"]
        player.start()
        player.travel(orphan, summarize=False)
    else:
        player.start("reload" if how == "reload" else "startup")
    assert player.pi.shape() == SEALED
    assert player.held == []
    assert (player.pi.editor, player.sent) == (("", ["steered"]) if how == "reload" else ("steered", []))


def test_a_rollover_that_was_killed_before_navigation_is_closed_at_the_next_start() -> None:
    player = killed("navigate")
    player.start()
    why = "it was interrupted before the old window was left"
    assert player.notices == [("warning", f"Context window 1 was not started: {why}.")]
    assert list(player.intents())[-1]["why"] == why
    assert "branch_summary" not in player.pi.shape()
    assert player.phase == "idle"


@pytest.mark.parametrize("queued", [False, True])
def test_a_summary_of_work_that_went_on_without_the_daemon_is_the_users_own(queued: bool) -> None:  # noqa: FBT001
    """Design 4, step 8. What had been queued is taken at once, and belongs to the run that asked for the window."""
    player = killed("navigate")
    player.pi.clock += 0 if queued else 60_000
    player.pi.user("typed later")
    player.pi.assistant("answered")
    cut = next(player.intents())["cutId"]
    player.pi.navigate(cut, summarize=True)
    player.start()
    assert ("codex-context-tree-archive" in player.pi.shape()) is queued
    assert [data["step"] for data in player.intents()] == (["request"] if queued else ["request", "close"])
    assert player.phase == "idle"


def test_a_rollover_that_was_killed_with_its_marker_written_needs_nothing() -> None:
    player = started()
    player.rollover()
    player = reopened(player)
    player.start()
    assert player.pi.shape() == SEALED
    assert player.notices == []


@pytest.mark.parametrize("before", ["navigate", "emit", ARCHIVE, NOTE_SNAPSHOT, WINDOW])
@pytest.mark.parametrize("restarted", [False, True])
def test_recovering_twice_changes_nothing(before: str, restarted: bool) -> None:  # noqa: FBT001
    player = killed(before)
    player.start()
    entries = list(player.pi.entries)
    if restarted:
        player = reopened(player)
    assert player.start().effects == [fx.Capture()]
    assert player.pi.entries == entries


@pytest.mark.parametrize("before", ["emit", ARCHIVE, NOTE_SNAPSHOT, WINDOW])
def test_a_recovered_window_equals_one_that_was_never_interrupted(before: str) -> None:
    whole, cut = started(), killed(before)
    whole.rollover()
    cut.start()
    assert cut.pi.shape() == whole.pi.shape()
    assert cut.pi.last(ARCHIVE)["data"] == whole.pi.last(ARCHIVE)["data"]
    assert cut.pi.last(NOTE_SNAPSHOT)["data"]["files"] == whole.pi.last(NOTE_SNAPSHOT)["data"]["files"]
    assert cut.pi.last(WINDOW)["content"] == whole.pi.last(WINDOW)["content"]
    assert cut.pi.last(WINDOW)["details"] == whole.pi.last(WINDOW)["details"]


def test_a_system_message_between_snapshot_and_marker_does_not_hinder_recovery() -> None:
    """Pi 1.6 declares it before the marker (facts: pi-lifecycle 21)."""
    player = killed(WINDOW)
    player.pi.message("system", "")
    player.start()
    assert player.pi.shape() == [*SEALED[:3], "system", WINDOW]


def test_a_person_who_goes_to_the_orphaned_branch_gets_it_completed() -> None:
    player = killed(ARCHIVE)
    orphan = str(player.pi.leaf)
    player.pi.leaf = player.pi.entries[0]["id"]
    player.start()
    assert ARCHIVE not in player.pi.shape()
    reply = player.travel(orphan, summarize=False)
    assert not reply.internal
    assert player.pi.shape() == SEALED
    assert player.turns_due == 0


def test_an_intent_on_another_branch_is_left_alone() -> None:
    player = killed("navigate")
    player.pi.leaf = player.pi.entries[1]["id"]
    player.start()
    assert player.notices == []
    assert INTENT not in player.pi.shape()


def test_a_summary_that_a_person_made_is_not_taken_for_the_rollover() -> None:
    """It hangs from the base but abandons another leaf (design 4, step 8)."""
    player = killed("navigate")
    intent = next(player.intents())
    player.pi.leaf = None
    early = player.pi.custom("elsewhere", {})
    player.pi.summary(intent["baseId"], early)
    player.start()
    assert ARCHIVE not in player.pi.shape()


# A restarted daemon


def test_a_daemon_that_was_restarted_before_pi_settled_goes_on_with_the_request() -> None:
    player = started()
    player.ask()
    player.type("held")
    player.restart_daemon()
    assert player.start("resync").effects == [fx.Capture()]
    assert player.phase == "requested"
    player.settle(aborted=True)
    assert player.pi.shape() == SEALED
    assert player.sent == ["held"]
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_a_daemon_that_was_restarted_during_navigation_seals_when_pi_reports() -> None:
    player = started()
    navigate = due(player)
    player.restart_daemon()
    assert player.start("resync").effects == [fx.Capture()]
    assert player.phase == "navigating"
    old, summary = summarised(player, navigate)
    reply = player.tell(ev.SessionTree, old_leaf_id=old, summary=summary)
    assert isinstance(reply, fx.TreeReply)
    assert reply.internal
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old)
    assert player.pi.shape() == SEALED
    assert player.turns_due == 1


@pytest.mark.parametrize(("typed", "left"), [("  ", ""), ("a draft", "a draft")])
def test_a_daemon_that_was_restarted_during_navigation_leaves_the_editor_as_it_was(typed: str, left: str) -> None:
    """The shim carries what the editor held when Pi left; facts: pi-lifecycle 10 on what Pi puts there."""
    player = started()
    player.ask()
    player.pi.editor = typed
    (navigate,) = player.send(ev.AgentSettled, aborted=True, editor_text=typed).effects
    assert isinstance(navigate, fx.Navigate)
    player.restart_daemon()
    player.start("resync", in_flight=ev.InFlight(str(navigate.intent_id), navigate.blank_editor))
    old, _summary = summarised(player, navigate)
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old)
    assert player.pi.editor.strip() == left


def test_a_daemon_that_was_restarted_after_the_summary_finds_it_in_the_file() -> None:
    player = started()
    navigate = due(player)
    old, _summary = summarised(player, navigate)
    player.restart_daemon()
    player.start("resync")
    assert ARCHIVE not in player.pi.shape(), "Pi has not reported yet"
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old)
    assert player.pi.shape() == SEALED
    assert player.turns_due == 1


def test_a_daemon_that_never_saw_the_session_takes_a_rollover_up_from_its_report() -> None:
    player = started()
    navigate = due(player)
    old, _summary = summarised(player, navigate)
    player.restart_daemon()
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old)
    assert player.pi.shape() == SEALED


def test_a_daemon_that_was_restarted_while_sealing_completes_the_window_with_its_turn() -> None:
    player = started()
    player.ask()
    player.type("held")
    player.killed_before = NOTE_SNAPSHOT
    with pytest.raises(KilledError):
        player.settle(aborted=True)
    player.killed_before = ""
    player.restart_daemon()
    player.in_flight = None
    player.start("resync")
    assert player.pi.shape() == SEALED
    assert (player.turns_due, player.sent, player.holding) == (1, ["held"], False)


@pytest.mark.parametrize("how", ["resync", "reload"])
@pytest.mark.parametrize("failure", [{"cancelled": True}, {"error": "boom"}])
def test_a_daemon_that_was_restarted_during_navigation_is_told_of_its_failure(
    failure: dict[str, object], how: ev.StartReason
) -> None:
    """Also where the extension was replaced with it."""
    player = started()
    navigate = due(player)
    player.type("held")
    player.restart_daemon()
    player.start(how)
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=player.pi.leaf, **failure)
    assert (player.phase, player.sent, player.holding) == ("idle", ["held"], False)
    assert list(player.intents())[-1]["step"] == "close"


def test_a_daemon_that_was_restarted_while_pi_goes_back_takes_the_return_for_the_end() -> None:
    """A failed write has moved the leaf; the daemon that sent Pi back did not live to hear of it."""
    player = started()
    navigate = due(player)
    player.type("held")
    old = player.pi.leaf
    player.pi.leaf = None
    report = {"intent_id": navigate.intent_id, "old_leaf_id": old, "error": "ENOSPC"}
    back, *closing = player.send(ev.Navigated, **report).effects
    assert isinstance(back, fx.Navigate)
    player.pi.leaf = old
    player.restart_daemon()
    assert player.start("resync").effects == [fx.Capture()]
    assert player.send(ev.Navigated, intent_id=None, old_leaf_id=None) == fx.Reply()
    player.perform(closing)
    assert (player.phase, player.sent, player.holding) == ("idle", ["held"], False)
    assert list(player.intents())[-1]["step"] == "close"


def test_a_report_of_an_unknown_rollover_is_not_allowed_and_changes_nothing() -> None:
    player = started()
    player.settle()
    before = player.session.rollover
    for intent_id in ("unheard-of", None):
        with pytest.raises(NotAllowedError):
            player.send(ev.Navigated, intent_id=intent_id, old_leaf_id=player.pi.leaf)
        assert player.session.rollover is before


def test_a_report_of_another_rollover_does_not_end_the_one_under_way() -> None:
    player = started()
    player.fails = "cancelled"
    player.rollover()
    closed = next(player.intents())["intentId"]
    due(player)
    before = player.session.rollover
    with pytest.raises(NotAllowedError):
        player.send(ev.Navigated, intent_id="unheard-of", old_leaf_id=player.pi.leaf, cancelled=True)
    assert player.send(ev.Navigated, intent_id=closed, old_leaf_id=player.pi.leaf) == fx.Reply()
    assert player.session.rollover == before


def test_a_late_report_of_a_rollover_that_is_over_is_answered_with_nothing() -> None:
    player = started()
    player.rollover()
    intent_id = next(player.intents())["intentId"]
    player.turn()
    assert player.send(ev.Navigated, intent_id=intent_id, old_leaf_id=player.pi.leaf) == fx.Reply()
    player.restart_daemon()
    assert player.send(ev.Navigated, intent_id=intent_id, old_leaf_id=player.pi.leaf) == fx.Reply()


def test_a_report_while_the_marker_is_arriving_is_answered_with_nothing() -> None:
    player = started()
    player.rollover()
    player.send(ev.SessionBeforeCompact)
    assert player.phase == "continuing"
    intent_id = next(player.intents())["intentId"]
    assert player.send(ev.Navigated, intent_id=intent_id, old_leaf_id=None) == fx.Reply()


@pytest.mark.parametrize("phase", ["requested", "sealing"])
def test_a_report_at_the_wrong_time_is_not_allowed_and_changes_nothing(phase: str) -> None:
    player = started()
    player.ask()
    if phase == "sealing":
        player.killed_before = ARCHIVE
        with pytest.raises(KilledError):
            player.settle(aborted=True)
    before = player.session.rollover
    assert before.phase == Phase(phase)
    with pytest.raises(NotAllowedError):
        player.send(ev.Navigated, intent_id=next(player.intents())["intentId"], old_leaf_id=player.pi.leaf)
    assert player.session.rollover == before


# A reloaded extension


def test_after_a_reload_during_navigation_the_successor_seals_when_the_summary_comes() -> None:
    """Pi 0.85.0 reloads at once and navigates on (facts: pi-lifecycle 5)."""
    player = started()
    navigate = due(player)
    player.type("held")
    player.restart_daemon()
    assert player.start("reload").effects == [fx.Capture()]
    assert player.session.rollover.inherited
    old, summary = summarised(player, navigate)
    reply = player.tell(ev.SessionTree, old_leaf_id=old, summary=summary)
    assert isinstance(reply, fx.TreeReply)
    assert reply.internal
    assert player.pi.shape() == SEALED
    assert (player.turns_due, player.sent) == (1, ["held"])
    player.turn()
    assert (player.phase, player.seen()) == ("idle", [WINDOW, "assistant"])


def test_a_reload_during_navigation_in_the_same_daemon_is_inherited_too() -> None:
    player = started()
    navigate = due(player)
    player.start("reload")
    old, summary = summarised(player, navigate)
    player.tell(ev.SessionTree, old_leaf_id=old, summary=summary)
    assert player.pi.shape() == SEALED


def test_what_the_successor_has_sealed_is_not_sealed_again_when_the_report_comes() -> None:
    player = started()
    navigate = due(player)
    player.start("reload")
    old, summary = summarised(player, navigate)
    sealing = player.send(ev.SessionTree, old_leaf_id=old, summary=summary).effects
    assert player.send(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old) == fx.Reply()
    player.perform(sealing)
    assert player.pi.shape() == SEALED


def test_a_daemon_that_was_restarted_after_a_reload_during_navigation_seals_at_the_report() -> None:
    player = started()
    navigate = due(player)
    player.start("reload")
    old, summary = summarised(player, navigate)
    player.restart_daemon()
    player.start("resync")
    player.tell(ev.SessionTree, old_leaf_id=old, summary=summary)
    player.tell(ev.Navigated, intent_id=navigate.intent_id, old_leaf_id=old)
    assert player.pi.shape() == SEALED
    assert player.turns_due == 1


@pytest.mark.parametrize("reason", ["reload", "resync"])
def test_a_summary_that_is_not_on_the_branch_is_not_taken_for_the_rollover(reason: ev.StartReason) -> None:
    player = started()
    due(player)
    player.start(reason)
    intent = next(player.intents())
    unknown = ev.SummaryRef("ffffffff", str(player.pi.leaf), intent["baseId"])
    reply = player.send(ev.SessionTree, old_leaf_id=player.pi.leaf, summary=unknown)
    assert isinstance(reply, fx.TreeReply)
    assert not reply.internal
    assert player.phase == "navigating"


def test_after_a_reload_without_navigation_an_open_request_is_closed() -> None:
    player = started()
    player.ask()
    player.type("held")
    player.restart_daemon()
    player.start("reload")
    assert list(player.intents())[-1]["step"] == "close"
    assert (player.sent, player.holding, player.phase) == (["held"], False, "idle")


@pytest.mark.parametrize("reason", ["new", "resume", "fork", "startup"])
def test_input_that_was_held_in_a_session_that_is_left_goes_to_the_editor(reason: ev.StartReason) -> None:
    """Nothing typed is ever swallowed (design 4, step 6)."""
    player = Player()
    player.holding, player.held = True, ["typed", "more"]
    player.pi.editor = "draft"
    player.start(reason)
    assert (player.holding, player.held, player.sent) == (False, [], [])
    assert player.pi.editor == "draft\n\ntyped\n\nmore"
    assert player.notices == [("warning", "What was typed during the rollover is back in the editor.")]


def test_holding_nothing_is_ended_without_a_word() -> None:
    player = Player()
    player.holding = True
    player.start("new")
    assert (player.holding, player.notices) == (False, [])


def test_in_flight_of_a_rollover_that_is_over_is_nothing_to_wait_for() -> None:
    player = started()
    player.rollover()
    intent_id = next(player.intents())["intentId"]
    player.turn()
    player.start("reload", in_flight=ev.InFlight(intent_id))
    assert player.session.rollover == Rollover()


# All of it


@given(st.data())
def test_wherever_a_rollover_is_cut_short_the_session_ends_whole(data: st.DataObject) -> None:
    """Killed any number of times, before any effect: at last there is one window, readable, and nothing pending."""
    player = Player()
    player.pi.thinking("medium")
    player.start()
    for at in range(data.draw(st.integers(1, 3), "rollovers")):
        note = {"protocol": 1, "action": "append", "path": "n", "text": f"{at}\n", "timestamp": at}
        player.pi.custom(NOTE, note)
        player.work(f"task {at}")
        stages = ["", INTENT, "hold_input", "abort", "navigate", "emit", ARCHIVE, NOTE_SNAPSHOT, WINDOW]
        player.killed_before = data.draw(st.sampled_from(stages), "killed before")
        try:
            player.rollover()
        except KilledError:
            player = reopened(player)
            stages = ["", "capture", ARCHIVE, NOTE_SNAPSHOT, INTENT, WINDOW, "notify"]
            player.killed_before = data.draw(st.sampled_from(stages), "and again")
            try:
                player.start()
            except KilledError:
                player = reopened(player)
                player.start()
        player.look()
    assert player.start().effects == [fx.Capture()]
    assert player.phase == "idle"
    archives = player.session.archives.of(player.tree.branch(player.pi.leaf))
    assert all(getattr(archive, "sealed", False) for archive in archives)
    assert "branch_summary" not in player.seen()
    texts = [f"answer to task {at}" for at in range(9)]
    kept = [str(entry) for entry in player.pi.entries]
    assert all(any(text in entry for entry in kept) for text in texts[: len(archives)])
    numbers = [
        entry["details"]["contextManagement"]["windowNumber"]
        for entry in player.pi.branch()
        if entry.get("customType") == WINDOW
    ]
    assert numbers == [len(archives)]
