"""What goes wrong around a rollover, in real Pi: the seed's failure policy, item by item, on both versions."""

from __future__ import annotations

import pytest

from pi.harness import Call, Json, PiHome, RpcPi, SessionView, Step, Usage, message_text, wait_until
from pi.product import (
    ARCHIVE,
    HANDS,
    INTENT,
    MARKER,
    NEW,
    SNAPSHOT,
    answered,
    archived,
    asked,
    daemon,
    daemons,
    extensions,
    live,
    notices,
    runs,
    texts,
    types,
    window_numbers,
    windows,
)
from pi.test_harness import MODEL_ALONE

OLD_WINDOW = ["a marker", "user: the task"]


def gated(**step: object) -> Step:
    return Step(text="summed up", wait_for="summary", **step)  # type: ignore[arg-type]


def roll_over_and_hold(home: PiHome, pi: RpcPi, *held: str) -> None:
    """Bring Pi to where it summarises, and submit these prompts meanwhile."""
    pi.prompt("the task")
    home.gate("summary").wait_reached()
    for text in held:
        pi.send("prompt", message=text)
    pi.call("get_state")


# --- before navigation has completed: the old window goes on ---


def check_old_window_went_on(home: PiHome, pi: RpcPi, why: str) -> None:
    session = home.session()
    assert ARCHIVE not in session.types
    assert SNAPSHOT not in session.types
    assert window_numbers(session) == [0]
    assert session.of_type(INTENT)[-1]["data"]["step"] == "close"
    [error] = notices(pi, "error")
    assert error.startswith("Context window 1 was not started: ")
    assert why in error
    assert error.endswith(" Window 0 goes on.")
    assert "\n" not in error
    assert pi.extension_errors == []


def test_a_failed_summary_leaves_the_old_window_and_held_input_is_resent_in_order(home: PiHome) -> None:
    """Seed, failure policy: "navigation cancellation or summary failure"; facts 5."""
    home.script(
        Step(text="window zero", tools=[NEW]),
        Step(text="one answered"),
        Step(text="two answered"),
        Step(text="three answered"),
        summary=[Step(error="the model is broken", wait_for="summary")],
    )
    with home.rpc() as pi:
        roll_over_and_hold(home, pi, "held one", "held two", "held three")
        home.gate("summary").open()
        answered(pi, "three answered")
        check_old_window_went_on(home, pi, "the model is broken")
    assert texts(home.session(), "user") == ["the task", "held one", "held two", "held three"]
    assert live(home)[:2] == OLD_WINDOW


def test_after_a_failed_rollover_the_next_one_succeeds(home: PiHome) -> None:
    """Seed, failure policy: the session stays inspectable, and usable."""
    home.script(
        Step(tools=[NEW]),
        Step(text="again", tools=[NEW]),
        Step(text="the end"),
        summary=[Step(error="the model is broken"), Step(text="summed up")],
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        pi.wait_for(lambda event: event.get("method") == "notify")
        pi.prompt("try again")
        answered(pi, "the end")
        assert pi.extension_errors == []
    assert live(home) == ["a marker"]
    assert window_numbers(home.session()) == [0, 1]
    assert texts_of(archived(home.session(), 0), "user") == ["the task", "try again"]


def texts_of(entries: list[Json], role: str) -> list[str]:
    return [message_text(e["message"]) for e in entries if types([e]) == [f"message/{role}"]]


def test_a_cancelled_summary_leaves_the_old_window_and_held_input_is_resent(home: PiHome) -> None:
    """Seed, failure policy; facts 5: abort during the summary makes Pi report a cancelled navigation."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="held answered"), summary=[gated()])
    with home.rpc() as pi:
        roll_over_and_hold(home, pi, "held")
        assert pi.call("abort")["success"]
        answered(pi, "held answered")
        check_old_window_went_on(home, pi, "cancelled")
    assert live(home)[:2] == OLD_WINDOW
    assert live(home)[-1] == "user: held"


def test_a_steer_archived_by_nobody_is_answered_when_the_rollover_fails(home: PiHome) -> None:
    """Facts 4.3: it stands unanswered in the old window, and is sent again before what was held."""
    home.script(
        Step(tools=[NEW], wait_for="work"),
        Step(text="the steer answered"),
        Step(text="the prompt answered"),
        summary=[Step(error="the model is broken", wait_for="summary")],
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("work").wait_reached()
        pi.call("steer", message="steered")
        home.gate("work").open()
        home.gate("summary").wait_reached()
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "the prompt answered")
        check_old_window_went_on(home, pi, "the model is broken")
    resent = texts(home.session(), "user")[-2:]
    # Pi 1.6.0 puts prompts off until settled handlers are through, and so ahead of what one of them sends (facts 19).
    assert resent == {"0.85.0": ["steered", "held"], "1.6.0": ["held", "steered"]}[home.version]


def test_a_summary_that_cannot_be_written_brings_the_leaf_back_to_the_old_branch(home: PiHome) -> None:
    """Facts 21: a failed write moves the leaf on both versions; also after resume the old window goes on."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="held answered"), summary=[gated()])
    with home.rpc(extensions=extensions(HANDS), env={"CONTEXTD_TEST_DISK_FULL": "branch_summary"}) as pi:
        roll_over_and_hold(home, pi, "held")
        home.gate("summary").open()
        answered(pi, "held answered")
        check_old_window_went_on(home, pi, "ENOSPC")
        assert pi.close() == 0
    assert live(home)[:2] == OLD_WINDOW
    check_resumed_in_old_window(home)


@pytest.mark.parametrize("failing", ["codex-context-tree-archive", "codex-context-note-snapshot"])
def test_an_entry_of_the_new_window_that_cannot_be_written_brings_the_old_window_back(
    home: PiHome, failing: str
) -> None:
    """Seed, failure policy: "inability to persist manifest, note snapshot or boundary"; no turn before they exist."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="held answered"), summary=[gated()])
    with home.rpc(extensions=extensions(HANDS), env={"CONTEXTD_TEST_DISK_FULL": failing}) as pi:
        roll_over_and_hold(home, pi, "held")
        home.gate("summary").open()
        answered(pi, "held answered")
        [error] = notices(pi, "error")
        assert "ENOSPC" in error
        assert pi.extension_errors == []
        assert pi.close() == 0
    assert window_numbers(home.session()) == [0]
    assert live(home)[:2] == OLD_WINDOW
    check_resumed_in_old_window(home)


def check_resumed_in_old_window(home: PiHome) -> None:
    """Opened again, the session goes on where it was, and its next rollover works."""
    home.script(Step(text="resumed", tools=[NEW]), Step(text="rolled over"))
    with home.rpc(args=["--session", str(home.session_files()[0])]) as pi:
        pi.prompt("after resume")
        answered(pi, "rolled over")
        assert pi.extension_errors == []
    before = windows(home.requests("main")[-2].texts)
    assert before[:2] == OLD_WINDOW
    assert before[-2:] == ["assistant: held answered", "user: after resume"]
    assert live(home) == ["a marker"]
    assert window_numbers(home.session()) == [0, 1]


def test_a_second_new_context_in_the_same_turn_is_an_error_and_one_rollover_happens(home: PiHome) -> None:
    """Seed, failure policy: "rollover requested while another is pending"."""
    home.script(Step(tools=[NEW, NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    session = home.session()
    first, *others = [entry["message"]["isError"] for entry in session.of_type("message/toolResult")]
    assert not first
    # Its calls run one after the other, and Pi 0.85.0 skips one after an abort where 1.6.0 makes it fail.
    assert others == {"0.85.0": [], "1.6.0": [True]}[home.version]
    assert window_numbers(session) == [0, 1]
    assert len(session.of_type(INTENT)) == 1


def test_new_context_works_in_a_session_without_a_file(home: PiHome) -> None:
    """Facts 15: everything works with --no-session; the entries then come over the wire."""
    home.script(Step(tools=[NEW]), Step(text="one", tools=[NEW]), Step(text="two"), Step(text="three"))
    with home.rpc(args=["--no-session"]) as pi:
        pi.prompt("the task")
        answered(pi, "two")
        pi.prompt("go on")
        answered(pi, "three")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert home.session_files() == []
    assert asked(home) == ["main", "summary", "main", "summary", "main", "main"]
    assert live(home) == ["a marker", "assistant: two", "user: go on"]


def test_auto_compaction_between_the_tool_and_settle_is_cancelled(home: PiHome) -> None:
    """Facts 4.4: the turn that calls new_context may cross the threshold; then only the rollover happens."""
    home.settings(compaction={"enabled": True, "reserveTokens": 1000, "keepRecentTokens": 10})
    home.script(
        Step(text="short"),
        Step(text="a long one", tools=[NEW], usage=Usage(input=199_500, output=100)),
        Step(text="the end"),
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "short")
        pi.prompt("more")
        answered(pi, "the end")
        assert pi.extension_errors == []
        attempts = [event["type"] for event in pi.events if event["type"].startswith("compaction")]
    session = home.session()
    assert "compaction" not in session.types
    assert attempts, "the threshold was not crossed, so this shows nothing"
    assert window_numbers(session) == [0, 1]
    assert asked(home) == ["main", "main", "summary", "main"]


# --- the session or the extension is replaced while Pi summarises ---


def held_in_editor(pi: RpcPi) -> list[str]:
    return [shown["text"] for shown in pi.ui("set_editor_text")]


@pytest.mark.parametrize("command", ["new_session", "switch_session", "fork"])
def test_held_input_is_in_the_editor_when_the_session_is_replaced_during_the_summary(
    home: PiHome, command: str
) -> None:
    """Design 4, step 6: a line says so, and nothing of the one session gets into the other."""
    home.script(Step(text="elsewhere"))
    home.run_print("another session")
    [other] = home.session_files()
    before = other.read_bytes()
    home.script(Step(tools=[NEW]), Step(text="going on"), summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.send("prompt", message="held one")
        pi.send("prompt", message="held two")
        pi.call("get_state")
        old = home.session_files()[-1]
        if command == "new_session":
            done = pi.call("new_session")
        elif command == "switch_session":
            done = pi.call("switch_session", sessionPath=str(other))
        else:
            [first, *_] = pi.call("get_fork_messages")["data"]["messages"]
            done = pi.call("fork", entryId=first["entryId"])
        assert done["success"], done
        pi.wait_for(lambda event: event.get("method") == "set_editor_text")
        assert held_in_editor(pi)[-1] == "held one\n\nheld two"
        assert any("back in the editor" in text for text in notices(pi, "warning"))
        pi.prompt("a word here")
        answered(pi, "going on")
        assert pi.extension_errors == []
        assert pi.close() == 0
    left = SessionView.read(old)
    assert "branch_summary" not in left.types
    assert ARCHIVE not in left.types
    assert window_numbers(left) == [0]
    assert "held one" not in old.read_text()
    assert live(home)[-1] == "user: a word here"
    assert live(home)[0] == "a marker"
    if command != "switch_session":
        assert other.read_bytes() == before
    else:
        assert other.read_bytes().startswith(before)
        assert window_numbers(SessionView.read(other)) == [0]


def test_reload_during_the_summary_makes_one_window_and_held_input_follows_its_marker(home: PiHome) -> None:
    """Facts 21: Pi 0.85.0 reloads at once, 1.6.0 after the rollover; exactly one of everything on both."""
    home.script(Step(tools=[NEW]), Step(text="the end"), Step(text="held answered"), summary=[gated()])
    with home.rpc(extensions=extensions(HANDS)) as pi:
        roll_over_and_hold(home, pi, "held")
        pi.send("prompt", message="/reload-now")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        pi.prompt("/context status")
        assert pi.close() == 0
        assert notices(pi, "error") == []
    session = home.session()
    assert [len(session.of_type(kind)) for kind in ("branch_summary", ARCHIVE, SNAPSHOT)] == [1, 1, 1]
    assert window_numbers(session) == [0, 1]
    assert live(home) == ["a marker", "assistant: the end", "user: held"]


def test_a_summary_that_fails_after_a_reload_lets_held_input_go(home: PiHome) -> None:
    """Pi 0.85.0 reloads at once: the instance that navigates is gone when its summary fails, and tells the next one."""
    home.script(
        Step(tools=[NEW]), Step(text="held answered"), summary=[Step(error="the model is broken", wait_for="summary")]
    )
    with home.rpc(extensions=extensions(HANDS)) as pi:
        roll_over_and_hold(home, pi, "held")
        pi.send("prompt", message="/reload-now")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        assert pi.close() == 0
    session = home.session()
    assert session.of_type("branch_summary") == []
    assert live(home)[:2] == OLD_WINDOW
    assert live(home)[-1] == "user: held"


def test_a_new_session_is_the_way_out_of_a_summary_that_hangs_in_the_terminal(home: PiHome) -> None:
    """Escape and abort do not reach a summary that an extension asked for: Pi binds them to its own selector.

    The draft is still there, and the session that was left is closed properly when it is opened again.
    """
    home.script(Step(tools=[NEW]), Step(text="in the new session"), summary=[gated()])
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("summary").wait_reached()
        pi.submit("/new")
        pi.wait_screen("New session started")
        pi.submit("another task")
        pi.wait_screen("in the new session")
    assert live(home) == ["a marker", "user: another task"]
    left = SessionView.read(home.session_files()[0])
    assert "branch_summary" not in left.types
    home.script(Step(text="resumed"))
    with home.rpc(args=["--session", str(home.session_files()[0])]) as pi_again:
        pi_again.prompt("go on")
        answered(pi_again, "resumed")
        assert len([text for text in notices(pi_again) if "was not started" in text]) == 1
    assert live(home)[:2] == OLD_WINDOW


def test_reload_in_the_terminal_during_the_summary_loses_nothing(home: PiHome) -> None:
    """Facts 21, by the command that a person types."""
    home.script(Step(tools=[NEW]), Step(text="the end"), Step(text="held answered"), summary=[gated()])
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("summary").wait_reached()
        pi.submit("/reload")
        pi.wait_editor(lambda text: text == "")
        pi.submit("held")
        pi.wait_editor(lambda text: text == "")
        home.gate("summary").open()
        pi.wait_screen("held answered")
    session = home.session()
    assert [len(session.of_type(kind)) for kind in ("branch_summary", ARCHIVE, SNAPSHOT)] == [1, 1, 1]
    assert window_numbers(session) == [0, 1]
    assert live(home)[-1] == "user: held"


def test_kill_of_pi_leaves_no_daemon_within_a_second(home: PiHome) -> None:
    """Design 7: parent killed, gone within 1 s."""
    with home.rpc() as pi:
        pi.call("get_state")
        child = daemon(pi)
        pi.kill()
        wait_until(lambda: not runs(child), "end of the daemon", deadline=1)


def test_quit_of_pi_leaves_no_daemon_within_a_second(home: PiHome) -> None:
    """Design 7: EOF on stdin, exit within 1 s."""
    with home.rpc() as pi:
        pi.call("get_state")
        child = daemon(pi)
        assert pi.close() == 0
        wait_until(lambda: not runs(child), "end of the daemon", deadline=1)


def test_a_replaced_session_leaves_one_daemon(home: PiHome) -> None:
    """Facts 16: each instance of the extension has its own; the old one's has to go."""
    with home.rpc(extensions=extensions(HANDS)) as pi:
        pi.call("get_state")
        seen = {daemon(pi)}
        for _ in range(2):
            pi.call("new_session")
            wait_until(lambda: len(daemons(pi)) == 1 and daemon(pi) not in seen, "one new daemon")
            seen.add(daemon(pi))
        pi.prompt("/reload-now")
        wait_until(lambda: len(daemons(pi)) == 1 and daemon(pi) not in seen, "one new daemon")


def test_a_second_session_start_makes_no_second_marker(home: PiHome) -> None:
    """Facts 3: Pi 0.85.0 sends it twice in rpc mode."""
    home.script(Step(text="one"), Step(text="two"))
    with home.rpc() as pi:
        pi.prompt("first")
        answered(pi, "one")
        pi.call("new_session")
        pi.prompt("second")
        answered(pi, "two")
        pi.call("switch_session", sessionPath=str(home.session_files()[0]))
        pi.prompt("third")
        answered(pi, "done")
        assert pi.extension_errors == []
    for file in home.session_files():
        assert window_numbers(SessionView.read(file)) == [0]


# --- what a rollover must not change ---


def test_thinking_level_and_model_of_the_old_window_are_in_force_after_rollover_and_resume(home: PiHome) -> None:
    """Facts 21: on Pi 0.85.0 they would revert to those of the cut."""
    home.script(Step(text="ready"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        assert pi.call("set_model", provider="fake", modelId="fake-2")["success"]
        assert pi.call("set_thinking_level", level="high")["success"]
        pi.prompt("the task")
        answered(pi, "the end")
        assert in_force(pi) == ("fake-2", "high")
        assert pi.extension_errors == []
    assert home.requests("main")[-1].model == "fake-2"
    with home.rpc(args=["--session", str(home.session_files()[0])], model="fake/fake-2") as pi:
        assert in_force(pi) == ("fake-2", "high")
        pi.prompt("go on")
        answered(pi, "ready")
        assert pi.extension_errors == []
    declared = [e["thinkingLevel"] for e in home.session().branch() if e["type"] == "thinking_level_change"]
    assert declared[-1] == "high"
    models = [e["modelId"] for e in home.session().branch() if e["type"] == "model_change"]
    assert models[-1] == "fake-2"


def in_force(pi: RpcPi) -> tuple[str, str]:
    state = pi.call("get_state")["data"]
    return state["model"]["id"], state["thinkingLevel"]


def test_summaries_of_the_users_own_navigation_stay_visible_after_a_rollover(home: PiHome) -> None:
    """Seed, filtering: never a manual summary, also not one that stands in the path of ours."""
    home.script(
        Step(text="explored"),
        Step(text="back", tools=[NEW]),
        Step(text="rolled over"),
        Step(text="explored more"),
        Step(text="the end"),
        summary=[Step(text="BY HAND ONE"), Step(text="OURS"), Step(text="BY HAND TWO")],
    )
    with home.rpc(extensions=extensions(HANDS)) as pi:
        pi.prompt("explore")
        answered(pi, "explored")
        go(pi, home.session().of_type("message/user")[0]["id"])
        pi.prompt("the task")
        answered(pi, "rolled over")
        pi.prompt("explore more")
        answered(pi, "explored more")
        go(pi, home.session().of_type("message/user")[-1]["id"])
        pi.prompt("at last")
        answered(pi, "the end")
        assert pi.extension_errors == []
    last = "\n".join(home.requests("main")[-1].texts)
    assert "BY HAND TWO" in last
    assert "OURS" not in last
    in_old_window = "\n".join(home.requests("main")[1].texts)
    assert "BY HAND ONE" in in_old_window


def go(pi: RpcPi, entry_id: str, *, summarize: bool = True) -> None:
    after = pi.mark
    pi.prompt(f"/go {entry_id}{' summarize' if summarize else ''}")
    pi.wait_for(lambda event: event.get("method") == "notify" and event["message"] == "moved", after=after)


def test_the_first_rollover_of_an_older_session_cuts_at_its_first_user_message(home: PiHome) -> None:
    """Design 4, step 3: the new window holds its marker and live work alone, not what came before the extension."""
    home.script(Step(text="before contextd"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("older work")
        answered(pi, "before contextd")
        assert pi.close() == 0
    home.script(Step(text="with contextd", tools=[NEW]), Step(text="the end"))
    with home.rpc(args=["--continue"]) as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
    assert live(home) == ["a marker"]
    assert windows(home.requests("main")[1].texts) == [
        "user: older work",
        "assistant: before contextd",
        "a marker",
        "user: the task",
    ]
    interval = types(archived(home.session(), 0))
    assert interval[0] == "message/user"
    assert MARKER in interval


def test_navigation_to_a_branch_without_marker_gives_it_one(home: PiHome) -> None:
    """Seed, resume: "initializes a fresh context boundary if required"; facts 5 on where the leaf goes."""
    home.script(Step(text="before contextd"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("older work")
        answered(pi, "before contextd")
        assert pi.close() == 0
    home.script(Step(text="with contextd"), Step(text="on the other branch", tools=[NEW]), Step(text="the end"))
    with home.rpc(extensions=extensions(HANDS), args=["--continue"]) as pi:
        pi.prompt("the task")
        answered(pi, "with contextd")
        go(pi, home.session().of_type("message/assistant")[0]["id"], summarize=False)
        markers = home.session().of_type(MARKER)
        assert len(markers) == 2
        assert markers[0]["details"]["contextManagement"] != markers[1]["details"]["contextManagement"]
        pi.prompt("elsewhere")
        answered(pi, "the end")
        assert pi.extension_errors == []
    assert live(home) == ["a marker"]


def test_navigation_into_an_archived_branch_goes_on_in_that_window(home: PiHome) -> None:
    """Seed, resume: user navigation into an archived branch is ordinary tree navigation."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="rolled over"), Step(text="the end"))
    with home.rpc(extensions=extensions(HANDS)) as pi:
        pi.prompt("the task")
        answered(pi, "rolled over")
        go(pi, home.session().of_type("message/user")[0]["id"], summarize=False)
        pi.prompt("another way")
        answered(pi, "the end")
        assert pi.extension_errors == []
    assert live(home) == ["a marker", "user: another way"]
    assert window_numbers(home.session()) == [0, 1]
    assert ARCHIVE not in home.session().branch_types()


@pytest.mark.parametrize("how", ["--session", "--continue"])
def test_after_two_rollovers_and_a_resume_the_model_sees_only_the_marker_and_live_work(home: PiHome, how: str) -> None:
    """Facts 6; seed, filtering: reconstructed from persisted entries."""
    home.script(Step(tools=[NEW]), Step(tools=[NEW]), Step(text="live work"))
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "live work")
        assert pi.close() == 0
    before = home.session_files()[0].read_bytes()
    home.script(Step(text="resumed"))
    with home.rpc(args=[how, *([str(home.session_files()[0])] if how == "--session" else [])]) as pi:
        pi.prompt("go on")
        answered(pi, "resumed")
        assert notices(pi, "error") == notices(pi, "warning") == []
    assert live(home) == ["a marker", "assistant: live work", "user: go on"]
    after = home.session_files()[0].read_bytes()
    assert after.startswith(before)
    assert window_numbers(home.session()) == [0, 1, 2]


# --- killed in the middle ---


def test_a_session_killed_during_the_summary_is_closed_on_resume(home: PiHome) -> None:
    """Design 4, step 8: an intent whose navigation never happened is closed, once, and a line says so."""
    home.script(Step(text="window zero", tools=[NEW]), summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.kill()
    home.script(Step(text="resumed"))
    for resumed in range(2):
        with home.rpc(args=["--continue"]) as pi:
            pi.prompt("go on")
            answered(pi, "resumed")
            said = [text for text in notices(pi) if "was not started" in text]
            assert len(said) == (1 if resumed == 0 else 0)
            assert pi.close() == 0
    assert [entry["data"]["step"] for entry in home.session().of_type(INTENT)] == ["request", "close"]
    assert live(home)[:2] == OLD_WINDOW


@pytest.mark.parametrize("kept", ["branch_summary", ARCHIVE, SNAPSHOT])
def test_a_session_killed_while_a_window_was_sealed_is_completed_on_resume(home: PiHome, kept: str) -> None:
    """Design 4, step 8: from the file alone, in the same order, without a turn; twice changes nothing."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.close() == 0
    [file] = home.session_files()
    lines = file.read_bytes().split(b"\n")
    last = home.session().types.index(kept) + 1  # the header is a line as well
    file.write_bytes(b"\n".join(lines[: last + 1]) + b"\n")
    requests = len(home.requests())
    with home.rpc(args=["--session", str(file)]) as pi:
        pi.call("get_state")
        assert any("is complete now" in text for text in notices(pi))
        assert pi.close() == 0
    assert len(home.requests()) == requests
    session = home.session()
    assert [len(session.of_type(kind)) for kind in ("branch_summary", ARCHIVE, SNAPSHOT)] == [1, 1, 1]
    assert window_numbers(session) == [0, 1]
    kinds = [kind for kind in session.branch_types() if kind in ("branch_summary", ARCHIVE, SNAPSHOT, MARKER)]
    assert kinds == ["branch_summary", ARCHIVE, SNAPSHOT, MARKER]
    once = file.read_bytes()
    home.script(Step(text="resumed"))
    with home.rpc(args=["--session", str(file)]) as pi:
        pi.call("get_state")
        assert file.read_bytes().startswith(once)
        assert len(home.session().of_type(MARKER)) == 2
        pi.prompt("go on")
        answered(pi, "resumed")
    assert live(home) == ["a marker", "user: go on"]


# --- new_context beside other tools ---


def test_new_context_beside_another_tool_keeps_both_results_in_the_old_window(home: PiHome) -> None:
    """Facts 4.1: the other call is aborted, and its result is archived."""
    home.script(Step(tools=[Call("bash", {"command": "echo hello"}), NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
    results = [e["message"]["toolName"] for e in home.session().of_type("message/toolResult")]
    assert results == ["bash", "new_context"]
    assert types(archived(home.session(), 0)).count("message/toolResult") == 2


# --- beside other extensions ---


def test_an_extension_that_appends_an_entry_when_the_leaf_has_moved_does_not_cost_the_archive(home: PiHome) -> None:
    """Its `session_tree` handler runs before navigation returns, so its entry comes between summary and manifest."""
    home.script(Step(text="window zero", tools=[NEW]), Step(text="the end"), summary=[Step(text="SUMMARY ZERO")])
    with home.rpc(extensions=extensions(HANDS), env={"CONTEXTD_TEST_TREE_NOTE": "1"}) as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        pi.prompt("/context status")
        assert "unavailable" not in notices(pi)[-1]
    assert live(home) == ["a marker"]
    assert "custom/tree-note" in home.session().branch_types()
