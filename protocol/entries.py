"""Pi's session entries, as far as this product reads them, and the entries it writes.

Pi's own names throughout. `EntryHead` is what the index keeps of every line; bodies are decoded on demand.
Our formats on disk are upstream's, so that sessions travel both ways (facts: tree-upstream 1.1, 3.2, 4.1).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Raw, Struct

WINDOW: Final = "codex-context-window"
ARCHIVE: Final = "codex-context-tree-archive"
NOTE: Final = "codex-context-note"
NOTE_SNAPSHOT: Final = "codex-context-note-snapshot"
INTENT: Final = "codex-context-tree-intent"
SHAKE: Final = "shake"

OURS: Final = frozenset({WINDOW, ARCHIVE, NOTE, NOTE_SNAPSHOT, INTENT, SHAKE})
"""The custom types that this product writes."""

STRATEGY: Final = "codex-context-tree"


class EntryHead(Struct, frozen=True, gc=False):
    """One line of the index.

    `kind` is the role of a message, the customType of a custom entry, else "". `tag` is the one further
    word that a walk may need without reading the body: a tool result's tool, an assistant's stop reason,
    a summary's `fromId`, a thinking level, a model as provider/id, "text" for a custom message that is plain
    text, an overlay's target, the first entry that a compaction keeps. `offset` and `length` are bytes in the
    file; `offset` is -1 for an entry that only Pi's memory holds.
    """

    id: str
    parent_id: str | None
    type: str
    kind: str
    tag: str
    offset: int
    length: int


class MessageLine(Struct, frozen=True, gc=False, rename="camel"):
    """The part of a message that the index reads."""

    role: str = ""
    stop_reason: str = ""
    tool_name: str = ""


class EntryLine(Struct, frozen=True, gc=False, rename="camel"):
    """The part of a line that the index reads; every other field is skipped, unknown types survive."""

    type: str = ""
    id: str = ""
    parent_id: str | None = None
    custom_type: str = ""
    from_id: str = ""
    target_id: str = ""
    first_kept_entry_id: str | None = None
    thinking_level: str = ""
    provider: str = ""
    model_id: str = ""
    content: Raw = Raw()
    message: MessageLine | None = None


class SessionHeader(Struct, frozen=True, rename="camel"):
    """The first line of a session file."""

    type: Literal["session"]
    id: str = ""
    version: int = 1
    cwd: str = ""
    parent_session: str | None = None


class WindowIdentity(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which window a marker opens. Ids are UUIDs, `windowNumber` counts from 0."""

    protocol: Literal[1]
    kind: Literal["window", "reminder", "fallback", "identity", "urgent"]
    first_window_id: str
    current_window_id: str
    previous_window_id: str | None = None
    window_number: int
    trim_previous_window: Literal[True] | None = None
    agent_name: str | None = None


class MarkerDetails(Struct, frozen=True, rename="camel"):
    """The `details` of a window marker; `id` is unique to the message."""

    protocol: Literal[1]
    id: str
    context_management: WindowIdentity


class MarkerEntry(Struct, frozen=True, rename="camel"):
    """A `custom_message` entry of type `WINDOW`."""

    details: MarkerDetails
    content: str


class Manifest(Struct, frozen=True, rename="camel"):
    """What an archive consists of: the summary, and the side branch from leaf to (excluding) base."""

    protocol: Literal[1]
    strategy: Literal["codex-context-tree"]
    window_id: str
    boundary_entry_id: str
    summary_entry_id: str
    archived_leaf_id: str
    branch_base_id: str | None


class ManifestEntry(Struct, frozen=True):
    """A `custom` entry of type `ARCHIVE`."""

    data: Manifest


class SummaryEntry(Struct, frozen=True, rename="camel"):
    """A `branch_summary` entry."""

    id: str
    parent_id: str | None
    timestamp: str
    from_id: str
    summary: str


class Intent(Struct, frozen=True, rename="camel", tag_field="step", tag="request"):
    """A rollover that was asked for, with all that a restarted daemon needs to go on.

    `intentId` is a UUID of ours, so that it is known before Pi has given the entry its id. `cutId`
    is what Pi navigates to, `baseId` what the new branch hangs from, `leafId` the leaf at the time.
    """

    intent_id: str
    identity: WindowIdentity
    next: WindowIdentity
    boundary_id: str
    cut_id: str
    base_id: str | None
    leaf_id: str
    requested_at: int


class IntentClosed(Struct, frozen=True, rename="camel", tag_field="step", tag="close"):
    """A rollover that came to nothing, and why."""

    intent_id: str
    why: str


class IntentEntry(Struct, frozen=True):
    """A `custom` entry of type `INTENT`."""

    data: Intent | IntentClosed


class Note(Struct, frozen=True):
    """One write to a note; `timestamp` in ms."""

    protocol: Literal[1]
    action: Literal["append", "write"]
    path: str
    text: str
    timestamp: int


class NoteEntry(Struct, frozen=True):
    """A `custom` entry of type `NOTE`."""

    data: Note


class NoteFile(Struct, frozen=True, rename="camel"):
    """A note as a whole; times in ms."""

    path: str
    text: str
    created_at: int
    updated_at: int


class NoteSnapshot(Struct, frozen=True):
    """All notes at one time, sorted by path."""

    protocol: Literal[1]
    timestamp: int
    files: list[NoteFile]


class NoteSnapshotEntry(Struct, frozen=True):
    """A `custom` entry of type `NOTE_SNAPSHOT`."""

    data: NoteSnapshot


class FoldedTarget(Struct, frozen=True, rename="camel"):
    """One folded entry: what was put in its place (a hash of it), and its tokens before and after."""

    id: str
    hash: str
    tokens_before: int
    tokens_after: int


class ShakeLog(Struct, frozen=True, rename="camel"):
    """One run of `/shake` or `/shake undo`."""

    v: Literal[1]
    op: Literal["fold", "undo"]
    scope: str
    profile: str
    targets: list[FoldedTarget]
    leaf_at_plan: str | None
    version: str


class ShakeEntry(Struct, frozen=True):
    """A `custom` entry of type `SHAKE`."""

    data: ShakeLog


class Stamped(Struct, frozen=True):
    """Any entry, read for its time."""

    timestamp: str = ""


class Body(Struct, frozen=True, rename="camel"):
    """Any entry, read for rendering: a message, or the content of a custom message."""

    type: str
    id: str
    message: dict[str, Any] | None = None
    content: Any = None
    custom_type: str = ""
