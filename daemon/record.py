"""Recordings: everything that passed between Pi and the daemon, so that it can be run again.

One JSON object a line: what Pi sent (`pi`), what the daemon read of a session file before it answered
(`file`), and the answer (`contextd`) with the time and the ids that were drawn for it. A recording holds the
content of the session, so it is made only on request and only its owner can read it. `replay` runs one again.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from msgspec import Struct

from daemon.jsonio import decode_object, encode

VARIABLE: Final = "PI_CONTEXTD_RECORD"


class Received(Struct, frozen=True, tag_field="from", tag="pi"):
    """A request or notification."""

    at: int
    request: dict[str, Any]


class Read(Struct, frozen=True, tag_field="from", tag="file"):
    """Lines that were appended to a session file; `anew` when the file was read from its start."""

    at: int
    name: str
    anew: bool
    lines: list[Any]


class Sent(Struct, frozen=True, omit_defaults=True, tag_field="from", tag="contextd"):
    """An answer, and what was drawn for it."""

    at: int
    reply: dict[str, Any]
    now: int | None = None
    ids: list[str] = []


Line = Received | Read | Sent


class Recorder:
    """Writes a recording. It is also the source of time and ids, since it has to know what was drawn."""

    def __init__(self, path: Path) -> None:
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if S_ISREG(os.fstat(self._file).st_mode):  # it may have been there already
            os.fchmod(self._file, 0o600)
        self._start = time.monotonic_ns()
        self._now: int | None = None
        self._ids: list[str] = []

    @classmethod
    def from_environment(cls) -> Recorder | None:
        """The recorder that the user asked for, if any; `%p` in the name is the process id."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path.replace("%p", str(os.getpid())))) if path else None

    def now(self) -> int:
        """The time in ms."""
        self._now = time.time_ns() // 1_000_000
        return self._now

    def new_id(self) -> str:
        """A new UUID."""
        self._ids.append(str(uuid.uuid4()))
        return self._ids[-1]

    def received(self, request: dict[str, Any]) -> None:
        """Pi sent this."""
        self._write(Received(self._at(), request))

    def sent(self, reply: bytes) -> None:
        """The daemon answered this."""
        drawn, self._ids = self._ids, []
        now, self._now = self._now, None
        self._write(Sent(self._at(), decode_object(reply), now, drawn))

    def tap(self, name: str) -> Callable[[list[bytes], bool], None]:
        """What a journal calls with the lines that it has read."""

        def read(lines: list[bytes], anew: bool) -> None:  # noqa: FBT001 - the journal's tap
            self._write(Read(self._at(), name, anew, [_readable(line) for line in lines]))

        return read

    def _at(self) -> int:
        return (time.monotonic_ns() - self._start) // 1_000_000

    def _write(self, line: Line) -> None:
        """A disk that is full ends the recording, never the daemon."""
        if self._file is not None:
            try:
                os.write(self._file, encode(line) + b"\n")
            except OSError:
                os.close(self._file)
                self._file = None


def _readable(line: bytes) -> Any:  # noqa: ANN401 - an entry, or the text of a line that is none
    try:
        return decode_object(line)
    except ValueError:
        return line.decode("utf-8", "replace")
