"""The four modes: what each is, which tools it has, and what leaving one costs (seed: "Mode model")."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

ModeName = Literal["off", "local", "tree", "remote"]


class Mode(Struct, frozen=True):
    """`managed`: there are windows, markers and tools."""

    name: ModeName
    about: str
    managed: bool


MODES: Final[dict[str, Mode]] = {
    "off": Mode("off", "no context windows and no context tools", managed=False),
    "local": Mode(
        "local", "windows on one branch; the model sees the latest, history and notes the others", managed=True
    ),
    "tree": Mode("tree", "finished windows move to side branches; summaries are kept but hidden", managed=True),
    "remote": Mode("remote", "Codex' own history and notes service; not available in this version", managed=True),
}
DEFAULT: Final[ModeName] = "tree"
AVAILABLE: Final = ("off", "local", "tree")

LEAVING_TREE: Final = (
    "Leaving tree: off shows the model the summaries of archived windows, which were hidden, and takes history and "
    "notes away; local shows it everything from the latest marker on and keeps both. A session that was managed so "
    "far is not certain to go on well. Safe way out: run /compact in it first, which sums up archived windows and "
    "the current one, or let it finish in tree; new sessions are not affected."
)


def describe(current: str, chosen: str) -> str:
    """All modes, one line each; `current` is this session's, `chosen` that of the next one."""
    lines = [f"{'▸' if mode.name == current else ' '} {mode.name:<7} {mode.about}" for mode in MODES.values()]
    if chosen != current:
        lines.append(f"From the next session on: {chosen}.")
    lines.append(f"Change it with /context mode {'|'.join(AVAILABLE)}; it counts from the next session on.")
    if current == "tree":
        lines.append(LEAVING_TREE)
    return "\n".join(lines)
