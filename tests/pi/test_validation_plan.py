"""The seed's validation plan, "the focused lifecycle proof", item by item in real Pi on both versions.

The number in a test's name is the item's.
"""

from __future__ import annotations

import pytest

from pi.harness import Call, PiHome, Request, RpcPi, Step, TuiPi, message_text, wait_until
from pi.product import (
    ARCHIVE,
    HANDS,
    INTENT,
    LIVE_STATE,
    MARKER,
    NEW,
    SNAPSHOT,
    answered,
    archived,
    asked,
    extensions,
    live,
    notices,
    texts,
    types,
    window_numbers,
    windows,
)

COUNT = Call("count")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

ONE_ROLLOVER = (Step(text="window zero", tools=[NEW]), Step(text="the end"))
THREE_ROLLOVERS = (
    Step(text="window zero", tools=[NEW]),
    Step(text="window one", tools=[NEW]),
    Step(text="window two", tools=[NEW]),
    Step(text="the end"),
)


# --- 1. the internal command captures a working ExtensionCommandContext on startup and resume ---


def test_01_the_internal_command_captures_a_working_context_on_startup_and_resume(home: PiHome) -> None:
    """Seed, validation plan 1. A context that works is one that can navigate; the capture itself leaves no trace."""
    home.script(*ONE_ROLLOVER)
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
        assert pi.close() == 0
    before = home.session()
    assert window_numbers(before) == [0, 1]
    for number, resume in enumerate((["--session", str(home.session_files()[0])], ["--continue"]), 1):
        with home.rpc(args=resume) as pi:
            pi.prompt("go on")
            answered(pi, "the end")
            assert pi.extension_errors == []
            assert pi.close() == 0
        assert window_numbers(home.session()) == list(range(number + 2))
    assert len(home.session_files()) == 1
    assert "capture" not in home.session_files()[0].read_text()
    assert asked(home) == ["main", "summary", "main"] * 3


def test_01_the_internal_command_captures_a_working_context_after_new_resume_fork_and_reload(home: PiHome) -> None:
    """Facts 3: a captured context is stale after each of them, so each has to capture anew."""
    rollovers = 5
    home.script(*ONE_ROLLOVER * rollovers)
    with home.rpc(extensions=extensions(HANDS)) as pi:
        for replace in ("nothing", "new_session", "switch_session", "fork", "reload"):
            after = pi.mark
            if replace == "new_session":
                assert pi.call("new_session")["success"]
            elif replace == "switch_session":
                assert pi.call("switch_session", sessionPath=str(home.session_files()[0]))["success"]
            elif replace == "fork":
                [first, *_] = pi.call("get_fork_messages")["data"]["messages"]
                assert pi.call("fork", entryId=first["entryId"])["success"]
            elif replace == "reload":
                pi.prompt("/reload-now")
            pi.prompt(f"the task after {replace}")
            answered(pi, "the end", after=after)
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert asked(home) == ["main", "summary", "main"] * rollovers


# --- 2. new_context aborts and reaches exactly one agent_settled ---


def test_02_new_context_aborts_and_reaches_exactly_one_agent_settled(home: PiHome) -> None:
    """Seed, validation plan 2: one for the old window, and one for the new."""
    home.script(*ONE_ROLLOVER)
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.close() == 0
        assert [event["type"] for event in pi.events].count("agent_settled") == 2
    last = archived(home.session(), 0)[-1]
    # Facts 4.1: the empty assistant message is an error on the one version, aborted on the other.
    assert last["message"]["stopReason"] == {"0.85.0": "error", "1.6.0": "aborted"}[home.version]
    assert asked(home) == ["main", "summary", "main"]


# --- 3. navigation archives the exact bounded interval ---


def test_03_navigation_archives_the_exact_bounded_interval(home: PiHome) -> None:
    """Seed, validation plan 3: from the marker to the last entry before the summary, in every window."""
    home.script(*THREE_ROLLOVERS)
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
    session = home.session()
    summaries = session.of_type("branch_summary")
    assert len(summaries) == 3
    order = [entry["id"] for entry in session.entries]
    for number, (summary, manifest) in enumerate(zip(summaries, session.of_type(ARCHIVE), strict=True)):
        interval = archived(session, number)
        first, last = interval[0], interval[-1]
        assert types([first]) == [MARKER]
        assert first["details"]["contextManagement"]["windowNumber"] == number
        start, end = order.index(first["id"]), order.index(summary["id"])
        assert [entry["id"] for entry in interval] == order[start:end]
        assert manifest["data"] == {
            "protocol": 1,
            "strategy": "codex-context-tree",
            "windowId": first["details"]["contextManagement"]["currentWindowId"],
            "boundaryEntryId": first["id"],
            "summaryEntryId": summary["id"],
            "archivedLeafId": summary["fromId"],
            "branchBaseId": summary["parentId"],
        }
        assert summary["fromId"] == last["id"]
        assert summary["parentId"] == first["parentId"]


# --- 4. the tool call, result and deferred custom entries are not lost ---


def test_04_the_tool_call_result_and_deferred_custom_entries_are_not_lost(home: PiHome) -> None:
    """Seed, validation plan 4; facts 4.1 on where Pi puts what others append while the tool runs."""
    home.script(*ONE_ROLLOVER)
    with home.rpc(extensions=extensions(HANDS), env={"CONTEXTD_TEST_BYSTANDER": "new_context"}) as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
    kinds = types(archived(home.session(), 0))
    at = kinds.index("message/user")
    assert sorted(kinds[at + 1 : -1]) == sorted(
        ["message/assistant", "custom/beside", INTENT, "message/toolResult", "custom_message/deferred"]
    )
    result = next(e for e in archived(home.session(), 0) if types([e]) == ["message/toolResult"])
    assert not result["message"]["isError"]
    assert result["message"]["toolName"] == "new_context"


# --- 5. manifest, note snapshot and boundary are appended in deterministic order ---


def test_05_manifest_note_snapshot_and_boundary_are_appended_in_deterministic_order(home: PiHome) -> None:
    """Seed, validation plan 5. Facts 6: Pi 1.6.0 may declare its system message before the marker."""
    home.script(*THREE_ROLLOVERS)
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
    session = home.session()
    order = ["branch_summary", ARCHIVE, SNAPSHOT, MARKER, "message/assistant"]
    declared = {"message/system", "model_change", "thinking_level_change"}
    active = [kind for kind in session.branch_types() if kind not in declared]
    assert active == order[:3] * 3 + order[3:]
    for summary in session.of_type("branch_summary"):
        at = session.entries.index(summary)
        following = [kind for kind in session.types[at:] if kind not in declared]
        assert following[:5] == order


# --- 6. only the final continuation starts a turn ---


def check_three_continuations(requests: list[Request]) -> None:
    assert [request.kind for request in requests] == ["main", "summary"] * 3 + ["main"]
    first, *later = [windows(request.texts) for request in requests if request.kind == "main"]
    assert first == ["a marker", "user: the task"]
    assert later == [["a marker"]] * 3


def test_06_only_the_final_continuation_starts_a_turn_in_rpc_mode(home: PiHome) -> None:
    """Seed, validation plan 6."""
    home.script(*THREE_ROLLOVERS)
    with home.rpc() as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.close() == 0
    check_three_continuations(home.requests())


def test_06_only_the_final_continuation_starts_a_turn_in_the_terminal(home: PiHome) -> None:
    """Seed, validation plan 6."""
    home.script(*THREE_ROLLOVERS)
    with home.tui() as pi:
        pi.submit("the task")
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text == "")
        assert pi.close() == 0
    check_three_continuations(home.requests())


def test_06_only_the_final_continuation_starts_a_turn_in_print_mode_which_ends_after_it(home: PiHome) -> None:
    """Seed, validation plan 6; facts 6: Pi 0.85.0 would end before the next window has run."""
    home.script(*THREE_ROLLOVERS)
    ran = home.run_print("the task")
    assert (ran.stdout, ran.returncode) == ("the end\n", 0)
    assert ran.stderr == ""
    check_three_continuations(ran.requests)
    assert window_numbers(home.session()) == [0, 1, 2, 3]


def test_06_only_the_final_continuation_starts_a_turn_in_json_mode_which_ends_after_it(home: PiHome) -> None:
    """Seed, validation plan 6; facts 6: Pi 0.85.0 would end before the next window has run."""
    home.script(*THREE_ROLLOVERS)
    ran = home.run_json("the task")
    assert ran.returncode == 0
    assert ran.stderr == ""
    ends = [event["message"] for event in ran.events if event["type"] == "message_end"]
    assert message_text(ends[-1]) == "the end"
    check_three_continuations(ran.requests)
    assert window_numbers(home.session()) == [0, 1, 2, 3]


# --- 7. editor text survives ---


def test_07_editor_text_survives_when_it_was_typed_before(home: PiHome) -> None:
    """Seed, validation plan 7."""
    home.script(Step(tools=[NEW], wait_for="work"), Step(text="the end"))
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("work").wait_reached()
        pi.type("a draft")
        home.gate("work").open()
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text == "a draft")
    assert windows(home.requests("main")[-1].texts) == ["a marker"]


def test_07_editor_text_survives_when_it_is_typed_during_the_summary(home: PiHome) -> None:
    """Seed, validation plan 7; facts 10: restoring an older text would overwrite it."""
    home.script(*ONE_ROLLOVER, summary=[Step(text="summed up", wait_for="summary")])
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("summary").wait_reached()
        pi.type("a draft")
        home.gate("summary").open()
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text == "a draft")


def test_07_a_blank_editor_stays_blank(home: PiHome) -> None:
    """Seed, validation plan 7; facts 10: Pi puts the text of the marker into a blank editor."""
    home.script(*ONE_ROLLOVER, Step(text="answered in it"))
    with home.tui() as pi:
        pi.submit("the task")
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text == "")
        pi.submit("one more")
        pi.wait_screen("answered in it")
    assert live(home) == ["a marker", "assistant: the end", "user: one more"]


# --- 8. input submitted during summarization lands after the new boundary ---


def test_08_input_submitted_during_summarization_lands_after_the_new_boundary(home: PiHome) -> None:
    """Seed, validation plan 8: two prompts, in order, each answered in the new window."""
    home.script(*ONE_ROLLOVER, Step(text="one answered"), Step(text="two answered"), summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.send("prompt", message="held one")
        pi.send("prompt", message="held two")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "two answered")
        assert pi.extension_errors == []
    assert live(home) == [
        "a marker",
        "assistant: the end",
        "user: held one",
        "assistant: one answered",
        "user: held two",
    ]


@pytest.mark.parametrize("command", ["prompt", "steer", "follow_up"])
def test_08_every_way_of_submitting_lands_after_the_new_boundary(home: PiHome, command: str) -> None:
    """Seed, validation plan 8; facts 7: which of them reach the `input` event differs between the versions."""
    home.script(*ONE_ROLLOVER, summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.send(command, message="submitted")
        pi.call("get_state")
        home.gate("summary").open()
        pi.wait_for(lambda event: event["type"] == "message_end" and message_text(event["message"]) == "submitted")
        pi.wait_for(lambda event: event["type"] == "agent_settled" and "user: submitted" in live(home))
        assert pi.extension_errors == []
    session = home.session()
    assert texts(session, "user") == ["submitted"]
    assert session.branch_types().index(MARKER) < session.branch_types().index("message/user")
    assert len(session.of_type("message/user")) == 2


def test_08_a_prompt_entered_in_the_terminal_lands_after_the_new_boundary(home: PiHome) -> None:
    """Seed, validation plan 8; facts 7: the terminal holds it by itself and flushes when navigation returns."""
    home.script(*ONE_ROLLOVER, Step(text="one answered"), summary=[gated()])
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("summary").wait_reached()
        pi.submit("held one")
        pi.wait_editor(lambda text: text == "")
        home.gate("summary").open()
        pi.wait_screen("one answered")
    assert live(home) == ["a marker", "assistant: the end", "user: held one"]


def test_08_several_prompts_entered_in_the_terminal_all_land_after_the_new_boundary(home: PiHome) -> None:
    """Seed, validation plan 8. Their order is not ours to keep.

    The terminal sends the first as a prompt and those after it as steers, which overtake it on both versions: an
    `input` handler makes a prompt wait, and what steers goes into the run that the marker starts.
    """
    home.script(*ONE_ROLLOVER, summary=[gated()])
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("summary").wait_reached()
        for text in ("held one", "held two", "held three"):
            pi.submit(text)
            pi.wait_editor(lambda text: text == "")
        home.gate("summary").open()
        wait_until(lambda: sum("held" in text for text in live(home)) == 3, "request with all three")
    assert live(home)[0] == "a marker"
    assert {text for text in live(home) if text.startswith("user")} == {
        "user: held one",
        "user: held two",
        "user: held three",
    }


def test_08_a_held_prompt_template_is_expanded(home: PiHome) -> None:
    """Design 4, step 6; facts 21: a held template has to be sent with its expansion."""
    prompts = home.agent / "prompts"
    prompts.mkdir()
    (prompts / "greet.md").write_text("Say hello to $1")
    home.script(*ONE_ROLLOVER, Step(text="hello"), summary=[gated()])
    with home.rpc(without=["--no-prompt-templates"]) as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.send("prompt", message="/greet Ada")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "hello")
    assert live(home)[-1] == "user: Say hello to Ada"


def test_08_images_of_held_input_are_kept(home: PiHome) -> None:
    """Design 4, step 6."""
    home.script(*ONE_ROLLOVER, Step(text="seen"), summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        pi.send("prompt", message="look", images=[{"type": "image", "data": PIXEL, "mimeType": "image/png"}])
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "seen")
    blocks = home.requests("main")[-1].messages[-1]["content"]
    assert [block["type"] for block in blocks] == ["text", "image"]
    assert blocks[0]["text"] == "look"
    assert blocks[1]["data"] == PIXEL


def test_08_a_steer_that_was_archived_unanswered_is_resent_before_held_input(home: PiHome) -> None:
    """Facts 4.3: Pi puts a steer that waits at the abort into the old window, where nobody answers it."""
    home.script(
        Step(tools=[NEW], wait_for="work"),
        Step(text="the end"),
        Step(text="the steer answered"),
        Step(text="the prompt answered"),
        summary=[gated()],
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("work").wait_reached()
        assert pi.call("steer", message="steered")["success"]
        home.gate("work").open()
        home.gate("summary").wait_reached()
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "the prompt answered")
        assert pi.extension_errors == []
    assert "message/user" in types(archived(home.session(), 0))[-2:]
    assert live(home) == [
        "a marker",
        "assistant: the end",
        "user: steered",
        "assistant: the steer answered",
        "user: held",
    ]


def test_08_a_steer_that_waits_in_the_terminal_at_the_abort_is_put_into_the_editor(home: PiHome) -> None:
    """In the terminal an abort gives back what is queued, as Escape does; the draft there stays, nothing is lost."""
    home.script(Step(tools=[NEW], wait_for="work"), Step(text="the end"))
    with home.tui() as pi:
        pi.submit("the task")
        home.gate("work").wait_reached()
        pi.submit("steered")
        pi.wait_screen("Steering: steered")
        pi.type("a draft")
        home.gate("work").open()
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text.split() == ["steered", "a", "draft"])
    assert live(home) == ["a marker"]


def test_08_a_follow_up_that_waited_at_the_abort_is_answered_once(home: PiHome) -> None:
    """Facts 4.3: it is answered in the old window by Pi 0.85.0, in the new one by 1.6.0."""
    home.script(Step(tools=[NEW], wait_for="work"))
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("work").wait_reached()
        assert pi.call("follow_up", message="followed up")["success"]
        home.gate("work").open()
        pi.wait_for(
            lambda event: event["type"] == "agent_settled" and ARCHIVE in home.session().types and done(home), after=0
        )
        assert pi.extension_errors == []
    session = home.session()
    users = [message_text(entry["message"]) for entry in session.of_type("message/user")]
    assert users == ["the task", "followed up"]


def done(home: PiHome) -> bool:
    """The follow-up was answered, and so was the marker."""
    mains = [windows(request.texts) for request in home.requests("main")]
    return any("user: followed up" in texts for texts in mains) and any(
        texts[0] == "a marker" and "user: the task" not in texts for texts in mains
    )


def gated() -> Step:
    return Step(text="summed up", wait_for="summary")


# --- 9. internal rollover preserves Notebook state ---


def test_09_internal_rollover_preserves_live_state(home: PiHome) -> None:
    """Seed, validation plan 9: told from what contextd says on Pi's extension bus (design 4)."""
    home.script(
        Step(tools=[COUNT]),
        Step(tools=[COUNT]),
        Step(tools=[NEW]),
        Step(tools=[COUNT]),
        Step(tools=[NEW]),
        Step(tools=[COUNT]),
        Step(text="the end"),
    )
    with home.rpc(extensions=extensions(LIVE_STATE)) as pi:
        pi.prompt("count")
        answered(pi, "the end")
        assert counts(pi) == [1, 2, 3, 4]
        assert pi.extension_errors == []
    assert window_numbers(home.session()) == [0, 1, 2]


# --- 10. ordinary user tree navigation still resets Notebook state ---


def test_10_ordinary_user_tree_navigation_still_resets_live_state(home: PiHome) -> None:
    """Seed, validation plan 10: with a summary and without, within a window and into an archived one."""
    home.script(
        Step(tools=[COUNT]),
        Step(text="counted"),
        Step(tools=[NEW, COUNT]),
        Step(text="rolled over"),
        Step(tools=[COUNT]),
        Step(text="the end"),
    )
    with home.rpc(extensions=extensions(LIVE_STATE, HANDS)) as pi:
        pi.prompt("count")
        answered(pi, "counted")
        first = home.session().of_type("message/user")[0]
        pi.prompt("roll over")
        answered(pi, "rolled over")
        assert counts(pi)[0] == 1
        rolled = home.session()
        pi.prompt(f"/go {first['id']}")
        pi.wait_for(lambda event: event.get("method") == "notify" and event["message"] == "moved")
        pi.prompt("/count")
        assert notices(pi)[-1] == "The count is 0."
        pi.prompt("count again")
        answered(pi, "the end")
        assert counts(pi)[-1] == 1
        assert pi.extension_errors == []
        after = pi.mark
        pi.prompt(f"/go {rolled.leaf['id']} summarize")
        pi.wait_for(lambda event: event.get("method") == "notify" and event["message"] == "moved", after=after)
        pi.prompt("/count")
        assert notices(pi)[-1] == "The count is 0."
    session = home.session()
    assert len(session.of_type(ARCHIVE)) == 1
    assert session.leaf["type"] == "branch_summary"


def test_10_navigation_in_the_terminals_own_tree_selector_resets_live_state(home: PiHome) -> None:
    """Seed, validation plan 10, through the way that a person takes."""
    home.script(Step(tools=[COUNT]), Step(tools=[NEW]), Step(tools=[COUNT]), Step(text="the end"))
    with home.tui(extensions=extensions(LIVE_STATE)) as pi:
        pi.submit("count on and on")
        pi.wait_screen("the end")
        show_count(pi, 2)
        pi.submit("/tree")
        pi.wait_screen("Session Tree")
        pi.key("up")
        pi.key("enter")
        pi.wait_screen("No summary")
        pi.key("enter")
        # The rollover has shown the same line; what is left behind has gone from the screen only now.
        pi.wait_screen(lambda screen: "Navigated to selected point" in screen and "the end" not in screen)
        show_count(pi, 0)


def show_count(pi: TuiPi, count: int) -> None:
    pi.submit("/count")
    pi.wait_screen(f"The count is {count}.")


def counts(pi: RpcPi) -> list[int]:
    """What the tool `count` returned so far."""
    ends = [event for event in pi.events if event["type"] == "tool_execution_end" and event["toolName"] == "count"]
    return [event["result"]["details"]["count"] for event in ends if not event["isError"]]
