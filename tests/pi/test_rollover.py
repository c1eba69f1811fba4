"""The main job in real Pi: a rollover, driven by the daemon, on both versions."""

from __future__ import annotations

from pi.harness import Call, PiHome, Step

NEW = Call("new_context", {})


def test_three_windows_are_made_and_each_shows_only_its_marker_and_live_work(home: PiHome) -> None:
    home.script(
        Step(text="working in window 0", tools=[NEW]),
        Step(text="working in window 1", tools=[NEW]),
        Step(text="working in window 2"),
        summary=[Step(text="SUMMARY ZERO"), Step(text="SUMMARY ONE")],
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        pi.settled(3)
        assert pi.extension_errors == []
        assert pi.close() == 0
    last = home.requests("main")[-1]
    assert len(last.texts) == 1
    assert "Current context window id" in last.texts[0]
    assert "SUMMARY" not in last.texts[0]
    assert len(home.session().of_type("custom/codex-context-tree-archive")) == 2
