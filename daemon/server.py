"""From lines to answers: the receive loop, one queue a session, dispatch, and errors on the wire.

The receive loop never waits for a handler: each session has a task and a bounded queue of its own, so its
events keep their order and none can hold up another session. jsonrpcserver dispatches; what it calls is one
synchronous step of `Host`, which nothing can interrupt (facts: codex-and-sidecar 2.1). `_refusal` is the one
place where an exception becomes an error on the wire.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import UNSET

from daemon import host
from daemon.host import LARGE, Host, convert
from daemon.jsonio import decode_value, encode
from daemon.settings import SettingsError
from daemon.stdio import OUTBOX, Outbox, Splitter, Stdio, TooLong, start_reader, write_lines
from protocol import events as ev
from protocol import rpc
from protocol.methods import METHODS
from state.errors import NotAllowedError, RefusedError
from state.session import Search

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from daemon.record import Recorder

QUEUE: Final = 1_000
"""Requests that may wait in one session; beyond it the peer is told to wait for answers."""

WAITING: Final = rpc.MAX_LINE
"""Bytes of requests that may wait in all queues together; a single one always may."""

SESSIONS: Final = 64
"""Sessions with a queue of their own; Pi has one at a time."""

SEARCHERS: Final = 2
"""Searches at a time; they have threads of their own, so that the writer always finds one."""

LAST_WORDS: Final = 0.4
"""Seconds for what is under way when stdin ends, and as many for a peer that is slow to read it."""

PARENT_CHECK: Final = 2.0
"""Seconds between looks at the parent: the backstop where a sibling keeps the pipe open."""

CODES: Final[dict[type[Exception], int]] = {
    host.ProtocolMismatchError: rpc.PROTOCOL_MISMATCH,
    host.NotInitializedError: rpc.NOT_INITIALIZED,
    host.UnknownSessionError: rpc.UNKNOWN_SESSION,
    SettingsError: rpc.BAD_SETTINGS,
    NotAllowedError: rpc.NOT_ALLOWED,
    RefusedError: rpc.NOT_ALLOWED,
}

_PATH: Final = re.compile(r"`(\$[^`]*)`$")
_KINDS: Final = re.compile(r"Expected `[\w| ]+`(?:, got `[\w| ]+`)?|Object missing required field `\w+`")

_Queued = tuple[rpc.Envelope, int]
"""A request and the bytes of its line."""

Leave = Callable[[], None]
"""Lets the next event of the session go ahead of this one's answer."""

Dispatch = Callable[[dict[str, Any], Leave], Awaitable[bytes]]


class Server:
    """Answers lines. `answer` is the whole of it for one line; `run` does so for a peer on stdio."""

    def __init__(self, host: Host, *, recorder: Recorder | None = None) -> None:
        self._host = host
        self._recorder = recorder
        self._dispatch: Dispatch | None = None
        self._log: FilteringBoundLogger | None = None
        self._written = anyio.Event()
        self._searchers = anyio.CapacityLimiter(SEARCHERS)
        self._waiting = 0
        self.dropped = 0

    def load(self) -> None:
        """Import what dispatches and logs: half of the start-up, which a peer need not wait for (design 3)."""
        from jsonrpcserver import Success, async_dispatch  # noqa: PLC0415 - see above
        from jsonrpcserver.exceptions import JsonRpcError  # noqa: PLC0415

        from daemon.logs import configure  # noqa: PLC0415

        self._log = configure()

        def handler(method: str) -> Callable[..., Awaitable[object]]:
            async def call(leave: Leave, /, **params: Any) -> object:  # noqa: ANN401 - JSON
                try:
                    return Success(await self._call(method, params, leave))
                except Exception as error:  # noqa: BLE001 - the boundary, see the header
                    code, message = self._refusal(method, error)
                    raise JsonRpcError(code, message) from None

            return call

        methods = {method: handler(method) for method in METHODS}

        async def dispatch(request: dict[str, Any], leave: Leave) -> bytes:
            answer: Any = await async_dispatch(
                request,  # already decoded, hence the deserializer that does nothing
                methods=methods,
                context=leave,
                deserializer=lambda decoded: decoded,
                validator=lambda decoded: decoded,
                serializer=encode,  # type: ignore[arg-type]  # bytes pass through as they are
            )
            return answer or b""

        self._dispatch = dispatch

    async def answer(self, line: bytes | TooLong) -> bytes:
        """The reply to one line, without LF; empty when none is due."""
        envelope = _read(line)
        if envelope is None:
            return b""
        return encode(envelope) if isinstance(envelope, rpc.ErrorReply) else await self._answer(envelope)

    async def _answer(self, envelope: rpc.Envelope, leave: Leave = lambda: None) -> bytes:
        if self._dispatch is None:
            self.load()
        assert self._dispatch is not None  # noqa: S101 - `load` has set it
        request: dict[str, Any] = {"jsonrpc": "2.0", "method": envelope.method, "params": envelope.params}
        if envelope.id is not UNSET:
            request["id"] = envelope.id
        if self._recorder is not None:
            self._recorder.received(request)
        reply = await self._dispatch(request, leave)
        if self._recorder is not None and reply:
            self._recorder.sent(reply)
        return reply

    async def _call(self, method: str, params: dict[str, Any], leave: Leave) -> object:
        event = convert(params, METHODS[method].params)
        if isinstance(event, ev.SessionStart):
            self._host.adopt(event)
        session_id = getattr(event, "session_id", None)
        if session_id is not None and self._host.unread(session_id) > LARGE:
            await anyio.to_thread.run_sync(self._host.read_ahead, session_id)
        result = self._host.handle(method, event)
        if not isinstance(result, Search) or not isinstance(event, ev.ToolExecute):
            return result
        if self._searchers.statistics().tasks_waiting < QUEUE:
            leave()
        # It changes nothing, so the end of the daemon need not wait for one that is stuck in a slow disk.
        search = self._host.search
        return await anyio.to_thread.run_sync(search, event, result, limiter=self._searchers, abandon_on_cancel=True)

    def _refusal(self, method: str, error: Exception) -> tuple[int, str]:
        """An exception as code and text. The text never holds content; what is unknown is only named in the log."""
        if isinstance(error, msgspec.ValidationError):
            return rpc.INVALID_PARAMS, _where(str(error))
        code = CODES.get(type(error))
        if code is not None:
            return code, str(error)
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}" if frame else "?"  # noqa: PTH119
        if self._log is not None:
            self._log.error("internal error", method=method, error=type(error).__name__, at=place)
        return rpc.INTERNAL_ERROR, f"internal error: {type(error).__name__} at {place}"

    # A peer on stdio

    async def run(self, stdio: Stdio) -> None:
        """Serve until stdin ends, the parent dies or `shutdown` is asked for."""
        outbox, lines = anyio.create_memory_object_stream[bytes](OUTBOX)
        inbox = start_reader(stdio.source)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, stdio.sink, lines)
            tasks.start_soon(_watch_parent, stdio.parent, tasks.cancel_scope)
            async with anyio.create_task_group() as workers:
                await self._receive(inbox, outbox, workers)
                self._host.cancel_all()
                workers.cancel_scope.deadline = anyio.current_time() + LAST_WORDS
            outbox.close()
            tasks.cancel_scope.deadline = anyio.current_time() + LAST_WORDS
            await self._written.wait()
            tasks.cancel_scope.cancel()

    async def _write(self, sink: int, lines: MemoryObjectReceiveStream[bytes]) -> None:
        await write_lines(sink, lines)
        self._written.set()

    async def _receive(self, inbox: MemoryObjectReceiveStream[bytes], outbox: Outbox, workers: TaskGroup) -> None:
        splitter = Splitter()
        queues: dict[str, MemoryObjectSendStream[_Queued]] = {}
        async for chunk in inbox:
            for line in splitter.feed(chunk):
                envelope = _read(line)
                if envelope is None:
                    continue
                if isinstance(envelope, rpc.ErrorReply):
                    self._post(outbox, encode(envelope))
                    continue
                name = _session(envelope, queues, initialized=self._host.initialized)
                if name not in queues:
                    queues[name], queue = anyio.create_memory_object_stream[_Queued](QUEUE)
                    workers.start_soon(self._work, queue, outbox, workers)
                if not self._queue(queues[name], envelope, 0 if isinstance(line, TooLong) else len(line)):
                    if envelope.id is UNSET:
                        self.dropped += 1
                        continue
                    busy = rpc.ErrorObject(rpc.BUSY, "too many requests wait already")
                    self._post(outbox, encode(rpc.ErrorReply(error=busy, id=_id(envelope))))
                if envelope.method == "session_shutdown" and name:
                    queues.pop(name).close()
        for queue_in in queues.values():
            queue_in.close()

    def _queue(self, queue: MemoryObjectSendStream[_Queued], envelope: rpc.Envelope, size: int) -> bool:
        """Let a request wait for its turn, if there is room."""
        if self._waiting and self._waiting + size > WAITING:
            return False
        try:
            queue.send_nowait((envelope, size))
        except anyio.WouldBlock:
            return False
        self._waiting += size
        return True

    async def _work(self, queue: MemoryObjectReceiveStream[_Queued], outbox: Outbox, workers: TaskGroup) -> None:
        async with queue:
            async for envelope, size in queue:
                self._waiting -= size
                next_one = anyio.Event()
                workers.start_soon(self._respond, envelope, outbox, next_one)
                await next_one.wait()
                if self._host.stopping:
                    workers.cancel_scope.cancel()

    async def _respond(self, envelope: rpc.Envelope, outbox: Outbox, next_one: anyio.Event) -> None:
        """Answer one request; the next one of the session waits for that, unless this one leaves the queue."""
        reply = await self._answer(envelope, next_one.set)
        if reply:
            with suppress(anyio.BrokenResourceError):  # the peer reads no more; its stdin will end too
                await outbox.send(reply)
        next_one.set()

    def _post(self, outbox: Outbox, reply: bytes) -> None:
        """Answer without waiting: the receive loop must go on even for a peer that reads nothing."""
        try:
            outbox.send_nowait(reply)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            self.dropped += 1


async def _watch_parent(parent: int, scope: anyio.CancelScope) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing announces that a parent has died
        await anyio.sleep(PARENT_CHECK)
    scope.cancel()


def _read(line: bytes | TooLong) -> rpc.Envelope | rpc.ErrorReply | None:
    """The envelope, or the error reply that the line deserves; None for a notification that nobody knows."""
    request = _decoded(line)
    if isinstance(request, rpc.ErrorReply):
        return request
    given = request.get("id")
    short = isinstance(given, int) or (isinstance(given, str) and len(given) <= rpc.MAX_ID)
    known = given if short and not isinstance(given, bool) else None
    try:
        envelope = msgspec.convert(request, rpc.Envelope)
    except msgspec.ValidationError as error:
        return _error(rpc.INVALID_REQUEST, _where(str(error)), known)
    if envelope.method not in METHODS:
        if envelope.id is UNSET:
            return None  # JSON-RPC 2.0: a notification is never answered
        return _error(rpc.METHOD_NOT_FOUND, "no such method at $.method", known)
    return envelope


def _decoded(line: bytes | TooLong) -> dict[str, Any] | rpc.ErrorReply:
    if isinstance(line, TooLong):
        return _error(rpc.LINE_TOO_LONG, f"a line may be {rpc.MAX_LINE:,} bytes long, at $")
    try:
        value = decode_value(line)
    except ValueError:
        return _error(rpc.PARSE_ERROR, "not JSON at $")
    return value if isinstance(value, dict) else _error(rpc.INVALID_REQUEST, "not a JSON object at $")


def _error(code: int, message: str, request_id: int | str | None = None) -> rpc.ErrorReply:
    return rpc.ErrorReply(error=rpc.ErrorObject(code, message), id=request_id)


def _session(envelope: rpc.Envelope, known: Collection[str], *, initialized: bool) -> str:
    """The queue for this line: a session's own from its start on, else the common one."""
    name = envelope.params.get("sessionId")
    if not isinstance(name, str) or not initialized:
        return ""
    return name if name in known or (envelope.method == "session_start" and len(known) < SESSIONS) else ""


def _id(envelope: rpc.Envelope) -> int | str | None:
    return None if envelope.id is UNSET else envelope.id


def _where(message: str) -> str:
    """A validation error less what it may quote of the content: the rule that was broken, and the path."""
    path, kinds = _PATH.search(message), _KINDS.search(message)
    return f"{kinds.group() if kinds else 'invalid value'} at {path.group(1) if path else '$'}"
