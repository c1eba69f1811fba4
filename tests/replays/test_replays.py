"""The recordings in this folder: the daemon still gives each answer that it gave in real Pi."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from daemon.cli import cli
from daemon.replay import Difference, replay

# jsonrpcserver 5.0.9 reads its schema in a deprecated way, which warns twice on 3.11 and 3.12.
pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

HERE = Path(__file__).parent
RECORDINGS = sorted(HERE.glob("*.jsonl"))
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:(?:tmp|work|Users|private|var)/|root/(?!notes/)|home/(?!user/))")
"""`/root/notes/` is the name under which the model knows its notes."""


@pytest.fixture(params=RECORDINGS, ids=[file.stem for file in RECORDINGS])
def recording(request: pytest.FixtureRequest) -> bytes:
    path: Path = request.param
    return path.read_bytes()


def changed(recording: bytes, number: int, **answer: object) -> bytes:
    """The recording with other fields in the result of the answer on this line."""
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in recording.split(b"\n")[:-1]]
    lines[number - 1]["reply"]["result"].update(answer)
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def answers(recording: bytes) -> list[int]:
    """The numbers of the lines that are answers with a result."""
    lines = [msgspec.json.decode(line) for line in recording.split(b"\n")[:-1]]
    return [number for number, line in enumerate(lines, 1) if "result" in line.get("reply", ())]


@pytest.mark.anyio
async def test_every_answer_is_as_recorded(recording: bytes) -> None:
    assert await replay(recording) is None


@pytest.mark.anyio
async def test_a_changed_answer_is_found_with_its_line_and_path(recording: bytes) -> None:
    number = answers(recording)[-1]
    found = await replay(changed(recording, number, effects=[{"do": "abort"}]))
    assert found is not None
    assert (found.line, found.path, found.recorded) == (number, "$.result.effects", [{"do": "abort"}])


def test_a_recording_holds_no_path_of_the_machine_it_was_made_on(recording: bytes) -> None:
    assert MACHINE_PATH.findall(recording.decode()) == []


@pytest.mark.anyio
async def test_recordings_of_two_daemons_replay_alone_and_joined() -> None:
    recording = HERE.joinpath("two-rollovers-and-a-resume.jsonl").read_bytes()
    lines = recording.splitlines(keepends=True)
    begins = [at for at, line in enumerate(lines) if b'"method":"initialize"' in line]
    assert len(begins) == 2
    for part in (lines[: begins[1]], lines[begins[1] :], lines):
        assert await replay(b"".join(part)) is None


@pytest.mark.anyio
async def test_an_answer_without_its_request_differs() -> None:
    answer = b'{"from":"contextd","at":1,"reply":{"jsonrpc":"2.0","id":1,"result":{}}}\n'
    assert await replay(answer) == Difference(1, "$.jsonrpc", "2.0", None)


def test_the_command_tells_the_line_the_path_and_both_values(tmp_path: Path) -> None:
    file = HERE / "one-rollover.jsonl"
    recording = file.read_bytes()
    number = answers(recording)[-1]
    other = tmp_path / "other.jsonl"
    other.write_bytes(changed(recording, number, keep=[[0, 1]]))
    assert CliRunner().invoke(cli, ["replay", str(file)]).output == "one-rollover.jsonl: every answer is as recorded\n"
    result = CliRunner().invoke(cli, ["replay", str(other)])
    assert result.exit_code == 1
    assert result.output == (
        f"other.jsonl: line {number} differs at $.result.keep\n  recorded  [[0, 1]]\n  replayed  None\n"
    )


def test_the_command_refuses_a_file_that_is_no_recording(tmp_path: Path) -> None:
    session = tmp_path / "session.jsonl"
    session.write_text('{"type":"session","version":3}\n')
    result = CliRunner().invoke(cli, ["replay", str(session)])
    assert result.exit_code == 2
    assert "not a recording" in result.output
