"""Searches leave their session's queue: nothing waits for one, and it ends when nobody waits for it (design 3)."""

import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from builders import SESSION_ID, Json, PiSession
from daemon.host import Host
from daemon.server import SEARCHERS, Server
from protocol import effects as fx
from protocol import events as ev
from protocol import rpc
from state.session import Search

pytestmark = pytest.mark.anyio

DEADLINE = 20.0
PEER: Json = {"protocol": rpc.PROTOCOL, "piVersion": "1.6.0", "ui": "rpc", "cwd": "/project", "agentDir": "/agent"}

real_search = Host.search


def line(method: str, params: Json, request_id: int | str | None = None) -> bytes:
    envelope: Json = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(envelope if request_id is None else {**envelope, "id": request_id}).encode() + b"\n"


class Asking:
    """One session's lines."""

    def __init__(self, pi: PiSession, file: Path) -> None:
        self.pi, self.file = pi, file
        pi.write(file)

    def of_session(self, **params: Any) -> Json:
        return {"sessionId": SESSION_ID, "leafId": self.pi.leaf, **params}

    def start(self) -> bytes:
        begun = self.of_session(reason="startup", file=str(self.file))
        return line("initialize", PEER, "initialize") + line("session_start", begun, "start")

    def search(self, call: str, query: str = "needle") -> bytes:
        arguments = {"action": "search_contents", "query": query}
        params = self.of_session(tool="history", callId=call, arguments=arguments)
        return line("tool_execute", params, call)

    def context(self, request_id: int | str) -> bytes:
        return line("context", self.of_session(count=0), request_id)

    def cancel(self, call: str) -> bytes:
        return line("cancel", {"sessionId": SESSION_ID, "callId": call})


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    pi = PiSession()
    pi.marker(0)
    for number in range(30):
        pi.user(f"needle {number}")
    return Asking(pi, tmp_path / "s.jsonl")


class Peer:
    def __init__(self, lines: MemoryObjectSendStream[bytes], replies: MemoryObjectReceiveStream[bytes]) -> None:
        self._lines, self._replies = lines, replies

    async def send(self, *lines: bytes) -> None:
        await self._lines.send(b"".join(lines))

    async def receive(self) -> Json:
        value = json.loads(await self._replies.receive())
        assert isinstance(value, dict)
        return value


@asynccontextmanager
async def serving(host: Host, asking: Asking) -> AsyncIterator[Peer]:
    """A server whose lines come from the test; the session has started."""
    server = Server(host)
    lines, inbox = anyio.create_memory_object_stream[bytes](100)
    outbox, replies = anyio.create_memory_object_stream[bytes](10_000)
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as workers:
            workers.start_soon(server._receive, inbox, outbox, workers)
            peer = Peer(lines, replies)
            await peer.send(asking.start())
            assert [(await peer.receive())["id"] for _ in range(2)] == ["initialize", "start"]
            yield peer
            await lines.aclose()
    for stream in (inbox, outbox, replies):
        stream.close()


class Gate:
    """Holds searches back until it is opened, whatever is cancelled meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = threading.Event()
        self.running = 0
        self.most = 0

        def search(host: Host, event: ev.ToolExecute, search: Search) -> fx.ToolReply:
            self.running += 1
            self.most = max(self.most, self.running)
            assert self.opened.wait(DEADLINE)
            self.running -= 1
            return real_search(host, event, search)

        monkeypatch.setattr(Host, "search", search)


def flag_of(host: Host, event: ev.ToolExecute) -> threading.Event:
    return host._searches[event.session_id, event.call_id]


@pytest.fixture
def until_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search takes until somebody cancels it."""

    def search(host: Host, event: ev.ToolExecute, search: Search) -> fx.ToolReply:
        assert flag_of(host, event).wait(DEADLINE)
        return real_search(host, event, search)

    monkeypatch.setattr(Host, "search", search)


def found(reply: Json) -> list[Json]:
    items = json.loads(reply["result"]["text"])["items"]
    assert isinstance(items, list)
    return items


async def test_events_of_the_same_session_are_answered_while_a_search_runs(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with serving(Host(), asking) as peer:
        await peer.send(asking.search("call"), asking.context(1), asking.context(2))
        assert [(await peer.receive())["id"] for _ in range(2)] == [1, 2]
        gate.opened.set()
        reply = await peer.receive()
        assert (reply["id"], len(found(reply))) == ("call", 10)


async def test_two_searches_run_at_a_time_and_all_are_answered(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    calls = [f"call {number}" for number in range(6)]
    async with serving(Host(), asking) as peer:
        await peer.send(*(asking.search(call) for call in calls), asking.context(1))
        assert (await peer.receive())["id"] == 1
        gate.opened.set()
        assert sorted([(await peer.receive())["id"] for _ in calls]) == calls
    assert gate.most <= SEARCHERS


@pytest.mark.usefixtures("until_cancelled")
async def test_cancel_ends_a_search_and_no_other(asking: Asking) -> None:
    host = Host()
    async with serving(host, asking) as peer:
        await peer.send(asking.search("one"), asking.search("two"), asking.cancel("two"))
        reply = await peer.receive()
        assert (reply["id"], found(reply)) == ("two", [])
        await peer.send(asking.context(1))
        assert (await peer.receive())["id"] == 1
        await peer.send(asking.cancel("one"))
        assert (await peer.receive())["id"] == "one"
    assert host._searches == {}


async def test_a_search_that_is_cancelled_before_it_begins_looks_at_nothing(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    calls = [f"call {number}" for number in range(SEARCHERS + 1)]
    async with serving(Host(), asking) as peer:
        await peer.send(*map(asking.search, calls), asking.cancel(calls[-1]), asking.context(1))
        assert (await peer.receive())["id"] == 1
        gate.opened.set()
        replies = {reply["id"]: reply for reply in [await peer.receive() for _ in calls]}
    assert [len(found(replies[call])) for call in calls] == [10] * SEARCHERS + [0]


async def test_cancelling_what_does_not_run_is_nothing(asking: Asking) -> None:
    async with serving(Host(), asking) as peer:
        await peer.send(asking.cancel("nothing"), asking.search("call"), asking.context(1))
        assert sorted([str((await peer.receive())["id"]) for _ in range(2)]) == ["1", "call"]
        await peer.send(asking.cancel("call"), asking.context(2))
        assert (await peer.receive())["id"] == 2


@pytest.mark.usefixtures("until_cancelled")
async def test_the_end_of_a_session_ends_its_searches(asking: Asking) -> None:
    host = Host()
    async with serving(host, asking) as peer:
        await peer.send(asking.search("call"), line("session_shutdown", {"sessionId": SESSION_ID}, "end"))
        replies = {reply["id"]: reply for reply in [await peer.receive() for _ in range(2)]}
        assert "result" in replies["end"]
        assert found(replies["call"]) == []
    assert host._searches == {}


async def test_a_search_that_fails_is_an_error_of_its_call_alone(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_host: Host, _event: ev.ToolExecute, _search: Search) -> fx.ToolReply:
        raise OSError("secret content")

    monkeypatch.setattr(Host, "search", broken)
    async with serving(Host(), asking) as peer:
        await peer.send(asking.search("call"), asking.context(1))
        replies = {reply["id"]: reply for reply in [await peer.receive() for _ in range(2)]}
        assert replies["call"]["error"]["code"] == rpc.INTERNAL_ERROR
        assert "secret" not in json.dumps(replies)
        assert "result" in replies[1]


async def test_the_session_grows_while_a_search_runs(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search answers from what there was when it was asked for."""
    gate = Gate(monkeypatch)
    async with serving(Host(), asking) as peer:
        await peer.send(asking.search("call", "needle 29"), asking.context(1))
        assert (await peer.receive())["id"] == 1
        asking.pi.user("needle 29 again")
        asking.pi.write(asking.file)
        await peer.send(asking.context(2))
        assert (await peer.receive())["id"] == 2
        gate.opened.set()
        assert [item["truncated_content"] for item in found(await peer.receive())] == ["needle 29"]


# A whole process


def process(patch: str) -> list[str]:
    """A daemon whose searches are these."""
    script = f"import threading\nfrom daemon.host import Host\nfrom daemon.main import main\n{patch}\nmain()\n"
    return [sys.executable, "-c", script]


STUCK = "Host.search = lambda *_: threading.Event().wait()"
"""Cancelled or not, as in a read from a disk that is gone."""

PATIENT = "Host.search = lambda self, event, search: self._searches[event.session_id, event.call_id].wait()"
"""Until it is cancelled."""


@pytest.mark.parametrize("patch", [STUCK, PATIENT], ids=["stuck", "patient"])
@pytest.mark.parametrize("searches", [1, SEARCHERS + 2])
async def test_the_end_of_stdin_ends_the_process_whatever_is_searched(
    asking: Asking, patch: str, searches: int
) -> None:
    with anyio.fail_after(DEADLINE):
        daemon = await anyio.open_process(process(patch), stderr=subprocess.PIPE)
        try:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            stdout = BufferedByteReceiveStream(daemon.stdout)
            await daemon.stdin.send(asking.start())
            await daemon.stdin.send(b"".join(asking.search(f"call {number}") for number in range(searches)))
            await daemon.stdin.send(asking.context("after"))
            names: list[object] = []
            while not names or names[-1] != "after":
                names.append(json.loads(await stdout.receive_until(b"\n", 1 << 20)).get("id"))
            assert names == [None, "initialize", "start", "after"]
            await daemon.stdin.aclose()
            assert await daemon.wait() == 0
        finally:
            with anyio.CancelScope(shield=True):
                if daemon.returncode is None:
                    daemon.kill()
                await daemon.aclose()
