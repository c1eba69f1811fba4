"""Modes, budget and settings in real Pi (both versions)."""

from __future__ import annotations

import json

from pi.harness import Call, PiHome, Step
from pi.test_retrieval import NEW, Model, running

TOOLS = {"new_context", "get_context_remaining", "history", "notes"}


def test_local_mode_rolls_over_on_one_branch_and_the_model_sees_the_latest_window_only(home: PiHome) -> None:
    home.settings(contextd={"mode": "local"})
    with running(home) as model:
        model.does(Step(text="old work", tools=[NEW]), Step(text="in window 1"), prompt="the task", settles=2)
        model.does(Step(text="more"), prompt="and now")
        window = model.call("history", action="list_windows")["windows"][0]
        assert window["item_count"] >= 2
        listed = model.call("history", action="list_items", window_id=window["window_id"], role="user")["items"]
        assert [item["truncated_content"] for item in listed] == ["the task"]
    texts = home.requests("main")[2].texts
    assert len(texts) == 3
    assert "Previous context window id" in texts[0]
    assert '"user_item_ids"' in texts[0]
    assert "summary_item_id" not in texts[0]
    assert texts[1:] == ["assistant: in window 1", "user: and now"]
    session = home.session()
    assert session.of_type("branch_summary") == []
    assert len(session.branch()) == len(session.entries)


def test_three_windows_in_local_mode_survive_print_mode(home: PiHome) -> None:
    home.settings(contextd={"mode": "local"})
    home.script(Step(tools=[NEW]), Step(tools=[NEW]), Step(text="the end"))
    ran = home.run_print("the task")
    assert (ran.returncode, ran.stdout.strip()) == (0, "the end")
    assert len(home.session().of_type("custom_message/codex-context-window")) == 3


def test_off_mode_has_no_tools_and_appends_nothing(home: PiHome) -> None:
    home.settings(contextd={"mode": "off"})
    home.script(Step(text="plain"))
    with home.rpc() as pi:
        pi.prompt("hello")
        pi.settled()
        pi.close()
    assert not TOOLS & set(home.requests("main")[0].tools)
    assert not [name for name in home.session().types if "codex-context" in name]


def test_tools_exist_in_the_modes_that_have_them(home: PiHome) -> None:
    for mode in ("tree", "local"):
        home.settings(contextd={"mode": mode})
        home.script(Step(text="plain"))
        ran = home.run_print("hello")
        assert set(ran.requests[0].tools) >= TOOLS


def test_leaving_tree_is_loud_and_shows_the_summaries_again(home: PiHome) -> None:
    with running(home) as model:
        model.does(Step(text="old work", tools=[NEW]), Step(text="in window 1"), prompt="the task", settles=2)
    home.settings(contextd={"mode": "off"})
    home.script(Step(text="after"))
    with home.rpc(args=["--continue"]) as pi:
        pi.prompt("hello again")
        pi.settled()
        said = [request["message"] for request in pi.ui("notify")]
        assert any("archived windows" in text and "mode off" in text for text in said)
        pi.close()
    texts = home.requests("main")[-1].texts
    assert any("SUMMARY ZERO" in text for text in texts)
    assert not any("context_window" in text for text in texts)


def test_context_mode_shows_all_four_and_changes_the_next_session_only(home: PiHome) -> None:
    home.settings(theme="dark")
    with home.rpc() as pi:
        pi.prompt("/context mode")
        shown = pi.wait_for(lambda event: event.get("method") == "notify")["message"]
        for mode in ("off", "local", "tree", "remote"):
            assert any(line.split()[:2] == ["▸", mode] or line.split()[:1] == [mode] for line in shown.splitlines())
        assert "Leaving tree" in shown
        mark = pi.mark
        pi.prompt("/context mode local")
        shown = pi.wait_for(lambda event: event.get("method") == "notify", after=mark)["message"]
        assert "From the next session on: local." in shown
        mark = pi.mark
        pi.prompt("/context status")
        assert "mode tree" in pi.wait_for(lambda event: event.get("method") == "notify", after=mark)["message"]
        pi.close()
    settings = json.loads((home.agent / "settings.json").read_text(encoding="utf-8"))
    assert settings["contextd"] == {"mode": "local"}
    assert settings["theme"] == "dark"


def test_an_unknown_mode_is_an_error_that_names_the_allowed_ones_and_pi_stays_usable(home: PiHome) -> None:
    home.settings(contextd={"mode": "forest"})
    home.script(Step(text="still here"))
    with home.rpc() as pi:
        pi.prompt("hello")
        pi.settled()
        said = [request["message"] for request in pi.ui("notify")]
        assert [text for text in said if "must be one of off, local, tree" in text]
        assert len(said) == 1
        pi.close()
    assert home.requests("main")[0].tools
    assert not TOOLS & set(home.requests("main")[0].tools)


def test_a_projects_mode_counts_only_when_the_project_is_trusted(home: PiHome) -> None:
    (home.work / ".pi").mkdir()
    (home.work / ".pi" / "settings.json").write_text('{"contextd": {"mode": "off"}}', encoding="utf-8")
    home.script(Step(text="plain"))
    untrusted = home.run_print("hello", args=["--no-approve"])
    assert set(untrusted.requests[0].tools) >= TOOLS
    trusted = home.run_print("hello", args=["--approve"])
    assert not TOOLS & set(trusted.requests[0].tools)


def test_the_model_can_ask_how_much_room_is_left(home: PiHome) -> None:
    with home.rpc(env={"CONTEXTD_TEST_WINDOW": "272000"}) as pi:
        model = Model(home, pi)
        model.does(Step(tools=[Call("get_context_remaining", {})]), Step(text="seen"))
        pi.close()
    result = home.session().of_type("message/toolResult")[-1]["message"]
    assert result["details"]["contextWindow"] == 272_000 - 16_384
    left = result["details"]["remainingTokens"]
    assert result["content"][0]["text"] == f"You have {left} tokens left in this context window."


def test_one_reminder_a_window_when_little_room_is_left(home: PiHome) -> None:
    home.settings(compaction={"enabled": False})
    with home.rpc(env={"CONTEXTD_TEST_WINDOW": "18000"}) as pi:
        model = Model(home, pi)
        look = Call("get_context_remaining", {})
        model.does(Step(tools=[look]), Step(tools=[look]), Step(tools=[look]), Step(text="seen"))
        model.does(Step(tools=[NEW]), Step(tools=[look]), Step(tools=[look]), Step(text="seen"), settles=2)
        assert pi.extension_errors == []
        pi.close()
    markers = home.session().of_type("custom_message/codex-context-window")
    kinds = [entry["details"]["contextManagement"]["kind"] for entry in markers]
    assert kinds == ["window", "reminder", "window", "reminder"]
    seen = [sum("context_window_reminder" in text for text in request.texts) for request in home.requests("main")]
    assert max(seen) == 1
    assert seen[3] == 1


def test_a_session_that_was_local_archives_all_its_windows_when_tree_rolls_over(home: PiHome) -> None:
    home.settings(contextd={"mode": "local"})
    with running(home) as model:
        model.does(Step(text="first", tools=[NEW]), Step(text="second"), prompt="the task", settles=2)
    home.settings(contextd={"mode": "tree"})
    with running(home, "--continue") as model:
        model.does(Step(text="third", tools=[NEW]), Step(text="in a fresh window"), prompt="more", settles=2)
        found = model.call("history", action="search_contents", query="the task", role="user")["items"]
        assert [item["truncated_content"] for item in found] == ["the task"]
