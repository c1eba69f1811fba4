"""What a person types, in real Pi on both versions: /context status and /context rollover."""

from __future__ import annotations

from pi.harness import PiHome, Step
from pi.product import ARCHIVE, INTENT, NEW, answered, asked, live, notices, texts, window_numbers


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
    """As for new_context (seed, validation plan 8)."""
    home.script(
        Step(text="ready"),
        Step(text="the end"),
        Step(text="held answered"),
        summary=[Step(text="summed up", wait_for="summary")],
    )
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        pi.send("prompt", message="/context rollover")
        home.gate("summary").wait_reached()
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        assert pi.extension_errors == []
        assert notices(pi, "error") == []
    assert live(home) == ["a marker", "assistant: the end", "user: held"]


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
    """Pi may find nothing to summarise; whatever comes of it is said, and the session stays usable."""
    home.script(Step(text="the end"), Step(text="answered"))
    with home.rpc() as pi:
        pi.prompt("/context rollover")
        pi.prompt("the task")
        pi.wait_for("agent_settled")
        pi.wait_for(lambda _: any("user: the task" in request.texts for request in home.requests("main")))
        assert pi.extension_errors == []


def test_context_rollover_in_the_terminal(home: PiHome) -> None:
    """The editor is blank afterwards: what was typed was the command."""
    home.script(Step(text="ready"), Step(text="the end"))
    with home.tui() as pi:
        pi.submit("start")
        pi.wait_screen("ready")
        pi.submit("/context rollover")
        pi.wait_screen("the end")
        assert pi.editor() == ""
    assert window_numbers(home.session()) == [0, 1]
    assert [entry["data"]["step"] for entry in home.session().of_type(INTENT)] == ["request"]
    assert len(home.session().of_type(ARCHIVE)) == 1


def test_the_terminal_completes_the_arguments_of_context(home: PiHome) -> None:
    """Facts 12: completions are the terminal's alone."""
    with home.tui() as pi:
        pi.type("/context ro")
        pi.wait_screen("as the model's new_context does")
        pi.key("tab")
        pi.wait_editor("/context rollover")
