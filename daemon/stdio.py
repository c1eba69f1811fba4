"""stdin and stdout as a stream of lines, for any peer and any length.

stdout belongs to the protocol: `claim` takes both descriptors away from everything else first thing in main,
and stray prints go to stderr. Lines end with LF alone (facts: codex-and-sidecar 2.3). What a line says is not
known here.
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from contextlib import suppress
from typing import Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from msgspec import Struct

from protocol.rpc import MAX_LINE

_CHUNK: Final = 1 << 16
_INBOX: Final = 64
"""Chunks that wait to be split; beyond it the reader waits, and with it the peer."""

OUTBOX: Final = 4_096
"""Lines that wait for a peer that does not read."""


class TooLong(Struct, frozen=True):
    """Stands for a line that was skipped."""


class Stdio(Struct, frozen=True):
    """The claimed descriptors, and who was at their other end."""

    source: int
    sink: int
    parent: int


def claim() -> Stdio:
    """Take fd 0 and 1: whoever reads stdin finds it empty, whoever prints reaches stderr."""
    source = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    sink = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Stdio(source, sink, os.getppid())


class Splitter:
    """Cuts chunks into lines; a line that grows beyond the limit is skipped to its LF."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that this chunk completes, without their LF and one trailing CR."""
        *ends, rest = chunk.split(b"\n")
        lines = [self._finish(end) for end in ends]
        self._hold(rest)
        return lines

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._skipping = True
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _finish(self, end: bytes) -> bytes | TooLong:
        self._hold(end)
        line = TooLong() if self._skipping else b"".join(self._parts).removesuffix(b"\r")
        self._parts.clear()
        self._size, self._skipping = 0, False
        return line


def start_reader(source: int) -> MemoryObjectReceiveStream[bytes]:
    """Read in a thread of our own: portable, for pipes, sockets and files, and it never blocks the loop.

    A daemon thread in a raw read does not hold up the exit of the interpreter. The stream ends with the input.
    """
    send, receive = anyio.create_memory_object_stream[bytes](_INBOX)
    token = anyio.lowlevel.current_token()

    def read() -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.RunFinishedError):
            while chunk := os.read(source, _CHUNK):
                anyio.from_thread.run(send.send, chunk, token=token)
        with suppress(anyio.RunFinishedError):
            anyio.from_thread.run(send.aclose, token=token)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return receive


def write_all(sink: int, data: bytes) -> None:
    """Write everything, however little the peer takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]


async def write_lines(sink: int, lines: MemoryObjectReceiveStream[bytes]) -> None:
    """The only writer. Each line goes out in a thread, so a peer that does not read stops nothing but this.

    A peer that has closed its end ends the writing, quietly; stdin will end too.
    """
    async with lines:
        async for line in lines:
            try:
                await anyio.to_thread.run_sync(write_all, sink, line + b"\n", abandon_on_cancel=True)
            except OSError:
                return


Outbox = MemoryObjectSendStream[bytes]
