"""Status: everything about a session for a person, as a value and as text. Ids and numbers, no content."""

from __future__ import annotations

from protocol.status import ArchiveStatus, NoteStatus, RolloverStatus, SessionStatus, StatusReport, WindowStatus
from state.archive import Unavailable
from state.coordinator import Coordinator
from state.moment import HostFacts
from state.notes import Notes
from state.shake.command import folded_now
from state.tree import Branch, Tree
from state.windows import current_boundary


def report(session_id: str, windows: Coordinator, branch: Branch, host: HostFacts) -> StatusReport:
    """The whole state of a session."""
    tree = windows.tree
    odd = {"duplicate ids": tree.duplicates, "parents missing": len(tree.gaps)}
    return StatusReport(
        versions=host.versions,
        session=SessionStatus(
            session_id,
            host.file,
            len(tree.heads),
            len(branch.heads),
            branch.leaf,
            branch.complete,
            host.indexed_bytes,
        ),
        mode=windows.mode,
        window=_window(tree, branch),
        rollover=_rollover(windows),
        archives=_archives(windows, branch),
        notes=_notes(tree, branch),
        wall=len(folded_now(tree, branch, None)),
        anomalies={kind: count for kind, count in {**host.anomalies, **odd}.items() if count},
        counters=host.counters,
    )


def bare(host: HostFacts, mode: str) -> StatusReport:
    """The state of a daemon, when no session is asked for."""
    return StatusReport(
        versions=host.versions,
        session=None,
        mode=mode,
        window=None,
        rollover=RolloverStatus("idle", None, None),
        archives=[],
        notes=[],
        wall=0,
        anomalies=host.anomalies,
        counters=host.counters,
    )


def render(status: StatusReport) -> str:
    """The report as lines for Pi's transcript."""
    lines = [f"contextd {status.versions.contextd} · mode {status.mode} · Pi {status.versions.pi}"]
    if status.session is not None:
        where = f"{status.session.branch:,} of {status.session.entries:,} entries on this branch"
        lines.append(f"session   {where}" + ("" if status.session.complete else ", incomplete"))
    if status.window is None:
        lines.append("window    none on this branch")
    else:
        lines.append(
            f"window    {status.window.number} · {status.window.current_id} · {status.window.entries:,} entries"
        )
    lines.append(f"rollover  {status.rollover.phase}")
    if status.rollover.last_error is not None:
        lines.append(f"          the last one failed: {status.rollover.last_error}")
    lines += _section("archives", [_archive_line(archive) for archive in status.archives])
    lines += _section("notes", [f"{n.path} ({n.lines:,} lines, {n.bytes:,} bytes)" for n in status.notes])
    if status.wall:
        lines.append(f"folds     {status.wall:,} entries")
    lines += _section("oddities", [f"{count:,} {kind}" for kind, count in status.anomalies.items()])
    return "\n".join(lines)


def _section(title: str, items: list[str]) -> list[str]:
    if not items:
        return [f"{title:<9} none"]
    return [f"{title if at == 0 else '':<9} {item}" for at, item in enumerate(items)]


def _archive_line(archive: ArchiveStatus) -> str:
    name = archive.window_id or f"manifest {archive.manifest_id}"
    if archive.unavailable is not None:
        return f"{name} · unavailable: {archive.unavailable}"
    return f"{name} · {archive.items:,} items · summary {'hidden' if archive.hidden else 'visible'}"


def _window(tree: Tree, branch: Branch) -> WindowStatus | None:
    boundary = current_boundary(tree, branch)
    if boundary is None:
        return None
    head, identity = boundary
    return WindowStatus(
        identity.window_number,
        identity.current_window_id,
        identity.first_window_id,
        identity.previous_window_id,
        head.id,
        len(branch.after(head.id)),
    )


def _rollover(windows: Coordinator) -> RolloverStatus:
    intent = windows.rollover.intent
    following = None if intent is None else intent.next.current_window_id
    return RolloverStatus(windows.rollover.phase, following, windows.last_error)


def _archives(windows: Coordinator, branch: Branch) -> list[ArchiveStatus]:
    return [
        ArchiveStatus(archive.window_id, archive.manifest_id, 0, hidden=False, unavailable=archive.why)
        if isinstance(archive, Unavailable)
        else ArchiveStatus(
            archive.window_id, archive.manifest_id, len(archive.items), hidden=archive.sealed, unavailable=None
        )
        for archive in windows.archives.of(branch)
    ]


def _notes(tree: Tree, branch: Branch) -> list[NoteStatus]:
    lines = sorted(Notes.of(tree, branch).lines(), key=lambda line: line.path)
    return [NoteStatus(line.path, line.lines, line.size, line.updated_at) for line in lines]
