"""`pi-contextd inspect FILE --shake`: the figures of every scope, whatever stands in the session."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders import Json, PiSession
from daemon.cli import cli
from state.shake.planner import SCOPES

MARKUP = "[bold red]x[/] [/nothing] [link=file:///etc]y[/link] :warning: \x1b[31mred\x1b[0m \x07"


def words(tokens: int) -> str:
    return "word" * tokens


def result(pi: PiSession, number: int, text: str, tool: str = "bash") -> str:
    call = {"type": "toolCall", "id": f"c{number}", "name": tool, "arguments": {"command": text[:80]}}
    pi.message("assistant", [{"type": "thinking", "thinking": words(50)}, call], stopReason="toolUse")
    content: list[Json] = [{"type": "text", "text": text}]
    return pi.message("toolResult", content, toolCallId=f"c{number}", toolName=tool, isError=False)


@pytest.fixture
def pi() -> PiSession:
    """Two results of 1,000 tokens and one image, out of the tail of the default profile but not the conservative."""
    pi = PiSession()
    pi.message("user", [{"type": "text", "text": "go"}, {"type": "image", "data": "AA==", "mimeType": "image/png"}])
    for number in range(2):
        result(pi, number, words(1_000))
    pi.assistant("done")
    pi.user(words(5_000))
    pi.assistant("done")
    return pi


def inspect(pi: PiSession, folder: Path, *options: str, name: str = "session.jsonl") -> Result:
    file = folder / name
    pi.write(file)
    before = file.read_bytes()
    done = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(cli, ["inspect", str(file), "--shake", *options])
    assert file.read_bytes() == before, "a look changes nothing"
    return done


def rows(done: Result) -> dict[str, list[str]]:
    """The figures by scope."""
    assert done.exit_code == 0, done.output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.output.splitlines() if "│" in line]
    return {row[0]: row[1:] for row in cells if row[0] in SCOPES}


def test_every_scope_has_its_figures(pi: PiSession, tmp_path: Path) -> None:
    done = inspect(pi, tmp_path)
    assert rows(done) == {
        "elide": ["2", "2 results", "2,000", "30", "1,970"],
        "images": ["1", "1 images", "1,201", "14", "1,187"],
        "thinking": ["2", "2 thinking", "150", "50", "100"],
    }
    assert "session.jsonl  the model sees ~8,353 tokens in 8 messages; 0 entries are folded" in done.output


def test_the_profile_can_be_chosen(pi: PiSession, tmp_path: Path) -> None:
    assert rows(inspect(pi, tmp_path, "--profile", "conservative"))["elide"][0] == "0"
    assert rows(inspect(pi, tmp_path, "--profile", "aggressive"))["elide"][0] == "2"
    assert inspect(pi, tmp_path, "--profile", "reckless").exit_code == 2


def test_another_branch_can_be_asked_for(pi: PiSession, tmp_path: Path) -> None:
    done = inspect(pi, tmp_path, "--leaf", pi.entries[0]["id"])
    assert [rows(done)[scope][0] for scope in SCOPES] == ["0", "1", "0"]


def test_a_leaf_that_is_not_there_is_told(pi: PiSession, tmp_path: Path) -> None:
    done = inspect(pi, tmp_path, "--leaf", "ffffffff")
    assert done.exit_code == 2
    assert "ffffffff" in done.output


def test_with_all_every_target_is_named(pi: PiSession, tmp_path: Path) -> None:
    done = inspect(pi, tmp_path, "--all")
    assert done.exit_code == 0
    results = [entry["id"] for entry in pi.entries if entry.get("message", {}).get("role") == "toolResult"]
    assert len(results) == 2
    assert all(entry_id in done.output for entry_id in results), "however long the content beside it"
    short = inspect(pi, tmp_path)
    assert not any(entry_id in short.output for entry_id in results)


def test_what_looks_like_markup_or_controls_the_terminal_is_harmless(pi: PiSession, tmp_path: Path) -> None:
    """Session text is untrusted wherever it is shown (design 7)."""
    target = result(pi, 8, MARKUP * 100, tool="[/] [blink]tool")
    pi.message("user", [{"type": "text", "text": f"{MARKUP}\n```\n{words(900)}\n```"}])
    pi.assistant(words(5_000))
    done = inspect(pi, tmp_path, "--all", name="[bold]a[red].jsonl")
    assert done.exit_code == 0, done.output
    assert target in done.output
    assert "[/nothing]" in done.output
    assert "[bold]a[red].jsonl" in done.output
    assert "\x1b" not in done.output
    assert "\x07" not in done.output


@pytest.mark.parametrize("data", [b"", b"\n\n", b"no json\n", b'{"type":"session","version":3,"id":"x"}\n'])
def test_a_file_without_entries_has_nothing_to_fold(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(data)
    done = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["inspect", str(file), "--shake", "--all"])
    assert [rows(done)[scope][0] for scope in SCOPES] == ["0", "0", "0"]
