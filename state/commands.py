"""What a person can type: `/context`, its subcommands and their completions. What they do: `session`."""

from __future__ import annotations

from typing import Final

from protocol.effects import CommandSpec, Completion
from state.modes import AVAILABLE, MODES

COMMANDS: Final = [CommandSpec("context", "Context windows: status, mode, rollover")]

SUBCOMMANDS: Final[dict[str, dict[str, str]]] = {
    "context": {
        "status": "Show windows, archives, notes and what is going on",
        "mode": "Show the modes, or choose one for the next session: off, local, tree",
        "rollover": "Start a new context window now, as the model's new_context does",
    },
}


def completions(name: str, prefix: str) -> list[Completion]:
    """What begins with what is typed: subcommands, and the modes after `mode`."""
    known = dict(SUBCOMMANDS.get(name, {}))
    if name == "context" and prefix.lstrip().startswith("mode "):
        known = {f"mode {mode}": MODES[mode].about for mode in AVAILABLE}
    return [Completion(word, about) for word, about in known.items() if word.startswith(prefix.lstrip())]


def usage(name: str) -> str:
    """One line for each subcommand."""
    return "\n".join(f"/{name} {word}: {about}" for word, about in SUBCOMMANDS.get(name, {}).items())
