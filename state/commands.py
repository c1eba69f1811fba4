"""What a person can type: `/context` and `/shake`, their subcommands and completions. What they do: `session`."""

from __future__ import annotations

from typing import Final

from protocol.effects import CommandSpec, Completion
from state.modes import AVAILABLE, MODES
from state.shake.command import SUBCOMMANDS as SHAKE

COMMANDS: Final = [
    CommandSpec("context", "Context windows: status, mode, rollover"),
    CommandSpec("shake", "Fold heavy content out of the model's sight; undo brings it back"),
]

SUBCOMMANDS: Final[dict[str, dict[str, str]]] = {
    "context": {
        "status": "Show windows, archives, notes and what is going on",
        "mode": "Show the modes, or choose one for the next session: off, local, tree",
        "rollover": "Start a new context window now, as the model's new_context does",
    },
    "shake": SHAKE,
}


_VALUES: Final = {
    ("context", "mode"): {mode: MODES[mode].about for mode in AVAILABLE},
    ("shake", "dry-run"): {
        "elide": "Tool results, code blocks and XML spans",
        "images": "All images",
        "thinking": "All reasoning",
    },
}
"""What may follow a subcommand."""


def completions(name: str, prefix: str) -> list[Completion]:
    """What begins with what is typed: subcommands, and the modes after `mode`."""
    known = dict(SUBCOMMANDS.get(name, {}))
    for (command, word), values in _VALUES.items():
        if command == name and prefix.lstrip().startswith(f"{word} "):
            known = {f"{word} {value}": about for value, about in values.items()}
    return [Completion(word, about) for word, about in known.items() if word.startswith(prefix.lstrip())]


def usage(name: str) -> str:
    """One line for each subcommand."""
    return "\n".join(f"/{name} {word}: {about}" for word, about in SUBCOMMANDS.get(name, {}).items())
