"""Sessions with something to fold, and `/shake` on them without Pi.

`shown` says what the model sees by Pi's rule for overlays (facts: shake-and-peers 3), told once more and apart from
the product. A token is four characters of filler.
"""

import itertools
from typing import Any

import msgspec
from msgspec import structs

from builders import Json, PiSession, tree_of
from protocol import effects as fx
from protocol.entries import SHAKE
from protocol.events import ModelFacts
from state.shake.command import Answer, Request, run
from state.shake.planner import PROFILES, Plan, Profile, Rules, fold, undo
from state.shake.view import view
from state.shake.wall import wall

EDITABLE = ("user", "assistant", "toolResult", "custom")
PLAIN = Rules(recall=False)
"""Placeholders as in the seed's example, without the history item."""


# Content


def words(tokens: int) -> str:
    return "word" * tokens


def text(content: str, **fields: Any) -> Json:
    return {"type": "text", "text": content, **fields}


def thinking(content: str = "hm, " * 40, signature: str | None = "sig") -> Json:
    block = {"type": "thinking", "thinking": content}
    return block if signature is None else {**block, "thinkingSignature": signature}


def image() -> Json:
    return {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def call(call_id: str, tool: str = "bash", **arguments: Any) -> Json:
    return {"type": "toolCall", "id": call_id, "name": tool, "arguments": arguments}


def fenced(tokens: int, mark: str = "```") -> str:
    """A block of just this many tokens."""
    return f"{mark}py\n{'x' * (tokens * 4 - 2 * len(mark) - 4)}\n{mark}"


# Entries


def calls(pi: PiSession, *blocks: Json, **fields: Any) -> str:
    """An assistant that calls tools."""
    return pi.message("assistant", list(blocks), stopReason="toolUse", **fields)


def says(pi: PiSession, *blocks: Json, **fields: Any) -> str:
    """An assistant that has finished."""
    return pi.message("assistant", list(blocks), stopReason="stop", **fields)


def result(pi: PiSession, call_id: str, content: Any, tool: str = "bash", *, error: bool = False) -> str:
    blocks = [text(content)] if isinstance(content, str) else content
    return pi.message("toolResult", blocks, toolCallId=call_id, toolName=tool, isError=error)


def ran(pi: PiSession, number: int, content: Any, tool: str = "bash", **arguments: Any) -> str:
    """A call and its result; the id of the result."""
    calls(pi, call(f"c{number}", tool, **arguments))
    return result(pi, f"c{number}", content, tool)


def done(pi: PiSession, answer: str = "done") -> PiSession:
    """The turn ends."""
    says(pi, text(answer))
    return pi


def later(pi: PiSession, tokens: int = 8_000) -> PiSession:
    """So much follows that everything before is out of the tail."""
    says(pi, text("done"))
    pi.user(words(tokens))
    says(pi, text("done"))
    return pi


def one_result(tokens: int = 1_000, tool: str = "bash", **arguments: Any) -> tuple[PiSession, str]:
    """A session with one large result, out of the tail."""
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(tokens), tool, **arguments)
    return later(pi), target


def fork(pi: PiSession, leaf: str | None = None) -> PiSession:
    """Another session, which holds the path to this leaf alone."""
    forked = PiSession()
    forked._ids = itertools.count(0xB0000001)
    there = pi.leaf
    pi.leaf = there if leaf is None else leaf
    forked.entries, forked.leaf = pi.branch(), pi.leaf
    pi.leaf = there
    return forked


# What a fold would do


def rules(tail: int = 0, block: int = 0, **fields: Any) -> Rules:
    """Rules of a profile of its own."""
    return Rules(profile=Profile("test", tail, block), **fields)


def plan(pi: PiSession, scope: str = "elide", rules: Rules = PLAIN, since: str | None = None) -> Plan:
    tree = tree_of(pi.entries)
    branch = tree.path(pi.leaf)
    return fold(view(tree, branch, since), wall(tree, branch), scope, rules)


def undoing(pi: PiSession) -> Plan:
    tree = tree_of(pi.entries)
    branch = tree.path(pi.leaf)
    return undo(tree, view(tree, branch), wall(tree, branch))


def targets(plan: Plan) -> list[str]:
    return [change.seen.head.id for change in plan.changes]


def content_of(plan: Plan, entry_id: str) -> Any:
    return next(change.content for change in plan.changes if change.seen.head.id == entry_id)


def folded(pi: PiSession) -> list[str]:
    """The wall of the branch."""
    tree = tree_of(pi.entries)
    return list(wall(tree, tree.path(pi.leaf)))


# `/shake`


def request(pi: PiSession, args: str = "", **fields: Any) -> Request:
    """One `/shake`, on a warm cache, between turns."""
    tree = tree_of(pi.entries)
    asked = Request(
        args=args,
        tree=tree,
        branch=tree.path(pi.leaf),
        since=None,
        rules=PLAIN,
        source="built in",
        model=None,
        idle=True,
        context_edit=True,
        has_ui=True,
        cold=None,
        keep_recent=20_000,
        version="0.1.0",
    )
    return structs.replace(asked, **fields)


def append(pi: PiSession, effects: list[fx.AnyEffect]) -> list[str]:
    """Do what effects say, as Pi does; the notices."""
    notices = []
    for effect in effects:
        match effect:
            case fx.AppendContextEdit():
                pi.overlay(effect.target_id, plain_json(effect.replacement.content))
            case fx.AppendEntry():
                pi.custom(effect.custom_type, plain_json(effect.data))
            case fx.Notify():
                notices.append(effect.text)
    return notices


def shake(pi: PiSession, args: str = "", **fields: Any) -> str:
    """Type it and let it happen; the notice."""
    return "\n".join(append(pi, run(request(pi, args, **fields)).effects))


def says_only(answer: Answer) -> str:
    """The notice of an answer that does nothing else."""
    [notice] = answer.effects
    assert isinstance(notice, fx.Notify)
    assert not answer.folds
    return notice.text


def edits(effects: list[fx.AnyEffect]) -> list[fx.AppendContextEdit]:
    return [effect for effect in effects if isinstance(effect, fx.AppendContextEdit)]


def logs(pi: PiSession) -> list[Json]:
    return [entry["data"] for entry in pi.branch() if entry.get("customType") == SHAKE]


def plain_json(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


# What the model sees


def shown(pi: PiSession) -> dict[str, Any]:
    """The content of every message in the next request, by its entry."""
    branch = pi.branch()
    cut = max((at for at, entry in enumerate(branch) if entry["type"] == "compaction"), default=-1)
    if cut >= 0:
        kept = branch[cut]["firstKeptEntryId"]
        start = next((at for at, entry in enumerate(branch[:cut]) if entry["id"] == kept), cut)
        branch = branch[start:cut] + branch[cut + 1 :]
    messages = {entry["id"]: entry for entry in branch if entry["type"] in ("message", "custom_message")}
    contents = {key: entry.get("message", entry).get("content") for key, entry in messages.items()}
    for edit in branch:
        target = messages.get(edit.get("targetId"))
        if edit["type"] == "context_edit" and target is not None:
            assert target.get("message", {}).get("role", "custom") in EDITABLE, "Pi refuses this overlay"
            replacement = edit["replacement"]
            contents[edit["targetId"]] = None if replacement is None else replacement["content"]
    return contents


DEFAULT, CONSERVATIVE, AGGRESSIVE = PROFILES["default"], PROFILES["conservative"], PROFILES["aggressive"]

CLAUDE = ModelFacts(id="claude", input=3, cache_read=0.3, cache_write=3.75)
BINDING = structs.replace(CLAUDE, binds_thinking=True)
