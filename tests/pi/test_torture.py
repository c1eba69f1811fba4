"""One strike at each point that no other test has, in real Pi on both versions; `scripts/torture` goes on with it."""

from __future__ import annotations

import pytest

from pi.harness import PiHome
from pi.torture import POINTS, Point, Victim, endure

NAMES: dict[Victim, tuple[str, ...]] = {
    "pi": ("before the marker", "before a note is written", "and again, sealing"),
    "daemon": (
        *("during a call of notes", "during the tool call", "after session_tree"),
        *("before navigated is answered", "after the manifest", "during a fold"),
    ),
    "hung": ("during the tool call", "before navigated is answered"),
    "disk": (
        *("the intent", "the new_context result", "the thinking level", "what Pi declares before the marker"),
        *("the marker", "a held message", "a user message", "a note"),
    ),
}


def points(victim: Victim, version: str) -> list[Point]:
    chosen = [point for point in POINTS if point.victim == victim and point.name in NAMES[victim]]
    assert len(chosen) == len(NAMES[victim])
    return [point for point in chosen if version in point.versions]


@pytest.mark.parametrize("victim", NAMES)
def test_nothing_is_lost(home: PiHome, victim: Victim) -> None:
    """Seed, failure policy; design 4, steps 6 to 8, and 7. What "lost" means is told by `losses`."""
    suffered = list(endure(home, points(victim, home.version)))
    assert {str(point): fate.lost for point, fate in suffered if fate.lost} == {}
    assert len(suffered) == len(points(victim, home.version))
