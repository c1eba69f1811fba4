"""A real daemon process on pipes: what it says first, what it survives, and when it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from builders import SESSION_ID, Json, PiSession
from protocol import rpc

pytestmark = pytest.mark.anyio

DEADLINE = 20.0
COMMAND = [sys.executable, "-m", "daemon"]
PEER = {"protocol": rpc.PROTOCOL, "piVersion": "1.6.0", "ui": "rpc", "cwd": "/project", "agentDir": "/agent"}


class Peer:
    """Speaks to one process; every wait has the deadline of the whole test."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.stdin = process.stdin
        self.stdout = BufferedByteReceiveStream(process.stdout)
        self._ids = 0

    async def send(self, *lines: bytes) -> None:
        await self.stdin.send(b"".join(line + b"\n" for line in lines))

    async def receive(self) -> Json:
        value = json.loads(await self.stdout.receive_until(b"\n", rpc.MAX_LINE))
        assert isinstance(value, dict)
        return value

    async def rest(self) -> bytes:
        """Everything up to the end of its stdout."""
        found = b""
        try:
            while True:
                found += await self.stdout.receive()
        except anyio.EndOfStream:
            return found

    async def ask(self, method: str, **params: Any) -> Json:
        self._ids += 1
        await self.send(request(method, self._ids, **params))
        reply = await self.receive()
        assert reply["id"] == self._ids
        return reply

    async def end(self) -> int:
        await self.stdin.aclose()
        return await self.process.wait()


def request(method: str, request_id: int | str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


@asynccontextmanager
async def running(command: list[str] = COMMAND, **environment: str) -> AsyncIterator[Peer]:
    """A process that has said that it is ready; whatever the test does, it is gone afterwards."""
    env = {**os.environ, **environment}
    with anyio.fail_after(DEADLINE):
        process = await anyio.open_process(command, stderr=subprocess.PIPE, env=env)
        try:
            peer = Peer(process)
            ready = await peer.receive()
            assert ready["method"] == "ready"
            yield peer
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()


async def stderr_of(peer: Peer) -> bytes:
    assert peer.process.stderr is not None
    return b"".join([chunk async for chunk in peer.process.stderr])


async def test_the_first_line_says_that_it_is_ready() -> None:
    with anyio.fail_after(DEADLINE):
        process = await anyio.open_process(COMMAND, stderr=subprocess.PIPE)
        peer = Peer(process)
        ready = await peer.receive()
        assert ready["jsonrpc"] == "2.0"
        assert ready["method"] == "ready"
        assert "id" not in ready
        assert ready["params"]["protocol"] == rpc.PROTOCOL
        assert ready["params"]["pid"] == process.pid
        assert await peer.end() == 0
        assert await peer.rest() == b""
        assert await stderr_of(peer) == b""
        await process.aclose()


async def test_round_trips_come_back_in_order() -> None:
    async with running() as peer:
        for number in range(50):
            await peer.send(request("status", number))
            assert (await peer.receive())["id"] == number
        await peer.send(*(request("status", number) for number in range(500)))
        assert [(await peer.receive())["id"] for _ in range(500)] == list(range(500))
        assert await peer.end() == 0


async def test_a_line_of_garbage_does_not_take_the_next_one_with_it() -> None:
    async with running() as peer:
        await peer.send(b"garbage", b"\xff\xfe\x00", b"", b'{"jsonrpc":"2.0"', request("status", 7))
        replies = [await peer.receive() for _ in range(5)]
        assert [reply.get("error", {}).get("code") for reply in replies] == [rpc.PARSE_ERROR] * 4 + [None]
        assert replies[-1]["id"] == 7


async def test_lines_may_come_byte_by_byte_and_end_with_crlf() -> None:
    async with running() as peer:
        for byte in request("status", "a") + b"\r\n":
            await peer.stdin.send(bytes([byte]))
        assert (await peer.receive())["id"] == "a"


async def test_a_line_beyond_the_limit_is_refused_and_the_next_one_works() -> None:
    async with running() as peer:
        block = b"x" * 1_000_000
        for _ in range(70):
            await peer.stdin.send(block)
        await peer.send(b"", request("status", 1))
        refused, answered = await peer.receive(), await peer.receive()
        assert (refused["error"]["code"], refused["id"]) == (rpc.LINE_TOO_LONG, None)
        assert answered["id"] == 1


async def test_a_stray_print_never_reaches_the_protocol() -> None:
    """Design 3: fd 1 is claimed first thing in main."""
    code = """
import os, subprocess, sys
from daemon import host
def noisy(self, event):
    print("stray")
    sys.stdout.flush()
    os.write(1, b"stray\\n")
    subprocess.run([sys.executable, "-c", "print('stray')"], check=True)
    return status(self, event)
status = host.RULES[host.ev.Status]
host.RULES[host.ev.Status] = noisy
from daemon.main import main
sys.argv = ["pi-contextd"]
main()
"""
    async with running([sys.executable, "-c", code]) as peer:
        assert "result" in await peer.ask("status")
        assert await peer.end() == 0
        assert await peer.rest() == b""
        assert (await stderr_of(peer)).count(b"stray") == 3


async def test_a_child_of_the_daemon_cannot_read_what_is_meant_for_it() -> None:
    code = """
import sys
from daemon import host
def greedy(self, event):
    assert sys.stdin.read() == ""
    return status(self, event)
status = host.RULES[host.ev.Status]
host.RULES[host.ev.Status] = greedy
from daemon.main import main
sys.argv = ["pi-contextd"]
main()
"""
    async with running([sys.executable, "-c", code]) as peer:
        await peer.send(request("status", 1), request("status", 2))
        assert ["result" in await peer.receive() for _ in range(2)] == [True, True]


async def test_the_end_of_stdin_ends_it_after_the_last_answer() -> None:
    async with running() as peer:
        await peer.send(*(request("status", number) for number in range(100)))
        assert await peer.end() == 0
        answered = [json.loads(line)["id"] for line in (await peer.rest()).splitlines()]
        assert answered == list(range(100))
        assert await stderr_of(peer) == b""


async def test_a_line_without_its_end_is_no_request() -> None:
    async with running() as peer:
        await peer.stdin.send(request("status", 1))
        assert await peer.end() == 0
        assert await peer.rest() == b""


async def test_shutdown_is_answered_and_ends_it() -> None:
    async with running() as peer:
        assert (await peer.ask("shutdown"))["result"] == {}
        assert await peer.process.wait() == 0


async def test_a_peer_that_reads_no_more_ends_it_quietly() -> None:
    """Facts: codex-and-sidecar 2.3: no traceback, return code 0."""
    source, sink = os.pipe()
    with anyio.fail_after(DEADLINE):
        process = await anyio.open_process(COMMAND, stdout=sink, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stderr is not None
        os.close(sink)
        await anyio.wait_readable(source)
        assert b'"ready"' in os.read(source, 1_000)
        os.close(source)
        for number in range(200):
            await process.stdin.send(request("status", number) + b"\ngarbage\n")
        await process.stdin.aclose()
        assert await process.wait() == 0
        assert b"".join([chunk async for chunk in process.stderr]) == b""
        await process.aclose()


async def test_a_peer_that_never_reads_does_not_stop_the_reader_and_its_end_is_noticed() -> None:
    """Design 7: we keep reading it, bounded."""
    async with running() as peer:
        block = b"".join(request("status", number) + b"\n" + b"garbage\n" for number in range(1_000))
        for _ in range(20):
            await peer.stdin.send(block)
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


async def test_a_session_with_too_many_waiting_requests_says_that_it_is_busy() -> None:
    async with running() as peer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.send, *(request("status", number) for number in range(3_000)))
            replies = [await peer.receive() for _ in range(3_000)]
        assert sorted(reply["id"] for reply in replies) == list(range(3_000))
        assert {reply.get("error", {}).get("code") for reply in replies} <= {None, rpc.BUSY}
        assert "result" in await peer.ask("status")


@pytest.mark.parametrize("sibling", [False, True], ids=["alone", "with a sibling that keeps the pipe open"])
async def test_a_killed_parent_leaves_no_daemon(sibling: bool) -> None:  # noqa: FBT001
    """Facts: codex-and-sidecar 2.3. The daemon alone holds the write end of its stdout, so its end is seen there."""
    code = """
import subprocess, sys
stdin = int(sys.argv[1]) if len(sys.argv) > 1 else subprocess.PIPE
child = subprocess.Popen([sys.executable, "-m", "daemon"], stdin=stdin)
child.wait()
"""
    source, sink = os.pipe()
    arguments = [str(source)] if sibling else []
    with anyio.fail_after(DEADLINE):
        process = await anyio.open_process(
            [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, pass_fds=[source] if sibling else []
        )
        try:
            peer = Peer(process)
            assert (await peer.receive())["method"] == "ready"
            process.send_signal(signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
            assert await peer.rest() == b""
        finally:
            os.close(source)
            os.close(sink)
            await process.aclose()


async def test_a_second_start_finds_the_marker_that_the_first_one_asked_for(tmp_path: Path) -> None:
    """Pi below 1.6 sends it twice in rpc mode (facts: pi-lifecycle 3)."""
    pi = PiSession()
    pi.user("task")
    file = tmp_path / "s.jsonl"
    pi.write(file)
    async with running() as peer:
        await peer.ask("initialize", **PEER)

        async def start() -> list[Json]:
            params = {"sessionId": SESSION_ID, "leafId": pi.leaf, "reason": "startup", "file": str(file)}
            effects: list[Json] = (await peer.ask("session_start", **params))["result"]["effects"]
            return effects

        capture, marker = await start()
        assert (capture["do"], marker["do"]) == ("capture", "append_message")
        pi.custom_message(marker["customType"], marker["content"], marker["details"])
        pi.write(file)
        assert await start() == [{"do": "capture"}]


async def recorded(file: Path, recording: Path) -> None:
    """A session with a file, a marker, a failure and an error, on tape."""
    pi = PiSession()
    pi.user("task")
    pi.write(file)
    async with running(PI_CONTEXTD_RECORD=str(recording)) as peer:
        await peer.ask("initialize", **PEER)
        start = {"sessionId": SESSION_ID, "reason": "startup", "file": str(file)}
        reply = await peer.ask("session_start", leafId=pi.leaf, **start)
        marker = reply["result"]["effects"][-1]
        pi.custom_message(marker["customType"], marker["content"], marker["details"])
        pi.write(file)
        await peer.ask("agent_settled", sessionId=SESSION_ID, leafId=pi.leaf)
        ask = {"tool": "new_context", "callId": "c", "captured": True}
        await peer.ask("tool_execute", sessionId=SESSION_ID, leafId=pi.leaf, **ask)
        await peer.ask("navigated", sessionId=SESSION_ID, leafId=pi.leaf, intentId="x", oldLeafId=None)
        await peer.send(b"garbage")
        await peer.receive()
        await peer.ask("status", sessionId=SESSION_ID)
        assert await peer.end() == 0


async def replayed(recording: Path) -> tuple[int, str]:
    done = await anyio.run_process([*COMMAND, "replay", str(recording)], check=False)
    return done.returncode, done.stdout.decode() + done.stderr.decode()


async def test_a_recording_is_for_its_owner_alone_and_replays(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    await recorded(tmp_path / "s.jsonl", recording)
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    with anyio.fail_after(DEADLINE):
        assert await replayed(recording) == (0, "recording.jsonl: every answer is as recorded\n")


async def test_an_answer_that_is_not_as_recorded_is_reported_with_its_path(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    await recorded(tmp_path / "s.jsonl", recording)
    raw = recording.read_bytes()
    lines = [json.loads(line) for line in raw.splitlines()]
    results = [line.get("reply", {}).get("result", {}) for line in lines]
    at = next(at for at, result in enumerate(results) if len(result.get("effects", ())) == 2)
    results[at]["effects"][1]["customType"] = "other"
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with anyio.fail_after(DEADLINE):
        code, output = await replayed(recording)
    assert code == 1
    assert f"line {at + 1} differs at $.result.effects[1].customType" in output
    assert "recorded  'other'" in output
    assert "replayed  'codex-context-window'" in output


async def test_a_percent_p_in_the_name_of_a_recording_is_the_process(tmp_path: Path) -> None:
    async with running(PI_CONTEXTD_RECORD=str(tmp_path / "r-%p.jsonl")) as peer:
        await peer.ask("status")
        assert [path.name for path in tmp_path.iterdir()] == [f"r-{peer.process.pid}.jsonl"]  # noqa: ASYNC240 - one


async def test_the_command_line_tells_its_version_without_starting_a_daemon() -> None:
    with anyio.fail_after(DEADLINE):
        done = await anyio.run_process([*COMMAND, "--version"])
    assert done.stdout.startswith(b"pi-contextd, version ")
