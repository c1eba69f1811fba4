"""What Pi reads from a file is what we read: entries, leaf, branch and roots, against its own SessionManager.

Pi refuses some files and would never come to an end with others; those we survive, and there is nothing to compare.
"""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from daemon.journal import Journal
from generate import DAMAGES, damages_of, mixture, spoiled
from pi.harness import HERE, NODE, NODE_MODULES
from state.tree import Tree

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
MANAGER = NODE_MODULES / "pi-1.6.0" / "dist" / "core" / "session-manager.js"
ALONE = 12
"""Files with each damage alone; the rest has what its seed brings."""
FILES = 3_000

Json = dict[str, Any]


def pi_reads(files: Sequence[Path], folder: Path) -> list[Json]:
    """One Node for all files, which it may rewrite."""
    names = folder / "files.txt"
    names.write_text("".join(f"{file}\n" for file in files))
    command = [NODE, HERE / "reader.mjs", MANAGER, names]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr.decode()[-3000:]
    return [json.loads(line) for line in ran.stdout.split(b"\n") if line]


def we_read(file: Path) -> Json:
    """The same facts as reader.mjs tells."""
    journal = Journal(file)
    tree = Tree(journal.raw)
    try:
        journal.refresh(tree)
        heads = tree.heads
        branch = tree.path(journal.leaf)
        position = {entry_id: at for at, entry_id in enumerate(heads)}
        migration = journal._migration
        return {
            "linear": migration is not None and migration.linear,
            "order": list(heads),
            "facets": {
                head.id: (head.type, head.kind, position.get(head.tag) if head.type == "compaction" else None)
                for head in heads.values()
            },
            "leaf": journal.leaf,
            "branch": [head.id for head in branch.heads],
            "roots": {
                head.id for head in heads.values() if head.parent_id in (None, head.id) or head.parent_id not in heads
            },
            "parentless": {head.id for head in heads.values() if head.parent_id is None},
        }
    finally:
        journal.close()


def identity(value: Any) -> str | None:
    """An id of Pi's as ours; None for what can name no entry: nothing can be its child, and it cannot be the leaf."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool | int | float) and value:
        return {True: "true"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    return None


def text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def differences(pi: Json, ours: Json) -> Iterator[str]:
    """What differs, in the order of what it says about the rest."""
    order = [identity(entry_id) for entry_id in pi["order"]]
    renamed: Callable[[Any], str | None] = identity
    if ours["linear"]:
        if len(order) != len(ours["order"]):
            yield f"entries: {len(order)} for Pi, {len(ours['order'])} for us"
            return
        renamed = dict(zip(order, ours["order"], strict=True)).get
    named = [entry_id for entry_id in map(renamed, pi["order"]) if entry_id is not None]
    nameless = len(pi["order"]) - len(named)
    leaf = renamed(pi.get("leaf"))
    # From an id that is a list or an object Pi can walk, but there is no name for it that could reach us.
    branch = [] if leaf is None else [renamed(one) for one in pi["branch"]]
    facts: Sequence[tuple[str, Any, Any]] = (
        ("ids", set(named), set(ours["order"])),
        ("leaf", leaf, ours["leaf"]),
        ("branch", None if pi["endless"] else branch, ours["branch"]),
    )
    for name, theirs, mine in facts:
        if theirs is not None and theirs != mine:
            yield f"{name}: {theirs} for Pi, {mine} for us"
    for entry_id, entry_type, kind, kept in pi["facets"]:
        entry = renamed(entry_id)
        found = ours["facets"].get(entry)
        expected = (text(entry_type), text(kind), kept if ours["linear"] else found and found[2])
        if entry is not None and found != expected:
            yield f"entry {entry}: {expected} for Pi, {found} for us"
    roots = {root for root in map(renamed, pi["roots"]) if root is not None}
    missing, more = roots - ours["roots"], ours["roots"] - roots
    if nameless:
        more -= ours["parentless"]  # in its tree these are children of the last entry without an id
    if missing or more:
        yield f"roots: {missing} for Pi alone, {more} for us alone"


def compare(files: Sequence[Path], folder: Path) -> tuple[Counter[str], dict[str, list[str]]]:
    """Count what was compared, and tell of each file what differs."""
    ours = [we_read(file) for file in files]
    counts: Counter[str] = Counter()
    found: dict[str, list[str]] = {}
    for file, mine, theirs in zip(files, ours, pi_reads(files, folder), strict=True):
        counts["files"] += 1
        if "refused" in theirs:
            counts["refused by Pi"] += 1
            continue
        counts["compared"] += 1
        counts["entries"] += theirs["count"]
        counts["linear"] += mine["linear"]
        counts["branch without end in Pi"] += theirs["endless"]
        counts["with Pi's own getTree"] += theirs["asked"]
        told = list(differences(theirs, mine))
        if told:
            found[file.name] = [one[:300] for one in told[:4]]
    counts["files that differ"] = len(found)
    return counts, found


def test_pi_and_we_read_the_same_from_generated_and_damaged_files(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    files = []
    for number in range(FILES):
        alone = list(DAMAGES)[number // ALONE : number // ALONE + 1]
        made, damages = (spoiled(number, alone), alone) if alone else (mixture(number), damages_of(number))
        file = tmp_path / f"{number:05}-{'+'.join(damages)[:120].replace(' ', '_')}.jsonl"
        file.write_bytes(made.raw())
        files.append(file)
    counts, found = compare(files, tmp_path)
    record_property("reader", dict(counts))
    assert found == {}
    assert counts["compared"] > FILES * 0.7


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real sessions is not beside the repository")
def test_pi_and_we_read_the_same_from_real_files(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    files = [Path(shutil.copy(file, tmp_path)) for file in sorted(CORPUS.glob("*.jsonl"))]
    counts, found = compare(files, tmp_path)
    record_property("reader", dict(counts))
    assert found == {}
    assert counts["compared"] == len(files)
