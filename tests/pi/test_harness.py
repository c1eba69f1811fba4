"""The harness with the scripted model alone: what tests of the product rely on holds on both versions of Pi."""

from pathlib import Path

from pi.harness import HERE, PROVIDER, Call, PiHome, SessionView, Step, message_text

MODEL_ALONE: list[Path] = [PROVIDER]
WITH_NAVIGATION = [PROVIDER, HERE / "navigate.ts"]


def test_rpc_prompt_is_answered_by_the_script_and_recorded(home: PiHome) -> None:
    home.script(Step(text="hello", thinking="hm"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("hi")
        pi.settled()
        assert pi.extension_errors == []
        assert pi.close() == 0
    [request] = home.requests()
    assert request.kind == "main"
    assert request.texts == ["user: hi"]
    assert "read" in request.tools
    assert "pi" in request.system
    assert message_text(home.session().leaf["message"]) == "<thinking hm>\nhello"


def test_scripted_tool_call_runs_and_the_script_goes_on_after_reload(home: PiHome) -> None:
    (home.work / "note.txt").write_text("from the file")
    home.script(Step(tools=[Call("read", {"path": "note.txt"})]), Step(text="first"), Step(text="second"))
    with home.tui(extensions=MODEL_ALONE) as pi:
        pi.submit("read it")
        pi.wait_screen("first")
        pi.submit("/reload")
        pi.wait_screen(lambda screen: "Reloaded" in screen)
        pi.submit("again")
        pi.wait_screen("second")
    assert "toolResult: from the file" in home.requests()[1].texts


def test_print_mode_prints_the_answer_and_ends(home: PiHome) -> None:
    home.script(Step(text="printed"))
    ran = home.run_print("say it", extensions=MODEL_ALONE)
    assert (ran.stdout, ran.returncode) == ("printed\n", 0)
    assert [request.texts for request in ran.requests] == [["user: say it"]]
    assert ran.session is not None
    assert SessionView.read(ran.session).types[-2:] == ["message/user", "message/assistant"]


def test_json_mode_prints_a_header_and_events(home: PiHome) -> None:
    ran = home.run_json("say it", extensions=MODEL_ALONE, args=["--no-session"], model="fake/fake-2")
    assert ran.events[0]["type"] == "session"
    assert ran.events[-1]["type"] == "agent_settled"
    assert ran.session is None
    assert [request.model for request in ran.requests] == ["fake-2"]


def test_terminal_shows_a_draft_and_the_answer_to_a_submitted_prompt(home: PiHome) -> None:
    home.script(Step(text="an answer on the screen"))
    with home.tui(extensions=MODEL_ALONE) as pi:
        pi.submit("a question")
        pi.wait_screen("an answer on the screen")
        pi.wait_editor(lambda text: text == "")
        pi.type("a draft")
        assert pi.editor() == "a draft"
    assert [request.texts for request in home.requests()] == [["user: a question"]]


def test_gate_holds_an_answer_until_it_is_opened(home: PiHome) -> None:
    home.script(Step(text="held", wait_for="answer"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("hi")
        home.gate("answer").wait_reached()
        assert pi.call("get_state")["data"]["isStreaming"]
        home.gate("answer").open()
        pi.settled()
    assert message_text(home.session().leaf["message"]) == "held"


def test_abort_ends_an_answer_that_a_gate_holds(home: PiHome) -> None:
    home.script(Step(text="never", wait_for="answer"), Step(text="after"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("hi")
        home.gate("answer").wait_reached()
        assert pi.call("abort")["success"]
        pi.settled()
        pi.prompt("go on")
        pi.settled(2)
    stopped, answered = home.session().of_type("message/assistant")
    assert stopped["message"]["stopReason"] == "aborted"
    assert message_text(answered["message"]) == "after"


def test_scripted_error_ends_the_run_with_an_error_message(home: PiHome) -> None:
    home.script(Step(error="the model is broken"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("hi")
        pi.settled()
    assert home.session().leaf["message"]["errorMessage"] == "the model is broken"


def test_request_for_a_branch_summary_is_told_from_a_prompt(home: PiHome) -> None:
    home.script(Step(text="work"), summary=[Step(text="what was done", wait_for="summary")])
    with home.rpc(extensions=WITH_NAVIGATION) as pi:
        pi.prompt("do it")
        pi.settled()
        leaving = pi.send("prompt", message="/leave")
        home.gate("summary").wait_reached()
        home.gate("summary").open()
        pi.wait_for(lambda event: event.get("method") == "notify" and event["message"] == "left")
        assert pi.response(leaving)["success"]
    assert [request.kind for request in home.requests()] == ["main", "summary"]
    session = home.session()
    assert session.leaf["type"] == "branch_summary"
    assert "what was done" in session.leaf["summary"]
    assert "message/user" not in session.branch_types()
    assert session.branch_types(session.leaf["fromId"])[-2:] == ["message/user", "message/assistant"]


def test_killed_session_is_resumed_from_its_file(home: PiHome) -> None:
    home.script(Step(text="one"), Step(text="lost", wait_for="answer"))
    with home.rpc(extensions=MODEL_ALONE) as pi:
        pi.prompt("first")
        pi.settled()
        pi.prompt("second")
        home.gate("answer").wait_reached()
        pi.kill()
        assert not pi.alive
    [file] = home.session_files()
    ran = home.run_print("third", extensions=MODEL_ALONE, args=["--session", str(file)])
    assert ran.stdout == "one\n"
    assert ran.requests[0].texts == ["user: first", "assistant: one", "user: second", "user: third"]
    assert home.session_files() == [file]


def test_project_prompt_templates_load_when_their_flag_is_left_out(home: PiHome) -> None:
    prompts = home.agent / "prompts"
    prompts.mkdir()
    (prompts / "greet.md").write_text("Say hello to $1")
    ran = home.run_print("/greet Ada", extensions=MODEL_ALONE, without=["--no-prompt-templates"])
    assert ran.requests[0].texts == ["user: Say hello to Ada"]
