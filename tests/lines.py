"""Lines that nobody should send, and a daemon process to send them to (design 7).

One `Life` is one process: sessions with real files are played through every method and every effect, and between
their events come spoiled requests, events at the wrong time, floods and bytes. All of it follows from the seed; what
was sent stands in `sent`. Whether the daemon bore it is told by `Trouble`.
"""

import json
import os
import queue
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from builders import Json, KilledError, Player, iso
from disk import FilePi
from protocol import effects as fx
from protocol import events as ev
from protocol import rpc
from protocol.methods import METHODS

HANG = 20.0
"""Seconds without an answer after which the daemon counts as hung."""

NAMES = {method.params: name for name, method in METHODS.items()}
LONG = 300
"""Entries after which a session is left for a new one."""

DEEP = "\x01deep\x01"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, 1e308, -0.0),
    *(
        "",
        "x",
        "\x00",
        "a\x00b",
        "\ud800",
        "\udfff\ud800",
        "😀",
        "\u2028",
        "\n",
        "../../x",
        "a" * 300,
        "tree",
        "resync",
    ),
    *([], {}, [[]], [{}], {"": None}, [None] * 50, DEEP, "startup", "shake", "undo", "1" * 5_000),
]


@dataclass
class Tally:
    """What was sent and what came of it."""

    tried: Counter[str] = field(default_factory=Counter)
    replies: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def lines(self) -> int:
        """All that was sent."""
        return self.tried.total()


class TroubleError(Exception):
    """The daemon crashed, hung, failed inside, or said what no daemon may say."""


class EndedError(Exception):
    """The daemon has ended because it was asked to."""


class RefusedError(Exception):
    """The daemon answered with an error."""


class Life:
    """One daemon process, from its start to its end, and everything that is sent to it."""

    def __init__(self, seed: int, folder: Path, tally: Tally) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - it is to be made again
        self.folder = folder
        self.tally = tally
        self.sent = bytearray()
        self._ids = 0
        self._asked: dict[int, str] = {}
        self._answers: queue.Queue[bytes | None] = queue.Queue()
        self._reading = threading.Event()
        self._reading.set()
        self._may_end = False
        self._errors = (folder / "stderr").open("wb")
        environment = {**os.environ, "PI_CONTEXTD_LOG": "warning"}
        environment["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        environment.pop("PI_CONTEXTD_RECORD", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "daemon"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=folder,
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        (folder / "agent").mkdir()
        os.mkfifo(folder / "pipe")
        self.sessions = [Actor(self, f"session-{number}") for number in range(3)]
        self.mode = "tree"

    # The wire

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
            self._reading.wait()
        self._answers.put(None)

    def write(self, data: bytes) -> None:
        """Send bytes, as they are."""
        self.sent += data
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            self._ended()

    def next_id(self, method: str) -> int:
        """An id whose answer is counted for this method."""
        self._ids += 1
        self._asked[self._ids] = method
        return self._ids

    def ask(self, method: str, params: Json) -> Any:
        """Send a request and wait for its answer."""
        request_id = self.next_id(method)
        self.tally.tried[method] += 1
        self.write(encoded({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n")
        return self.answer_to(request_id)

    def tell(self, method: str, params: Json) -> None:
        """Send a notification."""
        self.tally.tried[method] += 1
        self.write(encoded({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n")

    def answer_to(self, request_id: int) -> Any:
        """Take in answers until this one has come; its result."""
        while True:
            reply = self._next(HANG)
            if reply is None:
                raise TroubleError(f"no answer to {self._asked.get(request_id)} within {HANG:.0f} s")
            if reply.get("id") == request_id:
                if "error" in reply:
                    raise RefusedError(reply["error"]["code"])
                return reply["result"]

    def settle(self) -> None:
        """Wait until the daemon has caught up; after a flood it may have dropped the question."""
        for _ in range(40):
            request_id = self.next_id("status")
            self.tally.tried["status"] += 1
            self.write(encoded({"jsonrpc": "2.0", "id": request_id, "method": "status"}) + b"\n")
            while True:
                reply = self._next(HANG / 40)
                if reply is None:
                    break
                if reply.get("id") == request_id and "result" in reply:
                    return
        raise TroubleError(f"no answer within {HANG:.0f} s")

    def _next(self, seconds: float) -> Json | None:
        """The next reply, counted and checked; None when there is none in this time."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if line is None:
            self._ended()
        assert line is not None
        try:
            reply: Json = json.loads(line)
        except ValueError:
            raise TroubleError(f"not JSON: {line[:200]!r}") from None
        self._check(reply)
        return reply

    def _check(self, reply: Json) -> None:
        if reply.get("method") == "ready":
            return
        request_id = reply.get("id")
        method = self._asked.get(request_id, "other") if isinstance(request_id, int) else "other"
        if reply.get("jsonrpc") != "2.0" or ("error" in reply) == ("result" in reply):
            raise TroubleError(f"not a reply: {json.dumps(reply)[:200]}")
        if "error" in reply:
            code = reply["error"]["code"]
            self.tally.errors[f"{code} {CODES.get(code, '?')}"] += 1
            self.tally.replies[f"{method}: error"] += 1
            if code == rpc.INTERNAL_ERROR:
                raise TroubleError(f"{method}: {reply['error']['message']}")
            return
        self.tally.replies[method] += 1
        result = reply["result"]
        for effect in result.get("effects", ()) if isinstance(result, dict) else ():
            self.tally.effects[effect["do"]] += 1

    def _ended(self) -> None:
        code = self._process.wait(HANG)
        if self._may_end and code == 0:
            raise EndedError
        raise TroubleError(f"the daemon ended with {code}")

    def close(self) -> None:
        """End the daemon as Pi does, and see that it says nothing more than it should."""
        self._reading.set()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            code = self._process.wait(HANG)
        except subprocess.TimeoutExpired:
            raise TroubleError("it does not end") from None
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(HANG)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._errors.close()
        if code != 0:
            raise TroubleError(f"it ended with {code}")
        said = (self.folder / "stderr").read_bytes()
        if said:
            raise TroubleError(f"on stderr: {said[-2_000:]!r}")

    # What is sent

    def live(self, lines: int) -> None:
        """Send about so many lines, then end."""
        end = self.tally.lines + lines
        try:
            self.introduce("tree")
            for session in self.sessions:
                session.start("startup")
            while self.tally.lines < end:
                (action,) = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))
                action(self)
                self.settle()
            self._may_end = True
            if self.rng.random() < 0.5:
                self.ask("shutdown", {})
            self.tally.ends["end of stdin or shutdown"] += 1
        except EndedError:
            self.tally.ends["a spoiled line asked for it"] += 1

    def introduce(self, mode: str) -> None:
        """Say who we are, which fixes the mode of the sessions to come."""
        ui = self.rng.choice(("tui", "rpc", "json", "print"))
        cwd, agent = str(self.folder), str(self.folder / "agent")
        params = {"protocol": 1, "piVersion": "1.6.0", "ui": ui, "cwd": cwd, "agentDir": agent, "mode": mode}
        self.ask("initialize", params)

    def bad_settings(self, mode: object) -> None:
        """Introduce ourselves while the user's settings are not right."""
        file = self.folder / "agent" / "settings.json"
        file.write_text(json.dumps({"contextd": {"mode": mode}}))
        try:
            self.introduce("tree")
        except RefusedError:
            file.unlink()

    def play(self) -> None:
        """Something sensible happens in one of the sessions."""
        session = self.rng.choice(self.sessions)
        try:
            session.act()
        except (RefusedError, KilledError, StopIteration, ValueError):
            session.reopen()

    def spoil(self) -> None:
        """Requests that are nearly right."""
        lines = []
        for _ in range(self.rng.randrange(5, 40)):
            method = self.rng.choice(list(METHODS))
            if method in SELDOM and self.rng.random() < SELDOM[method]:
                continue
            self._may_end = self._may_end or method == "shutdown"
            self.tally.tried[method] += 1
            lines.append(self._spoiled(method))
        self.write(b"".join(line + b"\n" for line in lines))

    def wrong_time(self) -> None:
        """Right requests that nothing calls for, of sessions that exist or do not."""
        lines = []
        for _ in range(self.rng.randrange(5, 40)):
            method = self.rng.choice([name for name in METHODS if name not in ("shutdown", "initialize")])
            if method in SELDOM and self.rng.random() < SELDOM[method]:
                continue
            self.tally.tried[method] += 1
            lines.append(encoded(self._request(method)))
        self.write(b"".join(line + b"\n" for line in lines))

    def flood(self) -> None:
        """More than it can answer, while nobody reads."""
        self._reading.clear()
        count = self.rng.choice((200, 1_200, 3_000))
        method = self.rng.choice(("status", "context", "complete", "agent_settled", "tool_execute", "garbage"))
        self.tally.tried[f"flood of {method}"] += count
        line = b"garbage\n" if method == "garbage" else encoded(self._request(method)) + b"\n"
        try:
            self.write(line * count)
        finally:
            self._reading.set()

    def pieces(self) -> None:
        """A line that comes in pieces."""
        line = encoded(self._request("status")) + b"\r\n"
        self.tally.tried["status"] += 1
        for at in range(0, len(line), 7):
            self.write(line[at : at + 7])

    def binary(self) -> None:
        """Bytes that are no text, and text that is no request."""
        rng = self.rng
        for _ in range(rng.randrange(1, 20)):
            self.tally.tried["raw bytes"] += 1
            kind = rng.randrange(6)
            if kind == 0:
                data = rng.randbytes(rng.randrange(1, 400))
            elif kind == 1:
                data = rng.choice(
                    (b"", b"\r", b"[]", b"[1,2]", b"null", b'"x"', b"1e999", b"{}", b"NaN", b"\xef\xbb\xbf{}")
                )
            elif kind == 2:
                data = b"[" * rng.choice((10, 2_000, 200_000))
            elif kind == 3:
                data = b'{"a":' * 50_000 + b"1" + b"}" * 50_000
            else:
                data = encoded(self._request(rng.choice(("status", "context", "tool_execute", "command"))))
                for _ in range(rng.randrange(1, 6)):
                    at = rng.randrange(len(data))
                    data = data[:at] + rng.randbytes(rng.randrange(3)) + data[at + rng.randrange(4) :]
            self._may_end = self._may_end or b"shutdown" in data
            self.write(data + b"\n")

    def large(self) -> None:
        """One line of some megabytes, and seldom one beyond the limit."""
        size = rpc.MAX_LINE + 10 if self.rng.random() < 0.02 else self.rng.choice((70_000, 2_000_000))
        self.tally.tried["large lines"] += 1
        if self.rng.random() < 0.5:
            self.write(b"x" * size + b"\n")
            del self.sent[-size:]
            return
        request = self._request("tool_execute")
        request["params"]["arguments"] = {"action": "write_file", "path": "x", "text": "x" * min(size, 3_000_000)}
        self.write(encoded(request) + b"\n")

    def _request(self, method: str) -> Json:
        request = {"jsonrpc": "2.0", "id": self.next_id(method), "method": method, "params": self._params(method)}
        if METHODS[method].reply is None:
            del request["id"]
        return request

    def _params(self, method: str) -> Json:
        """Parameters that fit, with values from what there is."""
        rng = self.rng
        actor = rng.choice(self.sessions)
        entries = actor.pi.entries
        some = rng.choice(entries)["id"] if entries else None
        session = rng.choice((*[actor.name] * 9, "unheard-of"))
        leaf = rng.choice((actor.pi.leaf, actor.pi.leaf, some, None, "ffffffff"))
        base: Json = {"sessionId": session, "leafId": leaf, "again": rng.random() < 0.3}
        intent = next((one.get("intentId") for one in actor.intents()), "unheard-of")
        summaries = [entry for entry in entries if entry["type"] == "branch_summary"]
        summary = None
        if summaries:
            last = rng.choice(summaries)
            summary = {"id": last["id"], "fromId": last["fromId"], "parentId": last["parentId"]}
        files = [
            str(actor.file),
            str(self.folder / "pipe"),
            "relative.jsonl",
            str(self.folder / "absent.jsonl"),
            None,
            str(self.folder),
        ]
        tool = rng.choice(("new_context", "get_context_remaining", "history", "notes", "nothing"))
        usage = rng.choice((None, {"tokens": 990, "contextWindow": 1_000}, {"tokens": None, "contextWindow": 10}))
        special: dict[str, Json] = {
            "initialize": {
                "protocol": rng.choice((1, 1, 1, 2)),
                "piVersion": "1.6.0",
                "ui": rng.choice(("tui", "rpc", "json", "print")),
                "cwd": str(self.folder),
                "agentDir": str(self.folder / "agent"),
                "mode": rng.choice(("tree", "local", "off", None)),
            },
            "session_start": {
                "reason": rng.choice(("startup", "reload", "new", "resume", "fork", "resync")),
                "file": rng.choice([str(actor.file)] * 4 + files),
                "inFlight": rng.choice((None, {"intentId": intent})),
                "holding": rng.random() < 0.5,
                "held": rng.randrange(3),
            },
            "entries": {"entries": rng.sample(entries, min(3, len(entries)))},
            "agent_settled": {"aborted": rng.random() < 0.5, "editorText": ""},
            "navigated": {
                "intentId": rng.choice((intent, None)),
                "oldLeafId": some,
                "cancelled": rng.random() < 0.3,
                "error": rng.choice((None, "boom")),
            },
            "session_tree": {"oldLeafId": some, "summary": summary, "inFlight": None},
            "effect_failed": {"effect": rng.choice(DOING), "error": "boom"},
            "context": {
                "count": rng.randrange(5),
                "outline": [{"at": 0, "role": "branchSummary", "fromId": some, "timestamp": 1, "hash": "0" * 16}],
                "usage": usage,
            },
            "session_before_compact": {"reason": rng.choice(("manual", "threshold", "overflow"))},
            "tool_execute": {
                "tool": tool,
                "callId": f"call-{rng.randrange(5)}",
                "arguments": self._arguments(),
                "captured": rng.random() < 0.8,
                "usage": usage,
            },
            "cancel": {"callId": f"call-{rng.randrange(5)}"},
            "command": {
                "name": rng.choice(("context", "shake")),
                "args": rng.choice(WORDS),
                "captured": rng.random() < 0.8,
                "idle": rng.random() < 0.7,
                "contextEdit": rng.random() < 0.8,
                "model": {"id": "m", "input": 1.0, "cacheRead": 0.1, "cacheWrite": 2, "bindsThinking": True},
                "skills": ["/skills/a.md"],
            },
            "complete": {"name": rng.choice(("context", "shake", "x")), "prefix": rng.choice(WORDS)},
            "status": {"sessionId": rng.choice((None, session))},
            "session_shutdown": {"reason": "quit"},
        }
        if method in ("initialize", "complete", "status", "shutdown"):
            return special.get(method, {})
        return base | special[method]

    def _arguments(self) -> Json:
        rng = self.rng
        actor = rng.choice(self.sessions)
        some = rng.choice(actor.pi.entries)["id"] if actor.pi.entries else "x"
        actions = ("list_windows", "list_items", "read_item", "search_contents", "append_to_file", "write_file")
        values: Json = {
            "action": rng.choice((*actions, "read_file", "list_files_by_prefix", "other")),
            "item_id": some,
            "query": rng.choice(("a", "task", "\n", "é", "", "toolCall", '"', "😀")),
            "limit": rng.choice((None, 0, 1, -5, 10**9)),
            "cursor": rng.choice((None, some, "nothing")),
            "path": rng.choice(("plan.md", "/root/notes/x", "../../etc", "/x", "a/./b", "")),
            "text": rng.choice(("note", "", "é" * 1_000)),
            "start_line": rng.choice((None, 0, -1, 10**9)),
            "offset_chars": rng.choice((None, 1, -1, 10**9)),
            "role": rng.choice((None, "user", "tool", "nobody")),
            "recent_first": rng.choice((None, True, False)),
        }
        return {key: value for key, value in values.items() if key == "action" or rng.random() < 0.7}

    def _spoiled(self, method: str) -> bytes:
        """The request with something wrong about it."""
        rng = self.rng
        request = self._request(method)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            where: Json = request if rng.random() < 0.25 else request["params"]
            while True:
                if not isinstance(where, dict) or not where:
                    break
                key = rng.choice(list(where))
                if isinstance(where[key], dict) and where[key] and rng.random() < 0.6:
                    where = where[key]
                    continue
                self._change(where, key)
                break
            if not isinstance(request.get("params"), dict):
                break
        raw = encoded(request, ascii_only=rng.random() < 0.5)
        if rng.random() < 0.1:
            raw = raw[:-1] + b',"' + rng.choice((b"id", b"method", b"params", b"jsonrpc")) + b'":null}'
        if rng.random() < 0.05:
            raw = raw[: rng.randrange(len(raw))]
        return raw

    def _change(self, where: Json, key: str) -> None:
        kind = self.rng.randrange(4)
        if kind == 0:
            del where[key]
        elif kind == 1:
            where[self.rng.choice(("x", "", "\ud800", "__class__", "params"))] = self.rng.choice(ODD)
        else:
            where[key] = self.rng.choice(ODD)


def live(seed: int, folder: Path, tally: Tally, lines: int) -> tuple[str | None, bytes]:
    """A life of this seed: what was wrong with it, if anything, and all that was sent."""
    life = Life(seed, folder, tally)
    trouble: str | None = None
    try:
        life.live(lines)
    except TroubleError as error:
        trouble = str(error)
    try:
        life.close()
    except TroubleError as error:
        trouble = trouble or str(error)
    return trouble, bytes(life.sent)


WORDS = (
    *("", "status", "rollover", "mode", "mode local", "mode off", "mode tree", "mode remote", "mode x", "images"),
    *("thinking", "undo", "dry-run", "dry-run images", "--explain", "--with-thinking", "x y z", "st", " mo", "\ud800"),
)
DOING = [str(each.__struct_config__.tag) for each in fx.Effect.__subclasses__()]
CODES = {value: name for name, value in vars(rpc).items() if isinstance(value, int) and value < 0}

SELDOM = {"shutdown": 0.99, "session_shutdown": 0.9}
"""How often these are left out, since they end what the others need."""

ACTIONS: dict[Callable[[Life], None], int] = {
    Life.play: 500,
    Life.spoil: 120,
    Life.wrong_time: 60,
    Life.flood: 2,
    Life.pieces: 10,
    Life.binary: 40,
    Life.large: 4,
}


def encoded(request: object, *, ascii_only: bool = True) -> bytes:
    """JSON as any program may write it, lone surrogates and nesting included."""
    text = json.dumps(request, ensure_ascii=ascii_only).replace(json.dumps(DEEP), "[" * 5_000 + "]" * 5_000)
    return text.encode("utf-8", "surrogatepass")


class Actor(Player):
    """Pi with one session, whose daemon is the process of a `Life`."""

    def __init__(self, life: Life, name: str) -> None:
        self.life = life
        self.name = name
        self.file = life.folder / f"{name}.jsonl"
        self._number = 0
        self._damaged = False
        super().__init__(FilePi(self.file))

    def restart_daemon(self) -> None:
        """There is one, and it has its own life."""

    def send(self, event_type: type[ev.SessionEvent], **fields: Any) -> Any:
        method = NAMES[event_type]
        event = event_type(session_id=self.name, leaf_id=self.pi.leaf, **fields)
        params = msgspec.to_builtins(event)
        if event_type is ev.SessionStart:
            params["file"] = str(self.file)
        result = self.life.ask(method, params)
        if isinstance(result.get("need"), dict):
            after = result["need"]["after"]
            ids = [entry["id"] for entry in self.pi.entries]
            rest = self.pi.entries[ids.index(after) + 1 if after in ids else 0 :]
            self.life.tell("entries", {"sessionId": self.name, "entries": rest})
            result = self.life.ask(method, {**params, "again": True})
        shape = METHODS[method].reply
        assert shape is not None
        return msgspec.convert(result, shape)

    def perform(self, effects: Iterable[fx.AnyEffect]) -> None:
        effects = list(effects)
        if effects and self.life.rng.random() < 0.03:
            effect = self.life.rng.choice(effects)
            self.throws = {str(effect.__struct_config__.tag)}
        try:
            super().perform(effects)
        except RecursionError:
            raise TroubleError("effect_failed is answered with effects that fail, without end") from None
        finally:
            self.throws = set()

    def _perform(self, effect: fx.AnyEffect) -> None:
        super()._perform(effect)
        self.throws = set()
        if isinstance(effect, fx.Choose) and self.life.rng.random() < 0.5:
            self.shake(self.life.rng.choice(list(effect.options.values())))

    def reopen(self) -> None:
        """After a refusal or a crash: another process, another file now and then."""
        pi = self.pi
        assert isinstance(pi, FilePi)
        if len(pi.entries) > LONG or self._damaged:
            self._number += 1
            self._damaged = False
            self.file = self.life.folder / f"{self.name}-{self._number}.jsonl"
            self.pi = FilePi(self.file, pi)
        else:
            self.pi = pi.reopened()
        self.holding, self.held, self.in_flight, self.fails, self.turns_due = False, [], None, None, 0
        try:
            self.start("startup")
        except (RefusedError, KilledError):
            return

    def act(self) -> None:  # noqa: C901, PLR0912 - one case a thing
        """One thing that happens in a session."""
        rng, pi = self.life.rng, self.pi
        if len(pi.entries) > LONG:
            self.reopen()
            return
        match rng.randrange(18):
            case 0 | 1:
                self.work(f"task {rng.random()}")
            case 2:
                pi.thinking(rng.choice(("low", "high")))
                pi.model("fake", rng.choice(("a", "b")))
                if rng.random() < 0.5:
                    pi.editor = rng.choice(("", "draft"))
                self.ask_for_window()
            case 3:
                self.fails = rng.choice(("error", "cancelled", "no summary", "write"))
                self.ask_for_window()
            case 4:
                self.command("rollover", idle=rng.random() < 0.8)
            case 5 | 6:
                self.heavy()
            case 7 | 8:
                self.shake(rng.choice(WORDS))
            case 9:
                arguments = {"action": "append_to_file", "path": "plan.md", "text": "note\n"}
                self.tell(ev.ToolExecute, tool="notes", call_id="c", arguments=arguments, captured=True)
            case 10 | 11:
                tool = rng.choice(("history", "notes", "get_context_remaining"))
                usage = ev.Usage(900, 1_000)
                self.send(ev.ToolExecute, tool=tool, call_id="c", arguments=self.life._arguments(), usage=usage)
            case 12:
                self.send(ev.SessionBeforeCompact, reason=rng.choice(("manual", "overflow")))
                if pi.branch():
                    pi.compact(rng.choice(pi.branch())["id"])
            case 13:
                if pi.entries:
                    self.travel(rng.choice(pi.entries)["id"], summarize=rng.random() < 0.5)
            case 14:
                self.tell(ev.Context, count=9, outline=[], usage=ev.Usage(rng.choice((10, 995)), 1_000))
            case 15:
                self.life.bad_settings(rng.choice((None, "remote", {})))
                self.life.introduce(rng.choice(("tree", "tree", "local", "off")))
                self.life.ask("session_shutdown", {"sessionId": self.name})
                self.start(rng.choice(("startup", "resume", "reload", "new", "resync")))
            case 16:
                self.damage()
            case _:
                if self.turns_due:
                    self.turn()
                else:
                    self.settle()

    def ask_for_window(self) -> None:
        """The model calls new_context while a person steers and types."""
        self.ask()
        if self.life.rng.random() < 0.5:
            self.pi.user("steered")
        self.type("typed")
        self.settle(aborted=True)

    def heavy(self) -> None:
        """What `/shake` folds."""
        pi = self.pi
        pi.user("look")
        pi.message(
            "assistant", [{"type": "thinking", "thinking": "hm " * 200, "thinkingSignature": "s"}], stopReason="toolUse"
        )
        pi.tool_result("bash", "output\n" * 4_000)
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        pi.message("user", [{"type": "text", "text": "see"}, image])
        pi.assistant("```python\n" + "print(1)\n" * 2_000 + "```")
        pi.user("go on")
        pi.assistant("long " * 9_000)
        self.settle()

    def shake(self, args: str) -> None:
        """A person types `/shake`."""
        self.tell(ev.Command, name="shake", args=args, captured=True, idle=True, context_edit=True)

    def damage(self) -> None:
        """Something is wrong with the file from now on, or an entry is in Pi's memory alone."""
        rng, pi = self.life.rng, self.pi
        self._damaged = True
        match rng.randrange(4):
            case 0:
                with self.file.open("ab") as out:
                    out.write(rng.choice((b"garbage\n", b"\xff\xfe\n", b'{"type":"message"}\n', b"{" * 5_000 + b"\n")))
            case 1:
                self.file.write_bytes(self.file.read_bytes()[: -rng.randrange(1, 200)])
            case 2:
                lost = {"type": "custom", "id": f"{rng.randrange(16**8):08x}", "parentId": pi.leaf, "timestamp": iso(1)}
                pi.entries.append({**lost, "customType": "memory", "data": 1})
                pi.leaf = lost["id"]
            case _:
                pi.custom(rng.choice(("codex-context-tree-archive", "codex-context-tree-intent", "shake")), {"v": 1})
        self.settle()
