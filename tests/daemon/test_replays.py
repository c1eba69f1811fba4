"""Every recording in tests/replays runs again with the same answers."""

from pathlib import Path

import pytest

from daemon.record import replay

FOLDER = Path(__file__).resolve().parent.parent / "replays"
RECORDINGS = sorted(FOLDER.glob("*.jsonl"))


def test_recordings_are_found_by_their_ending() -> None:
    assert isinstance(RECORDINGS, list)
    assert all(path.stat().st_size for path in RECORDINGS)


@pytest.mark.anyio
@pytest.mark.parametrize("path", RECORDINGS, ids=[path.stem for path in RECORDINGS])
async def test_a_recording_is_answered_as_it_was(path: Path) -> None:
    assert await replay(path.read_bytes()) is None
