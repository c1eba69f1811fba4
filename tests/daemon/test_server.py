"""One line in, one line out: errors with a code, a path and a rule, and never with content."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from builders import SESSION_ID, Json, PiSession
from daemon.host import Host
from daemon.server import QUEUE, Server
from daemon.stdio import TooLong
from protocol import rpc
from protocol.methods import METHODS

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a"
PEER = {"protocol": rpc.PROTOCOL, "piVersion": "1.6.0", "ui": "rpc", "cwd": "/project", "agentDir": "/agent"}


def line(method: str, params: Any = None, **fields: Any) -> bytes:
    envelope = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params, "id": 1, **fields}
    return json.dumps(envelope).encode()


def notification(method: str, params: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


async def ask(server: Server, raw: bytes) -> Any:
    answer = await server.answer(raw)
    assert b"\n" not in answer
    return json.loads(answer) if answer else None


async def error(server: Server, raw: bytes) -> tuple[int, str]:
    reply = await ask(server, raw)
    assert set(reply) == {"jsonrpc", "error", "id"}
    assert set(reply["error"]) <= {"code", "message", "data"}
    assert CANARY not in json.dumps(reply)
    return reply["error"]["code"], reply["error"]["message"]


@pytest.fixture
def server() -> Server:
    return Server(Host())


@pytest.fixture
async def ready(server: Server) -> Server:
    await ask(server, line("initialize", PEER))
    return server


# Lines that are no requests


@pytest.mark.parametrize(
    "raw",
    [b"", b"garbage", b"\xff\xfe", b'{"jsonrpc":"2.0"', b"{'a':1}", b"[" * 5000, b"{}" * 2],
)
async def test_a_line_that_is_no_json_is_a_parse_error(server: Server, raw: bytes) -> None:
    assert await error(server, raw) == (rpc.PARSE_ERROR, "not JSON at $")


@pytest.mark.parametrize("raw", [b"[]", b"7", b"null", b'"text"', b"true"])
async def test_json_that_is_no_object_is_no_request(server: Server, raw: bytes) -> None:
    """JSON-RPC 2.0, 5.1."""
    assert await error(server, raw) == (rpc.INVALID_REQUEST, "not a JSON object at $")


async def test_batches_are_refused(server: Server) -> None:
    """Design 3."""
    raw = b"[" + line("status") + b"]"
    assert (await ask(server, raw))["id"] is None
    assert (await error(server, raw))[0] == rpc.INVALID_REQUEST


@pytest.mark.parametrize("depth", [480, 700, 1_000, 5_000, 200_000])
async def test_deep_nesting_beside_a_lone_surrogate_is_answered_or_is_a_parse_error(server: Server, depth: int) -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"status","x":"\\ud800","y":' + b"[" * depth + b"]" * depth + b"}"
    reply = await ask(server, raw)
    assert "result" in reply or reply["error"]["code"] == rpc.PARSE_ERROR
    assert "result" not in reply or depth < 200_000


async def test_a_line_that_was_too_long_is_told(server: Server) -> None:
    answer = json.loads(await server.answer(TooLong()))
    expected = {"code": rpc.LINE_TOO_LONG, "message": "a line may be 67,108,864 bytes long, at $"}
    assert answer == {"jsonrpc": "2.0", "error": expected, "id": None}


@pytest.mark.parametrize(
    ("envelope", "message", "known"),
    [
        ({"id": 1}, "Object missing required field `jsonrpc` at $", 1),
        ({"jsonrpc": "2.0", "id": 1}, "Object missing required field `method` at $", 1),
        ({"jsonrpc": "2.0", "id": 1, "result": {"secret": CANARY}}, "Object missing required field `method` at $", 1),
        ({"jsonrpc": CANARY, "method": "status", "id": "a"}, "invalid value at $.jsonrpc", "a"),
        ({"jsonrpc": "2.0", "method": 7, "id": 1}, "Expected `str`, got `int` at $.method", 1),
        ({"jsonrpc": "2.0", "method": "status", "id": 1.5}, "Expected `int | str | null`, got `float` at $.id", None),
        ({"jsonrpc": "2.0", "method": "status", "id": True}, "Expected `int | str | null`, got `bool` at $.id", None),
        (
            {"jsonrpc": "2.0", "method": "status", "id": [CANARY]},
            "Expected `int | str | null`, got `array` at $.id",
            None,
        ),
        (
            {"jsonrpc": "2.0", "method": "status", "id": 1, "params": [CANARY]},
            "Expected `object`, got `array` at $.params",
            1,
        ),
        (
            {"jsonrpc": "2.0", "method": "status", "id": 1, "params": CANARY},
            "Expected `object`, got `str` at $.params",
            1,
        ),
        (
            {"jsonrpc": "2.0", "method": "status", "id": 1, "params": None},
            "Expected `object`, got `null` at $.params",
            1,
        ),
    ],
)
async def test_an_object_that_is_no_request_is_refused_by_rule_and_path(
    server: Server, envelope: Json, message: str, known: int | str | None
) -> None:
    raw = json.dumps(envelope).encode()
    code, text = await error(server, raw)
    assert code == rpc.INVALID_REQUEST
    assert text == message
    assert (await ask(server, raw))["id"] == known


@pytest.mark.parametrize("method", [CANARY, "", "rpc.discover", "Status", "__class__"])
async def test_an_unknown_method_is_refused_without_its_name(server: Server, method: str) -> None:
    assert await error(server, line(method)) == (rpc.METHOD_NOT_FOUND, "no such method at $.method")


async def test_ids_come_back_as_they_are(server: Server) -> None:
    for given in (0, -1, 10**30, "", "a", "\u2028", None):
        assert (await ask(server, line("status", id=given)))["id"] == given


async def test_unknown_members_are_ignored_so_that_a_newer_shim_can_tell_more(server: Server) -> None:
    assert "result" in await ask(server, line("status", {"server": 1, "self": 2, "": 3}, extra=[]))


# Parameters

BAD: dict[str, tuple[str, Json, str]] = {
    "missing": ("context", {"sessionId": "s", "leafId": None}, "Object missing required field `count` at $"),
    "wrong type": ("complete", {"name": "context", "prefix": [CANARY]}, "Expected `str`, got `array` at $.prefix"),
    "wrong choice": ("initialize", {**PEER, "ui": CANARY}, "invalid value at $.ui"),
    "deep": (
        "context",
        {
            "sessionId": "s",
            "leafId": None,
            "count": 1,
            "outline": [{"at": 0, "role": "x"}, {"at": CANARY, "role": "x"}],
        },
        "Expected `int`, got `str` at $.outline[1].at",
    ),
    "number for text": ("session_shutdown", {"sessionId": 7}, "Expected `str`, got `int` at $.sessionId"),
    "entries that are none": (
        "entries",
        {"sessionId": "s", "entries": [CANARY]},
        "Expected `object`, got `str` at $.entries[0]",
    ),
}


@pytest.mark.parametrize(("method", "params", "message"), BAD.values(), ids=BAD.keys())
async def test_parameters_that_do_not_fit_are_named_by_path_and_rule(
    server: Server, method: str, params: Json, message: str
) -> None:
    assert await error(server, line(method, params)) == (rpc.INVALID_PARAMS, message)


@pytest.mark.parametrize("method", sorted(METHODS))
async def test_no_method_tells_content_of_parameters_that_do_not_fit(ready: Server, method: str) -> None:
    wrong: list[Json] = [
        {key: {CANARY: CANARY} for key in ("sessionId", "leafId", "name", "protocol", "entries", "count", "tool")},
        {key: [CANARY] for key in ("sessionId", "leafId", "name", "reason", "protocol", "entries", "count", "args")},
    ]
    for params in wrong:
        answer = await ready.answer(line(method, params))
        assert CANARY.encode() not in answer
        assert b'"error"' in answer or method == "shutdown"


async def test_lone_surrogates_in_parameters_become_replacement_characters(ready: Server) -> None:
    """Node writes such escapes when text is cut inside a pair (facts: codex-and-sidecar 2.4)."""
    raw = b'{"jsonrpc":"2.0","id":"\\udc00","method":"complete","params":{"name":"context","prefix":"st\\ud83d"}}'
    assert await ask(ready, raw) == {"jsonrpc": "2.0", "result": {"items": []}, "id": "\ufffd"}


# The order of things


async def test_initialize_tells_who_answers_and_what_to_register(server: Server) -> None:
    result = (await ask(server, line("initialize", PEER)))["result"]
    assert result["protocol"] == rpc.PROTOCOL
    assert "new_context" in [tool["name"] for tool in result["tools"]]
    assert "context" in [command["name"] for command in result["commands"]]
    assert "codex-context-window" in result["renderers"]


async def test_another_protocol_is_refused_in_words_and_nothing_is_initialized(server: Server) -> None:
    code, message = await error(server, line("initialize", {**PEER, "protocol": 99}))
    assert code == rpc.PROTOCOL_MISMATCH
    assert "protocol 1; the Pi package speaks protocol 99" in message
    assert "Install the same version of both" in message
    code, _ = await error(server, line("session_start", {"sessionId": "s", "leafId": None, "reason": "startup"}))
    assert code == rpc.NOT_INITIALIZED


async def test_a_session_cannot_start_before_initialize(server: Server) -> None:
    code, _ = await error(server, line("session_start", {"sessionId": CANARY, "leafId": None, "reason": "startup"}))
    assert code == rpc.NOT_INITIALIZED


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("agent_settled", {"leafId": None}),
        ("status", {}),
        ("session_shutdown", {}),
        ("context", {"leafId": None, "count": 0}),
    ],
)
async def test_an_event_of_a_session_that_did_not_start_is_refused(ready: Server, method: str, params: Json) -> None:
    code, _ = await error(ready, line(method, {"sessionId": CANARY, **params}))
    assert code == rpc.UNKNOWN_SESSION


async def test_a_session_that_was_shut_down_is_unknown(ready: Server) -> None:
    await ask(ready, line("session_start", {"sessionId": "s", "leafId": None, "reason": "startup"}))
    assert "result" in await ask(ready, line("status", {"sessionId": "s"}))
    assert (await ask(ready, line("session_shutdown", {"sessionId": "s"})))["result"] == {}
    assert (await error(ready, line("status", {"sessionId": "s"})))[0] == rpc.UNKNOWN_SESSION


async def test_what_a_session_does_not_allow_is_an_error_of_its_own(ready: Server) -> None:
    await ask(ready, line("session_start", {"sessionId": "s", "leafId": None, "reason": "startup"}))
    params = {"sessionId": "s", "leafId": None, "intentId": CANARY, "oldLeafId": None}
    assert (await error(ready, line("navigated", params)))[0] == rpc.NOT_ALLOWED


async def test_an_unforeseen_error_tells_its_kind_and_place_and_nothing_else(
    ready: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(Host, "handle", fail)
    code, message = await error(ready, line("status"))
    assert code == rpc.INTERNAL_ERROR
    assert message.startswith("internal error: RuntimeError at test_server.py:")


# Notifications


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("status", {}),
        ("no_such_method", {}),
        ("context", {}),
        ("agent_settled", {"sessionId": "s", "leafId": None}),
        ("initialize", {**PEER, "protocol": 99}),
        ("entries", {"sessionId": "s", "entries": []}),
    ],
)
async def test_a_notification_is_never_answered_not_even_with_an_error(
    server: Server, method: str, params: Json
) -> None:
    assert await server.answer(notification(method, params)) == b""


# Entries: from the file, or from Pi


def start(pi: PiSession, **fields: Any) -> bytes:
    return line("session_start", {"sessionId": SESSION_ID, "leafId": pi.leaf, "reason": "startup", **fields})


async def test_a_session_with_a_file_needs_no_entries(ready: Server, tmp_path: Path) -> None:
    pi = PiSession()
    pi.user("task")
    file = tmp_path / "s.jsonl"
    pi.write(file)
    result = (await ask(ready, start(pi, file=str(file))))["result"]
    assert [effect["do"] for effect in result["effects"]] == ["capture", "append_message"]
    status = (await ask(ready, line("status", {"sessionId": SESSION_ID})))["result"]["session"]
    assert (status["entries"], status["complete"], status["indexedBytes"]) == (1, True, file.stat().st_size)


async def test_lacking_entries_are_asked_for_by_the_last_one_that_is_known(ready: Server) -> None:
    """Design 3."""
    pi = PiSession()
    pi.thinking("high")
    assert (await ask(ready, start(pi)))["result"] == {"need": {"after": None}}
    assert await ask(ready, notification("entries", {"sessionId": SESSION_ID, "entries": pi.entries})) is None
    result = (await ask(ready, start(pi, again=True)))["result"]
    assert [effect["do"] for effect in result["effects"]] == ["capture", "append_message"]
    known = pi.leaf
    pi.marker(0)
    pi.user("task")
    settled = {"sessionId": SESSION_ID, "leafId": pi.leaf}
    assert (await ask(ready, line("agent_settled", settled)))["result"] == {"need": {"after": known}}
    await ask(ready, notification("entries", {"sessionId": SESSION_ID, "entries": pi.entries[1:]}))
    assert (await ask(ready, line("agent_settled", {**settled, "again": True})))["result"] == {}


async def test_what_pi_lacks_too_is_not_asked_for_twice(ready: Server) -> None:
    """Pi's own walk ends silently at a missing parent (facts: tree-upstream 9)."""
    pi = PiSession()
    pi.append("custom", parent="gone", customType="x", data={})
    assert "need" in (await ask(ready, start(pi)))["result"]
    await ask(ready, notification("entries", {"sessionId": SESSION_ID, "entries": pi.entries}))
    assert "effects" in (await ask(ready, start(pi, again=True)))["result"]
    result = await ask(ready, line("agent_settled", {"sessionId": SESSION_ID, "leafId": pi.leaf}))
    assert result["result"] == {}


async def test_entries_that_come_in_two_parts_complete_a_branch(ready: Server) -> None:
    pi = PiSession()
    pi.thinking("high")
    pi.marker(0)
    pi.user("task")
    await ask(ready, start(pi))
    for part in (pi.entries[2:], pi.entries[:2]):
        await ask(ready, notification("entries", {"sessionId": SESSION_ID, "entries": part}))
    await ask(ready, start(pi, again=True))
    session = (await ask(ready, line("status", {"sessionId": SESSION_ID})))["result"]["session"]
    assert (session["branch"], session["complete"]) == (3, True)


async def test_a_second_start_answers_the_same_and_keeps_the_session(ready: Server, tmp_path: Path) -> None:
    pi = PiSession()
    pi.marker(0)
    file = tmp_path / "s.jsonl"
    pi.write(file)
    for reason in ("startup", "startup", "new", "reload"):
        result = (await ask(ready, start(pi, file=str(file), reason=reason)))["result"]
        assert result == {"effects": [{"do": "capture"}]}


async def test_a_large_file_is_read_before_its_event_is_handled(ready: Server, tmp_path: Path) -> None:
    pi = PiSession()
    pi.user("x" * 2_000_000)
    pi.marker(0)
    file = tmp_path / "s.jsonl"
    pi.write(file)
    assert (await ask(ready, start(pi, file=str(file))))["result"] == {"effects": [{"do": "capture"}]}
    status = (await ask(ready, line("status", {"sessionId": SESSION_ID})))["result"]
    assert status["session"]["entries"] == 2
    assert status["window"]["number"] == 0


async def test_session_files_are_never_written_to(ready: Server, tmp_path: Path) -> None:
    pi = PiSession()
    pi.marker(0)
    pi.user("task")
    file = tmp_path / "s.jsonl"
    pi.write(file)
    file.chmod(0o444)
    before = file.read_bytes(), file.stat().st_mtime_ns
    await ask(ready, start(pi, file=str(file)))
    await ask(ready, line("command", {"sessionId": SESSION_ID, "leafId": pi.leaf, "name": "context", "args": "status"}))
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


async def test_the_status_of_the_daemon_alone_counts_what_it_was_asked(ready: Server) -> None:
    await ask(ready, line("complete", {"name": "context", "prefix": "r"}))
    status = (await ask(ready, line("status")))["result"]
    assert status["session"] is None
    assert status["versions"]["pi"] == "1.6.0"
    assert status["counters"]["complete"]["count"] == 1


async def test_completions_are_the_subcommands_that_begin_as_typed(ready: Server) -> None:
    result = (await ask(ready, line("complete", {"name": "context", "prefix": " ro"})))["result"]
    assert [item["value"] for item in result["items"]] == ["rollover"]
    assert (await ask(ready, line("complete", {"name": "unheard", "prefix": ""})))["result"] == {"items": []}


async def test_nothing_of_the_content_reaches_the_log(
    ready: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pi = PiSession()
    pi.marker(0)
    pi.user(CANARY)
    file = tmp_path / "s.jsonl"
    pi.write(file)
    with file.open("ab") as appended:
        appended.write(CANARY.encode() + b"\n")
    await ask(ready, start(pi, file=str(file)))
    await ready.answer(CANARY.encode())
    await ready.answer(line("context", {CANARY: CANARY}))
    await ready.answer(notification("context", {CANARY: CANARY}))
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err


# Too much at once


async def test_a_session_takes_so_many_requests_and_tells_the_others_that_it_is_busy(server: Server) -> None:
    """They come in one chunk, so that nothing is answered before all have been read (design 3: one queue a session)."""
    send, inbox = anyio.create_memory_object_stream[bytes](1)
    outbox, replies = anyio.create_memory_object_stream[bytes](10_000)
    many = range(QUEUE + 500)
    dropped = notification("status", {}) + b"\n"
    await send.send(b"".join(line("status", id=number) + b"\n" for number in many) + dropped * 7)
    await send.aclose()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as workers:
            await server._receive(inbox, outbox, workers)
    await outbox.aclose()
    answers = [json.loads(reply) async for reply in replies]
    busy = [answer["id"] for answer in answers if answer.get("error", {}).get("code") == rpc.BUSY]
    answered = [answer["id"] for answer in answers if "result" in answer]
    assert answered == list(range(QUEUE))
    assert busy == list(many[QUEUE:])
    assert server.dropped == 7, "a notification is not answered, busy or not"
    inbox.close()
    replies.close()


async def test_the_events_of_one_session_keep_their_order_and_sessions_do_not_wait_for_each_other(
    server: Server,
) -> None:
    send, inbox = anyio.create_memory_object_stream[bytes](10)
    outbox, replies = anyio.create_memory_object_stream[bytes](10_000)
    start: Json = {"leafId": None, "reason": "startup"}
    names = [f"s{number}" for number in range(3)]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as workers:
            workers.start_soon(server._receive, inbox, outbox, workers)
            await send.send(line("initialize", PEER, id="i") + b"\n")
            await replies.receive()
            asked = [(name, number) for number in range(20) for name in names]
            lines = [line("session_start", {"sessionId": name, **start}, id=name) for name in names]
            lines += [line("status", {"sessionId": name}, id=f"{name} {number}") for name, number in asked]
            await send.send(b"".join(one + b"\n" for one in lines))
            answers = [json.loads(await replies.receive()) for _ in lines]
            await send.aclose()
    assert all("result" in answer for answer in answers)
    for name in names:
        own = [answer["id"] for answer in answers if str(answer["id"]).startswith(name)]
        assert own == [name, *(f"{name} {number}" for number in range(20))]
    for stream in (inbox, outbox, replies):
        stream.close()
