"""The daemon is killed, hangs or cannot be started, in real Pi on both versions: Pi goes on (design 3 and 7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pi.harness import Call, Gate, PiHome, RpcPi, Step, TuiPi, wait_until
from pi.product import (
    ARCHIVE,
    HANDS,
    NEW,
    SNAPSHOT,
    answered,
    daemon,
    extensions,
    live,
    notices,
    runs,
    window_numbers,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the daemon through /proc")

ANSWERS = 2.0
"""Seconds in which a prompt, an abort and /new answer beyond the model's own time, whatever the daemon does."""


def kill_daemon(pi: RpcPi | TuiPi) -> None:
    pid = daemon(pi)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not runs(pid), "end of the daemon")


@contextmanager
def stopped_daemon(pi: RpcPi) -> Iterator[int]:
    """The daemon hangs; the shim should end it, and if it does not, this does."""
    pid = daemon(pi)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        if runs(pid):
            os.kill(pid, signal.SIGKILL)


def lost(pi: RpcPi) -> list[str]:
    return [text for text in notices(pi) if "no answer from the daemon" in text]


def check_whole(home: PiHome, windows: int) -> None:
    """Every window that was left has all its parts, each once."""
    session = home.session()
    assert window_numbers(session) == list(range(windows))
    assert [len(session.of_type(kind)) for kind in ("branch_summary", ARCHIVE, SNAPSHOT)] == [windows - 1] * 3


# --- killed ---


def test_killed_while_idle_it_is_started_again_and_the_next_rollover_works(home: PiHome) -> None:
    """Design 7: the shim says so once, restarts it, re-syncs."""
    home.script(Step(text="ready"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        before = daemon(pi)
        kill_daemon(pi)
        pi.prompt("the task")
        answered(pi, "the end")
        assert daemon(pi) != before
        assert len(lost(pi)) == 1
        assert pi.extension_errors == []
    check_whole(home, 2)
    assert live(home) == ["a marker"]


def test_killed_again_and_again_it_is_started_each_time(home: PiHome) -> None:
    """Design 7: with backoff; a prompt is answered by Pi all the same."""
    home.script(*[Step(text=f"answer {number}") for number in range(4)])
    with home.rpc() as pi:
        for number in range(4):
            pi.prompt(f"prompt {number}")
            answered(pi, f"answer {number}")
            wait_until(lambda: status(pi), "daemon")
            kill_daemon(pi)
        assert pi.extension_errors == []
    assert len(live(home)) == 8


def status(pi: RpcPi) -> bool:
    """Ask for the status and tell whether it came."""
    after = len(notices(pi))
    pi.prompt("/context status")
    return any(text.startswith("contextd ") for text in notices(pi)[after:])


def test_killed_during_a_tool_call_the_call_of_new_context_after_it_works(home: PiHome) -> None:
    """Design 7."""
    gate = home.gate("tool")
    home.script(Step(tools=[wait_at(gate)]), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        gate.wait_reached()
        kill_daemon(pi)
        gate.open()
        answered(pi, "the end")
        assert len(lost(pi)) == 1
        assert pi.extension_errors == []
    check_whole(home, 2)


def wait_at(gate: Gate) -> Call:
    """A call of Pi's own bash that lasts until the gate is opened."""
    at = gate.folder / gate.name
    return Call("bash", {"command": f"touch {at}.reached; while [ ! -e {at} ]; do sleep 0.01; done"})


def test_killed_during_the_summary_the_rollover_is_completed_with_its_turn(home: PiHome) -> None:
    """Design 4, step 8: with its turn when only the daemon was restarted; held input follows the marker."""
    home.script(
        Step(tools=[NEW]),
        Step(text="the end"),
        Step(text="held answered"),
        summary=[Step(text="summed up", wait_for="summary")],
    )
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        kill_daemon(pi)
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        assert len(lost(pi)) == 1
        assert notices(pi, "error") == []
        assert pi.extension_errors == []
    check_whole(home, 2)
    assert live(home) == ["a marker", "assistant: the end", "user: held"]


def test_killed_between_the_tool_and_settle_the_rollover_is_completed(home: PiHome) -> None:
    """Design 4, step 8: the intent stands in the session, so another daemon goes on from it."""
    home.script(Step(tools=[NEW]), Step(text="the end"))
    with home.rpc(extensions=extensions(HANDS), env={"CONTEXTD_TEST_SLOW_END": "settle"}) as pi:
        pi.prompt("the task")
        home.gate("settle").wait_reached()
        kill_daemon(pi)
        home.gate("settle").open()
        answered(pi, "the end")
        assert len(lost(pi)) == 1
        assert pi.extension_errors == []
    check_whole(home, 2)


def test_killed_while_a_response_streams_pi_goes_on(home: PiHome) -> None:
    """Design 7."""
    home.script(Step(text="streamed", wait_for="answer"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("answer").wait_reached()
        kill_daemon(pi)
        home.gate("answer").open()
        answered(pi, "streamed")
        pi.prompt("more")
        answered(pi, "the end")
        assert len(lost(pi)) == 1
        assert pi.extension_errors == []
    check_whole(home, 2)


# --- hung ---


def test_while_it_hangs_a_prompt_is_answered(home: PiHome) -> None:
    """Design 7: within 2 s; facts 21: without deadlines it would stop the request."""
    home.script(Step(text="ready"), Step(text="the answer"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        with stopped_daemon(pi) as pid:
            pi.send("prompt", message="the task")
            answered(pi, "the answer", deadline=ANSWERS)
            wait_until(lambda: not runs(pid), "end of the daemon that hangs")
        assert len(lost(pi)) == 1
        pi.prompt("roll over")
        answered(pi, "the end")
        assert pi.extension_errors == []
    check_whole(home, 2)


def test_while_it_hangs_an_abort_works(home: PiHome) -> None:
    """Design 7: within 2 s, also while the model answers and while a tool of ours waits for the daemon."""
    home.script(Step(text="never", wait_for="answer"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("answer").wait_reached()
        with stopped_daemon(pi):
            aborting = pi.send("abort")
            assert pi.response(aborting, deadline=ANSWERS)["success"]
            pi.wait_for("agent_settled", deadline=ANSWERS)
        after = pi.mark
        wait_until(lambda: status(pi), "another daemon")
        with stopped_daemon(pi):
            pi.send("prompt", message="roll over")
            pi.wait_for("agent_start", after=after)
            aborting = pi.send("abort")
            assert pi.response(aborting, deadline=ANSWERS)["success"]
            pi.wait_for("agent_settled", after=after, deadline=ANSWERS)
        assert pi.extension_errors == []


def test_while_it_hangs_a_new_session_starts(home: PiHome) -> None:
    """Design 7: /new within 2 s."""
    home.script(Step(text="ready"), Step(tools=[NEW]), Step(text="the end"))
    with home.rpc() as pi:
        pi.prompt("start")
        answered(pi, "ready")
        with stopped_daemon(pi) as pid:
            assert pi.call("new_session", deadline=ANSWERS)["success"]
            wait_until(lambda: not runs(pid), "end of the daemon that hangs")
        pi.prompt("the task")
        answered(pi, "the end")
        assert pi.extension_errors == []
    check_whole(home, 2)


def test_hanging_during_the_summary_the_rollover_ends_in_a_window(home: PiHome) -> None:
    """Design 4, step 8 and design 7."""
    home.script(Step(tools=[NEW]), Step(text="the end"), summary=[Step(text="summed up", wait_for="summary")])
    with home.rpc() as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        with stopped_daemon(pi):
            home.gate("summary").open()
            answered(pi, "the end")
        assert len(lost(pi)) == 1
        assert pi.extension_errors == []
    check_whole(home, 2)


# --- never there ---


FAKE = """\
import json, sys
def say(line): print(json.dumps({"jsonrpc": "2.0", **line}), flush=True)
say({"method": "ready", "params": {"protocol": 99, "version": "9.9.9", "pid": 1}})
for line in sys.stdin:
    request = json.loads(line)
    text = "this is pi-contextd 9.9.9, which speaks protocol 99; install the same version of both"
    if "id" in request:
        say({"id": request["id"], "error": {"code": -32001, "message": text}})
"""


def fake_of_another_version(home: PiHome) -> str:
    program = home.root / "fake.py"
    program.write_text(FAKE)
    return f'["{sys.executable}", "{program}"]'


COMMANDS = {
    "half a list": lambda _: "[pi-contextd",
    "an empty list": lambda _: "[]",
    "no name": lambda _: '[""]',
    "a program that says JSON that is no object": lambda _: '["sh", "-c", "echo null; exec cat"]',
    "a missing file": lambda home: str(home.root / "no-such-program"),
    "a program that exits at once": lambda _: "/bin/false",
    "a program that says something else": lambda _: '["/bin/echo", "hello"]',
    "another protocol version": fake_of_another_version,
}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_daemon_pi_is_usable_and_one_line_says_how_to_mend_it(home: PiHome, command: str) -> None:
    """Design 7; and with nothing to ask, the model has no tool that could not work."""
    home.script(Step(text="one"), Step(text="two"))
    with home.rpc(env={"PI_CONTEXTD_COMMAND": COMMANDS[command](home)}) as pi:
        pi.prompt("first")
        answered(pi, "one")
        pi.prompt("second")
        answered(pi, "two")
        assert pi.call("new_session")["success"]
        assert pi.extension_errors == []
        [line] = notices(pi)[:1]
        assert "\n" not in line
        assert "pi-contextd" in line
        assert "install" in line
        assert len(notices(pi)) <= 2, "once for each session"
        assert pi.close() == 0
    assert live(home) == ["user: first", "assistant: one", "user: second"]
    assert "new_context" not in home.requests("main")[-1].tools


def test_while_the_daemon_never_gets_ready_a_prompt_and_a_new_session_are_answered(home: PiHome) -> None:
    """Design 7: within 2 s; the start goes on meanwhile, and when it fails one line says so."""
    home.script(Step(text="one"), Step(text="two"))
    with home.rpc(env={"PI_CONTEXTD_COMMAND": '["sleep", "1000"]'}) as pi:
        pi.call("get_state")
        pi.prompt("first")
        answered(pi, "one", deadline=ANSWERS)
        assert pi.call("new_session", deadline=ANSWERS)["success"]
        pi.prompt("second")
        answered(pi, "two", deadline=ANSWERS)
        wait_until(lambda: bool(lost(pi)), "a line about the daemon")
        assert pi.extension_errors == []
        assert pi.close() == 0


def test_without_a_daemon_print_mode_answers_and_tells_on_stderr(home: PiHome) -> None:
    """Design 7: stdout belongs to the answer."""
    home.script(Step(text="printed"))
    ran = home.run_print("say it", env={"PI_CONTEXTD_COMMAND": str(home.root / "no-such-program")})
    assert (ran.stdout, ran.returncode) == ("printed\n", 0)
    assert "PI_CONTEXTD_COMMAND" in ran.stderr
    assert len(ran.stderr.strip().split("\n")) == 1


@pytest.mark.parametrize("mode", ["tree", "local"])
def test_what_was_hidden_before_stays_hidden_when_the_daemon_is_gone_for_good(home: PiHome, mode: str) -> None:
    """Design 3, deadlines: the shim keeps hiding what the last answer hid."""
    home.settings(contextd={"mode": mode})
    launcher = Launcher(home)
    home.script(Step(tools=[NEW]), Step(text="rolled over"), Step(text="without it"), Step(text="still without"))
    with home.rpc(env=launcher.environment) as pi:
        pi.prompt("the task")
        answered(pi, "rolled over")
        launcher.remove(pi)
        pi.prompt("go on")
        answered(pi, "without it")
        pi.prompt("and on")
        answered(pi, "still without")
        assert pi.extension_errors == []
        assert len(lost(pi)) == 1
    assert live(home) == [
        "a marker",
        "assistant: rolled over",
        "user: go on",
        "assistant: without it",
        "user: and on",
    ]


def test_gone_for_good_before_settle_the_old_window_goes_on_with_what_was_typed(home: PiHome) -> None:
    """Design 4, step 6: any failure puts held input back to work; the next daemon closes the intent, and says so."""
    launcher = Launcher(home)
    home.script(Step(tools=[NEW]), Step(text="held answered"), Step(text="answered"))
    env = {"CONTEXTD_TEST_SLOW_END": "settle", **launcher.environment}
    with home.rpc(extensions=extensions(HANDS), env=env) as pi:
        pi.prompt("the task")
        home.gate("settle").wait_reached()
        launcher.remove(pi)
        pi.send("prompt", message="held", streamingBehavior="followUp")
        pi.call("get_state")
        home.gate("settle").open()
        answered(pi, "held answered")
        pi.prompt("without it")
        answered(pi, "answered")
        assert pi.extension_errors == []
        assert pi.close() == 0
    assert live(home)[:2] == ["a marker", "user: the task"]
    assert live(home)[-1] == "user: without it"
    home.script(Step(text="resumed", tools=[NEW]), Step(text="rolled over"))
    with home.rpc(args=["--continue"]) as pi:
        assert len([text for text in said(pi) if "was not started" in text]) == 1
        pi.prompt("with another")
        answered(pi, "rolled over")
    check_whole(home, 2)


def test_gone_for_good_during_the_summary_what_was_typed_is_answered_and_the_window_completed_later(
    home: PiHome,
) -> None:
    """Design 4, steps 6 and 8: held input goes to work; the summary stands, so a later daemon seals the window."""
    launcher = Launcher(home)
    home.script(Step(tools=[NEW]), Step(text="held answered"), summary=[Step(text="summed up", wait_for="summary")])
    with home.rpc(env=launcher.environment) as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        launcher.remove(pi)
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        pi.prompt("without it")
        answered(pi, "done")
        assert pi.extension_errors == []
        assert len(notices(pi, "error")) <= 1
        assert pi.close() == 0
    home.script(Step(text="resumed"))
    with home.rpc(args=["--continue"]) as pi:
        assert len([text for text in said(pi) if "is complete now" in text]) == 1
        pi.prompt("go on")
        answered(pi, "resumed")
    check_whole(home, 2)


def test_back_after_it_was_gone_during_the_summary_the_window_is_completed_without_a_turn(home: PiHome) -> None:
    """Design 4, step 8: what was typed has gone to work already, so nothing starts by itself; design 5 on the rest."""
    launcher = Launcher(home)
    home.script(Step(tools=[NEW]), Step(text="held answered"), summary=[Step(text="summed up", wait_for="summary")])
    with home.rpc(env=launcher.environment) as pi:
        pi.prompt("the task")
        home.gate("summary").wait_reached()
        launcher.remove(pi)
        pi.send("prompt", message="held")
        pi.call("get_state")
        home.gate("summary").open()
        answered(pi, "held answered")
        launcher.bring_back()
        wait_until(lambda: status(pi), "daemon")
        assert len([text for text in notices(pi) if "is complete now" in text]) == 1
        assert len(home.requests("main")) == 2
        # Work came between summary and manifest; the archive is whole all the same.
        pi.prompt("/context status")
        assert "unavailable" not in notices(pi)[-1]
        after = pi.mark
        pi.prompt("go on")
        answered(pi, "done", after=after)
        assert pi.extension_errors == []
    check_whole(home, 2)
    assert not any("summed up" in text for text in live(home))


def said(pi: RpcPi) -> list[str]:
    """What the start of the session brought."""
    pi.call("get_state")
    return notices(pi)


class Launcher:
    """A way to the daemon that can be taken away, so that no other one can be started."""

    def __init__(self, home: PiHome) -> None:
        self._path = home.root / "pi-contextd-here"
        self.bring_back()
        self.environment = {"PI_CONTEXTD_COMMAND": str(self._path)}

    def bring_back(self) -> None:
        self._path.symlink_to(Path(sys.executable).parent / "pi-contextd")

    def remove(self, pi: RpcPi) -> None:
        self._path.unlink()
        kill_daemon(pi)


# --- recorded ---


def test_a_recording_made_in_pi_is_accepted_by_replay(home: PiHome) -> None:
    """Design 3, record and replay."""
    home.script(Step(text="window zero", tools=[NEW]), Step(tools=[NEW]), Step(text="the end"))
    recording = home.root / "recording.jsonl"
    with home.rpc(env={"PI_CONTEXTD_RECORD": str(recording)}) as pi:
        pi.prompt("the task")
        answered(pi, "the end")
        pi.prompt("/context status")
        assert pi.extension_errors == []
        assert pi.close() == 0
    assert recording.stat().st_mode & 0o077 == 0
    program = Path(sys.executable).parent / "pi-contextd"
    ran = subprocess.run([program, "replay", str(recording)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "every answer is as recorded" in ran.stdout
