"""The modes: what each projects, how it rolls over, and what leaving one costs (design 5)."""

import pytest

from builders import SESSION_ID, Json, Player, marker_details, outline_item
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, INTENT, NOTE_SNAPSHOT, WINDOW
from protocol.events import OutlineItem
from state.errors import NotAllowedError
from state.modes import AVAILABLE, DEFAULT, LEAVING_TREE, MODES, describe
from state.projection import local_projection, off_projection
from state.session import Session


def player_in(mode: str, player: Player | None = None) -> Player:
    """A session that begins, or goes on, in this mode."""
    player = Player() if player is None else player
    player.restart_daemon()
    player.session = Session(SESSION_ID, player.session.tree, ui=player.session.ui, mode=mode)
    return player


def marker_at(at: int, name: str = "marker-0") -> OutlineItem:
    return OutlineItem(at=at, role="custom", custom_type=WINDOW, id=name)


SUMMARY = OutlineItem(at=1, role="branchSummary", from_id="leaf", timestamp=5, hash="abc")


# Projections by values


@pytest.mark.parametrize(
    ("count", "outline", "expected"),
    [
        (5, [marker_at(0)], [(1, 5)]),
        (5, [marker_at(4)], [(0, 4)]),
        (5, [marker_at(1), marker_at(3, "other")], [(0, 1), (2, 3), (4, 5)]),
        (5, [marker_at(2, "no id")], [(0, 2), (3, 5)]),
        (1, [marker_at(0)], []),
        (5, [SUMMARY], None),
        (5, [OutlineItem(at=2, role="custom", custom_type="elsewhere", id="marker-0")], None),
        (5, [marker_at(5), marker_at(-1)], None),
        (5, [], None),
    ],
)
def test_off_shows_everything_but_our_markers(
    count: int, outline: list[OutlineItem], expected: list[tuple[int, int]] | None
) -> None:
    assert off_projection(count, outline) == expected


@pytest.mark.parametrize(
    ("count", "outline", "marker", "expected"),
    [
        (5, [marker_at(2)], "marker-0", [(2, 5)]),
        (5, [marker_at(1), marker_at(3, "marker-1")], "marker-1", [(3, 5)]),
        (5, [marker_at(1), marker_at(3, "marker-1")], "marker-0", [(1, 5)]),
        (5, [marker_at(1), marker_at(4)], "marker-0", [(4, 5)]),
        (5, [marker_at(0)], "marker-0", None),
        (5, [marker_at(2)], "marker-9", None),
        (5, [marker_at(2)], None, None),
        (5, [OutlineItem(at=2, role="custom", custom_type=WINDOW)], None, None),
        (5, [OutlineItem(at=2, role="custom", custom_type="elsewhere", id="marker-0")], "marker-0", None),
        (5, [marker_at(5)], "marker-0", None),
        (5, [], "marker-0", None),
    ],
)
def test_local_shows_what_follows_the_latest_marker(
    count: int, outline: list[OutlineItem], marker: str | None, expected: list[tuple[int, int]] | None
) -> None:
    """Where the marker is not among the messages nothing is cut: better too much than nothing."""
    assert local_projection(count, outline, marker) == expected


def keep(player: Player) -> list[tuple[int, int]] | None:
    shown = [one for one in player.pi.branch() if one["type"] in ("message", "custom_message", "branch_summary")]
    outline = [item for at, entry in enumerate(shown) if (item := outline_item(at, entry)) is not None]
    reply = player.send(ev.Context, count=len(shown), outline=outline)
    assert isinstance(reply, fx.ContextReply)
    return reply.keep


def archived() -> Player:
    """Two windows in tree mode, the first one archived; seen are summary, marker, user, assistant."""
    player = player_in("tree")
    player.start()
    player.work()
    player.rollover()
    player.turns_due = 0
    player.work("more")
    return player


def test_one_session_shows_in_each_mode_what_that_mode_shows() -> None:
    player = archived()
    assert player.seen() == [WINDOW, "user", "assistant"]
    assert keep(player) == [(1, 4)]
    assert keep(player_in("local", player)) == [(1, 4)]
    assert keep(player_in("off", player)) == [(0, 1), (2, 4)]
    assert player.seen() == ["branch_summary", "user", "assistant"]


def test_a_reminder_is_not_where_local_cuts() -> None:
    player = player_in("local")
    player.pi.user("before")
    player.pi.marker(0)
    player.pi.user("task")
    player.pi.custom_message(WINDOW, "little room", {**marker_details(0, kind="reminder"), "id": "another"})
    assert keep(player) == [(1, 4)]


def test_a_persons_own_summary_stays_in_every_mode() -> None:
    player = player_in("tree")
    player.start()
    user, _ = player.work()
    player.travel(user, summarize=True)
    for mode in AVAILABLE:
        assert "branch_summary" in player_in(mode, player).seen()


# Rollover in local mode


def test_a_local_rollover_appends_a_marker_at_settle_and_nothing_else() -> None:
    player = player_in("local")
    player.start()
    player.work()
    before = len(player.pi.entries)
    player.ask()
    assert player.phase == "requested"
    player.performed.clear()
    player.settle(aborted=True)
    assert [type(effect) for effect in player.performed] == [fx.AppendMessage]
    (marker,) = player.performed
    assert isinstance(marker, fx.AppendMessage)
    assert marker.start_turn
    assert marker.release_after == marker.details.id
    kinds = [entry.get("customType") or entry["type"] for entry in player.pi.entries[before:]]
    assert kinds == ["message", INTENT, "message", "message", WINDOW]
    assert not {ARCHIVE, NOTE_SNAPSHOT, "branch_summary"} & set(player.pi.shape())
    assert (player.emitted, player.waits) == ([], 0)
    player.turn()
    assert player.phase == "idle"
    assert player.seen() == [WINDOW, "assistant"]


def windows_of(player: Player) -> list[Json]:
    return [entry["details"]["contextManagement"] for entry in player.pi.branch() if entry.get("customType") == WINDOW]


def test_local_windows_follow_each_other_on_one_branch_and_name_the_last_one() -> None:
    player = player_in("local")
    player.start()
    users = [player.work(f"task {number}")[0] for number in range(2)]
    player.rollover()
    player.turn()
    player.rollover()
    player.turn()
    first, second, third = windows_of(player)
    assert [one["windowNumber"] for one in (first, second, third)] == [0, 1, 2]
    assert second["previousWindowId"] == first["currentWindowId"]
    assert third["previousWindowId"] == second["currentWindowId"]
    texts = [entry["content"] for entry in player.pi.branch() if entry.get("customType") == WINDOW]
    ids = f'{{"window_id":"{first["currentWindowId"]}","user_item_ids":["{users[1]}","{users[0]}"]}}'
    assert f"Previous window history IDs: {ids}" in texts[1]


def test_input_that_was_held_follows_a_local_marker() -> None:
    player = player_in("local")
    player.start()
    player.work()
    player.ask()
    player.type("while it waits")
    player.settle(aborted=True)
    assert (player.sent, player.holding) == (["while it waits"], False)


@pytest.mark.parametrize(("ui", "waits"), [("print", 1), ("json", 1), ("tui", 0), ("rpc", 0)])
def test_modes_of_pi_that_exit_wait_for_a_local_window_too(ui: ev.UiMode, waits: int) -> None:
    player = player_in("local", Player(ui=ui))
    player.start()
    player.work()
    player.rollover()
    assert player.waits == waits


def test_a_person_can_roll_over_in_local_mode_while_nothing_runs() -> None:
    player = player_in("local")
    player.start()
    player.work()
    player.command("rollover")
    assert [one["windowNumber"] for one in windows_of(player)] == [0, 1]
    assert player.turns_due == 1
    assert player.phase in ("sealing", "continuing")


def test_a_local_marker_that_cannot_be_written_leaves_the_window_as_it_was() -> None:
    player = player_in("local")
    player.start()
    player.work()
    player.ask()
    player.type("typed meanwhile")
    player.throws = {"append_message"}
    player.settle(aborted=True)
    assert [one["windowNumber"] for one in windows_of(player)] == [0]
    assert (player.sent, player.holding, player.phase) == (["typed meanwhile"], False, "idle")
    assert [level for level, _ in player.notices] == ["error"]


# Off


def test_off_does_nothing_of_its_own() -> None:
    player = player_in("off")
    assert player.start().effects == []
    player.work()
    assert player.travel(player.pi.user("elsewhere"), summarize=False).effects == [
        fx.Emit(channel="contextd:tree", data={"internal": False, "windowId": None, "previousWindowId": None})
    ]
    assert player.settle().effects == []
    assert {entry["type"] for entry in player.pi.entries} == {"message"}


@pytest.mark.parametrize("tool", ["new_context", "get_context_remaining", "history", "notes"])
def test_off_has_no_tools(tool: str) -> None:
    player = player_in("off")
    player.start()
    with pytest.raises(NotAllowedError, match="there is no such tool in mode off"):
        player.send(ev.ToolExecute, tool=tool, call_id="c", arguments={"action": "list_windows"}, captured=True)


def test_off_has_no_rollover() -> None:
    player = player_in("off")
    player.start()
    player.work()
    player.command("rollover")
    ((level, text),) = player.notices
    assert level == "error"
    assert text.startswith("A new context window cannot be started: ")
    assert {entry["type"] for entry in player.pi.entries} == {"message"}


# Leaving tree


@pytest.mark.parametrize("mode", ["local", "off"])
def test_leaving_tree_warns_as_long_as_the_session_has_archives(mode: str) -> None:
    player = player_in(mode, archived())
    player.start("resume")
    assert player.notices == [
        ("warning", f"This session has archived windows and runs in mode {mode} now. {LEAVING_TREE}")
    ]


@pytest.mark.parametrize("reason", ["reload", "resync"])
def test_the_warning_comes_once_for_a_process(reason: ev.StartReason) -> None:
    player = player_in("off", archived())
    player.start(reason)
    assert player.notices == []


@pytest.mark.parametrize("mode", ["local", "off"])
def test_without_archives_there_is_nothing_to_warn_of(mode: str) -> None:
    player = player_in(mode)
    player.start()
    player.work()
    player_in(mode, player).start("resume")
    assert player.notices == []


def test_staying_in_tree_warns_of_nothing() -> None:
    player = player_in("tree", archived())
    player.start("resume")
    assert player.notices == []


# Words


def test_tree_is_the_default_and_remote_is_not_to_be_had() -> None:
    assert DEFAULT == "tree"
    assert tuple(MODES) == ("off", "local", "tree", "remote")
    assert set(MODES) - set(AVAILABLE) == {"remote"}
    assert [name for name, mode in MODES.items() if not mode.managed] == ["off"]


def test_all_modes_are_described_and_what_holds_is_marked() -> None:
    lines = describe("tree", "off").split("\n")
    assert [line[:9] for line in lines[:4]] == ["  off    ", "  local  ", "▸ tree   ", "  remote "]
    assert lines[4] == "From the next session on: off."
    assert "/context mode off|local|tree" in lines[5]
    assert lines[6:] == [LEAVING_TREE]
    assert "From the next session on" not in describe("tree", "tree")
    assert LEAVING_TREE not in describe("local", "tree")
