"""How much room is left, and the one reminder of a window (facts: tree-upstream 1.5)."""

import pytest

from builders import SESSION_ID, Json, Player
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import WINDOW, MarkerDetails, WindowIdentity
from state.budget import REMINDER, RESERVE, Budget, budget, reminder, sentence
from state.session import Session

LIMIT = 255_616
"""Of a model with a window of 272,000."""


def used(tokens: int | None) -> ev.Usage:
    return ev.Usage(tokens, 272_000)


@pytest.mark.parametrize(
    ("usage", "reserve", "expected"),
    [
        (used(12_000), 0, Budget(LIMIT, 243_616)),
        (used(12_000), 16_384, Budget(LIMIT, 243_616)),
        (used(12_000), 32_768, Budget(239_232, 227_232)),
        (used(0), 0, Budget(LIMIT, LIMIT)),
        (used(LIMIT), 0, Budget(LIMIT, 0)),
        (used(300_000), 0, Budget(LIMIT, 0)),
        (used(None), 0, Budget(LIMIT, None)),
        (ev.Usage(10, 16_384), 0, Budget(0, 0)),
        (ev.Usage(10, 8_000), 0, Budget(0, 0)),
        (used(12_000), -5, Budget(LIMIT, 243_616)),
        (None, 0, None),
    ],
)
def test_the_limit_is_the_window_less_the_larger_reserve(
    usage: ev.Usage | None, reserve: int, expected: Budget | None
) -> None:
    assert budget(usage, reserve) == expected


def test_the_numbers_are_upstreams() -> None:
    assert (RESERVE, REMINDER) == (16_384, 6_144)


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (Budget(LIMIT, 243_616), "You have 243616 tokens left in this context window."),
        (Budget(LIMIT, 0), "You have 0 tokens left in this context window."),
        (Budget(LIMIT, None), "You have unknown tokens left in this context window."),
        (None, "You have unknown tokens left in this context window."),
    ],
)
def test_the_model_is_told_in_one_sentence(left: Budget | None, text: str) -> None:
    assert sentence(left) == text


def remaining(player: Player, usage: ev.Usage | None) -> fx.ToolReply:
    reply = player.tell(ev.ToolExecute, tool="get_context_remaining", call_id="c", usage=usage)
    assert isinstance(reply, fx.ToolReply)
    return reply


def started(mode: str = "tree") -> Player:
    player = Player()
    player.session = Session(SESSION_ID, player.session.tree, ui=player.session.ui, mode=mode)
    player.start()
    player.pi.user("task")
    return player


def test_the_tool_tells_what_remains_of_which_window() -> None:
    """Its `contextWindow` is the limit after the reserve (facts: tree-upstream 2.2)."""
    player = started()
    window = player.pi.last(WINDOW)["details"]["contextManagement"]["currentWindowId"]
    reply = remaining(player, used(12_000))
    assert reply.text == "You have 243616 tokens left in this context window."
    assert reply.details == {"remainingTokens": 243_616, "windowId": window, "contextWindow": LIMIT}
    assert remaining(player, used(None)).details == {"windowId": window, "contextWindow": LIMIT}
    unknown = remaining(player, None)
    assert (unknown.text, unknown.details) == (sentence(None), {"windowId": window})
    player.session.reserve = 32_768
    assert remaining(player, used(12_000)).details["remainingTokens"] == 227_232


# The reminder


def test_a_reminder_is_a_message_of_the_windows_own_kind_that_reaches_the_run() -> None:
    window = WindowIdentity(protocol=1, kind="window", first_window_id="a", current_window_id="b", window_number=1)
    effect = reminder(window, 6_000, "m")
    assert isinstance(effect.details, MarkerDetails)
    assert (effect.custom_type, effect.steer, effect.start_turn, effect.release_after) == (WINDOW, True, False, None)
    assert (effect.details.id, effect.details.context_management.kind) == ("m", "reminder")
    assert effect.details.context_management.current_window_id == "b"
    assert "About 6000 tokens are left" in effect.content
    assert "new_context" in effect.content


def looked(player: Player, usage: ev.Usage | None) -> list[Json]:
    """The reminders that a model request makes."""
    before = len(player.pi.entries)
    player.tell(ev.Context, count=1, usage=usage)
    made = player.pi.entries[before:]
    assert all(entry["details"]["contextManagement"]["kind"] == "reminder" for entry in made)
    return made


LOW = used(LIMIT - REMINDER)


@pytest.mark.parametrize(
    ("usage", "count"), [(LOW, 1), (used(LIMIT - REMINDER - 1), 0), (used(LIMIT + 9), 1), (used(None), 0), (None, 0)]
)
@pytest.mark.parametrize("mode", ["tree", "local"])
def test_a_window_is_reminded_when_little_room_is_left(mode: str, usage: ev.Usage | None, count: int) -> None:
    assert len(looked(started(mode), usage)) == count


def test_pis_reserve_counts_when_it_is_larger() -> None:
    player = started()
    player.session.reserve = 32_768
    assert len(looked(player, used(239_232 - REMINDER))) == 1


def test_a_window_is_reminded_once() -> None:
    player = started()
    assert [len(looked(player, LOW)) for _ in range(3)] == [1, 0, 0]


def test_a_window_that_was_reminded_is_not_again_after_a_restart() -> None:
    """The branch remembers it."""
    player = started()
    looked(player, LOW)
    player.restart_daemon()
    player.start("resume")
    assert looked(player, LOW) == []


def test_a_reminder_that_was_not_written_is_made_by_the_next_daemon() -> None:
    player = started()
    reply = player.send(ev.Context, count=1, usage=LOW)
    assert [type(effect) for effect in reply.effects] == [fx.AppendMessage]
    player.restart_daemon()
    player.start("resume")
    assert len(looked(player, LOW)) == 1


def test_the_next_window_is_reminded_again() -> None:
    player = started()
    looked(player, LOW)
    player.pi.assistant("ok")
    player.rollover()
    player.turn()
    (made,) = looked(player, LOW)
    boundary = [
        entry
        for entry in player.pi.branch()
        if entry.get("customType") == WINDOW and entry["details"]["contextManagement"]["kind"] == "window"
    ]
    window = made["details"]["contextManagement"]["currentWindowId"]
    assert window == boundary[-1]["details"]["contextManagement"]["currentWindowId"]


def test_a_reminder_is_no_boundary_and_stays_with_its_window() -> None:
    player = started()
    looked(player, LOW)
    player.pi.assistant("ok")
    window = player.pi.branch()[0]["details"]["contextManagement"]["currentWindowId"]
    assert remaining(player, None).details["windowId"] == window


def test_nobody_is_reminded_in_mode_off_nor_on_a_branch_without_a_window() -> None:
    assert looked(started("off"), LOW) == []
    player = Player()
    player.pi.user("task")
    assert looked(player, LOW) == []


def test_nobody_is_reminded_while_a_rollover_is_pending() -> None:
    player = started()
    player.ask()
    assert looked(player, LOW) == []


def test_another_windows_reminder_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stands before the boundary belongs to an earlier window."""
    monkeypatch.setattr("state.session.REMINDER", 10_000)
    player = Player()
    player.pi.marker(0)
    player.pi.marker(0, kind="reminder")
    player.pi.marker(1)
    player.pi.user("task")
    made = looked(player, used(LIMIT - 10_000))
    assert [entry["details"]["contextManagement"]["currentWindowId"] for entry in made] == ["window-1"]
