"""What is kept of a model request: all messages but those that a signature names."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from protocol.events import OutlineItem
from state.projection import Signature, tree_projection

HIDDEN = Signature("leaf", 5, "abc")


def item(at: int, **changes: object) -> OutlineItem:
    fields: dict[str, object] = {"role": "branchSummary", "from_id": "leaf", "timestamp": 5, "hash": "abc"}
    return OutlineItem(at=at, **{**fields, **changes})  # type: ignore[arg-type]  # values of several types


def test_a_summary_with_a_hidden_signature_goes_and_all_others_stay() -> None:
    outline = [item(0), item(2, hash="other"), item(3)]
    assert tree_projection(5, outline, {HIDDEN}) == [(1, 3), (4, 5)]


def test_nothing_is_kept_when_all_is_hidden() -> None:
    assert tree_projection(1, [item(0)], {HIDDEN}) == []


def test_null_stands_for_everything() -> None:
    assert tree_projection(3, [], {HIDDEN}) is None
    assert tree_projection(3, [item(1)], set()) is None


def test_every_part_of_a_signature_counts() -> None:
    """Facts: pi-lifecycle 8."""
    others = [
        item(0, from_id="other"),
        item(0, timestamp=6),
        item(0, hash="other"),
        item(0, role="custom"),
        item(0, from_id=None),
        item(0, timestamp=None),
        item(0, hash=None),
    ]
    assert [tree_projection(1, [other], {HIDDEN}) for other in others] == [None] * len(others)


def test_an_index_beyond_the_request_hides_nothing() -> None:
    assert tree_projection(2, [item(2), item(900)], {HIDDEN}) is None


items = st.builds(
    OutlineItem,
    at=st.integers(0, 30),
    role=st.sampled_from(["branchSummary", "custom"]),
    from_id=st.sampled_from([None, "leaf", "other"]),
    timestamp=st.sampled_from([None, 5, 6]),
    hash=st.sampled_from([None, "abc", "other"]),
)
signatures = st.builds(
    Signature, st.sampled_from(["leaf", "other"]), st.sampled_from([5, 6]), st.sampled_from(["abc", "other"])
)


@given(st.integers(0, 30), st.lists(items), st.sets(signatures))
def test_kept_ranges_are_sorted_and_disjoint_and_leave_out_exactly_what_is_hidden(
    count: int, outline: list[OutlineItem], hidden: set[Signature]
) -> None:
    named = {(signature.from_id, signature.timestamp, signature.hash) for signature in hidden}
    gone = {
        one.at
        for one in outline
        if one.role == "branchSummary" and (one.from_id, one.timestamp, one.hash) in named and one.at < count
    }
    keep = tree_projection(count, outline, hidden)
    if keep is None:
        assert not gone
        return
    kept = [at for start, end in keep for at in range(start, end)]
    assert kept == [at for at in range(count) if at not in gone]
    assert all(start < end for start, end in keep)
    assert all(before[1] < after[0] for before, after in pairwise(keep))
