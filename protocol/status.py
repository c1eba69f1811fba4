"""The answer to `status`: everything that a person may want to know of a running daemon, without content."""

from __future__ import annotations

from msgspec import Struct


class Versions(Struct, frozen=True, rename="camel"):
    """Who runs with whom."""

    contextd: str
    protocol: int
    pi: str
    python: str


class SessionStatus(Struct, frozen=True, rename="camel"):
    """The session as the daemon sees it; `branch` counts the entries from root to leaf."""

    id: str
    file: str | None
    entries: int
    branch: int
    leaf_id: str | None
    complete: bool
    indexed_bytes: int


class WindowStatus(Struct, frozen=True, rename="camel"):
    """The current window."""

    number: int
    current_id: str
    first_id: str
    previous_id: str | None
    boundary_id: str
    entries: int


class RolloverStatus(Struct, frozen=True, rename="camel"):
    """Where a rollover stands, and the last error of one."""

    phase: str
    next_window_id: str | None
    last_error: str | None


class ArchiveStatus(Struct, frozen=True, rename="camel"):
    """One archive; `unavailable` tells why it cannot be read, `hidden` whether the model sees its summary."""

    window_id: str | None
    manifest_id: str
    items: int
    hidden: bool
    unavailable: str | None


class NoteStatus(Struct, frozen=True, rename="camel"):
    """One note; times in ms, size in UTF-8 bytes."""

    path: str
    lines: int
    bytes: int
    updated_at: int


class Latency(Struct, frozen=True, rename="camel"):
    """How long requests of one method took in the daemon, in ms."""

    count: int
    mean_ms: float
    max_ms: float


class StatusReport(Struct, frozen=True, rename="camel"):
    """All of it. `wall` counts the entries that are folded; `anomalies` is oddities of the file by kind."""

    versions: Versions
    session: SessionStatus | None
    mode: str
    window: WindowStatus | None
    rollover: RolloverStatus
    archives: list[ArchiveStatus]
    notes: list[NoteStatus]
    wall: int
    anomalies: dict[str, int]
    counters: dict[str, Latency]
