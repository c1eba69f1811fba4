"""What a fold costs and saves, and what a person is told of it (facts: shake-and-peers 0.10)."""

import pytest
from msgspec import structs
from shaking import (
    AGGRESSIVE,
    BINDING,
    CLAUDE,
    call,
    calls,
    done,
    image,
    later,
    plan,
    ran,
    request,
    result,
    says,
    says_only,
    shake,
    text,
    thinking,
    words,
)

from builders import PiSession
from protocol.events import ModelFacts
from state.shake.command import run
from state.shake.economics import KEEP_RECENT, Economics, economics, explain, line, warnings
from state.tokens import content_tokens, length, text_tokens


def figures_of(pi: PiSession, model: ModelFacts | None = CLAUDE, scope: str = "elide", **fields: object) -> Economics:
    given = {"cold": None, "keep_recent": KEEP_RECENT, "undo_bytes": 0, **fields}
    return economics(plan(pi, scope), model, **given)  # type: ignore[arg-type] # fields of one call


def session(freed: int = 10_000, before: int = 3_000, after: int = 9_000) -> PiSession:
    """One result, and so many tokens before and after it."""
    pi = PiSession()
    pi.user(words(before))
    ran(pi, 1, words(freed + 10))
    return done(pi, words(after))


# Figures


def test_a_fold_frees_what_it_takes_and_has_everything_after_it_read_anew() -> None:
    figures = figures_of(session(freed=10_000, before=3_000, after=9_000))
    assert figures.freed == 10_000
    assert figures.reencoded == 10 + 9_000, "its placeholder and what follows, nothing before it"


@pytest.mark.parametrize(
    ("read", "write", "factor"), [(0.1, 1.25, 11.5), (0.1, 2.0, 19), (0.1, 1, 9), (0.02, 1, 49), (1, 1, 0), (2, 1, 0)]
)
def test_it_pays_after_as_many_turns_as_the_cache_prices_say(read: float, write: float, factor: float) -> None:
    """((w - r)/r) · S/F."""
    model = ModelFacts(id="m", input=1, cache_read=read, cache_write=write)
    figures = figures_of(session(freed=9_010, after=9_000), model)
    assert figures.turns == pytest.approx(factor * 9_010 / 9_010)
    half = figures_of(session(freed=2 * 9_010, after=9_000), model)
    assert half.turns == pytest.approx(factor / 2), "twice the saving pays in half the time"


def test_without_a_price_for_writing_the_input_is_what_is_paid() -> None:
    model = ModelFacts(id="gpt", input=1, cache_read=0.1)
    assert figures_of(session(freed=9_010), model).turns == pytest.approx(9)


@pytest.mark.parametrize("model", [None, ModelFacts(id="local"), ModelFacts(id="m", input=3)])
def test_without_cache_prices_nothing_can_be_weighed(model: ModelFacts | None) -> None:
    figures = figures_of(session(), model)
    assert figures.turns is None
    assert line(figures).endswith("; this model has no cache prices to weigh that.")


def test_on_a_cold_cache_it_pays_at_once() -> None:
    figures = figures_of(session(), cold="the cache is cold after 7 minutes")
    assert figures.turns == 0
    assert line(figures).endswith("are read anew once, which costs nothing: the cache is cold after 7 minutes.")


def test_a_plan_without_changes_costs_nothing() -> None:
    figures = figures_of(done(PiSession()))
    assert (figures.freed, figures.reencoded, figures.turns, figures.dead_thinking) == (0, 0, None, 0)
    assert not figures.compaction_refuses


@pytest.mark.parametrize(
    ("turns", "said"), [(0.2, "1 turn"), (1.4, "1 turn"), (1.6, "2 turns"), (10.35, "10 turns"), (1_234, "1,234 turns")]
)
def test_turns_are_told_as_whole_ones_and_never_as_none(turns: float, said: str) -> None:
    figures = structs.replace(figures_of(session()), turns=turns)
    assert (
        line(figures)
        == f"Frees ~10,000 tokens a turn; ~9,010 are read anew once. On a warm cache it pays after {said}."
    )


# Reasoning that is bound to what came before


def bound() -> PiSession:
    pi = PiSession()
    pi.user("go")
    says(pi, thinking(), text("before"))
    pi.user("go on")
    calls(pi, thinking(), call("c1"))
    result(pi, "c1", words(1_000))
    says(pi, thinking(), thinking("unsigned", None), text("after"))
    later(pi)
    return done(pi)


def test_signed_reasoning_after_the_first_change_is_dead_where_it_is_bound() -> None:
    assert figures_of(bound(), BINDING).dead_thinking == 1
    assert figures_of(bound(), CLAUDE).dead_thinking == 0
    assert figures_of(bound(), None).dead_thinking == 0


def test_folding_all_reasoning_leaves_none_dead() -> None:
    assert figures_of(bound(), BINDING, "thinking").dead_thinking == 0


def test_what_is_dead_is_told_once_and_not_when_it_goes_along() -> None:
    told = "This model drops 1 signed thinking block after the first change; --with-thinking folds it too."
    assert told in shake(bound(), "dry-run elide", model=BINDING).split("\n")
    assert "signed thinking" not in shake(bound(), "dry-run elide --with-thinking", model=BINDING)
    assert "signed thinking" not in shake(bound(), "dry-run elide", model=CLAUDE)


# Compaction


@pytest.mark.parametrize(
    ("before", "freed", "refuses"),
    [(5_000, 10_000, True), (30_000, 10_000, False), (0, 5_000, False), (11_000, 10_000, False)],
)
def test_a_fold_that_leaves_less_than_a_compaction_keeps_says_so(before: int, freed: int, *, refuses: bool) -> None:
    """Pi then says "Nothing to compact" (facts: shake-and-peers 0.5); what was too small before needs no word."""
    pi = session(freed=freed, before=before, after=9_000)
    assert figures_of(pi).compaction_refuses is refuses
    notice = shake(pi, "dry-run elide", keep_recent=KEEP_RECENT)
    assert (f"it keeps the last {KEEP_RECENT:,} tokens." in notice) is refuses


def test_what_a_compaction_keeps_is_a_setting_of_pi() -> None:
    figures = figures_of(session(), keep_recent=5_000)
    assert warnings(figures, keep_recent=5_000, done=False) == []


# The explanation


def test_the_explanation_has_every_figure_of_the_formula() -> None:
    pi = session()
    notice = says_only(run(request(pi, "dry-run --explain elide", model=CLAUDE)))
    assert "~10,000 tokens" in notice
    assert "~9,010 tokens" in notice
    assert "(w - r)/r · S/F = 10.4" in notice
    assert "0.3" in notice
    assert "3.75" in notice
    assert "warm" in notice
    assert "tail 4,000 tokens, blocks from 400 tokens" in notice


def test_the_explanation_tells_how_much_an_undo_would_append() -> None:
    """Undo writes the full content again (facts: shake-and-peers 0.7)."""
    stored = len(b'[{"type":"text","text":"') + 10_010 * 4 + len(b'"}]')
    notice = says_only(run(request(session(), "dry-run elide --explain")))
    assert f"{stored:,} bytes" in notice


def test_an_explanation_without_prices_has_no_formula() -> None:
    assert not any("r" in row.split()[:1] for row in explain(figures_of(session(), None), AGGRESSIVE, None))


# Pi's own estimates


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("漢" * 4_000, 1_000),
        ("😀" * 2, 1),
        ("\ud83d", 1),
        ([], 0),
        ([text("ab"), text("cd")], 1),
        ([image()], 1_200),
        ([text("a" * 40_000), image()], 11_200),
        ([thinking("abcd", "signature " * 100)], 1),
        ([call("c1", "read", path="a")], 4),
        ([{"type": "toolCall", "name": "f"}], 2),
        ([{"type": "unknown", "text": "abcd"}, "abcd", None, 5], 0),
        (None, 0),
        ({"text": "abcd"}, 0),
    ],
)
def test_tokens_are_counted_as_pi_counts_them(content: object, expected: int) -> None:
    """Four UTF-16 units a token, rounded up over the message; 1,200 an image (facts: shake-and-peers 3)."""
    assert content_tokens(content) == expected


def test_a_text_is_as_long_as_javascript_says() -> None:
    assert [length(each) for each in ("", "abc", "é", "漢", "😀", "👩‍👩‍👧")] == [0, 3, 1, 1, 2, 8]
    assert text_tokens("😀" * 6) == 3
