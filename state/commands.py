"""What a person can type: `/context`, its subcommands and their completions. What they do: `session`."""

from __future__ import annotations

from typing import Final

from protocol.effects import CommandSpec, Completion

COMMANDS: Final = [CommandSpec("context", "Context windows: status, rollover")]

SUBCOMMANDS: Final[dict[str, dict[str, str]]] = {
    "context": {
        "status": "Show windows, archives, notes and what is going on",
        "rollover": "Start a new context window now, as the model's new_context does",
    },
}


def completions(name: str, prefix: str) -> list[Completion]:
    """The subcommands that begin with what is typed."""
    known = SUBCOMMANDS.get(name, {})
    return [Completion(word, about) for word, about in known.items() if word.startswith(prefix.lstrip())]


def usage(name: str) -> str:
    """One line for each subcommand."""
    return "\n".join(f"/{name} {word}: {about}" for word, about in SUBCOMMANDS.get(name, {}).items())
