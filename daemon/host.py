"""The sessions of this process: who each event is for, and the files and facts that its session needs.

`Host.handle` is synchronous from the event to the reply, so nothing can tear a step of a session apart. It
knows neither JSON-RPC nor stdio; that is `server`.
"""

from __future__ import annotations

import platform
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, structs

from daemon import __version__, settings
from daemon.journal import Journal
from daemon.lineage import Lineage
from daemon.settings import Settings
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import WINDOW
from protocol.rpc import PROTOCOL
from protocol.status import Latency, StatusReport, Versions
from state import commands, modes, status, tools
from state.errors import StateError
from state.moment import HostFacts, Moment
from state.session import Search, Session
from state.tree import Tree

if TYPE_CHECKING:
    from daemon.record import Recorder

LARGE: Final = 1 << 20
"""From so many unread bytes on, a session file is read in a thread."""

Result = Struct | Search | None


class ProtocolMismatchError(StateError):
    """`initialize` named another protocol version."""


class NotInitializedError(StateError):
    """A session event came before `initialize`."""


class UnknownSessionError(StateError):
    """No `session_start` announced this session."""


class _Hosted(Struct):
    session: Session
    journal: Journal
    lineage: Lineage

    def close(self) -> None:
        self.journal.close()
        self.lineage.close()


class _Meter:
    """Counts and times, per method."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def value(self) -> Latency:
        return Latency(self.count, round(self.total / self.count * 1e3, 3), round(self.longest * 1e3, 3))


class Host:
    """All sessions of one daemon. Time and ids come from outside, so that a replay can give its own."""

    def __init__(
        self,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        recorder: Recorder | None = None,
        files: Path | None = None,
    ) -> None:
        self._now = now
        self._new_id = new_id
        self._recorder = recorder
        self._files = files
        self._hosted: dict[str, _Hosted] = {}
        self._peer: ev.Initialize | None = None
        self._settings = Settings()
        self._searches: dict[tuple[str, str], threading.Event] = {}
        self._meters: dict[str, _Meter] = {}
        self.stopping = False

    @property
    def initialized(self) -> bool:
        """Whether the peer has introduced itself."""
        return self._peer is not None

    def unread(self, session_id: object) -> int:
        """The bytes of this session's file that the next event would have to read."""
        hosted = self._hosted.get(session_id) if isinstance(session_id, str) else None
        return 0 if hosted is None else hosted.journal.pending()

    def read_ahead(self, session_id: str) -> None:
        """Read this session's file; safe in a thread, while no event of the session is handled."""
        hosted = self._hosted[session_id]
        self._refresh(hosted)

    def adopt(self, event: ev.SessionStart) -> None:
        """Make room for a session, so that `unread` and `read_ahead` know its file."""
        if self._peer is None:
            raise NotInitializedError("initialize first")
        path = None if event.file is None else self._path(event.file)
        hosted = self._hosted.get(event.session_id)
        if hosted is not None and hosted.journal.path == path:
            return
        if hosted is not None:
            hosted.close()
        tap = None if self._recorder is None or path is None else self._recorder.tap(path.name)
        journal = Journal(path, tap)
        lineage = Lineage(journal)
        session = Session(
            event.session_id,
            Tree(journal.raw, journal.scan),
            ui=self._peer.ui,
            mode=self._settings.mode,
            reserve=self._settings.reserve,
            shaking=self._settings.shaking,
            ancestors=lineage.ancestors,
        )
        self._hosted[event.session_id] = _Hosted(session, journal, lineage)

    def search(self, event: ev.ToolExecute, search: Search) -> fx.ToolReply:
        """Carry out a search; runs in a thread, until it is done or `cancel` names its call."""
        key = event.session_id, event.call_id
        cancelled = self._searches.setdefault(key, threading.Event())
        try:
            return search.answer(cancelled.is_set)
        finally:
            self._searches.pop(key, None)

    def cancel_all(self) -> None:
        """Nobody waits for anything any more."""
        for cancelled in list(self._searches.values()):
            cancelled.set()

    def handle(self, method: str, event: ev.Event) -> Result:
        """Answer one event; raises `StateError` before anything is changed."""
        started = time.perf_counter()
        try:
            result = self._handle(event)
            if isinstance(result, Search) and isinstance(event, ev.ToolExecute):
                self._searches[event.session_id, event.call_id] = threading.Event()
            return result
        finally:
            self._meters.setdefault(method, _Meter()).add(time.perf_counter() - started)

    def _handle(self, event: ev.Event) -> Result:
        rule = RULES.get(type(event))
        if rule is not None:
            return rule(self, event)
        if not isinstance(event, ev.SessionEvent):
            raise TypeError(f"no rule for {type(event).__name__}")
        return self._session_event(event)

    def _complete(self, event: ev.Complete) -> fx.CompleteReply:
        return fx.CompleteReply(commands.completions(event.name, event.prefix))

    def _shutdown(self, _event: ev.Shutdown) -> fx.Reply:
        self.stopping = True
        return fx.Reply()

    def _entries(self, event: ev.Entries) -> None:
        hosted = self._of(event.session_id)
        hosted.journal.remember(hosted.session.tree, event.entries)

    def _session_shutdown(self, event: ev.SessionShutdown) -> fx.Reply:
        for (session_id, _), cancelled in list(self._searches.items()):
            if session_id == event.session_id:
                cancelled.set()
        self._of(event.session_id).close()
        del self._hosted[event.session_id]
        return fx.Reply()

    def _session_start(self, event: ev.SessionStart) -> Result:
        self.adopt(event)
        return self._session_event(event)

    def _cancel(self, event: ev.Cancel) -> None:
        cancelled = self._searches.get((event.session_id, event.call_id))
        if cancelled is not None:
            cancelled.set()

    def _command(self, event: ev.Command) -> Result:
        """`/context mode` is about settings; every other command is the session's."""
        words = event.args.split()
        if event.name != "context" or words[:1] != ["mode"] or self._peer is None:
            return self._session_event(event)
        agent_dir, cwd = Path(self._peer.agent_dir), Path(self._peer.cwd)
        current = self._of(event.session_id).session.mode
        try:
            if len(words) > 1:
                settings.save_mode(agent_dir, settings.checked_mode(words[1]))
            chosen = settings.load(agent_dir, cwd, trusted=self._peer.trusted).mode
        except settings.SettingsError as error:
            return fx.Reply(effects=[fx.Notify(text=str(error), level="error")])
        text = modes.describe(current, chosen)
        if len(words) > 1 and chosen != words[1]:
            text = f"This project's settings say {chosen}, so {words[1]} counts everywhere but here.\n{text}"
        return fx.Reply(effects=[fx.Notify(text=text)])

    def _session_event(self, event: ev.SessionEvent) -> fx.Reply | Search:
        hosted = self._of(event.session_id)
        self._refresh(hosted)
        tree = hosted.session.tree
        missing = tree.branch(event.leaf_id).missing
        if missing is not None and missing not in tree.gaps:
            if not event.again:
                return fx.Reply(need=fx.Need(after=tree.known_before(missing)))
            tree.gaps.add(missing)
        moment = Moment(now=self._now(), new_id=self._new_id, host=self._facts(hosted))
        return hosted.session.handle(event, moment)

    def _initialize(self, event: ev.Initialize) -> fx.Initialized:
        if event.protocol != PROTOCOL:
            raise ProtocolMismatchError(
                f"this is pi-contextd {__version__}, which speaks protocol {PROTOCOL}; the Pi package speaks protocol "
                f"{event.protocol}. Install the same version of both."
            )
        found = settings.load(Path(event.agent_dir), Path(event.cwd), trusted=event.trusted)
        self._settings = structs.replace(found, mode=event.mode) if event.mode in modes.AVAILABLE else found
        self._peer = event
        mode = modes.MODES[self._settings.mode]
        specs = list(tools.TOOLS) if mode.managed else []
        return fx.Initialized(PROTOCOL, __version__, mode.name, specs, commands.COMMANDS, [WINDOW])

    def _status(self, event: ev.Status) -> StatusReport:
        if event.session_id is None:
            return status.bare(self._facts(None), self._settings.mode)
        hosted = self._of(event.session_id)
        session = hosted.session
        self._refresh(hosted)
        return status.report(session.id, session.windows, session.tree.current, self._facts(hosted))

    def _refresh(self, hosted: _Hosted) -> None:
        with suppress(OSError):  # gone meanwhile, or not ours to read: what it holds has to come from Pi
            if hosted.journal.refresh(hosted.session.tree):
                hosted.session.forget()

    def _of(self, session_id: str) -> _Hosted:
        hosted = self._hosted.get(session_id)
        if hosted is None:
            raise UnknownSessionError("no session_start announced this session")
        return hosted

    def _path(self, file: str) -> Path:
        """The session's file; in a replay the file of that name among those that the recording holds."""
        return Path(file) if self._files is None else self._files / Path(file).name

    def _facts(self, hosted: _Hosted | None) -> HostFacts:
        peer = self._peer
        versions = Versions(__version__, PROTOCOL, peer.pi_version if peer else "", platform.python_version())
        counters = {method: meter.value() for method, meter in self._meters.items()}
        if hosted is None:
            return HostFacts(versions, counters, {})
        journal = hosted.journal
        file = None if journal.path is None else str(journal.path)
        return HostFacts(versions, counters, dict(journal.anomalies), file, journal.offset)


def convert(params: dict[str, Any], shape: type[ev.Event]) -> ev.Event:
    """The parameters as their Struct; `msgspec.ValidationError` names the path that does not fit."""
    return msgspec.convert(params, shape)


RULES: Final[dict[type[ev.Event], Callable[[Host, Any], Result]]] = {
    ev.Initialize: Host._initialize,
    ev.Status: Host._status,
    ev.Complete: Host._complete,
    ev.Shutdown: Host._shutdown,
    ev.Entries: Host._entries,
    ev.SessionShutdown: Host._session_shutdown,
    ev.SessionStart: Host._session_start,
    ev.Cancel: Host._cancel,
    ev.Command: Host._command,
}
"""What is not listed is an event of one session, and goes to that session."""
