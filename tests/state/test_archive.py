"""Archives: what makes a manifest valid, and that one that is not touches no other (facts: tree-upstream 4.1)."""

from collections.abc import Callable
from typing import Any

import pytest

from builders import Json, PiSession, tree_of
from protocol.entries import ARCHIVE, NOTE_SNAPSHOT, WINDOW
from state.archive import Archive, ArchiveIndex, Unavailable, last_users, recovery_of
from state.tree import Tree
from state.windows import Recovery


def archived(windows: int) -> tuple[PiSession, list[Json]]:
    """A session with so many archived windows, as rollovers leave it, and their manifests' entries."""
    pi = PiSession()
    pi.thinking("medium")
    boundary = pi.marker(0)
    manifests = []
    for number in range(windows):
        pi.user(f"task {number}")
        old = pi.assistant()
        base = pi.entry(boundary)["parentId"]
        pi.navigate(boundary, summarize=True)
        data = {
            "protocol": 1,
            "strategy": "codex-context-tree",
            "windowId": f"window-{number}",
            "boundaryEntryId": boundary,
            "summaryEntryId": pi.leaf,
            "archivedLeafId": old,
            "branchBaseId": base,
        }
        manifests.append(pi.entry(pi.custom(ARCHIVE, data)))
        pi.custom(NOTE_SNAPSHOT, {"protocol": 1, "timestamp": 1, "files": []})
        boundary = pi.marker(number + 1)
    return pi, manifests


def judged(pi: PiSession) -> list[Archive | Unavailable]:
    tree = tree_of(pi.entries)
    return ArchiveIndex(tree).of(tree.branch(pi.leaf))


def reasons(pi: PiSession) -> list[str | None]:
    return [one.why if isinstance(one, Unavailable) else None for one in judged(pi)]


def test_a_valid_manifest_gives_its_window_and_entries_oldest_first() -> None:
    pi, manifests = archived(2)
    first, second = judged(pi)
    assert isinstance(first, Archive)
    assert isinstance(second, Archive)
    assert [first.manifest_id, second.manifest_id] == [manifest["id"] for manifest in manifests]
    assert [first.window_id, second.window_id] == ["window-0", "window-1"]
    assert first.summary.id == manifests[0]["data"]["summaryEntryId"]
    assert [head.kind for head in first.items] == [WINDOW, "user", "assistant"]
    assert first.items[0].id == manifests[0]["data"]["boundaryEntryId"]
    assert (first.sealed, second.sealed) == (True, True)


def test_an_archive_whose_base_is_the_root_is_valid() -> None:
    pi = PiSession()
    boundary = pi.marker(0)
    old = pi.user("task")
    pi.navigate(boundary, summarize=True)
    ids = {"boundaryEntryId": boundary, "summaryEntryId": pi.leaf, "archivedLeafId": old, "branchBaseId": None}
    pi.custom(ARCHIVE, {"protocol": 1, "strategy": "codex-context-tree", "windowId": "w", **ids})
    (found,) = judged(pi)
    assert isinstance(found, Archive)
    assert [head.id for head in found.items] == [boundary, old]


def test_an_archive_is_sealed_only_when_a_marker_follows_its_manifest() -> None:
    """Before that its summary is all that the model has of the window (design 5)."""
    pi, _manifests = archived(2)
    assert [one.sealed for one in judged(pi) if isinstance(one, Archive)] == [True, True]
    pi.leaf = pi.entry(str(pi.leaf))["parentId"]
    assert [one.sealed for one in judged(pi) if isinstance(one, Archive)] == [False, False]


def test_manifests_of_other_branches_are_not_looked_at() -> None:
    pi, manifests = archived(1)
    pi.leaf = manifests[0]["data"]["archivedLeafId"]
    assert judged(pi) == []


def change(key: str, value: Any) -> Callable[[PiSession, Json], None]:
    def damage(_pi: PiSession, manifest: Json) -> None:
        manifest["data"] = {**manifest["data"], key: value}

    return damage


def lose(key: str) -> Callable[[PiSession, Json], None]:
    def damage(pi: PiSession, manifest: Json) -> None:
        pi.entries.remove(pi.entry(manifest["data"][key]))

    return damage


def hang(key: str, parent: str | None) -> Callable[[PiSession, Json], None]:
    def damage(pi: PiSession, manifest: Json) -> None:
        entry = pi.entry(manifest["data"][key])
        entry["parentId"] = entry["id"] if parent == "itself" else parent

    return damage


def put_a_label_between(pi: PiSession, manifest: Json) -> None:
    """A label of the navigation becomes the manifest's parent (facts: tree-upstream 9)."""
    label = {**pi.entry(manifest["parentId"]), "type": "label", "id": "1abe1000", "parentId": manifest["parentId"]}
    pi.entries.append(label)
    manifest["parentId"] = "1abe1000"


def forge_the_leaf(pi: PiSession, manifest: Json) -> None:
    pi.entry(manifest["data"]["summaryEntryId"])["fromId"] = "ffffffff"


def leave_the_boundary_out(pi: PiSession, manifest: Json) -> None:
    """The leaf hangs from the base itself, so that the path is whole and the boundary beside it."""
    pi.entry(manifest["data"]["archivedLeafId"])["parentId"] = manifest["data"]["branchBaseId"]


DAMAGES: dict[str, tuple[Callable[[PiSession, Json], None], str]] = {
    "no data": (lambda _pi, manifest: manifest.update(data=None), "the manifest is malformed"),
    "another protocol": (change("protocol", 2), "the manifest is malformed"),
    "another strategy": (change("strategy", "codex-context-window"), "the manifest is malformed"),
    "a window id of another type": (change("windowId", 4), "the manifest is malformed"),
    "an empty window id": (change("windowId", ""), "the manifest names no window"),
    "a summary that is not there": (change("summaryEntryId", "ffffffff"), "the summary is missing"),
    "another archived leaf": (change("archivedLeafId", "ffffffff"), "the summary is of another leaf"),
    "a summary of another leaf": (forge_the_leaf, "the summary is of another leaf"),
    "another base": (change("branchBaseId", None), "the summary has another base"),
    "a lost leaf": (lose("archivedLeafId"), "entry {archivedLeafId} is missing"),
    "a lost boundary": (lose("boundaryEntryId"), "entry {boundaryEntryId} is missing"),
    "a cycle": (hang("archivedLeafId", "itself"), "the path is a cycle at {archivedLeafId}"),
    "a leaf without ancestors": (
        hang("archivedLeafId", None),
        "the archived leaf does not descend from the branch base",
    ),
    "a boundary beside the path": (leave_the_boundary_out, "the boundary is not in the archived interval"),
    "another boundary": (change("boundaryEntryId", "ffffffff"), "the boundary is not in the archived interval"),
}


@pytest.mark.parametrize(("damage", "why"), DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_archive_is_unavailable_for_its_reason_and_the_others_are_untouched(
    damage: Callable[[PiSession, Json], None], why: str, which: int
) -> None:
    pi, manifests = archived(3)
    ids = dict(manifests[which]["data"])
    damage(pi, manifests[which])
    assert reasons(pi) == [why.format(**ids) if at == which else None for at in range(3)]


def test_a_lost_summary_ends_the_branch_and_spoils_its_own_archive_alone() -> None:
    pi, manifests = archived(3)
    lose("summaryEntryId")(pi, manifests[1])
    assert reasons(pi) == ["the summary is missing", None]


def test_a_summary_that_is_none_is_told() -> None:
    pi, manifests = archived(1)
    pi.entry(manifests[0]["data"]["summaryEntryId"])["type"] = "custom"
    assert reasons(pi) == ["what the manifest calls a summary is none"]


def test_of_two_manifests_with_one_window_the_first_counts() -> None:
    """Facts: tree-upstream 4.1."""
    pi, manifests = archived(2)
    change("windowId", "window-0")(pi, manifests[1])
    first, second = judged(pi)
    assert isinstance(first, Archive)
    assert second == Unavailable(manifests[1]["id"], "window-0", "an earlier archive holds some of the same")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_entry_of_somebody_else_between_summary_and_manifest_costs_no_archive(which: int) -> None:
    """Upstream gives the archive up (facts: tree-upstream 10, row 6); then a window would be lost for a label."""
    pi, manifests = archived(3)
    put_a_label_between(pi, manifests[which])
    assert reasons(pi) == [None, None, None]


def test_a_manifest_on_another_branch_than_its_summary_is_not_believed() -> None:
    pi, manifests = archived(1)
    manifests[0]["parentId"] = pi.entry(manifests[0]["data"]["summaryEntryId"])["parentId"]
    assert reasons(pi) == ["the manifest does not follow its summary"]


def test_two_manifests_of_one_summary_on_one_branch_are_told_apart() -> None:
    """The second one must not take the first one's window with it."""
    pi, manifests = archived(1)
    pi.custom(ARCHIVE, {**manifests[0]["data"], "windowId": "window-9"})
    first, second = judged(pi)
    assert isinstance(first, Archive)
    assert second == Unavailable(str(pi.leaf), "window-9", "an earlier archive holds some of the same")


def test_a_claim_of_an_unavailable_archive_does_not_count() -> None:
    pi, manifests = archived(2)
    change("branchBaseId", None)(pi, manifests[0])
    change("windowId", "window-0")(pi, manifests[1])
    assert reasons(pi) == ["the summary has another base", None]


def test_an_index_that_grows_with_the_session_judges_as_a_new_one_does() -> None:
    pi, _manifests = archived(4)
    whole = tree_of(pi.entries)
    tree = Tree(whole._bodies)
    index = ArchiveIndex(tree)
    for head in whole.heads.values():
        tree.add([head])
        branch = tree.branch(head.id)
        assert index.of(branch) == ArchiveIndex(tree).of(branch)


def test_a_cleared_index_looks_again() -> None:
    pi, manifests = archived(1)
    tree = tree_of(pi.entries)
    index = ArchiveIndex(tree)
    assert isinstance(index.of(tree.branch(pi.leaf))[0], Archive)
    tree.heads.pop(manifests[0]["data"]["summaryEntryId"])
    index.clear()
    branch = tree.branch(pi.leaf)
    assert isinstance(index.of(branch)[0], Unavailable)


def test_an_interval_beyond_its_bound_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("state.archive.MAX_INTERVAL", 2)
    pi, _manifests = archived(1)
    assert reasons(pi) == ["the path is longer than 2 entries"]


def test_recovery_names_the_last_five_user_messages_most_recent_first() -> None:
    """Facts: tree-upstream 1.3."""
    pi = PiSession()
    users = []
    for number in range(7):
        users.append(pi.user(str(number)))
        pi.assistant()
    items = list(tree_of(pi.entries).heads.values())
    assert last_users(items) == users[:1:-1]
    assert recovery_of("w", "s", items) == Recovery("w", users[:1:-1], "s")
