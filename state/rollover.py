"""The rollover machine: which step may follow which. Everything that decides this stands in `TRANSITIONS`.

Rules
- One rollover at a time. What a phase does not list is `NotAllowedError` and changes nothing.
- The intent is an entry of the session file, so a daemon that was restarted takes the step that is due
  (`RESUMED_*`). What no file holds, the shim tells it: whether the editor was blank, and who navigates.
- Order on disk: branch_summary, manifest, note snapshot, marker, continuation, held input (design 4).
- Until navigation has succeeded the old window stays as it is. After it no turn starts before manifest,
  snapshot and marker exist; if one of them cannot be written, the way back is the old leaf.

In local mode nothing navigates: `cut` leads from requested to sealing at once.

    idle ──asked──▶ requested ──settled──▶ navigating ──navigated──▶ sealing ──sealed──▶ continuing ──turn──▶ idle
                        │                      │ │                      │
                        └──gave_up──▶ idle ◀───┘ └──broke──▶ failed ◀───┘ ──returned──▶ idle
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, structs

from protocol.entries import Intent
from state.errors import NotAllowedError


class Phase(StrEnum):
    """Where a rollover stands."""

    IDLE = "idle"
    REQUESTED = "requested"
    """The intent is written and the run aborted; Pi has not settled yet."""
    NAVIGATING = "navigating"
    """Pi summarises the window and moves the leaf."""
    SEALING = "sealing"
    """Manifest, snapshot and marker are being appended."""
    CONTINUING = "continuing"
    """The marker is in; the model has not been asked yet."""
    FAILED = "failed"
    """The leaf was moved by a failure; Pi goes back to the old one."""


class Step(StrEnum):
    """What can happen to a rollover."""

    ASKED = "asked"
    SETTLED = "settled"
    CUT = "cut"
    SUMMARY = "summary"
    NAVIGATED = "navigated"
    SEALED = "sealed"
    TURN = "turn"
    GAVE_UP = "gave_up"
    BROKE = "broke"
    RETURNED = "returned"
    RESUMED_REQUEST = "resumed_request"
    RESUMED_NAVIGATION = "resumed_navigation"


TRANSITIONS: Final[dict[Phase, dict[Step, Phase]]] = {
    Phase.IDLE: {
        Step.ASKED: Phase.REQUESTED,
        Step.RESUMED_REQUEST: Phase.REQUESTED,
        Step.RESUMED_NAVIGATION: Phase.NAVIGATING,
    },
    Phase.REQUESTED: {
        Step.SETTLED: Phase.NAVIGATING,
        Step.CUT: Phase.SEALING,
        Step.GAVE_UP: Phase.IDLE,
    },
    Phase.NAVIGATING: {
        Step.SUMMARY: Phase.NAVIGATING,
        Step.NAVIGATED: Phase.SEALING,
        Step.SEALED: Phase.CONTINUING,
        Step.BROKE: Phase.FAILED,
        Step.GAVE_UP: Phase.IDLE,
    },
    Phase.SEALING: {
        Step.SEALED: Phase.CONTINUING,
        Step.BROKE: Phase.FAILED,
    },
    Phase.CONTINUING: {
        Step.TURN: Phase.IDLE,
    },
    Phase.FAILED: {
        Step.RETURNED: Phase.IDLE,
    },
}


class Rollover(Struct, frozen=True, kw_only=True):
    """The machine's whole value."""

    phase: Phase = Phase.IDLE
    intent: Intent | None = None
    old_leaf: str | None = None
    """The leaf that Pi navigates away from; None when another daemon sent it off."""
    summary_id: str | None = None
    blank_editor: bool = False
    """The editor was blank before navigation, so what Pi puts there is not the user's."""
    inherited: bool = False
    """The extension instance that navigates was replaced; its successor seals as soon as the summary comes."""

    @property
    def pending(self) -> bool:
        """Whether a rollover is under way and has not been sealed."""
        return self.phase in (Phase.REQUESTED, Phase.NAVIGATING, Phase.SEALING, Phase.FAILED)


def step(rollover: Rollover, happened: Step, **changes: Any) -> Rollover:  # noqa: ANN401 - field values
    """The rollover after this step, or `NotAllowedError`; back in `idle` everything is forgotten."""
    phase = TRANSITIONS[rollover.phase].get(happened)
    if phase is None:
        raise NotAllowedError(f"{happened} is not possible while the rollover is {rollover.phase}")
    if phase is Phase.IDLE:
        return Rollover()
    return structs.replace(rollover, phase=phase, **changes)
