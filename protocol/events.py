"""What the shim tells the daemon: the parameters of every method, under Pi's own event names.

Events that Pi awaits are requests, the others notifications. Field names are camelCase on the wire.
`leafId` is always what Pi says, never "the last line of the file" (facts: tree-upstream 8.2, rows 6 to 8).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

UiMode = Literal["tui", "rpc", "json", "print"]
"""Pi's `ctx.mode`."""

StartReason = Literal["startup", "reload", "new", "resume", "fork", "resync"]
"""Pi's reasons, and `resync`: the daemon was restarted under a running session."""


class Event(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all parameters. Unknown fields are ignored, so that a newer shim can tell more."""


class Initialize(Event, frozen=True, kw_only=True):
    """Once per daemon, first of all. `mode` is the one that the session began with in this process, if any."""

    protocol: int
    pi_version: str
    ui: UiMode
    cwd: str
    agent_dir: str
    trusted: bool = False
    mode: str | None = None


class InFlight(Struct, frozen=True, rename="camel"):
    """The Pi process is still navigating for `intentId`; survives `/reload` (facts: pi-lifecycle 21)."""

    intent_id: str
    blank_editor: bool = False


class SessionEvent(Event, frozen=True, kw_only=True):
    """Base of the events of one session. `again` marks the second asking after a `need`."""

    session_id: str
    leaf_id: str | None
    again: bool = False


class SessionStart(SessionEvent, frozen=True, kw_only=True):
    """Any start. Idempotent: Pi below 1.6 sends it twice in rpc mode (facts: pi-lifecycle 3).

    `file` may name a file that does not exist yet. `held` counts the input that waits in the shim while it is
    `holding`.
    """

    reason: StartReason
    file: str | None = None
    in_flight: InFlight | None = None
    holding: bool = False
    held: int = 0


class Entries(Event, frozen=True, kw_only=True):
    """The entries that `need` asked for, oldest first, as Pi holds them."""

    session_id: str
    entries: list[dict[str, Any]]


class SummaryRef(Struct, frozen=True, rename="camel"):
    """The ids of a `branch_summary` that navigation has just appended."""

    id: str
    from_id: str
    parent_id: str | None


class SessionTree(SessionEvent, frozen=True, kw_only=True):
    """The leaf moved, by us, by the user or by another extension; the event names no target."""

    old_leaf_id: str | None
    summary: SummaryRef | None = None
    in_flight: InFlight | None = None


class Navigated(SessionEvent, frozen=True, kw_only=True):
    """What came of a `navigate` effect. `error` is Pi's text when it threw."""

    intent_id: str | None
    old_leaf_id: str | None
    cancelled: bool = False
    error: str | None = None


class AgentSettled(SessionEvent, frozen=True, kw_only=True):
    """A run has ended; Pi awaits the effects. `editorText` is "" without a terminal.

    A run that cannot write what began it ends at once: `unwritten` is then the `details.id` of our message, `swallowed`
    how many of the user's messages were put to what is held.
    """

    aborted: bool = False
    editor_text: str = ""
    unwritten: str | None = None
    swallowed: int = 0


class EffectFailed(SessionEvent, frozen=True, kw_only=True):
    """An effect threw (stale context, full disk). The rest of its list was not performed."""

    effect: str
    error: str


class OutlineItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """One message that can matter to the projection: a branch summary, or one of our custom messages.

    `at` is its index in the request; `timestamp` is in ms; `hash` is the first 16 hex digits of the
    SHA-256 of the summary's UTF-8 text; `id` is the `details.id` of a marker.
    """

    at: int
    role: str
    from_id: str | None = None
    timestamp: int | None = None
    hash: str | None = None
    custom_type: str | None = None
    id: str | None = None


class Usage(Struct, frozen=True, rename="camel"):
    """Pi's own estimate: `tokens` used (null right after a compaction) of the model's `contextWindow`."""

    tokens: int | None
    context_window: int


class Context(SessionEvent, frozen=True, kw_only=True):
    """Before a model request that holds `count` messages; their content stays in Pi."""

    count: int
    outline: list[OutlineItem] = []
    usage: Usage | None = None


class SessionBeforeCompact(SessionEvent, frozen=True, kw_only=True):
    """Pi prepares a compaction: `manual`, `threshold` or `overflow`."""

    reason: str = "manual"


class ToolExecute(SessionEvent, frozen=True, kw_only=True):
    """The model called one of our tools. `captured`: the shim holds a live command context."""

    tool: str
    call_id: str
    arguments: dict[str, Any] = {}
    captured: bool = False
    usage: Usage | None = None


class Cancel(Event, frozen=True, kw_only=True):
    """Nobody waits for this tool call any more."""

    session_id: str
    call_id: str


class ModelFacts(Struct, frozen=True, kw_only=True, rename="camel"):
    """The model in use: its prices per million tokens, and whether its reasoning is bound to what came before."""

    id: str
    input: float = 0
    cache_read: float = 0
    cache_write: float = 0
    binds_thinking: bool = False


class Command(SessionEvent, frozen=True, kw_only=True):
    """A person typed `/<name> <args>`.

    `contextEdit`: this Pi can record folds. `skills` are the files of the skills that the model may read.
    """

    name: str
    args: str = ""
    captured: bool = False
    idle: bool = True
    editor_text: str = ""
    context_edit: bool = False
    model: ModelFacts | None = None
    skills: list[str] = []


class Complete(Event, frozen=True, kw_only=True):
    """Completions for the arguments of a command, as far as typed."""

    name: str
    prefix: str


class Status(Event, frozen=True, kw_only=True):
    """Everything there is to know about a session, or about the daemon alone when none is named."""

    session_id: str | None = None


class SessionShutdown(Event, frozen=True, kw_only=True):
    """The session's extension instance ends."""

    session_id: str
    reason: str = "quit"


class Shutdown(Event, frozen=True, kw_only=True):
    """The daemon should end; closing stdin does the same."""
