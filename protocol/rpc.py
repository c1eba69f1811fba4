"""The JSON-RPC envelope, the protocol version and the error codes.

One UTF-8 object a line, split on LF only. Nothing here knows a method's parameters: see `events`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

PROTOCOL: Final = 1
"""The version that `initialize` must name; a shim that speaks another one is refused."""

MAX_LINE: Final = 64 * 1024 * 1024
"""The longest line, in bytes without its LF, that is read. A longer one is refused and skipped to its LF."""

MAX_ID: Final = 256
"""The longest text that a request may have as its id: every answer says it again."""

# JSON-RPC 2.0 fixes these five.
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

# -32000 to -32099 are ours. Allot downwards, never reuse a number: shims in the field compare them.
BUSY: Final = -32000
"""Too many requests wait in this session; the peer should wait for answers."""
LINE_TOO_LONG: Final = -32001
"""The line was longer than `MAX_LINE`; it was skipped."""
PROTOCOL_MISMATCH: Final = -32002
"""`initialize` named a protocol version that this daemon does not speak."""
UNKNOWN_SESSION: Final = -32003
"""An event for a session that no `session_start` announced."""
NOT_ALLOWED: Final = -32004
"""The event does not fit the state that the session is in; nothing was changed."""
NOT_INITIALIZED: Final = -32005
"""A session event came before `initialize`."""

BAD_SETTINGS: Final = -32006
"""A setting has a value that is not allowed; the text names those that are."""


class Envelope(Struct, frozen=True):
    """What every line must be. A request has a `method` and an `id`, a notification no `id`."""

    jsonrpc: Literal["2.0"]
    method: str
    id: int | Annotated[str, Meta(max_length=MAX_ID)] | UnsetType | None = UNSET
    params: dict[str, Any] = {}


class ErrorObject(Struct, frozen=True):
    """`message` names a path and a rule, never content."""

    code: int
    message: str


class ErrorReply(Struct, frozen=True, kw_only=True):
    """The answer to what could not be dispatched; `id` is null when none could be read."""

    jsonrpc: Literal["2.0"] = "2.0"
    error: ErrorObject
    id: int | str | None = None


class Ready(Struct, frozen=True):
    """The params of the one notification that the daemon sends, `ready`: it can be asked from now on."""

    protocol: int
    version: str
    pid: int
