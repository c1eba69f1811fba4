"""`/shake` as a person types and reads it: subcommands, wording, and the effects of each (seed: how-shake-works).

The wording of notices is the seed's. What a fold changes is decided in `planner`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct, structs

from protocol import effects as fx
from protocol.entries import SHAKE, FoldedTarget, ShakeLog
from protocol.events import ModelFacts
from state.moment import Effects
from state.shake.economics import KEEP_RECENT, Economics, economics, explain, line, warnings
from state.shake.planner import SCOPES, Change, Counts, Plan, Rules, fold, undo
from state.shake.view import Seen, hash_of, raw_content, view
from state.shake.wall import Folded, ours, wall
from state.tokens import content_tokens
from state.tree import Branch, Tree

SUBCOMMANDS: Final = {
    "images": "Fold all images",
    "thinking": "Fold all reasoning",
    "status": "Show what is folded",
    "undo": "Bring back everything that is folded",
    "dry-run": "Show what a fold would do, without doing it",
}
FLAGS: Final = frozenset({"--explain", "--with-thinking"})


class Shaking(Struct, frozen=True):
    """The user's settings: rules, where the profile comes from, what Pi's compaction keeps (tokens)."""

    rules: Rules = Rules()
    source: str = "built in"
    keep_recent: int = KEEP_RECENT


class Request(Struct, frozen=True):
    """One `/shake`, and all that it depends on."""

    args: str
    tree: Tree
    branch: Branch
    since: str | None
    rules: Rules
    source: str
    model: ModelFacts | None
    idle: bool
    context_edit: bool
    has_ui: bool
    cold: str | None
    keep_recent: int
    version: str
    hidden: frozenset[str] = frozenset()


class Answer(Struct, frozen=True):
    """What is done; `folds` when it appends overlays, which are to be planned anew if the leaf has changed."""

    effects: Effects
    folds: bool = False


def run(request: Request) -> Answer:
    """Carry out one `/shake`."""
    words = request.args.split()
    flags = {word for word in words if word in FLAGS}
    rest = [word for word in words if word not in FLAGS]
    name = rest[0] if rest else "elide"
    if name in SCOPES and len(rest) <= 1:
        return _fold(request, name, flags)
    rule = _RULES.get(name)
    if rule is None or len(rest) > (2 if name == "dry-run" else 1):
        return _say(_usage(), "warning")
    return rule(request, rest[1:], flags)


def _fold(request: Request, scope: str, flags: set[str]) -> Answer:
    refusal = _refusal(request)
    if refusal is not None:
        return _say(refusal, "warning")
    plans, figures = _plans(request, scope, flags)
    if not plans[0].changes:
        return _say(_nothing(plans[0]))
    edits = _edits(plans)
    text = "\n".join(
        [_notice(plans, request), line(figures), *warnings(figures, keep_recent=request.keep_recent, done=True)]
    )
    return Answer(
        [
            fx.ExpectLeaf(leaf_id=request.branch.leaf),
            *edits,
            *(_log(plan, "fold", request, _merged(plans)) for plan in plans if plan.changes),
            fx.Notify(text=text),
        ],
        folds=True,
    )


def _dry_run(request: Request, words: list[str], flags: set[str]) -> Answer:
    if not request.context_edit:
        return _say(_TOO_OLD, "warning")
    if not words:
        if not request.has_ui:
            return _say(f"/shake dry-run needs a scope here: {', '.join(SCOPES)}.", "warning")
        extra = "".join(f" {flag}" for flag in sorted(flags))
        options = {scope: f"dry-run {scope}{extra}" for scope in SCOPES}
        return Answer([fx.Choose(title="What would be folded", options=options, command="shake")])
    if words[0] not in SCOPES:
        return _say(f"/shake dry-run {'|'.join(SCOPES)}", "warning")
    plans, figures = _plans(request, words[0], flags)
    if not plans[0].changes:
        return _say(f"[dry-run] · {_nothing(plans[0])}")
    lines = [f"[dry-run] · {_notice(plans, request)}", line(figures)]
    lines += warnings(figures, keep_recent=request.keep_recent, done=False)
    if "--explain" in flags:
        lines += explain(figures, request.rules.profile, request.model)
    return _say("\n".join(lines))


def _undo(request: Request, _words: list[str], _flags: set[str]) -> Answer:
    refusal = _refusal(request)
    if refusal is not None:
        return _say(refusal, "warning")
    seen = view(request.tree, request.branch, request.since, request.hidden)
    plan = undo(request.tree, seen, wall(request.tree, request.branch))
    if not plan.changes:
        return _say("Nothing to restore." + _left(plan))
    text = f"Restored {_count(len(plan.changes), 'entry', 'entries')} (~{-plan.freed:,} tokens).{_left(plan)}"
    return Answer(
        [
            fx.ExpectLeaf(leaf_id=request.branch.leaf),
            *_edits([plan]),
            _log(plan, "undo", request, plan.changes),
            fx.Notify(text=text),
        ],
        folds=True,
    )


def _status(request: Request, _words: list[str], _flags: set[str]) -> Answer:
    standing = folded_now(request.tree, request.branch, request.since)
    profile = f"Profile: {request.rules.profile.name} ({request.source})."
    if not standing:
        return _say(f"Nothing is folded. {profile}")
    targets = [one.target for one in standing]
    saved = sum(target.tokens_before - target.tokens_after for target in targets)
    return _say(f"{_count(len(targets), 'entry is', 'entries are')} folded (~{saved:,} tokens). {profile}")


_RULES: Final[dict[str, Callable[[Request, list[str], set[str]], Answer]]] = {
    "dry-run": _dry_run,
    "undo": _undo,
    "status": _status,
}


def folded_now(tree: Tree, branch: Branch, since: str | None) -> list[Folded]:
    """The entries that are folded and that the model would otherwise see, logged or not."""
    if not any(head.type == "context_edit" for head in branch.heads):
        return []
    logged = wall(tree, branch)
    return [
        own if (own := logged.get(one.head.id)) is not None else _unlogged(one)
        for one in view(tree, branch, since)
        if ours(one, logged.get(one.head.id))
    ]


def _unlogged(one: Seen) -> Folded:
    target = FoldedTarget(one.head.id, hash_of(one.content), content_tokens(one.raw), one.tokens)
    return Folded(target, frozenset())


def logs_of_done(planned: Effects, tree: Tree, branch: Branch, since: str | None) -> Effects:
    """The logs of a run that broke off: what of it is in the session, so that an undo finds it."""
    now = {one.head.id: hash_of(one.content) for one in view(tree, branch, since)}
    logs: Effects = []
    for effect in planned:
        if isinstance(effect, fx.AppendEntry) and isinstance(effect.data, ShakeLog):
            done = [target for target in effect.data.targets if now.get(target.id) == target.hash]
            if done:
                logs.append(fx.AppendEntry(custom_type=SHAKE, data=structs.replace(effect.data, targets=done)))
    return logs


# Planning


def _plans(request: Request, scope: str, flags: set[str]) -> tuple[list[Plan], Economics]:
    """The plan, a second one for reasoning that it makes worthless if that is asked for, and what both cost."""
    seen = view(request.tree, request.branch, request.since, request.hidden)
    folded = wall(request.tree, request.branch)
    plan = fold(seen, folded, scope, request.rules)
    plans = [plan]
    if "--with-thinking" in flags and scope != "thinking" and plan.changes:
        plans.append(_dead_thinking(plan, folded, request.rules))
    merged = structs.replace(plan, changes=_merged(plans))
    raws = [raw_content(request.tree, change.seen.head) for change in merged.changes]
    figures = economics(
        merged,
        request.model,
        cold=request.cold,
        keep_recent=request.keep_recent,
        undo_bytes=sum(len(bytes(raw)) for raw in raws if raw is not None),
    )
    return plans, figures


def _dead_thinking(plan: Plan, folded: dict[str, Folded], rules: Rules) -> Plan:
    """Reasoning from the first change on, over what the first plan leaves."""
    changed = {change.seen.head.id: change for change in plan.changes}
    after = [
        one
        if (change := changed.get(one.head.id)) is None
        else structs.replace(one, content=change.content, tokens=change.tokens_after)
        for one in plan.seen
    ]
    first = next(at for at, one in enumerate(plan.seen) if one.head.id in changed)
    later = {one.head.id for one in plan.seen[first:]}
    thinking = fold(after, folded, "thinking", rules)
    return structs.replace(thinking, changes=[change for change in thinking.changes if change.seen.head.id in later])


def _merged(plans: list[Plan]) -> list[Change]:
    """One change an entry, in the order of the branch; the last plan has the last word on its content."""
    by_id: dict[str, Change] = {}
    for plan in plans:
        for change in plan.changes:
            before = by_id.get(change.seen.head.id)
            tokens_before = change.tokens_before if before is None else before.tokens_before
            by_id[change.seen.head.id] = structs.replace(change, tokens_before=tokens_before)
    return [by_id[one.head.id] for one in plans[0].seen if one.head.id in by_id]


def _edits(plans: list[Plan]) -> Effects:
    return [
        fx.AppendContextEdit(target_id=change.seen.head.id, replacement=fx.Replacement(change.content))
        for change in _merged(plans)
    ]


def _log(plan: Plan, op: Literal["fold", "undo"], request: Request, final: list[Change]) -> fx.AppendEntry:
    """The log of one plan; an entry that a later plan changed again is named with its final content."""
    own = {change.seen.head.id for change in plan.changes}
    log = ShakeLog(
        v=1,
        op=op,
        scope=plan.scope,
        profile=request.rules.profile.name,
        targets=[change.logged() for change in final if change.seen.head.id in own],
        leaf_at_plan=request.branch.leaf,
        version=request.version,
    )
    return fx.AppendEntry(custom_type=SHAKE, data=log)


def _refusal(request: Request) -> str | None:
    if not request.context_edit:
        return _TOO_OLD
    return None if request.idle else "Pi is still working. /shake changes what the model sees between turns only."


_TOO_OLD: Final = "/shake needs Pi 0.87 or newer: this one cannot record folds in the session. Nothing was changed."


# Wording


def _notice(plans: list[Plan], request: Request) -> str:
    counts = sum((plan.counts for plan in plans), Counts())
    kinds = (
        (counts.results, "tool result"),
        (counts.blocks, "block"),
        (counts.images, "image"),
        (counts.thinking, "thinking block"),
    )
    what = " + ".join(_count(number, kind, f"{kind}s") for number, kind in kinds if number)
    freed = sum(change.tokens_before - change.tokens_after for change in _merged(plans))
    notice = f"Shook {what} (~{freed:,} tokens)."
    if plans[0].scope == "elide":
        profile = request.rules.profile
        notice += f" Protects the last {profile.tail:,} tokens. Profile: {profile.name} ({request.source})."
    return notice + _left(plans[0])


def _usage() -> str:
    others = [f"/shake {word}: {about}" for word, about in SUBCOMMANDS.items()]
    return "\n".join(["/shake: Fold tool results, code blocks and XML spans", *others])


def _nothing(plan: Plan) -> str:
    nothing = {"images": "No images to shake.", "thinking": "No thinking blocks to shake."}
    return nothing.get(plan.scope, "Nothing to shake.") + _left(plan)


def _left(plan: Plan) -> str:
    return f" {_count(plan.left, 'entry', 'entries')} under another overlay left alone." if plan.left else ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _say(text: str, level: Literal["info", "warning"] = "info") -> Answer:
    return Answer([fx.Notify(text=text, level=level)])
