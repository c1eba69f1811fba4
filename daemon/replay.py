"""Replays: a recording run again, and the first answer that is not as it was.

Recordings of several daemons may be joined, one after the other: each `initialize` begins a new daemon, which finds
the files of the one before it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from daemon.host import Host
from daemon.jsonio import decode_object, encode
from daemon.record import Line, Read, Received
from daemon.server import Server

IGNORED: Final = frozenset({"version", "contextd", "python", "counters", "file"})
"""Keys of answers that may differ between two runs of the same recording."""


class Difference(Struct, frozen=True):
    """The first answer of a replay that is not the recorded one."""

    line: int
    path: str
    recorded: Any
    replayed: Any


class _Script:
    """Gives a replay the recorded time and ids."""

    def __init__(self) -> None:
        self.time = 0
        self.ids: Iterator[str] = iter(())

    def now(self) -> int:
        return self.time

    def new_id(self) -> str:
        return next(self.ids, "00000000-0000-0000-0000-000000000000")


def read(recording: bytes) -> list[Line]:
    """The lines of a recording; `msgspec.DecodeError` when it is none."""
    return [msgspec.json.decode(line, type=Line) for line in recording.split(b"\n") if line.strip()]


async def replay(recording: bytes) -> Difference | None:
    """Run a recording again, against files that grow as the recorded ones did; None when all answers agree."""
    with tempfile.TemporaryDirectory() as folder:
        stage = _Stage(Path(folder))
        for number, line in enumerate(read(recording), 1):
            found = await stage.play(line)
            if found is not None:
                return Difference(number, *found)
        await stage.tell()
    return None


class _Stage:
    """The daemon that a recording is played to, and its files."""

    def __init__(self, files: Path) -> None:
        self._files = files
        self._script = _Script()
        self._begin()

    def _begin(self) -> None:
        self._server = Server(Host(now=self._script.now, new_id=self._script.new_id, files=self._files))
        self._asked: dict[int | str, dict[str, Any]] = {}
        self._told: dict[str, Any] | None = None

    async def play(self, line: Line) -> tuple[str, Any, Any] | None:
        """Do what the line tells; for an answer say where the one of now differs.

        A request is run when its answer comes, since what was read for it stands between the two.
        """
        if isinstance(line, Read):
            _grow(self._files / Path(line.name).name, line)
            return None
        await self.tell()
        if isinstance(line, Received):
            if line.request.get("method") == "initialize":
                self._begin()
            if "id" in line.request:
                self._asked[line.request["id"]] = line.request
            else:
                self._told = line.request
            return None
        self._script.time = line.now or 0
        self._script.ids = iter(line.ids)
        request = self._asked.pop(line.reply.get("id", ""), None)
        answer = b"" if request is None else await self._server.answer(encode(request))
        return difference(line.reply, decode_object(answer or b"{}"), "$")

    async def tell(self) -> None:
        """Run the last notification, if it was not yet."""
        told, self._told = self._told, None
        if told is not None:
            await self._server.answer(encode(told))


def _grow(path: Path, read: Read) -> None:
    raw = b"".join((line.encode() if isinstance(line, str) else encode(line)) + b"\n" for line in read.lines)
    with path.open("wb" if read.anew else "ab") as file:
        file.write(raw)


def difference(recorded: Any, replayed: Any, path: str) -> tuple[str, Any, Any] | None:  # noqa: ANN401 - JSON
    """Where two answers differ first, less what may differ."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for key in [*recorded, *(key for key in replayed if key not in recorded)]:
            if key not in IGNORED:
                found = difference(recorded.get(key), replayed.get(key), f"{path}.{key}")
                if found is not None:
                    return found
        return None
    if isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        pairs = zip(recorded, replayed, strict=True)
        found_in = (difference(old, new, f"{path}[{at}]") for at, (old, new) in enumerate(pairs))
        return next((found for found in found_in if found is not None), None)
    return None if recorded == replayed else (path, recorded, replayed)
