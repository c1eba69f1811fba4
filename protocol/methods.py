"""The methods of the protocol: one table from a name on the wire to the shapes of parameters and reply."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol import effects as fx
from protocol import events as ev
from protocol.status import StatusReport


class Method(NamedTuple):
    """`reply` is None for what is only ever a notification."""

    params: type[ev.Event]
    reply: type[fx.Reply | fx.CompleteReply | fx.Initialized | StatusReport] | None


METHODS: Final[dict[str, Method]] = {
    "initialize": Method(ev.Initialize, fx.Initialized),
    "session_start": Method(ev.SessionStart, fx.Reply),
    "entries": Method(ev.Entries, None),
    "agent_settled": Method(ev.AgentSettled, fx.Reply),
    "navigated": Method(ev.Navigated, fx.Reply),
    "session_tree": Method(ev.SessionTree, fx.TreeReply),
    "effect_failed": Method(ev.EffectFailed, fx.Reply),
    "context": Method(ev.Context, fx.ContextReply),
    "session_before_compact": Method(ev.SessionBeforeCompact, fx.Verdict),
    "tool_execute": Method(ev.ToolExecute, fx.ToolReply),
    "cancel": Method(ev.Cancel, None),
    "command": Method(ev.Command, fx.Reply),
    "complete": Method(ev.Complete, fx.CompleteReply),
    "status": Method(ev.Status, StatusReport),
    "session_shutdown": Method(ev.SessionShutdown, fx.Reply),
    "shutdown": Method(ev.Shutdown, fx.Reply),
}
