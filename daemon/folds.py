"""What `/shake` would fold in a session file, scope by scope, for a person's eyes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from daemon.journal import Journal
from daemon.lineage import Lineage
from daemon.show import gist, leaf_of, plain
from state.archive import Archive, ArchiveIndex
from state.shake.planner import SCOPES, Counts, Plan, Profile, Rules, fold
from state.shake.view import view
from state.shake.wall import ours, wall
from state.tree import Tree


def plans_of(journal: Journal, *, leaf: str | None, profile: Profile) -> tuple[Tree, list[Plan], int]:
    """The plan of every scope for one branch as tree mode shows it, and how many of its entries are folded by now."""
    tree = Tree(journal.raw)
    journal.refresh(tree)
    branch = tree.path(leaf_of(journal, tree, leaf))
    archives = ArchiveIndex(tree, Lineage(journal).ancestors).of(branch)
    hidden = {one.summary.id for one in archives if isinstance(one, Archive) and one.sealed}
    seen = view(tree, branch, hidden=hidden)
    folded = wall(tree, branch)
    standing = sum(1 for one in seen if ours(one, folded.get(one.head.id)))
    return tree, [fold(seen, folded, scope, Rules(profile=profile)) for scope in SCOPES], standing


def show_folds(file: Path, *, leaf: str | None, profile: Profile, everything: bool) -> Group:
    """The figures of every scope; with `everything` each target as well."""
    journal = Journal(file)
    try:
        return _drawn(journal, file.name, leaf=leaf, profile=profile, everything=everything)
    finally:
        journal.close()


def _drawn(journal: Journal, name: str, *, leaf: str | None, profile: Profile, everything: bool) -> Group:
    tree, plans, folded = plans_of(journal, leaf=leaf, profile=profile)
    total = sum(one.tokens for one in plans[0].seen)
    title = Text(plain(name), style="bold")
    title.append(
        f"  the model sees ~{total:,} tokens in {len(plans[0].seen):,} messages; {folded:,} entries are folded", "dim"
    )
    table = Table()
    for column in ("scope", "targets", "what", "tokens before", "after", "freed"):
        table.add_column(column, justify="left" if column in ("scope", "what") else "right")
    for plan in plans:
        before = sum(change.tokens_before for change in plan.changes)
        after = sum(change.tokens_after for change in plan.changes)
        figures = (f"{len(plan.changes):,}", _what(plan.counts), f"{before:,}", f"{after:,}", f"{plan.freed:,}")
        table.add_row(plan.scope, *figures)
    parts: list[Table | Text] = [title, table]
    if everything:
        parts += [_targets(tree, plan) for plan in plans if plan.changes]
    return Group(*parts)


def _targets(tree: Tree, plan: Plan) -> Table:
    table = Table(title=plan.scope, title_justify="left", title_style="bold", expand=True)
    for name in ("entry", "role", "before", "after", "what"):
        table.add_column(name, justify="right" if name in ("before", "after") else "left", no_wrap=True)
    table.add_column("content", no_wrap=True, ratio=1)  # what the others leave of the screen
    for change in plan.changes:
        head = change.seen.head
        tokens = f"{change.tokens_before:,}", f"{change.tokens_after:,}"
        cells = head.id, change.seen.role, *tokens, _what(change.counts), plain(gist(tree, head))
        # As texts: what stands in a session must not be taken for markup.
        table.add_row(*(Text(cell, overflow="ellipsis") for cell in cells))
    return table


def _what(counts: Counts) -> str:
    kinds = (
        ("results", counts.results),
        ("blocks", counts.blocks),
        ("images", counts.images),
        ("thinking", counts.thinking),
    )
    return ", ".join(f"{number:,} {kind}" for kind, number in kinds if number)
