"""What a person types, in real Pi on both versions: /context status and /context rollover."""

from __future__ import annotations

from pi.harness import PiHome, Step, TuiPi
from pi.product import ARCHIVE, INTENT, NEW, answered, asked, live, notices, texts, window_numbers

ROLLOVER_ABOUT = "as the model's new_context does"


def test_context_status_tells_window_rollover_archives_and_versions(home: PiHome) -> None:
    """Design 3: the whole state, readable."""
    home.script(Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("/context status")
        first = notices(pi)[-1]
        pi.prompt("the task")
        answered(pi, "the end")
        pi.prompt("/context status")
        second = notices(pi)[-1]
        assert pi.extension_errors == []
    assert "mode tree" in first.split("\n")[0]
    assert f"Pi {home.version}" in first.split("\n")[0]
    assert lines(first)["window"].startswith("0 · ")
    assert lines(first)["rollover"].startswith("idle")
    assert lines(first)["archives"] == "none"
    marker = home.session().branch()[-2]["details"]["contextManagement"]
    assert lines(second)["window"].startswith(f"1 · {marker['currentWindowId']}")
    assert "summary hidden" in lines(second)["archives"]
    assert marker["previousWindowId"] in lines(second)["archives"]
    assert asked(home) == ["main", "summary", "main"]


def lines(report: str) -> dict[str, str]:
    """The report by the word that its lines begin with."""
    rows = [line.split(maxsplit=1) for line in report.split("\n") if line[:1].strip()]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def test_context_status_tells_why_the_last_rollover_failed(home: PiHome) -> None:
    """Seed, failure policy: leave the session inspectable."""
    home.script(Step(tools=[NEW]), summary=[Step(error="the model is broken")])
    with home.rpc() as pi:
        pi.prompt("the task")
        pi.wait_for(lambda event: event.get("notifyType") == "error")
        pi.prompt("/context status")
        assert "the model is broken" in notices(pi)[-1]


def test_context_rollover_while_idle_starts_a_window(home: PiHome) -> None:
    """Nothing settles while Pi is idle, so it departs at once; the model goes on from the marker."""
    home.script(Step(text="ready"), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        pi.prompt("/context rollover")
        answered(pi, "the end")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert asked(home) == ["main", "summary", "main"]
    assert live(home) == ["a marker"]
    assert window_numbers(home.session()) == [0, 1]


def test_input_during_a_rollover_by_command_lands_after_the_marker(home: PiHome) -> None:
    """As for new_context (seed, validation plan 8). Over rpc Pi 1.6.0 refuses such a prompt, and says so."""
    home.script(Step(text="ready"), Step(text="the end"), Step(text="held answered"), summary=[gated()])
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        pi.send("prompt", message="/context rollover")
        home.gate("summary").wait_reached()
        accepted = pi.call("prompt", message="held")["success"]
        assert accepted == (home.version == "0.85.0")
        home.gate("summary").open()
        answered(pi, "held answered" if accepted else "the end")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert live(home) == ["a marker", *(["assistant: the end", "user: held"] if accepted else [])]


def gated() -> Step:
    return Step(text="summed up", wait_for="summary")


def test_context_rollover_while_the_model_answers_aborts_it_and_starts_a_window(home: PiHome) -> None:
    """As new_context does: abort, settle, navigate."""
    home.script(Step(text="never", wait_for="answer"), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("answer").wait_reached()
        pi.prompt("/context rollover")
        answered(pi, "the end")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert asked(home) == ["main", "summary", "main"]
    session = home.session()
    assert window_numbers(session) == [0, 1]
    # What was interrupted is not sent again: the person asked for the end of that window.
    assert "the task" not in texts(session, "user")


def test_context_rollover_in_a_session_without_work_starts_a_window_too(home: PiHome) -> None:
    """Also when Pi has hardly anything to summarise."""
    home.script(Step(text="the end"), Step(text="answered"))
    with home.rpc() as pi:
        pi.prompt("/context rollover")
        answered(pi, "the end")
        pi.prompt("the task")
        answered(pi, "answered")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert live(home) == ["a marker", "assistant: the end", "user: the task"]
    assert window_numbers(home.session()) == [0, 1]


def enter_command(pi: TuiPi, command: str, completion: str) -> None:
    """Type a command; the first Enter takes the completion that is offered, the second submits."""
    pi.type(command)
    pi.wait_screen(completion)
    pi.key("enter")
    pi.wait_screen(lambda screen: completion not in screen)
    pi.key("enter")


def test_context_rollover_in_the_terminal_leaves_a_blank_editor(home: PiHome) -> None:
    """What was typed was the command; facts 10: Pi puts the marker's text into a blank editor."""
    home.script(Step(text="ready"), Step(text="the end"))
    with home.tui() as pi:
        pi.submit("start")
        pi.wait_screen("ready")
        enter_command(pi, "/context rollover", ROLLOVER_ABOUT)
        pi.wait_screen("the end")
        pi.wait_editor(lambda text: text == "")
    assert window_numbers(home.session()) == [0, 1]
    assert [entry["data"]["step"] for entry in home.session().of_type(INTENT)] == ["request"]
    assert len(home.session().of_type(ARCHIVE)) == 1


def test_a_prompt_entered_during_a_rollover_by_command_lands_after_the_marker(home: PiHome) -> None:
    """As for new_context (seed, validation plan 8)."""
    home.script(Step(text="ready"), Step(text="the end"), Step(text="held answered"), summary=[gated()])
    with home.tui() as pi:
        pi.submit("start")
        pi.wait_screen("ready")
        enter_command(pi, "/context rollover", ROLLOVER_ABOUT)
        home.gate("summary").wait_reached()
        pi.submit("held")
        pi.wait_editor(lambda text: text == "")
        home.gate("summary").open()
        pi.wait_screen("held answered")
    assert live(home) == ["a marker", "assistant: the end", "user: held"]


def test_the_terminal_completes_the_arguments_of_context(home: PiHome) -> None:
    """Facts 12: completions are the terminal's alone."""
    with home.tui() as pi:
        pi.type("/context ro")
        pi.wait_screen(ROLLOVER_ABOUT)
        pi.key("tab")
        pi.wait_editor("/context rollover")
