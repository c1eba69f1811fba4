"""What the outside gives with every event (time, ids, facts of the daemon), and the shape of what is answered."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from protocol import effects as fx
from protocol.status import Latency, Versions

Effects = list[fx.AnyEffect]


class HostFacts(Struct, frozen=True):
    """What only the daemon knows."""

    versions: Versions
    counters: dict[str, Latency]
    anomalies: dict[str, int]
    file: str | None = None
    indexed_bytes: int = 0


class Moment(Struct, frozen=True):
    """The time in ms, a source of new UUIDs, and the daemon's facts."""

    now: int
    new_id: Callable[[], str]
    host: HostFacts
