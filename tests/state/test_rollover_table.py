"""The rollover machine: its table, step by step, and what a step that is not in it leaves behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.entries import Intent, WindowIdentity
from state.errors import NotAllowedError
from state.rollover import TRANSITIONS, Phase, Rollover, Step, step

LISTED = {
    ("idle", "asked"): "requested",
    ("idle", "resumed_request"): "requested",
    ("idle", "resumed_navigation"): "navigating",
    ("requested", "settled"): "navigating",
    ("requested", "cut"): "sealing",
    ("requested", "gave_up"): "idle",
    ("navigating", "summary"): "navigating",
    ("navigating", "navigated"): "sealing",
    ("navigating", "sealed"): "continuing",
    ("navigating", "broke"): "failed",
    ("navigating", "gave_up"): "idle",
    ("sealing", "sealed"): "continuing",
    ("sealing", "broke"): "failed",
    ("continuing", "turn"): "idle",
    ("failed", "returned"): "idle",
}

WINDOW = WindowIdentity(protocol=1, kind="window", first_window_id="w0", current_window_id="w0", window_number=0)
INTENT = Intent("i", WINDOW, WINDOW, "b", "b", None, "l", 1)


@pytest.mark.parametrize("happened", Step)
@pytest.mark.parametrize("phase", Phase)
def test_a_step_moves_as_listed_or_is_refused(phase: Phase, happened: Step) -> None:
    before = Rollover(phase=phase, intent=INTENT, old_leaf="l", summary_id="s", blank_editor=True)
    expected = LISTED.get((phase.value, happened.value))
    if expected is None:
        with pytest.raises(NotAllowedError):
            step(before, happened, summary_id="other")
        assert before == Rollover(phase=phase, intent=INTENT, old_leaf="l", summary_id="s", blank_editor=True)
    else:
        assert step(before, happened).phase == expected


def test_every_phase_can_be_reached_and_left() -> None:
    reached = {target for steps in TRANSITIONS.values() for target in steps.values()}
    assert reached == set(Phase) == set(TRANSITIONS)
    assert all(TRANSITIONS.values())


def test_a_step_carries_its_changes_and_keeps_the_rest() -> None:
    asked = step(Rollover(), Step.ASKED, intent=INTENT)
    departed = step(asked, Step.SETTLED, old_leaf="l", blank_editor=True)
    assert departed == Rollover(phase=Phase.NAVIGATING, intent=INTENT, old_leaf="l", blank_editor=True)
    assert step(departed, Step.SUMMARY, summary_id="s").summary_id == "s"


def test_back_in_idle_everything_is_forgotten() -> None:
    asked = step(Rollover(), Step.ASKED, intent=INTENT)
    assert step(asked, Step.GAVE_UP) == Rollover()


def test_a_rollover_is_pending_until_its_window_is_sealed() -> None:
    pending = {phase for phase in Phase if Rollover(phase=phase).pending}
    assert pending == {Phase.REQUESTED, Phase.NAVIGATING, Phase.SEALING, Phase.FAILED}


@given(st.lists(st.sampled_from(Step)))
def test_any_sequence_of_steps_follows_the_table(steps: list[Step]) -> None:
    rollover, phase = Rollover(), "idle"
    for happened in steps:
        expected = LISTED.get((phase, happened.value))
        if expected is None:
            with pytest.raises(NotAllowedError):
                step(rollover, happened)
        else:
            rollover, phase = step(rollover, happened), expected
        assert rollover.phase == phase
