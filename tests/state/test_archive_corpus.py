"""Archives in a file that Pi 1.6.0 itself wrote, as it is and damaged in many ways (facts: tree-upstream 4.1).

Its manifests call the base of the branch their boundary, as a cut at something else than a message leaves it. Its
markers lack most of their details; so these are made whole first, and read once as they are.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import FACTS, SESSION_ID, Json, head_of, marker_details, outline_item, uuids
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, WINDOW
from protocol.status import StatusReport
from state.archive import Archive
from state.history import shelf
from state.moment import Moment
from state.session import Session
from state.status import render, report
from state.tree import Tree

FILE = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "14-derived-v3-tree.jsonl"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the corpus of real sessions is not beside the repository")

LEAF = "859b2bef"
WINDOWS = ["w0", "w1", "w2"]
SUMMARIES = ["0e3e2395", "072e7b59", "3d29be8e"]
ENTRIES = [575, 40, 40]
ITEMS = [494, 41, 41]
"""With the summary."""


def read() -> list[Json]:
    lines = FILE.read_bytes().split(b"\n")
    return [entry for line in lines if line and (entry := json.loads(line))["type"] != "session"]


def manifests(entries: list[Json]) -> list[Json]:
    return [entry for entry in entries if entry.get("customType") == ARCHIVE]


def path(entries: list[Json], leaf: str | None, base: str | None = None) -> list[Json]:
    """From the leaf up to the base, which is left out; oldest first."""
    known = {entry["id"]: entry for entry in entries}
    found = []
    while leaf is not None and leaf != base:
        found.append(known[leaf])
        leaf = known[leaf]["parentId"]
    return found[::-1]


def interval(entries: list[Json], manifest: Json) -> list[Json]:
    return path(entries, manifest["data"]["archivedLeafId"], manifest["data"]["branchBaseId"])


def whole() -> list[Json]:
    entries = read()
    for number, marker in enumerate(entry for entry in entries if entry.get("customType") == WINDOW):
        marker["details"] = marker_details(number + 1)
    return entries


class Read:
    """What a session makes of these entries, written to a file and read back as lines."""

    def __init__(self, entries: list[Json]) -> None:
        lines = [json.dumps(entry).encode() for entry in entries]
        kept = {entry["id"]: line for entry, line in zip(entries, lines, strict=True)}
        self.tree = Tree(lambda head: kept.get(head.id))
        self.tree.add(head_of(entry) for entry in entries)
        self.session = Session(SESSION_ID, self.tree, ui="tui")
        self.branch = self.tree.branch(LEAF)

    def status(self) -> StatusReport:
        return report(SESSION_ID, self.session.windows, self.branch, FACTS)

    def reasons(self) -> list[tuple[str | None, str | None]]:
        return [(archive.window_id, archive.unavailable) for archive in self.status().archives]

    def counts(self) -> dict[str, int]:
        """The items of every archived window that history lists."""
        found = shelf(self.tree, self.branch, self.session.archives.of(self.branch))
        return {window.id: window.size for window in found.windows if window.summary}

    def hidden(self) -> list[str]:
        """The summaries of the branch whose messages the projection takes away."""
        heads = [head for head in self.branch.heads if head.type == "branch_summary"]
        shown = [json.loads(self.tree.raw(head) or b"") for head in heads]
        outline = [item for at, entry in enumerate(shown) if (item := outline_item(at, entry)) is not None]
        event = ev.Context(session_id=SESSION_ID, leaf_id=LEAF, count=len(shown), outline=outline)
        reply = self.session.handle(event, Moment(now=1, new_id=uuids(), host=FACTS))
        assert isinstance(reply, fx.ContextReply)
        kept = range(len(shown)) if reply.keep is None else [at for a, b in reply.keep for at in range(a, b)]
        return [entry["id"] for at, entry in enumerate(shown) if at not in kept]


def test_one_leaf_has_all_three_manifests_on_its_branch() -> None:
    entries = read()
    parents = {entry["parentId"] for entry in entries}
    leaves = [entry["id"] for entry in entries if entry["id"] not in parents]
    assert len(leaves) == 7
    assert [leaf for leaf in leaves if len(manifests(path(entries, leaf))) == 3] == [LEAF]


def test_three_archives_hold_exactly_what_a_plain_walk_finds() -> None:
    entries = whole()
    found = Read(entries)
    archives = found.session.archives.of(found.branch)
    assert all(isinstance(archive, Archive) for archive in archives)
    walked = [[entry["id"] for entry in interval(entries, manifest)] for manifest in manifests(entries)]
    assert [[head.id for head in one.items] for one in archives if isinstance(one, Archive)] == walked
    assert [len(one) for one in walked] == ENTRIES
    assert [(one.window_id, one.items, one.hidden) for one in found.status().archives] == [
        (window, count, True) for window, count in zip(WINDOWS, ENTRIES, strict=True)
    ]
    messages = [sum(one["type"] == "message" for one in interval(entries, m)) + 1 for m in manifests(entries)]
    assert messages == ITEMS
    assert found.counts() == dict(zip(WINDOWS, ITEMS, strict=True))
    assert found.hidden() == SUMMARIES


def test_a_marker_without_its_details_hides_nothing() -> None:
    """A summary goes only when a window that the model knows of has begun after it (design 5)."""
    entries = whole()
    for marker in [entry for entry in entries if entry.get("customType") == WINDOW][1:]:
        marker["details"] = {"windowNumber": 2}
    found = Read(entries)
    assert found.hidden() == SUMMARIES[:1]
    assert [archive.hidden for archive in found.status().archives] == [True, False, False]


def test_the_file_as_it_stands_has_three_archives_and_hides_nothing_for_want_of_whole_markers() -> None:
    found = Read(read())
    assert found.reasons() == [(window, None) for window in WINDOWS]
    assert found.hidden() == []
    assert found.counts() == dict(zip(WINDOWS, ITEMS, strict=True))


# Damages: each changes the entries of the window whose manifest is given, in a copy of the file

Damage = Callable[[list[Json], Json], None]


def entry_of(entries: list[Json], entry_id: str) -> Json:
    return next(entry for entry in entries if entry["id"] == entry_id)


def claims(key: str, value: Any) -> Damage:
    def damage(_entries: list[Json], manifest: Json) -> None:
        manifest["data"][key] = value

    return damage


def wrong_from_id(entries: list[Json], manifest: Json) -> None:
    """As Pi before 0.84.3 wrote it (facts: tree-upstream 8.2, row 1)."""
    entry_of(entries, manifest["data"]["summaryEntryId"])["fromId"] = manifest["data"]["branchBaseId"]


def missing_parent(entries: list[Json], manifest: Json) -> None:
    entries.remove(interval(entries, manifest)[20])


def missing_leaf(entries: list[Json], manifest: Json) -> None:
    entries.remove(interval(entries, manifest)[-1])


def cycle(entries: list[Json], manifest: Json) -> None:
    walked = interval(entries, manifest)
    walked[5]["parentId"] = walked[30]["id"]


def self_parent(entries: list[Json], manifest: Json) -> None:
    walked = interval(entries, manifest)
    walked[20]["parentId"] = walked[20]["id"]


def other_root(entries: list[Json], manifest: Json) -> None:
    interval(entries, manifest)[0]["parentId"] = None


def duplicate_summary(entries: list[Json], manifest: Json) -> None:
    """The id of the summary again, for another one; the later counts (facts: tree-upstream 9)."""
    summary = entry_of(entries, manifest["data"]["summaryEntryId"])
    entries.append({**summary, "fromId": "ffffffff", "summary": "another"})


def label_between(entries: list[Json], manifest: Json) -> None:
    label = {"type": "label", "id": "1abe1000", "parentId": manifest["parentId"], "timestamp": "", "targetId": "x"}
    entries.insert(entries.index(manifest), label)
    manifest["parentId"] = "1abe1000"


def boundary_outside(entries: list[Json], manifest: Json) -> None:
    manifest["data"]["boundaryEntryId"] = path(entries, manifest["data"]["branchBaseId"])[0]["id"]


def summary_is_none(entries: list[Json], manifest: Json) -> None:
    entry_of(entries, manifest["data"]["summaryEntryId"])["type"] = "compaction"


def no_summary(entries: list[Json], manifest: Json) -> None:
    """Its entry is gone and what hung from it hangs from its base, so that the branch stays whole."""
    summary = entry_of(entries, manifest["data"]["summaryEntryId"])
    entries.remove(summary)
    manifest["parentId"] = summary["parentId"]


def beside(entries: list[Json], manifest: Json) -> None:
    """It hangs from the base, as its summary does."""
    summary = entry_of(entries, manifest["data"]["summaryEntryId"])
    manifest["parentId"] = summary["parentId"]


def malformed(_entries: list[Json], manifest: Json) -> None:
    manifest["data"] = {**manifest["data"], "archivedLeafId": 7}


def no_data(_entries: list[Json], manifest: Json) -> None:
    del manifest["data"]


DAMAGES: dict[str, tuple[Damage, str]] = {
    "wrong fromId": (wrong_from_id, "the summary is of another leaf"),
    "missing parent": (missing_parent, "entry {parent} is missing"),
    "missing leaf": (missing_leaf, "entry {leaf} is missing"),
    "parent cycle": (cycle, "the path is a cycle at {thirtieth}"),
    "parent of itself": (self_parent, "the path is a cycle at {parent}"),
    "another root": (other_root, "the archived leaf does not descend from the branch base"),
    "duplicate summary": (duplicate_summary, "the summary is of another leaf"),
    "manifest beside its summary": (beside, "the manifest does not follow its summary"),
    "missing summary": (no_summary, "the summary is missing"),
    "summary that is none": (summary_is_none, "what the manifest calls a summary is none"),
    "wrong base": (claims("branchBaseId", "ffffffff"), "the summary has another base"),
    "no base": (claims("branchBaseId", None), "the summary has another base"),
    "boundary outside the interval": (boundary_outside, "the boundary is not in the archived interval"),
    "unknown boundary": (claims("boundaryEntryId", "ffffffff"), "the boundary is not in the archived interval"),
    "empty window id": (claims("windowId", ""), "the manifest names no window"),
    "malformed manifest": (malformed, "the manifest is malformed"),
    "another strategy": (claims("strategy", "other"), "the manifest is malformed"),
    "no data": (no_data, "the manifest is malformed"),
}
NAMELESS = {"malformed manifest": None, "another strategy": None, "no data": None, "empty window id": ""}


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_costs_one_archive_says_why_and_shows_its_summary(name: str, which: int) -> None:
    entries = whole()
    manifest = manifests(entries)[which]
    walked = interval(entries, manifest)
    places = {"parent": walked[20]["id"], "leaf": walked[-1]["id"], "thirtieth": walked[30]["id"]}
    damage, why = DAMAGES[name]
    damage(entries, manifest)
    why = why.format(**places)
    found = Read(entries)
    lost = NAMELESS.get(name, WINDOWS[which])
    others = [at for at in range(3) if at != which]
    assert found.reasons() == [(lost, why) if at == which else (WINDOWS[at], None) for at in range(3)]
    assert found.counts() == {WINDOWS[at]: ITEMS[at] for at in others}
    assert [found.status().archives[at].items for at in others] == [ENTRIES[at] for at in others]
    assert found.hidden() == [SUMMARIES[at] for at in others]
    text = render(found.status())
    assert f"{lost or 'manifest ' + manifest['id']} · unavailable: {why}" in text
    assert all(f"{WINDOWS[at]} · {ENTRIES[at]:,} items · summary hidden" in text for at in others)


@pytest.mark.parametrize("which", range(3))
def test_a_label_between_summary_and_manifest_costs_no_archive(which: int) -> None:
    """Upstream's readers give it up; nothing of it is lost, so ours does not (facts: tree-upstream 10, row 6)."""
    entries = whole()
    label_between(entries, manifests(entries)[which])
    found = Read(entries)
    assert found.reasons() == [(window, None) for window in WINDOWS]
    assert found.counts() == dict(zip(WINDOWS, ITEMS, strict=True))
    assert found.hidden() == SUMMARIES


@pytest.mark.parametrize("which", [1, 2])
def test_of_two_manifests_for_one_window_the_second_is_lost(which: int) -> None:
    entries = whole()
    manifests(entries)[which]["data"]["windowId"] = "w0"
    found = Read(entries)
    why = "an earlier archive holds some of the same"
    assert found.reasons() == [("w0", why) if at == which else (WINDOWS[at], None) for at in range(3)]
    assert found.hidden() == [summary for at, summary in enumerate(SUMMARIES) if at != which]
    assert f"w0 · unavailable: {why}" in render(found.status())


def test_a_second_manifest_of_a_summary_does_not_take_the_first_ones_window() -> None:
    entries = whole()
    first = manifests(entries)[0]
    after = next(entry for entry in entries if entry["parentId"] == first["id"])
    entries.append({**first, "id": "deadbeef", "parentId": first["id"], "data": {**first["data"], "windowId": "w9"}})
    after["parentId"] = "deadbeef"
    found = Read(entries)
    assert found.reasons() == [
        ("w0", None),
        ("w9", "an earlier archive holds some of the same"),
        ("w1", None),
        ("w2", None),
    ]
    assert found.counts() == dict(zip(WINDOWS, ITEMS, strict=True))
    assert found.hidden() == SUMMARIES
