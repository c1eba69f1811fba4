"""What tests of the product in real Pi share: its names, and questions to Pi and its sessions that need them."""

from pathlib import Path

from pi.harness import (
    DEADLINE,
    HERE,
    REPOSITORY,
    Call,
    Json,
    PiHome,
    RpcPi,
    SessionView,
    _Process,
    default_extensions,
    entry_type,
    message_text,
)

NEW = Call("new_context", {})

MARKER = "custom_message/codex-context-window"
ARCHIVE = "custom/codex-context-tree-archive"
SNAPSHOT = "custom/codex-context-note-snapshot"
INTENT = "custom/codex-context-tree-intent"

HANDS = HERE / "hands.ts"
LIVE_STATE = REPOSITORY / "shim" / "examples" / "live-state.ts"


def extensions(*more: Path) -> list[Path]:
    return [*default_extensions(), *more]


def answered(pi: RpcPi, text: str, *, after: int = 0, deadline: float = DEADLINE) -> None:
    """Wait until the model has given this answer and Pi has settled after it."""
    answer = pi.wait_for(lambda event: is_answer(event, text), after=after, deadline=deadline)
    at = next(at for at, event in enumerate(pi.events) if event is answer)
    pi.wait_for("agent_settled", after=at, deadline=deadline)


def is_answer(event: Json, text: str) -> bool:
    if event["type"] != "message_end" or event["message"]["role"] != "assistant":
        return False
    return message_text(event["message"]) == text


def notices(pi: RpcPi, level: str | None = None) -> list[str]:
    """What was shown to the user so far."""
    return [shown["message"] for shown in pi.ui("notify") if level in (None, shown.get("notifyType"))]


def asked(home: PiHome) -> list[str]:
    """The kinds of all requests to the model."""
    return [request.kind for request in home.requests()]


def live(home: PiHome) -> list[str]:
    """The last request to the model, with each marker as "a marker"."""
    return windows(home.requests("main")[-1].texts)


def windows(texts: list[str]) -> list[str]:
    """These texts of messages, with each marker as "a marker"."""
    return ["a marker" if "<context_window>" in text else text for text in texts]


def archived(session: SessionView, number: int) -> list[Json]:
    """The interval of the archive with this number: from the leaf that was left to the cut, oldest first."""
    manifest = session.of_type(ARCHIVE)[number]["data"]
    branch = session.branch(manifest["archivedLeafId"])
    base = manifest["branchBaseId"]
    at = next((at for at, entry in enumerate(branch) if entry["id"] == base), -1)
    return branch[at + 1 :]


def types(entries: list[Json]) -> list[str]:
    return [entry_type(entry) for entry in entries]


def texts(session: SessionView, role: str) -> list[str]:
    """The texts of all messages of a role on the active branch, oldest first."""
    return [message_text(e["message"]) for e in session.branch() if entry_type(e) == f"message/{role}"]


def window_numbers(session: SessionView) -> list[int]:
    """The numbers of the windows whose markers the file holds, in its order."""
    return [entry["details"]["contextManagement"]["windowNumber"] for entry in session.of_type(MARKER)]


def daemons(pi: _Process) -> list[int]:
    """The process ids of the daemons that this Pi has started and that run."""
    pids = (int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if _parent(pid) == pi.pid and b"pi-contextd" in _command(pid)]


def daemon(pi: _Process) -> int:
    [pid] = daemons(pi)
    return pid


def runs(pid: int) -> bool:
    """Whether this process runs; one that nobody has asked for its exit code does not."""
    return _parent(pid) is not None


def _parent(pid: int) -> int | None:
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
