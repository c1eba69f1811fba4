"""Peers that ask too much, too often, or go away at the wrong time; what is not in `test_process` (design 7)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from builders import Json, PiSession
from protocol import rpc
from test_process import COMMAND, DEADLINE, PEER, Peer, request, running, stderr_of

pytestmark = pytest.mark.anyio

MB = 1 << 20


def resident(peer: Peer) -> int:
    """The bytes of memory that the daemon holds now."""
    for line in Path(f"/proc/{peer.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such process")


def started(name: str, file: Path | None = None, leaf: str | None = None) -> dict[str, Any]:
    return {"sessionId": name, "leafId": leaf, "reason": "startup", "file": None if file is None else str(file)}


async def found(peer: Peer, wanted: int | str) -> list[Json]:
    """All replies up to the one with this id."""
    replies: list[Json] = []
    while not replies or replies[-1].get("id") != wanted:
        replies.append(await peer.receive())
    return replies


def large(file: Path, megabytes: int) -> PiSession:
    """A session whose file takes a while to search, and an answer at its end."""
    pi = PiSession()
    for _ in range(megabytes):
        pi.tool_result("bash", "nothing to see here\n" * (MB // 20))
    pi.assistant("the end")
    pi.write(file)
    return pi


def search(name: str, pi: PiSession, query: str, number: int | str) -> bytes:
    arguments = {"action": "search_contents", "query": query}
    call = {"tool": "history", "callId": f"call-{number}", "arguments": arguments}
    return request("tool_execute", number, sessionId=name, leafId=pi.leaf, **call)


# Too much


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("line", "times"),
    [
        (request("status", 1), 200_000),
        (b"garbage", 200_000),
        (request("status", 1, padding="x" * MB), 400),
        (request("unheard_of", "x" * 10_000), 20_000),
    ],
    ids=["small requests", "garbage", "large requests", "requests with large ids"],
)
async def test_what_is_not_read_takes_a_bounded_amount_of_memory(line: bytes, times: int) -> None:
    async with running() as peer:
        await peer.ask("status")
        before = resident(peer)
        await peer.stdin.send((request("status", 1) + b"\n") * 6_000)  # fills what is on its way out
        block = (line + b"\n") * max(1, min(times, MB // len(line)))
        sent = 0
        while sent < times:
            await peer.stdin.send(block)
            sent += block.count(b"\n")
        assert resident(peer) - before < 200 * MB
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
async def test_searches_that_nobody_reads_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    """They leave the queue of their session, but not without end."""
    file = tmp_path / "s.jsonl"
    pi = large(file, 3)
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        await peer.ask("session_start", **started("s", file, pi.leaf))
        before = resident(peer)
        for block in range(40):
            lines = (search("s", pi, "absent", block * 1_000 + number) + b"\n" for number in range(1_000))
            await peer.stdin.send(b"".join(lines))
        assert resident(peer) - before < 200 * MB
        assert await peer.end() == 0


async def test_after_a_flood_that_was_not_read_it_answers_as_before() -> None:
    async with running() as peer:
        await peer.stdin.send(b"".join(request("status", number) + b"\n" for number in range(50_000)))
        await peer.send(b"garbage")
        with anyio.move_on_after(1):
            while True:
                await peer.receive()
        while True:
            await peer.send(request("status", "last"))
            replies = await found(peer, "last")
            if "result" in replies[-1]:
                break
        assert {reply["error"]["code"] for reply in replies if "error" in reply} <= {rpc.BUSY, rpc.PARSE_ERROR}


async def test_an_id_that_is_too_long_is_no_id() -> None:
    async with running() as peer:
        await peer.send(request("status", "x" * (rpc.MAX_ID + 1)))
        wrong = await peer.receive()
        await peer.send(request("status", "x" * rpc.MAX_ID))
        assert (await peer.receive())["id"] == "x" * rpc.MAX_ID
        assert (wrong["id"], wrong["error"]["code"]) == (None, rpc.INVALID_REQUEST)


async def test_two_requests_with_one_id_are_two_requests() -> None:
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        await peer.send(request("status", 7), request("complete", 7, name="context", prefix=""), request("status", 7))
        replies = [await peer.receive() for _ in range(3)]
        assert [reply["id"] for reply in replies] == [7, 7, 7]
        assert ["items" in reply["result"] for reply in replies] == [False, True, False]


async def test_two_searches_with_one_call_id_are_both_answered(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    pi = large(file, 3)
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        await peer.ask("session_start", **started("s", file, pi.leaf))
        one = json.loads(search("s", pi, "absent", 1))
        other = {**one, "id": 2}
        cancel = {"jsonrpc": "2.0", "method": "cancel", "params": {"sessionId": "s", "callId": "call-1"}}
        await peer.send(*(json.dumps(each).encode() for each in (one, other, cancel)), request("status", 3))
        replies = [await peer.receive() for _ in range(3)]
        assert sorted(reply["id"] for reply in replies) == [1, 2, 3]
        assert all("result" in reply for reply in replies)


async def test_thousands_of_sessions_are_answered() -> None:
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        names = [f"session-{number}" for number in range(3_000)]
        for start in range(0, len(names), 500):
            some = names[start : start + 500]
            await peer.send(*(request("session_start", name, **started(name)) for name in some))
            replies = [await peer.receive() for _ in some]
            assert {reply["id"] for reply in replies} == set(some)
            assert all(reply["result"]["effects"][0] == {"do": "capture"} for reply in replies)
        for name in names[::500]:
            assert (await peer.ask("status", sessionId=name))["result"]["session"]["id"] == name
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


async def test_more_session_files_than_it_may_open_are_as_files_that_are_not_there(tmp_path: Path) -> None:
    pi = PiSession()
    pi.user("task")
    file = tmp_path / "s.jsonl"
    pi.write(file)
    limited = ["sh", "-c", f'ulimit -n 64; exec "{sys.executable}" -m daemon']
    async with running(limited) as peer:
        await peer.ask("initialize", **PEER)
        replies = [await peer.ask("session_start", **started(f"s{number}", file, pi.leaf)) for number in range(100)]
        assert "effects" in replies[0]["result"]
        assert replies[-1]["result"] == {"need": {"after": None}}
        for number in range(50):
            await peer.ask("session_shutdown", sessionId=f"s{number}")
        assert "effects" in (await peer.ask("session_start", **started("s", file, pi.leaf)))["result"]
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


async def test_the_answers_of_one_session_keep_their_order() -> None:
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        names = [f"s{number}" for number in range(5)]
        for name in names:
            await peer.ask("session_start", **started(name))
        lines = []
        for number in range(500):
            name = names[number % 5]
            lines.append(request("context", f"{name} {number}", sessionId=name, leafId=None, count=number, outline=[]))
        await peer.send(*lines)
        answered = [str((await peer.receive())["id"]).split() for _ in lines]
        for name in names:
            numbers = [int(number) for owner, number in answered if owner == name]
            assert numbers == sorted(numbers)
            assert len(numbers) == 100


# Going away


@pytest.mark.parametrize(
    "rest",
    [b'{"jsonrpc":"2.0","id":1,"method":"sta', b"x" * (3 * MB), b"\xff\xfe", request("status", 1)],
    ids=["half a request", "megabytes", "bytes", "all but the end"],
)
async def test_the_end_of_stdin_in_the_middle_of_a_line_ends_it(rest: bytes) -> None:
    async with running() as peer:
        await peer.stdin.send(rest)
        assert await peer.end() == 0
        assert await peer.rest() == b""
        assert await stderr_of(peer) == b""


async def test_the_end_of_stdin_during_searches_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    pi = large(file, 40)
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        await peer.ask("session_start", **started("s", file, pi.leaf))
        await peer.send(*(search("s", pi, "\N{SNOWMAN}", number) for number in range(50)))
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


async def test_the_end_of_stdin_ends_it_while_its_answers_are_not_read(tmp_path: Path) -> None:
    """Each answer is larger than what a pipe holds."""
    pi = PiSession()
    pi.user("x" * 50_000)
    pi.assistant("y" * 50_000)
    file = tmp_path / "s.jsonl"
    pi.write(file)
    async with running() as peer:
        await peer.ask("initialize", **PEER)
        await peer.ask("session_start", **started("s", file, pi.leaf))
        arguments = {"action": "list_items"}
        call = {"tool": "history", "callId": "c", "arguments": arguments}
        lines = (request("tool_execute", number, sessionId="s", leafId=pi.leaf, **call) for number in range(6_000))
        await peer.send(*lines)
        assert await peer.end() == 0
        assert await stderr_of(peer) == b""


async def test_a_peer_that_is_gone_before_it_is_ready_ends_it_quietly() -> None:
    source, sink = os.pipe()
    os.close(source)
    with anyio.fail_after(DEADLINE):
        done = await anyio.run_process(COMMAND, stdout=sink, stderr=subprocess.PIPE, check=False)
        os.close(sink)
    assert (done.returncode, done.stderr) == (0, b"")


async def test_a_closed_stdout_does_not_stop_it_from_ending() -> None:
    source, sink = os.pipe()
    with anyio.fail_after(DEADLINE):
        process = await anyio.open_process(COMMAND, stdout=sink, stderr=subprocess.PIPE)
        os.close(sink)
        await anyio.wait_readable(source)
        os.read(source, 1_000)
        os.close(source)
        assert process.stdin is not None
        assert process.stderr is not None
        for number in range(20_000):
            await process.stdin.send(request("status", number) + b"\n")
        await process.stdin.aclose()
        assert await process.wait() == 0
        assert b"".join([chunk async for chunk in process.stderr]) == b""
        await process.aclose()
