"""What a session says stays in the session: not in logs, not in errors, not on disk, not on the network (design 7)."""

import ast
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from builders import SESSION_ID, Json, PiSession
from daemon import __file__ as daemon_file
from protocol.entries import ARCHIVE, INTENT, NOTE, NOTE_SNAPSHOT, SHAKE
from protocol.methods import METHODS
from test_process import PEER, Peer, request, running, stderr_of

pytestmark = pytest.mark.anyio

CANARY = "canary-5a1f"
COMMANDS = ("/context status", "/context rollover", "/shake", "/shake status", f"/shake {CANARY}", f"/context {CANARY}")


def session(file: Path) -> PiSession:
    """Every text of it, and some of its keys, are secrets; some of its lines are damaged."""
    pi = PiSession()
    pi.model(CANARY, CANARY)
    pi.thinking(CANARY)
    pi.user(f"{CANARY} task")
    pi.assistant(f"{CANARY} answer", stop="toolUse", call=CANARY)
    pi.tool_result(CANARY, f"{CANARY}\n" * 9_000)
    pi.message("assistant", [{"type": "thinking", "thinking": CANARY * 500}], stopReason="stop")
    pi.custom(CANARY, {CANARY: CANARY})
    pi.custom(
        NOTE, {"protocol": 1, "action": "append", "path": f"/root/notes/{CANARY}", "text": CANARY, "timestamp": 1}
    )
    for kind in (ARCHIVE, INTENT, NOTE, NOTE_SNAPSHOT, SHAKE):
        pi.custom(kind, {CANARY: CANARY, "protocol": CANARY})
    pi.summary(pi.leaf, pi.leaf, CANARY)
    pi.append(CANARY, anything=CANARY)
    pi.write(file)
    lines = file.read_bytes().split(b"\n")
    damaged = [
        CANARY.encode(),
        b'{"type":"message","' + CANARY.encode(),
        b'{"id":' + b"[" * 5_000,
        b"\xff" + CANARY.encode(),
    ]
    file.write_bytes(b"\n".join([lines[0], *damaged, *lines[1:]]))
    pi.user("task")
    with file.open("ab") as out:
        out.write(pi.lines()[-1] + b"\n")
    return pi


def agent(folder: Path) -> Path:
    made = folder / "agent"
    made.mkdir()
    (made / "settings.json").write_text(json.dumps({CANARY: CANARY, "contextd": {"shake": {"protectPaths": [CANARY]}}}))
    return made


def events(pi: PiSession, file: Path) -> list[tuple[str, Json]]:
    """Every method, as it should be and as it should not."""
    at: Json = {"sessionId": SESSION_ID, "leafId": pi.leaf}
    usage = {"tokens": 990, "contextWindow": 1_000}
    calls = [
        {
            "action": action,
            "query": CANARY,
            "path": f"{CANARY}.md",
            "text": CANARY,
            "item_id": pi.leaf,
            "cursor": CANARY,
        }
        for action in ("list_windows", "list_items", "read_item", "search_contents", "write_file", "read_file", CANARY)
    ]
    right: list[tuple[str, Json]] = [
        ("session_start", {**at, "reason": "startup", "file": str(file)}),
        ("entries", {"sessionId": SESSION_ID, "entries": [{"type": CANARY, "id": CANARY, CANARY: CANARY}]}),
        ("context", {**at, "count": 3, "outline": [{"at": 0, "role": CANARY, "hash": CANARY}], "usage": usage}),
        *(
            ("tool_execute", {**at, "tool": tool, "callId": CANARY, "arguments": call})
            for call in calls
            for tool in TOOLS
        ),
        ("session_before_compact", {**at, "reason": CANARY}),
        *(("command", {**at, "name": text[1:].split()[0], "args": text.partition(" ")[2]}) for text in COMMANDS),
        ("agent_settled", {**at, "editorText": CANARY}),
        ("session_tree", {**at, "oldLeafId": CANARY, "summary": {"id": CANARY, "fromId": CANARY, "parentId": CANARY}}),
        ("navigated", {**at, "intentId": CANARY, "oldLeafId": CANARY, "error": CANARY}),
        ("effect_failed", {**at, "effect": CANARY, "error": CANARY}),
        ("cancel", {"sessionId": SESSION_ID, "callId": CANARY}),
        ("complete", {"name": CANARY, "prefix": CANARY}),
        ("status", {"sessionId": SESSION_ID}),
        ("status", {"sessionId": CANARY}),
        ("initialize", {**PEER, "protocol": 99, "piVersion": CANARY}),
        (CANARY, {CANARY: CANARY}),
    ]
    asked = [method for method in METHODS if method != "shutdown"]
    wrong = [(method, {**at, key: {CANARY: CANARY}}) for method in asked for key in ("sessionId", "leafId", "reason")]
    return [*right, *wrong, ("session_shutdown", {"sessionId": SESSION_ID, "reason": CANARY})]


TOOLS = ("history", "notes", "new_context", "get_context_remaining", CANARY)


async def through_all(peer: Peer, folder: Path, pi: PiSession, file: Path) -> list[Json]:
    """Ask everything; the errors that were answered."""
    await peer.ask("initialize", **{**PEER, "agentDir": str(folder / "agent"), "cwd": str(folder)})
    replies: list[Json] = []
    for number, (method, params) in enumerate(events(pi, file)):
        await peer.send(request(method, f"r{number}", **params), CANARY.encode(), b'{"id":"' + CANARY.encode())
        while not replies or replies[-1].get("id") != f"r{number}":
            replies.append(await peer.receive())
    return [reply["error"] for reply in replies if "error" in reply]


def tree(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file and folder below, with its mode, time and content."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


async def test_no_content_reaches_the_log_an_error_or_the_disk(tmp_path: Path) -> None:
    agent(tmp_path)
    file = tmp_path / f"{CANARY}.jsonl"
    pi = session(file)
    before = tree(tmp_path)
    async with running(TMPDIR=str(tmp_path), HOME=str(tmp_path), PI_CONTEXTD_LOG="debug") as peer:
        errors = await through_all(peer, tmp_path, pi, file)
        assert await peer.end() == 0
        said = await stderr_of(peer)
    assert tree(tmp_path) == before
    assert CANARY.encode() not in said
    assert len({error["code"] for error in errors}) > 4
    assert CANARY not in json.dumps([error for error in errors if "code" in error])


async def test_a_failure_inside_names_a_place_and_no_content(tmp_path: Path) -> None:
    """Even an exception that quotes what it failed on."""
    code = f"""
import sys
from daemon import host
def broken(self, event):
    raise RuntimeError("{CANARY}", event)
host.RULES[host.ev.Complete] = broken
from daemon.main import main
sys.argv = ["pi-contextd"]
main()
"""
    async with running([sys.executable, "-c", code], PI_CONTEXTD_LOG="debug") as peer:
        await peer.ask("initialize", **{**PEER, "agentDir": str(tmp_path)})
        reply = await peer.ask("complete", name=CANARY, prefix=CANARY)
        assert await peer.end() == 0
        said = await stderr_of(peer)
    assert CANARY not in json.dumps(reply["error"])
    assert b"internal error" in said
    assert CANARY.encode() not in said


async def test_a_recording_is_made_on_request_alone_and_is_its_owners(tmp_path: Path) -> None:
    """It is the one place that holds content."""
    work = tmp_path / "work"
    work.mkdir()
    agent(work)
    file = work / "s.jsonl"
    pi = session(file)
    recording = tmp_path / "recording.jsonl"
    old = os.umask(0)
    try:
        async with running(TMPDIR=str(work), PI_CONTEXTD_RECORD=str(recording), PI_CONTEXTD_LOG="debug") as peer:
            before = tree(work)
            await through_all(peer, work, pi, file)
            assert await peer.end() == 0
            assert CANARY.encode() not in await stderr_of(peer)
    finally:
        os.umask(old)
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600
    assert CANARY in recording.read_text()
    assert tree(work) == before
    assert {name.partition("/")[0] for name in tree(tmp_path)} == {"recording.jsonl", "work"}


async def test_a_recording_that_is_there_already_becomes_its_owners_alone(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    recording.touch(0o644)
    recording.chmod(0o644)
    async with running(PI_CONTEXTD_RECORD=str(recording)) as peer:
        await peer.ask("status")
        assert await peer.end() == 0
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "path",
    [
        *("plan.md", "/root/notes/plan.md", "../../escape.md", "/root/notes/../../escape.md"),
        *(
            "notes/../../escape",
            "~/escape.md",
            "a\x00b",
            "<folder>/notes/escape",
            "file:///tmp/escape",
            "C:\\escape",
            ".",
        ),
    ],
)
async def test_a_notes_path_is_a_name_and_never_a_file(tmp_path: Path, path: str) -> None:
    path = path.replace("<folder>", str(tmp_path))
    file = tmp_path / "s.jsonl"
    pi = PiSession()
    pi.user("task")
    pi.write(file)
    before = tree(tmp_path)
    async with running(TMPDIR=str(tmp_path), HOME=str(tmp_path)) as peer:
        await peer.ask("initialize", **{**PEER, "agentDir": str(tmp_path), "cwd": str(tmp_path)})
        start = {"sessionId": SESSION_ID, "leafId": pi.leaf, "reason": "startup", "file": str(file)}
        await peer.ask("session_start", **start)
        for action in ("write_file", "append_to_file", "read_file"):
            call = {"action": action, "path": path, "text": CANARY}
            params: Json = {
                "sessionId": SESSION_ID,
                "leafId": pi.leaf,
                "tool": "notes",
                "callId": "c",
                "arguments": call,
            }
            result = (await peer.ask("tool_execute", **params))["result"]
            written = [effect["data"]["path"] for effect in result.get("effects", ())]
            assert all(name.startswith("/") and ".." not in name.split("/") for name in written)
        assert await peer.end() == 0
    assert tree(tmp_path) == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are read from /proc")
async def test_it_opens_no_socket_and_only_the_sessions_file(tmp_path: Path) -> None:
    """Its event loop has a pair of sockets, to be woken by threads; they lead nowhere."""
    agent(tmp_path)
    file = tmp_path / "s.jsonl"
    pi = session(file)

    def opened(peer: Peer) -> list[str]:
        return [str(each.readlink()) for each in Path(f"/proc/{peer.process.pid}/fd").iterdir()]

    def networked(peer: Peer) -> set[str]:
        tables = [Path(f"/proc/{peer.process.pid}/net/{table}") for table in ("tcp", "tcp6", "udp", "udp6")]
        lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
        return {line.split()[9] for line in lines}

    async with running(TMPDIR=str(tmp_path)) as peer:
        await peer.ask("status")
        before = opened(peer)
        assert sum(name.startswith("socket:") for name in before) <= 2 + 3  # and what its stdio may be
        await peer.ask("initialize", **{**PEER, "agentDir": str(tmp_path / "agent")})
        start: dict[str, Any] = {"sessionId": SESSION_ID, "leafId": pi.leaf, "reason": "startup", "file": str(file)}
        await peer.ask("session_start", **start)
        assert sorted(set(opened(peer)) - set(before)) == [str(file)]
        await peer.ask("session_shutdown", sessionId=SESSION_ID)
        assert sorted(opened(peer)) == sorted(before)
        inodes = {name[8:-1] for name in before if name.startswith("socket:")}
        assert not inodes & networked(peer)


def test_nothing_of_the_product_can_use_the_network() -> None:
    """Remote mode will be the first to; it will have a module of its own."""
    root = Path(str(daemon_file)).parent.parent
    network = {
        "socket",
        "ssl",
        "http",
        "urllib",
        "ftplib",
        "smtplib",
        "asyncio",
        "socketserver",
        "xmlrpc",
        "httpx",
        "requests",
    }
    found = {
        f"{path.relative_to(root)}: {name}"
        for package in ("protocol", "state", "daemon")
        for path in (root / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name.partition(".")[0] in network
    }
    assert found == set()
