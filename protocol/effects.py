"""What the daemon lets the shim do, in order, and the replies that carry it.

An effect is a verb of Pi's extension API with its arguments; the shim performs it without deciding anything.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Effect(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="do"):
    """Base of all effects; `do` tells them apart."""


class Capture(Effect, frozen=True, kw_only=True, tag="capture"):
    """Take a command context, the only one that can navigate (facts: pi-lifecycle 3)."""


class AppendEntry(Effect, frozen=True, kw_only=True, tag="append_entry"):
    """Append a custom entry, which the model never sees."""

    custom_type: str
    data: Any


class AppendMessage(Effect, frozen=True, kw_only=True, tag="append_message"):
    """Append a custom message, which the model sees.

    `startTurn` lets the model go on from it; `steer` puts it before the next request of a run, which on Pi
    0.85 would otherwise not see it. `releaseAfter` names the `details.id` whose arrival in the session frees
    held input.
    """

    custom_type: str
    content: str
    details: Any
    start_turn: bool = False
    steer: bool = False
    release_after: str | None = None


class Replacement(Struct, frozen=True):
    """What the model is to see in place of an entry's content."""

    content: Any


class ExpectLeaf(Effect, frozen=True, kw_only=True, tag="expect_leaf"):
    """Throw unless this is the leaf and nothing runs: what follows was planned for just that."""

    leaf_id: str | None


class AppendContextEdit(Effect, frozen=True, kw_only=True, tag="append_context_edit"):
    """Lay an overlay on an entry (Pi 0.87 or newer)."""

    target_id: str
    replacement: Replacement


class Choose(Effect, frozen=True, kw_only=True, tag="choose"):
    """Let the user choose; the answer comes back as the command with these arguments."""

    title: str
    options: dict[str, str]
    command: str


class AppendThinkingLevel(Effect, frozen=True, kw_only=True, tag="append_thinking_level"):
    """Record the thinking level on this branch; the level in force does not change."""

    level: str


class AppendModel(Effect, frozen=True, kw_only=True, tag="append_model"):
    """Record the model on this branch; the model in force does not change."""

    provider: str
    model_id: str


class Navigate(Effect, frozen=True, kw_only=True, tag="navigate"):
    """Move the leaf. What came of it is reported as `navigated` with the same `intentId`.

    `status` stands in Pi's status line meanwhile. `blankEditor` comes back in `inFlight`: what Pi puts into the
    editor is then not the user's.
    """

    target_id: str
    intent_id: str | None
    summarize: bool = False
    status: str | None = None
    blank_editor: bool = False


class Abort(Effect, frozen=True, kw_only=True, tag="abort"):
    """Abort the agent's run."""


class HoldInput(Effect, frozen=True, kw_only=True, tag="hold_input"):
    """Keep what the user submits until it is released."""


class ReleaseInput(Effect, frozen=True, kw_only=True, tag="release_input"):
    """Stop holding: `run` sends what was held, in order; `editor` puts it where it was typed."""

    to: Literal["run", "editor"]


class Resend(Effect, frozen=True, kw_only=True, tag="resend"):
    """Put the content of a user message at the head of what is held; entries are named oldest first."""

    entry_ids: list[str]


class AwaitIdle(Effect, frozen=True, kw_only=True, tag="await_idle"):
    """Wait until every run that began meanwhile has settled, so that print and json mode do not exit."""


class SetEditor(Effect, frozen=True, kw_only=True, tag="set_editor"):
    """Set the editor's text, if it is `ifText` now."""

    text: str
    if_text: str


class Notify(Effect, frozen=True, kw_only=True, tag="notify"):
    """Show a line to the user."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


class Emit(Effect, frozen=True, kw_only=True, tag="emit"):
    """Emit on Pi's extension bus."""

    channel: str
    data: Any


AnyEffect = (
    Capture
    | AppendEntry
    | AppendMessage
    | ExpectLeaf
    | AppendContextEdit
    | Choose
    | AppendThinkingLevel
    | AppendModel
    | Navigate
    | Abort
    | HoldInput
    | ReleaseInput
    | Resend
    | AwaitIdle
    | SetEditor
    | Notify
    | Emit
)


class Need(Struct, frozen=True, rename="camel"):
    """Send the entries that follow the one with this id (null: all), then ask again.

    By id and not by number: the two Pi versions count duplicate ids differently (facts: pi-lifecycle 21).
    """

    after: str | None


class Reply(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The answer to an event: what to do, or what is lacking."""

    effects: list[AnyEffect] = []
    need: Need | None = None


class TreeReply(Reply, frozen=True, kw_only=True):
    """`internal`: the navigation was ours, runtime state that hangs on the branch stays as it is."""

    internal: bool = False


class ContextReply(Reply, frozen=True, kw_only=True):
    """`keep` lists the ranges [from, to) of messages that stay; null keeps all."""

    keep: list[tuple[int, int]] | None = None


class Verdict(Reply, frozen=True, kw_only=True):
    """The answer to `session_before_compact`. `unfold` names entries that are to be summarised in full."""

    cancel: bool = False
    unfold: list[str] = []


class ToolReply(Reply, frozen=True, kw_only=True):
    """A tool's result; `isError` makes it a failed call."""

    text: str = ""
    details: dict[str, Any] = {}
    is_error: bool = False


class Completion(Struct, frozen=True, rename="camel"):
    """One completion of a command's argument."""

    value: str
    description: str


class CompleteReply(Struct, frozen=True):
    """The completions, best first."""

    items: list[Completion]


class ToolSpec(Struct, frozen=True, rename="camel"):
    """A tool to register: its JSON schema, and whether Pi may run its calls side by side."""

    name: str
    label: str
    description: str
    parameters: dict[str, Any]
    sequential: bool


class CommandSpec(Struct, frozen=True, rename="camel"):
    """A slash command to register."""

    name: str
    description: str


class Initialized(Struct, frozen=True, rename="camel"):
    """What the shim is to register, and who answers."""

    protocol: int
    version: str
    mode: str
    tools: list[ToolSpec]
    commands: list[CommandSpec]
    renderers: list[str]
