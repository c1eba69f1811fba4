"""Whole rollovers, played without Pi: what is written, in which order, and what the model sees of it."""

import pytest

from builders import START, KilledError, Player, outline_item
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, INTENT, NOTE, NOTE_SNAPSHOT, WINDOW
from state.errors import NotAllowedError
from state.rollover import Rollover


def started(ui: ev.UiMode = "tui") -> Player:
    """A new session with its first marker and one answered prompt."""
    player = Player(ui=ui)
    player.pi.thinking("medium")
    player.start()
    player.work("task")
    return player


def rolled(times: int = 1) -> Player:
    player = started()
    for _ in range(times):
        player.rollover()
        player.turn()
    return player


def kinds(effects: list[fx.AnyEffect]) -> list[str]:
    return [str(getattr(effect, "custom_type", None) or effect.__struct_config__.tag) for effect in effects]


# Starting


def test_a_new_session_captures_and_gets_its_first_marker() -> None:
    player = Player()
    reply = player.start()
    assert kinds(reply.effects) == ["capture", WINDOW]
    marker = player.pi.last(WINDOW)
    identity = marker["details"]["contextManagement"]
    assert identity == {
        "protocol": 1,
        "kind": "window",
        "firstWindowId": identity["currentWindowId"],
        "currentWindowId": identity["currentWindowId"],
        "windowNumber": 0,
    }
    assert player.turns_due == 0, "a marker at the start asks the model for nothing"


@pytest.mark.parametrize("reason", ["startup", "resume", "reload", "new", "fork", "resync"])
def test_a_second_start_makes_no_second_marker(reason: ev.StartReason) -> None:
    """Pi below 1.6 sends session_start twice in rpc mode (facts: pi-lifecycle 3)."""
    player = Player()
    player.start()
    assert kinds(player.start(reason).effects) == ["capture"]
    assert player.pi.shape() == [WINDOW]


def test_a_session_with_work_but_without_a_marker_gets_one_at_its_end() -> None:
    player = Player()
    player.work()
    player.start()
    assert player.pi.shape() == ["user", "assistant", WINDOW]


# A rollover


def test_a_rollover_writes_summary_manifest_snapshot_and_marker_in_this_order() -> None:
    """Facts: pi-lifecycle 6; design 4."""
    player = started()
    player.rollover()
    assert player.pi.shape() == ["thinking_level_change", "branch_summary", ARCHIVE, NOTE_SNAPSHOT, WINDOW]
    assert player.turns_due == 1


def test_a_rollover_names_its_windows_and_what_it_archived() -> None:
    player = started()
    first = player.pi.last(WINDOW)
    player.rollover()
    intent = next(player.intents())
    summary = next(entry for entry in player.pi.branch() if entry["type"] == "branch_summary")
    window = first["details"]["contextManagement"]["currentWindowId"]
    assert player.pi.last(ARCHIVE)["data"] == {
        "protocol": 1,
        "strategy": "codex-context-tree",
        "windowId": window,
        "boundaryEntryId": first["id"],
        "summaryEntryId": summary["id"],
        "archivedLeafId": summary["fromId"],
        "branchBaseId": first["parentId"],
    }
    marker = player.pi.last(WINDOW)["details"]["contextManagement"]
    assert (marker["windowNumber"], marker["previousWindowId"]) == (1, window)
    assert marker == intent["next"]
    assert intent["identity"]["currentWindowId"] == window


def test_the_new_marker_tells_where_the_old_window_can_be_read() -> None:
    player = started()
    user = next(entry["id"] for entry in player.pi.branch() if entry.get("message", {}).get("role") == "user")
    player.rollover()
    archived = player.pi.last(ARCHIVE)["data"]
    ids = f'"window_id":"{archived["windowId"]}","summary_item_id":"{archived["summaryEntryId"]}"'
    hint = f'Previous window history IDs: {{{ids},"user_item_ids":["{user}"]}}'
    assert hint in player.pi.last(WINDOW)["content"].split("\n")


def test_the_model_sees_the_new_window_alone() -> None:
    player = rolled()
    assert player.seen() == [WINDOW, "assistant"]
    player.work("more")
    assert player.seen() == [WINDOW, "assistant", "user", "assistant"]


def test_a_second_rollover_hangs_from_the_snapshot_of_the_first() -> None:
    """Facts: tree-upstream 4.2."""
    player = rolled(2)
    once = ["branch_summary", ARCHIVE, NOTE_SNAPSHOT]
    assert player.pi.shape() == ["thinking_level_change", *once, *once, WINDOW, "assistant"]
    assert player.seen() == [WINDOW, "assistant"]
    manifests = [entry["data"] for entry in player.pi.branch() if entry.get("customType") == ARCHIVE]
    snapshot = next(entry for entry in player.pi.branch() if entry.get("customType") == NOTE_SNAPSHOT)
    assert manifests[1]["branchBaseId"] == snapshot["id"]
    assert player.pi.last(WINDOW)["details"]["contextManagement"]["windowNumber"] == 2
    assert player.phase == "idle"


def test_many_rollovers_leave_every_window_readable() -> None:
    player = rolled(12)
    player.send(ev.Context, count=0)
    archives = player.session.archives.of(player.tree.branch(player.pi.leaf))
    assert [getattr(archive, "sealed", None) for archive in archives] == [True] * 12
    assert player.notices == []


def test_the_first_rollover_of_a_session_with_earlier_work_cuts_at_the_first_message() -> None:
    """So that the new window holds only its marker and live work (design 4, step 3)."""
    player = Player()
    player.pi.thinking("medium")
    player.pi.custom("elsewhere", {})
    first = player.pi.user("old work")
    player.pi.assistant()
    player.start()
    player.work()
    player.rollover()
    assert player.pi.shape() == ["thinking_level_change", "elsewhere", "branch_summary", ARCHIVE, NOTE_SNAPSHOT, WINDOW]
    assert next(player.intents())["cutId"] == first
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_a_custom_message_of_earlier_work_is_a_cut_too() -> None:
    player = Player()
    first = player.pi.custom_message("elsewhere", "text")
    player.pi.user("old work")
    player.start()
    player.rollover()
    assert next(player.intents())["cutId"] == first


def test_later_rollovers_cut_at_the_boundary() -> None:
    player = rolled()
    boundary = player.pi.last(WINDOW)["id"]
    player.work()
    player.rollover()
    assert list(player.intents())[-1]["cutId"] == boundary


def test_the_intent_is_written_input_held_and_the_run_aborted_before_the_call_returns() -> None:
    player = started()
    leaf = player.pi.leaf
    reply = player.ask()
    assert kinds(reply.effects) == [INTENT, "hold_input", "abort"]
    assert (reply.details, reply.is_error) == ({"started": True}, False)
    assert (player.holding, player.aborts, player.phase) == (True, 1, "requested")
    intent = next(player.intents())
    assert player.pi.entry(intent["leafId"])["parentId"] == leaf
    assert intent["requestedAt"] >= START


def test_the_rollover_ends_with_the_turn_of_the_new_window() -> None:
    player = started()
    player.rollover()
    assert player.phase == "sealing"
    player.look()
    assert player.phase == "idle"


def test_settling_without_a_rollover_asks_for_nothing() -> None:
    player = started()
    assert player.settle() == fx.Reply()


def test_the_bus_hears_that_the_navigation_was_internal() -> None:
    """So that live runtimes of other extensions are kept (design 4)."""
    player = started()
    player.rollover()
    intent = next(player.intents())
    assert player.emitted == [
        {
            "channel": "contextd:tree",
            "internal": True,
            "windowId": intent["next"]["currentWindowId"],
            "previousWindowId": intent["identity"]["currentWindowId"],
        }
    ]


def test_notes_go_into_the_snapshot_and_the_new_marker() -> None:
    player = started()
    data = {"protocol": 1, "action": "write", "path": "/root/notes/a.md", "text": "x\n", "timestamp": 7}
    player.pi.custom(NOTE, data)
    player.rollover()
    snapshot = player.pi.last(NOTE_SNAPSHOT)["data"]
    assert snapshot["files"] == [{"path": "/root/notes/a.md", "text": "x\n", "createdAt": 7, "updatedAt": 7}]
    assert "\n- /root/notes/a.md (1 line, 2 UTF-8 bytes)\n" in player.pi.last(WINDOW)["content"]
    player.turn()
    player.rollover()
    assert player.pi.last(NOTE_SNAPSHOT)["data"]["files"] == snapshot["files"]


def test_a_note_written_between_abort_and_navigation_is_in_the_snapshot() -> None:
    """Facts: tree-upstream 4.2."""
    player = started()
    player.ask()
    data = {"protocol": 1, "action": "write", "path": "late", "text": "x", "timestamp": 7}
    player.pi.custom(NOTE, data)
    player.settle(aborted=True)
    assert [file["path"] for file in player.pi.last(NOTE_SNAPSHOT)["data"]["files"]] == ["late"]


def test_thinking_level_and_model_that_the_cut_left_behind_are_declared_again() -> None:
    """Pi 0.85.0 would take those of the cut after a resume (facts: pi-lifecycle 21)."""
    player = Player()
    player.pi.thinking("medium")
    player.pi.model("anthropic", "claude")
    player.start()
    player.pi.thinking("high")
    player.pi.model("openrouter", "vendor/model")
    player.rollover()
    assert player.pi.shape()[-3:] == ["thinking_level_change", "model_change", WINDOW]
    level, model = player.pi.branch()[-3:-1]
    assert (level["thinkingLevel"], model["provider"], model["modelId"]) == ("high", "openrouter", "vendor/model")


def test_selections_that_the_cut_kept_are_not_declared_again() -> None:
    player = Player()
    player.pi.thinking("medium")
    player.pi.model("anthropic", "claude")
    player.start()
    player.rollover()
    assert player.pi.shape().count("thinking_level_change") == 1
    assert player.pi.shape().count("model_change") == 1


def test_the_text_that_pi_puts_into_a_blank_editor_is_cleared() -> None:
    """Facts: pi-lifecycle 10."""
    player = started()
    player.pi.editor = "  "
    player.rollover()
    assert player.pi.editor == ""


def test_a_draft_in_the_editor_stays() -> None:
    player = started()
    player.pi.editor = "a draft"
    player.rollover()
    assert player.pi.editor == "a draft"


def test_what_was_typed_during_the_summary_stays() -> None:
    player = started()
    player.during_summary = lambda: setattr(player.pi, "editor", "typed meanwhile")
    player.rollover()
    assert player.pi.editor == "typed meanwhile"


def test_held_input_follows_the_marker_in_the_order_it_was_typed() -> None:
    player = started()
    player.ask()
    player.type("one")
    player.during_summary = lambda: player.type("two")
    player.settle(aborted=True)
    assert (player.sent, player.holding) == (["one", "two"], False)


def test_a_steer_that_nobody_answered_is_sent_again_before_held_input() -> None:
    """It was injected into the old window and archived there (facts: pi-lifecycle 4.3)."""
    player = started()
    player.ask()
    player.pi.user("steered")
    player.pi.user("steered again")
    player.pi.assistant("", stop="error")
    player.type("held")
    player.settle(aborted=True)
    assert player.sent == ["steered", "steered again", "held"]


@pytest.mark.parametrize("stop", ["stop", "toolUse", "length"])
def test_a_follow_up_that_was_answered_in_the_old_window_is_not_sent_again(stop: str) -> None:
    """Facts: pi-lifecycle 4.3."""
    player = started()
    player.ask()
    player.pi.user("follow up")
    player.pi.assistant("answer", stop=stop)
    player.settle(aborted=True)
    assert player.sent == []


@pytest.mark.parametrize(("ui", "waits"), [("tui", 0), ("rpc", 0), ("json", 1), ("print", 1)])
def test_modes_that_exit_wait_for_the_new_window(ui: ev.UiMode, waits: int) -> None:
    """Facts: pi-lifecycle 6."""
    player = started(ui)
    player.rollover()
    assert player.waits == waits


def test_a_summary_of_a_leaf_that_grew_meanwhile_is_ours() -> None:
    """`fromId` may be later than the old leaf (facts: pi-lifecycle 21)."""
    player = started()
    player.ask()
    player.send(ev.AgentSettled, aborted=True)
    intent = player.session.rollover.intent
    assert intent is not None
    old = player.pi.leaf
    player.pi.custom("elsewhere", {})
    made = player.pi.navigate(intent.cut_id, summarize=True)
    assert made is not None
    summary = ev.SummaryRef(made["id"], made["fromId"], made["parentId"])
    reply = player.tell(ev.SessionTree, old_leaf_id=old, summary=summary)
    assert isinstance(reply, fx.TreeReply)
    assert reply.internal
    player.tell(ev.Navigated, intent_id=intent.intent_id, old_leaf_id=old)
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


# Refusals


def test_a_second_request_is_refused_and_the_first_goes_on() -> None:
    player = started()
    player.ask()
    before = player.session.rollover
    reply = player.send(ev.ToolExecute, tool="new_context", call_id="c", captured=True)
    assert isinstance(reply, fx.ToolReply)
    assert (reply.text, reply.is_error) == ("A new context window is already on its way.", True)
    assert reply.effects == []
    assert player.session.rollover == before
    player.settle(aborted=True)
    assert player.pi.shape()[-1] == WINDOW


def test_without_a_command_context_there_is_no_rollover() -> None:
    player = started()
    reply = player.ask(captured=False)
    assert reply.is_error
    assert "command context" in reply.text
    assert (player.session.rollover, player.holding) == (Rollover(), False)


def test_without_a_marker_there_is_no_rollover() -> None:
    player = Player()
    player.work()
    reply = player.ask(captured=True)
    assert reply.is_error
    assert "no window" in reply.text


def test_a_window_that_could_not_be_read_back_is_never_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 4, step 1."""
    monkeypatch.setattr("state.coordinator.MAX_INTERVAL", 3)
    player = started()
    reply = player.ask()
    assert reply.is_error
    assert reply.text == "A new context window cannot be started: the path is longer than 3 entries."
    assert INTENT not in player.pi.shape()


def test_a_loss_that_is_older_than_the_window_does_not_stop_a_rollover() -> None:
    player = Player()
    player.pi.append("custom", parent="gone", customType="elsewhere", data={})
    player.start()
    player.rollover()
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_notes_that_no_snapshot_can_hold_refuse_the_rollover() -> None:
    """Facts: tree-upstream 3.2, hazard 8."""
    player = started()
    for number in range(11):
        data = {"protocol": 1, "action": "write", "path": str(number), "text": "x" * 1_000_000, "timestamp": 1}
        player.pi.custom(NOTE, data)
    reply = player.ask()
    assert reply.is_error
    assert "10,000,000" in reply.text
    assert INTENT not in player.pi.shape()


def test_an_unknown_tool_is_not_allowed() -> None:
    player = started()
    with pytest.raises(NotAllowedError):
        player.send(ev.ToolExecute, tool="old_context", call_id="c", captured=True)


# Failures of the navigation


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        ("error", "Branch summarization failed: boom"),
        ("cancelled", "it was cancelled"),
        ("no summary", "Pi made no summary"),
    ],
)
def test_a_failed_summary_leaves_the_old_window_as_it_was(failure: str, why: str) -> None:
    """Facts: pi-lifecycle 5: nothing was added and the leaf has not moved."""
    player = started()
    player.fails = failure  # type: ignore[assignment]  # one of its literals
    player.ask()
    player.type("held")
    leaf = player.pi.leaf
    player.settle(aborted=True)
    assert player.notices == [("error", f"Context window 1 was not started: {why}. Window 0 goes on.")]
    assert (player.phase, player.holding, player.sent) == ("idle", False, ["held"])
    closing = list(player.intents())[-1]
    assert closing == {"step": "close", "intentId": next(player.intents())["intentId"], "why": why}
    assert player.pi.entry(str(player.pi.leaf))["parentId"] == leaf
    assert player.turns_due == 0
    assert player.session.windows.last_error == why


def test_after_a_failure_the_next_rollover_works() -> None:
    player = started()
    player.fails = "error"
    player.rollover()
    player.rollover()
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]
    assert player.session.windows.last_error is None
    assert player.pi.last(WINDOW)["details"]["contextManagement"]["windowNumber"] == 1


def test_a_failed_write_that_moved_the_leaf_is_repaired_before_anything_else() -> None:
    """Facts: pi-lifecycle 21."""
    player = started()
    player.fails = "write"
    player.ask()
    player.type("held")
    old = player.pi.leaf
    player.settle(aborted=True)
    assert kinds(player.performed)[-5:] == ["navigate", "navigate", "notify", INTENT, "release_input"]
    assert player.pi.entry(str(player.pi.leaf))["parentId"] == old
    assert (player.phase, player.sent) == ("idle", ["held"])
    assert player.emitted == [], "nobody needs to hear of the way back"
    player.rollover()
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def lose_the_marker(player: Player) -> str:
    """Pi could not write it, and no request has come; the window that it would have opened."""
    marker = player.pi.entries.pop()
    player.pi.leaf = marker["parentId"]
    player.pi.assistant("", stop="error")
    return str(marker["details"]["id"])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_marker_that_pi_could_not_write_brings_the_old_window_back(*, restarted: bool) -> None:
    """Design 4, step 7: no turn starts without it, and nothing between the old window and the new one stays."""
    player = started()
    player.ask()
    player.pi.tool_result("new_context", "scheduled")
    old = player.pi.leaf
    player.settle(aborted=True)
    window = lose_the_marker(player)
    intent = next(player.intents())
    if restarted:
        player.restart_daemon()
        in_flight = ev.InFlight(intent["intentId"])
        assert player.start("resync", in_flight=in_flight, holding=True).effects == [fx.Capture()]
    player.holding, player.held = True, ["held"]
    player.tell(ev.AgentSettled, unwritten=window)
    assert player.pi.entry(str(player.pi.leaf))["parentId"] == old
    assert (player.phase, player.sent, player.notices[-1][0]) == ("idle", ["held"], "error")
    player.rollover()
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_a_marker_that_was_written_after_all_stays() -> None:
    player = started()
    player.ask()
    player.settle(aborted=True)
    player.holding, player.held = True, ["held"]
    player.tell(ev.AgentSettled, unwritten=player.pi.last(WINDOW)["details"]["id"])
    assert (player.phase, player.sent) == ("idle", ["held"])
    assert player.pi.last(WINDOW)["details"]["contextManagement"]["windowNumber"] == 1


def test_what_pi_could_not_write_of_the_users_is_back_in_the_editor() -> None:
    player = started()
    player.held = ["typed"]
    player.tell(ev.AgentSettled, swallowed=1)
    assert (player.pi.editor, player.sent) == ("typed", [])
    assert player.notices[-1][0] == "error"


def test_what_pi_could_not_write_during_a_rollover_goes_to_the_new_window() -> None:
    player = started()
    player.ask()
    player.held = ["typed"]
    player.tell(ev.AgentSettled, swallowed=1)
    assert player.sent == ["typed"]
    assert player.pi.last(WINDOW)["details"]["contextManagement"]["windowNumber"] == 1


def test_an_unanswered_steer_is_sent_again_in_the_old_window_when_the_rollover_fails() -> None:
    player = started()
    player.ask()
    player.pi.user("steered")
    player.type("held")
    player.fails = "cancelled"
    player.settle(aborted=True)
    assert player.sent == ["steered", "held"]


def test_a_rollover_whose_branch_was_left_before_it_settled_is_given_up() -> None:
    player = started()
    start = player.pi.branch()[0]["id"]
    player.ask()
    player.type("held")
    player.pi.leaf = start
    player.settle(aborted=True)
    assert "the session moved to another branch meanwhile" in player.notices[-1][1]
    assert (player.phase, player.sent) == ("idle", ["held"])
    assert "branch_summary" not in [entry["type"] for entry in player.pi.entries]


# Failures of other effects


def test_a_failed_intent_gives_up_the_rollover() -> None:
    player = started()
    player.throws = {"append_entry"}
    reply = player.ask()
    assert not reply.is_error
    assert player.phase == "idle"
    assert "Pi could not append entry (ENOSPC)" in player.notices[0][1]
    assert not player.holding
    player.settle(aborted=True)
    assert player.pi.shape()[-1] != WINDOW


def test_an_effect_that_fails_while_sealing_takes_pi_back_to_the_old_window() -> None:
    """No turn starts until manifest, snapshot and marker exist (design 4, step 7)."""
    player = started()
    player.ask()
    old = player.pi.leaf
    player.type("held")
    player.throws = {"append_message"}
    player.settle(aborted=True)
    assert player.phase == "idle"
    assert player.pi.entry(str(player.pi.leaf))["parentId"] == old
    assert (player.turns_due, player.sent, player.holding) == (0, ["held"], False)
    assert player.notices == [
        ("error", "Context window 1 was not started: Pi could not append message (ENOSPC). Window 0 goes on.")
    ]
    player.throws = set()
    player.rollover()
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_a_full_disk_from_the_manifest_on_ends_in_the_old_window() -> None:
    player = started()
    player.ask()
    old = player.pi.leaf
    player.type("held")
    player.throws = {"append_entry"}
    player.settle(aborted=True)
    assert (player.phase, player.pi.leaf, player.holding) == ("idle", old, False)
    assert player.sent == ["held"]


def test_a_failed_effect_without_a_rollover_is_told_and_releases_input() -> None:
    player = started()
    reply = player.tell(ev.EffectFailed, effect="emit", error="stale")
    assert kinds(reply.effects) == ["release_input", "notify"]
    assert player.notices == [("error", "contextd: Pi could not emit (stale).")]


def test_a_failed_effect_after_the_marker_changes_nothing_of_the_window() -> None:
    player = started()
    player.rollover()
    player.send(ev.SessionBeforeCompact)
    assert player.phase == "continuing"
    reply = player.tell(ev.EffectFailed, effect="set_editor", error="stale")
    assert kinds(reply.effects) == ["release_input", "notify"]
    assert player.phase == "continuing"


def test_a_failed_way_back_ends_the_rollover() -> None:
    player = started()
    player.fails = "write"
    player.ask()
    player.send(ev.AgentSettled, aborted=True)
    intent = player.session.rollover.intent
    assert intent is not None
    old, player.pi.leaf = player.pi.leaf, player.pi.branch()[0]["id"]
    player.send(ev.Navigated, intent_id=intent.intent_id, old_leaf_id=old, error="ENOSPC")
    assert player.phase == "failed"
    reply = player.send(ev.EffectFailed, effect="navigate", error="stale")
    assert kinds(reply.effects) == ["release_input", "notify"]
    assert player.phase == "idle"


# Navigation by a person


def test_a_branch_without_a_marker_gets_a_fresh_one_and_the_bus_hears_of_it() -> None:
    player = rolled()
    base = player.pi.branch()[0]["id"]
    reply = player.travel(base, summarize=False)
    assert not reply.internal
    assert player.pi.shape() == ["thinking_level_change", WINDOW]
    identity = player.pi.last(WINDOW)["details"]["contextManagement"]
    assert (identity["windowNumber"], identity["firstWindowId"]) == (0, identity["currentWindowId"])
    assert player.emitted[-1]["internal"] is False
    assert player.turns_due == 0


def test_a_fresh_marker_after_archives_carries_on_from_the_last_one() -> None:
    player = rolled(2)
    snapshot = [entry for entry in player.pi.branch() if entry.get("customType") == NOTE_SNAPSHOT][-1]
    archived = player.pi.last(ARCHIVE)["data"]["windowId"]
    player.travel(snapshot["id"], summarize=False)
    identity = player.pi.branch()[-1]["details"]["contextManagement"]
    assert (identity["windowNumber"], identity["previousWindowId"]) == (2, archived)
    assert f'"window_id":"{archived}"' in player.pi.branch()[-1]["content"]
    assert player.seen() == [WINDOW], "the summaries are hidden again"


def test_a_branch_with_a_marker_gets_none() -> None:
    player = rolled()
    old = player.pi.last(ARCHIVE)["data"]["archivedLeafId"]
    window = player.pi.last(ARCHIVE)["data"]["windowId"]
    player.travel(old, summarize=False)
    assert player.pi.leaf == old
    assert player.emitted[-1] == {
        "channel": "contextd:tree",
        "internal": False,
        "windowId": window,
        "previousWindowId": None,
    }


def test_a_manual_summary_is_never_touched() -> None:
    player = started()
    user = next(entry["id"] for entry in player.pi.branch() if entry.get("message", {}).get("role") == "user")
    player.travel(user, summarize=True)
    assert player.pi.shape() == ["thinking_level_change", WINDOW, "branch_summary"]
    assert player.seen() == [WINDOW, "branch_summary"]
    assert ARCHIVE not in player.pi.shape()


def test_a_summary_from_another_leaf_is_not_ours_even_while_we_navigate() -> None:
    """Design 4, step 4."""
    player = started()
    player.ask()
    player.send(ev.AgentSettled, aborted=True)
    intent = player.session.rollover.intent
    assert intent is not None
    for summary, old in [
        (ev.SummaryRef("s", "elsewhere", intent.base_id), "elsewhere"),
        (ev.SummaryRef("s", str(player.pi.leaf), "elsewhere"), player.pi.leaf),
        (None, player.pi.leaf),
    ]:
        reply = player.send(ev.SessionTree, old_leaf_id=old, summary=summary)
        assert isinstance(reply, fx.TreeReply)
        assert not reply.internal
        assert kinds(reply.effects) == ["emit"]
        assert player.session.rollover.summary_id is None


# Compaction


def test_compaction_is_cancelled_only_while_a_rollover_is_pending() -> None:
    """Pi would compact between the tool result and settle (facts: pi-lifecycle 4.4)."""
    player = started()
    answers = []

    def look() -> None:
        answers.append((player.phase, player.send(ev.SessionBeforeCompact, reason="threshold")))

    look()
    player.ask()
    look()
    player.during_summary = look
    player.settle(aborted=True)
    look()
    player.turn()
    look()
    assert answers == [
        ("idle", fx.Verdict()),
        ("requested", fx.Verdict(cancel=True)),
        ("navigating", fx.Verdict(cancel=True)),
        ("sealing", fx.Verdict()),
        ("idle", fx.Verdict()),
    ]


# The command


def test_rollover_by_command_departs_at_once_when_nothing_runs() -> None:
    player = started()
    player.command("rollover")
    assert player.aborts == 0
    assert player.pi.shape() == ["thinking_level_change", "branch_summary", ARCHIVE, NOTE_SNAPSHOT, WINDOW]
    player.turn()
    assert player.seen() == [WINDOW, "assistant"]


def test_rollover_by_command_aborts_the_run_that_is_going_on() -> None:
    player = started()
    player.pi.user("long task")
    player.command(" rollover ", idle=False)
    assert (player.aborts, player.phase) == (1, "requested")
    player.pi.assistant("", stop="aborted")
    player.settle(aborted=True)
    assert player.pi.shape()[-1] == WINDOW


def test_rollover_by_command_is_refused_in_words() -> None:
    player = started()
    player.captured = False
    player.command("rollover")
    assert player.notices == [("error", "A new context window cannot be started: Pi has given no command context yet.")]


def test_an_effect_that_fails_after_a_command_keeps_the_marker_of_the_old_window() -> None:
    """The leaf may be the marker itself, to which Pi does not navigate (facts: pi-lifecycle 5)."""
    player = Player()
    player.start()
    marker = player.pi.leaf
    player.throws = {"append_message"}
    player.command("rollover")
    assert player.phase == "idle"
    assert marker in [entry["id"] for entry in player.pi.branch()]
    player.throws = set()
    player.command("rollover")
    assert player.pi.shape()[-1] == WINDOW


def test_an_intent_that_cannot_be_written_ends_a_rollover_by_command_where_it_began() -> None:
    player = started()
    leaf = player.pi.leaf
    player.throws = {"append_entry"}
    player.command("rollover")
    assert (player.phase, player.holding, player.pi.leaf) == ("idle", False, leaf)
    assert "Pi could not append entry (ENOSPC)" in player.notices[0][1]


@pytest.mark.parametrize("args", ["", "unheard of"])
def test_any_other_subcommand_explains_the_command(args: str) -> None:
    player = started()
    player.command(args)
    level, text = player.notices[-1]
    assert level == "warning"
    assert "/context status" in text
    assert "/context rollover" in text


def test_status_tells_everything_in_lines() -> None:
    player = rolled()
    player.pi.custom(NOTE, {"protocol": 1, "action": "write", "path": "a.md", "text": "x\ny", "timestamp": 1})
    player.command("status")
    archive = player.pi.last(ARCHIVE)["data"]
    window = player.pi.last(WINDOW)["details"]["contextManagement"]["currentWindowId"]
    total, branch = len(player.pi.entries), len(player.pi.branch())
    items = total - branch
    assert player.notices == [
        (
            "info",
            "\n".join(
                [
                    "contextd 0.1.0 · mode tree · Pi 1.6.0",
                    f"session   {branch} of {total} entries on this branch",
                    f"window    1 · {window} · 2 entries",
                    "rollover  idle",
                    f"archives  {archive['windowId']} · {items} items · summary hidden",
                    "notes     a.md (2 lines, 3 bytes)",
                    "oddities  none",
                ]
            ),
        )
    ]


def test_status_tells_what_went_wrong() -> None:
    player = started()
    player.fails = "cancelled"
    player.rollover()
    player.pi.custom(ARCHIVE, None)
    broken = player.pi.leaf
    player.command("status")
    lines = player.notices[-1][1].split("\n")
    assert "          the last one failed: it was cancelled" in lines
    assert f"archives  manifest {broken} · unavailable: the manifest is malformed" in lines
    assert "notes     none" in lines


def test_status_of_a_branch_without_a_window_says_so() -> None:
    player = Player()
    player.pi.append("custom", parent="gone", customType="x", data={})
    player.command("status")
    lines = player.notices[-1][1].split("\n")
    assert lines[1] == "session   1 of 1 entries on this branch, incomplete"
    assert lines[2] == "window    none on this branch"


# The projection


def test_a_summary_stays_until_the_marker_is_in() -> None:
    player = started()
    player.ask()
    player.killed_before = WINDOW
    with pytest.raises(KilledError):
        player.settle(aborted=True)
    assert player.seen() == ["branch_summary"]


def test_a_summary_whose_manifest_is_damaged_is_seen_again_and_others_stay_hidden() -> None:
    """Upstream flips everything over one (facts: tree-upstream 4.1)."""
    player = rolled(2)
    first = next(entry for entry in player.pi.branch() if entry.get("customType") == ARCHIVE)
    first["data"]["windowId"] = ""
    player.restart_daemon()
    assert player.seen() == ["branch_summary", WINDOW, "assistant"]


def test_a_summary_whose_text_was_changed_by_someone_is_not_hidden() -> None:
    player = rolled()
    items = [
        ev.OutlineItem(at=0, role="branchSummary", from_id="x", timestamp=1, hash="0" * 16),
        ev.OutlineItem(at=1, role="custom", custom_type=WINDOW, id="w"),
    ]
    assert player.send(ev.Context, count=3, outline=items) == fx.ContextReply()


@pytest.mark.parametrize(
    "timestamp", ["21:00:010.000Z", "", "<ts>", "0001-01-01T00:00:00", "9999-12-31T23:59:59-23:00"]
)
def test_a_summary_with_an_impossible_time_stays_visible_and_breaks_nothing(timestamp: str) -> None:
    """Real files hold such times (facts: real-sessions 2)."""
    player = rolled(2)
    first = next(entry for entry in player.pi.branch() if entry["type"] == "branch_summary")
    first["timestamp"] = timestamp
    player.restart_daemon()
    second = [entry for entry in player.pi.branch() if entry["type"] == "branch_summary"][1]
    item = outline_item(1, second)
    assert item is not None
    own = ev.OutlineItem(at=0, role="branchSummary", from_id=first["fromId"], timestamp=0, hash="0" * 16)
    reply = player.send(ev.Context, count=3, outline=[own, item])
    assert reply == fx.ContextReply(keep=[(0, 1), (2, 3)])
