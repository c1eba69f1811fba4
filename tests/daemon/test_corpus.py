"""Real session files, against what Pi 1.6.0 itself made of each of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.journal import Journal
from reading import everything
from state.tree import Tree

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
ORACLE = CORPUS / "pi-oracle.txt"

MIGRATED = ("01", "02", "03", "04", "11", "12")
"""Those that Pi migrates; to all of them but 04, whose version is 2, it gives random ids."""

pytestmark = pytest.mark.skipif(not ORACLE.exists(), reason="the corpus of real sessions is not beside the repository")


def oracle() -> dict[str, dict[str, Any]]:
    if not ORACLE.exists():
        return {}
    rows = (line.split(" ", 1) for line in ORACLE.read_text().splitlines())
    return {name: json.loads(values) for name, values in rows}


def read(path: Path) -> tuple[Journal, Tree]:
    journal = Journal(path)
    tree = Tree(journal.raw)
    journal.refresh(tree)
    return journal, tree


@pytest.mark.parametrize("name", sorted(oracle()))
def test_a_real_file_has_the_entries_the_leaf_the_branch_and_the_roots_that_pi_finds(name: str) -> None:
    expected = oracle()[name]
    journal, tree = read(CORPUS / name)
    roots = [head for head in tree.heads.values() if head.parent_id is None or head.parent_id not in tree.heads]
    found = {"entries": len(tree.heads), "branch": len(tree.branch(journal.leaf).heads), "roots": len(roots)}
    assert found == {key: expected[key] for key in found}
    if name[:2] not in MIGRATED or name.startswith("04"):
        assert journal.leaf == expected["leaf"]
    journal.close()


@pytest.mark.parametrize("name", sorted(oracle()))
def test_a_real_file_can_be_read_in_pieces(name: str, tmp_path: Path) -> None:
    raw = (CORPUS / name).read_bytes()
    whole, once = read(CORPUS / name)
    file = tmp_path / name
    file.write_bytes(b"")
    journal, tree = read(file)
    step = len(raw) // 7 + 1
    for start in range(0, len(raw), step):
        with file.open("ab") as appended:
            appended.write(raw[start : start + step])
        journal.refresh(tree)
    assert list(tree.heads.items()) == list(once.heads.items())
    assert (journal.leaf, journal.anomalies) == (whole.leaf, whole.anomalies)
    assert all(journal.raw(head) for head in tree.heads.values())
    journal.close()
    whole.close()


@pytest.mark.parametrize("name", sorted(oracle()))
def test_a_body_of_a_real_file_has_the_ids_of_the_index(name: str) -> None:
    journal, tree = read(CORPUS / name)
    for head in tree.heads.values():
        body = json.loads(journal.raw(head) or b"")
        assert (body["id"], body.get("parentId"), body["type"]) == (head.id, head.parent_id, head.type)
    journal.close()


@pytest.mark.parametrize("name", sorted(oracle()))
def test_all_that_can_be_asked_of_a_real_file_is_answered(name: str) -> None:
    assert everything(CORPUS / name).entries == oracle()[name]["entries"]


def test_a_compaction_of_the_first_version_keeps_from_an_entry_and_not_from_a_position() -> None:
    """Facts: real-sessions 2, row 10."""
    journal, tree = read(CORPUS / "01-v1-two-compactions.jsonl")
    lines = (CORPUS / "01-v1-two-compactions.jsonl").read_bytes().split(b"\n")
    compactions = [head for head in tree.heads.values() if head.type == "compaction"]
    assert len(compactions) == 2
    for head in compactions:
        index = json.loads(lines[int(head.id, 16)])["firstKeptEntryIndex"]
        body = json.loads(journal.raw(head) or b"")
        assert body["firstKeptEntryId"] == head.tag
        assert "firstKeptEntryIndex" not in body
        kept = json.loads(journal.raw(tree.heads[head.tag]) or b"")
        assert kept["timestamp"] == json.loads(lines[index])["timestamp"]
    journal.close()
