"""A small portion of `scripts/fuzz lines`, with a seed that does not change."""

from pathlib import Path

from lines import DOING, Tally, live
from protocol.methods import METHODS

LINES = 2_000


def test_a_daemon_bears_all_that_no_peer_should_send(tmp_path: Path) -> None:
    """Neither a crash, nor a hang, nor an internal error, and nothing on stderr (design 7)."""
    tally = Tally()
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        trouble, _sent = live(seed, folder, tally, LINES // 2)
        assert trouble is None, f"seed {seed}: {trouble}"
    assert set(METHODS) <= {*tally.tried, "shutdown"}
    assert len(set(DOING) & set(tally.effects)) > 10, "the sessions must be played, or nothing is tried"
