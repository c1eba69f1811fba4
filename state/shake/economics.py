"""What a fold costs and saves (facts: shake-and-peers 0.10).

A fold frees F tokens of every later request, and makes the provider read the S tokens after the first change
anew, once. With r and w the prices of reading and writing its cache, that pays after (w - r)/r · S/F turns. On
a cold cache everything is read anew as it is, so it pays at once.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from protocol.events import ModelFacts
from state.shake.planner import Plan, Profile

CACHE_SECONDS: Final = 300
"""How long a provider keeps what it has read, as most do by default."""

KEEP_RECENT: Final = 20_000
"""What Pi's compaction keeps unless it is set otherwise (facts: shake-and-peers 0.5)."""


class Economics(Struct, frozen=True):
    """Tokens freed and re-encoded; turns until it pays, None without prices; why the cache is cold, if it is."""

    freed: int
    reencoded: int
    turns: float | None
    cold: str | None
    dead_thinking: int
    undo_bytes: int
    compaction_refuses: bool


def economics(
    plan: Plan, model: ModelFacts | None, *, cold: str | None, keep_recent: int, undo_bytes: int
) -> Economics:
    """The figures of a plan."""
    first = plan.changes[0].seen.head.id if plan.changes else None
    new = {change.seen.head.id: change.tokens_after for change in plan.changes}
    position = next((at for at, one in enumerate(plan.seen) if one.head.id == first), len(plan.seen))
    suffix = plan.seen[position:]
    reencoded = sum(new.get(one.head.id, one.tokens) for one in suffix)
    total = sum(new.get(one.head.id, one.tokens) for one in plan.seen)
    return Economics(
        freed=plan.freed,
        reencoded=reencoded,
        turns=_turns(plan.freed, reencoded, model, cold),
        cold=cold,
        dead_thinking=_dead_thinking(plan, position) if model is not None and model.binds_thinking else 0,
        undo_bytes=undo_bytes,
        compaction_refuses=0 < total < keep_recent <= total + plan.freed,
    )


def _turns(freed: int, reencoded: int, model: ModelFacts | None, cold: str | None) -> float | None:
    if cold is not None:
        return 0.0
    if model is None or model.cache_read <= 0 or freed <= 0:
        return None
    write = model.cache_write or model.input
    return max(0.0, (write - model.cache_read) / model.cache_read * reencoded / freed)


def _dead_thinking(plan: Plan, position: int) -> int:
    """Signed reasoning after the first change, which such a model throws away (facts: shake-and-peers 0.2)."""
    gone = {change.seen.head.id: change.content for change in plan.changes}
    return sum(
        1
        for one in plan.seen[position:]
        if one.role == "assistant"
        for block in (gone.get(one.head.id, one.content) or [])
        if isinstance(block, dict) and block.get("type") == "thinking" and block.get("thinkingSignature")
    )


def line(figures: Economics) -> str:
    """One line for a person."""
    cost = f"Frees ~{figures.freed:,} tokens a turn; ~{figures.reencoded:,} are read anew once"
    if figures.cold is not None:
        return f"{cost}, which costs nothing: {figures.cold}."
    if figures.turns is None:
        return f"{cost}; this model has no cache prices to weigh that."
    turns = max(1, round(figures.turns))
    return f"{cost}. On a warm cache it pays after {turns:,} {'turn' if turns == 1 else 'turns'}."


def explain(figures: Economics, profile: Profile, model: ModelFacts | None) -> list[str]:
    """Where the figures come from, one to a line."""
    rows = [
        ("F", f"~{figures.freed:,} tokens are freed of every later request"),
        ("S", f"~{figures.reencoded:,} tokens, from the first change on, are read anew once"),
    ]
    if model is not None and model.cache_read > 0:
        write = model.cache_write or model.input
        result = "" if figures.turns is None else f" = {figures.turns:.1f}"
        prices = f"${model.cache_read:g} and ${write:g} a million tokens"
        rows.append(("r, w", f"{prices}, the prices of {model.id} for reading and writing its cache"))
        rows.append(("turns", f"until it pays: (w - r)/r · S/F{result}"))
    rows.append(("cache", figures.cold or "warm"))
    rows.append(("undo", f"would append {figures.undo_bytes:,} bytes to the session file"))
    rows.append(("rules", f"{profile.name}: tail {profile.tail:,} tokens, blocks from {profile.block:,} tokens"))
    return [f"  {name:<5}  {text}" for name, text in rows]


def warnings(figures: Economics, *, keep_recent: int, done: bool) -> list[str]:
    """What a person should know, before or when the fold is done."""
    found: list[str] = []
    if figures.dead_thinking:
        blocks, them = ("block", "it") if figures.dead_thinking == 1 else ("blocks", "them")
        found.append(
            f"This model drops {figures.dead_thinking:,} signed thinking {blocks} after the first change; "
            f"{'/shake thinking' if done else '--with-thinking'} folds {them} too."
        )
    if figures.compaction_refuses:
        found.append(f"Afterwards /compact would find next to nothing to do: it keeps the last {keep_recent:,} tokens.")
    return found
