"""Session files by the thousand, shaped like real ones (facts: real-sessions 4, 5), and what breaks them.

A file is a list of physical lines. `session` makes a healthy one from a seed, `DAMAGES` names every way to spoil it;
`spoiled` does both. What a reader ought to make of a file is not known here: that is asked of Pi.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

WORDS = (
    *("the", "file", "of", "window", "summary", "def", "return self", "None", "error:", "/src/main.py", "12", "{}"),
    *("é", "中文字", "привет", "😀", "\u2028", "\x1b[31m", '"quoted"', "\\\\", "\t", "\r", "\x00", "\ufeff", "{"),
)
TOOLS = ("bash", "read", "edit", "history", "notes", "new_context")
LONG = 300_000
"""Characters of a long line; a fuzzer that has time may want more."""


@dataclass
class Session:
    """A session that grows at its leaf, as Pi's does."""

    rng: random.Random
    version: int | None = 3
    lines: list[bytes] = field(default_factory=list)
    entries: list[Json] = field(default_factory=list)
    leaf: str | None = None
    end: bytes = b"\n"
    separator: bytes = b"\n"
    window: int = -1

    def __post_init__(self) -> None:
        header: Json = {"type": "session", "version": self.version, "id": uuid(self.rng), "timestamp": iso(0)}
        header = {key: value for key, value in header.items() if value is not None}
        if self.rng.random() < 0.1:
            header["parentSession"] = "/sessions/none.jsonl"
        self.lines.append(dump({**header, "cwd": "/project" * self.rng.choice((1, 1, 1, 60))}))

    def append(self, entry_type: str, **fields: Any) -> str:
        entry_id = f"{self.rng.getrandbits(32):08x}"
        placed: Json = {"id": entry_id, "parentId": self.leaf, "timestamp": iso(len(self.entries))}
        entry: Json = {"type": entry_type}
        entry |= {**fields, **placed} if entry_type.startswith("custom") else {**placed, **fields}
        if self.version in (None, 1):
            del entry["id"], entry["parentId"]
        self.entries.append(entry)
        self.lines.append(dump(entry))
        self.leaf = entry_id
        return entry_id

    def message(self, role: str, content: Any, **fields: Any) -> str:
        return self.append("message", message={"role": role, "content": content, **fields, "timestamp": 1})

    def text(self, median: int = 12) -> str:
        count = min(400, int(self.rng.lognormvariate(0, 1) * median) + 1)
        return " ".join(self.rng.choices(WORDS, k=count))

    def raw(self) -> bytes:
        return self.separator.join(self.lines) + self.end


def iso(second: int) -> str:
    return f"2026-01-01T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.000Z"


def uuid(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def dump(value: Any) -> bytes:
    """As JSON.stringify writes it: lone surrogates stay escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text).encode()


# Healthy sessions


def session(rng: random.Random, entries: int = 40, version: int | None = 3) -> Session:
    """A session of about so many entries."""
    made = Session(rng, version)
    made.append("model_change", provider="fake", modelId="fake-1")
    made.append("thinking_level_change", thinkingLevel="medium")
    while len(made.entries) < entries:
        rng.choices([step for step, _ in STEPS], [weight for _, weight in STEPS])[0](made)
    return made


def _turn(made: Session) -> None:
    rng = made.rng
    made.message("user", [block(made.text())])
    while rng.random() < 0.7:
        calls = [f"call_{rng.getrandbits(40):x}" for _ in range(rng.choice((1, 1, 1, 1, 2, 4)))]
        content: list[Json] = [{"type": "thinking", "thinking": made.text(), "thinkingSignature": "c2ln" * 20}]
        content = [*content[: rng.randrange(2)], block(made.text())]
        tools = [rng.choice(TOOLS) for _ in calls]
        for call, tool in zip(calls, tools, strict=True):
            content.append({"type": "toolCall", "id": call, "name": tool, "arguments": {"command": made.text(4)}})
        made.message("assistant", content, stopReason="toolUse", provider="fake", model="fake-1")
        for call, tool in zip(calls, tools, strict=True):
            if rng.random() < 0.99:
                details = {"diff": made.text(), "entries": [{"type": "message", "id": "inner"}]}
                made.message("toolResult", [block(made.text(30))], toolCallId=call, toolName=tool, details=details)
    ending = rng.choice(("stop", "stop", "stop", "aborted"))
    made.message("assistant", [] if ending == "aborted" else [block(made.text())], stopReason=ending)


def _bash(made: Session) -> None:
    made.message("bashExecution", None, command="ls", output=made.text(), exitCode=0)


def _old_custom(made: Session) -> None:
    made.message("hookMessage" if made.version in (None, 1, 2) else "custom", made.text(), customType="x")


def _marker(made: Session) -> None:
    made.window += 1
    number = made.window
    identity = {"protocol": 1, "kind": "window", "firstWindowId": "w0", "currentWindowId": f"w{number}"}
    if number:
        identity["previousWindowId"] = f"w{number - 1}"
    details = {"protocol": 1, "id": f"m{number}", "contextManagement": {**identity, "windowNumber": number}}
    made.append("custom_message", customType="codex-context-window", content="W", display=True, details=details)


def _rollover(made: Session) -> None:
    """Archives what came since the marker that it opens with."""
    base = made.leaf
    _marker(made)
    boundary = made.leaf
    _note(made)
    _turn(made)
    leaf, made.leaf = made.leaf, base
    summary = made.append("branch_summary", fromId=leaf, summary=made.text(), fromHook=False)
    data = {"protocol": 1, "strategy": "codex-context-tree", "windowId": f"w{made.window}", "archivedLeafId": leaf}
    data |= {"boundaryEntryId": boundary, "summaryEntryId": summary, "branchBaseId": base}
    made.append("custom", customType="codex-context-tree-archive", data=data)
    file = {"path": "/root/notes/a.md", "text": made.text(), "createdAt": 1, "updatedAt": 2}
    snapshot = {"protocol": 1, "timestamp": 3, "files": [file]}
    made.append("custom", customType="codex-context-note-snapshot", data=snapshot)
    _marker(made)
    _turn(made)


def _note(made: Session) -> None:
    note = {"protocol": 1, "action": "append", "path": "/root/notes/a.md", "text": made.text(), "timestamp": 1}
    made.append("custom", customType="codex-context-note", data=note)


def _some(made: Session) -> str:
    return str(made.rng.choice(made.entries).get("id", "0"))


def _compaction(made: Session) -> None:
    fields: Json = {"summary": made.text(), "tokensBefore": 1000}
    if made.version in (None, 1):
        made.append("compaction", **fields, firstKeptEntryIndex=made.rng.randrange(-1, len(made.entries) + 2))
    else:
        made.append("compaction", **fields, firstKeptEntryId=_some(made))


def _edit(made: Session) -> None:
    replacement = made.rng.choice((None, {"content": [block("[omitted]")]}))
    made.append("context_edit", targetId=_some(made), replacement=replacement)


def _jump(made: Session) -> None:
    """As /tree does, with and without a summary, and sometimes to before the first entry."""
    if made.version in (None, 1):
        return
    old, made.leaf = made.leaf, made.rng.choice((_some(made), _some(made), _some(made), None))
    if made.rng.random() < 0.5:
        made.append("branch_summary", fromId=old or "root", summary=made.text(), fromHook=False)


def _label(made: Session) -> None:
    made.append("label", targetId=_some(made), label=made.rng.choice(("here", None)))


def _spam(made: Session) -> None:
    for _ in range(made.rng.randrange(20)):
        made.append("custom", customType="other", data={"id": "x", "type": "message", "parentId": None})


STEPS: Sequence[tuple[Callable[[Session], object], float]] = (
    (_turn, 10),
    (_bash, 1),
    (_old_custom, 1),
    (_rollover, 2),
    (_note, 1),
    (_compaction, 1),
    (_edit, 2),
    (_jump, 2),
    (_label, 1),
    (_spam, 0.5),
    (lambda made: made.append("session_info", name=made.text(2)), 0.5),
    (lambda made: made.append("usage", kind="cache", usage={"input": 1}), 0.5),
)


def block(text: str) -> Json:
    return {"type": "text", "text": text}


# Damage


def spoiled(seed: int, damages: Sequence[str], entries: int = 40, version: int | None = 3) -> Session:
    """The session of this seed, spoiled in these ways one after the other."""
    rng = random.Random(seed)  # noqa: S311 - a fixed shape, no secret
    made = session(rng, entries, version)
    for damage in damages:
        DAMAGES[damage](made)
    return made


def damages_of(seed: int) -> list[str]:
    """The damage of this seed: mostly of one kind, sometimes none, some or all."""
    rng = random.Random(f"damage of {seed}")  # noqa: S311 - same
    names = list(DAMAGES)
    count = rng.choices((0, 1, 2, 3, 6, len(names)), (4, 60, 15, 10, 8, 1))[0]
    return [names[seed % len(names)]] if count == 1 else rng.sample(names, count)


def mixture(seed: int) -> Session:
    """A session of this seed, with the damage of this seed."""
    rng = random.Random(f"shape of {seed}")  # noqa: S311 - same
    version = rng.choices((3, 2, 1, None), (80, 8, 6, 6))[0]
    return spoiled(seed, damages_of(seed), rng.choice((3, 12, 40, 40, 120)), version)


def _at(made: Session) -> int:
    """The place of a line that is no header, if there is any."""
    return made.rng.randrange(min(1, len(made.lines) - 1), len(made.lines))


def _line(made: Session) -> tuple[int, bytes]:
    at = _at(made)
    return at, made.lines[at]


def _object(line: bytes) -> Json | None:
    """The object that the line still is."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _changed(change: Callable[[Session, Json], None]) -> Callable[[Session], None]:
    """A damage that changes the fields of a few entries."""

    def damage(made: Session) -> None:
        for _ in range(made.rng.randrange(1, 4)):
            at, line = _line(made)
            entry = _object(line)
            if entry is not None:
                change(made, entry)
                made.lines[at] = dump(entry)

    return damage


def _inserted(line: Callable[[Session], bytes]) -> Callable[[Session], None]:
    """A damage that puts a few lines between others."""

    def damage(made: Session) -> None:
        for _ in range(made.rng.randrange(1, 4)):
            made.lines.insert(made.rng.randrange(len(made.lines) + 1), line(made))

    return damage


def _within(piece: bytes) -> Callable[[Session], None]:
    """A damage that puts bytes into a string, or anywhere in a line."""

    def damage(made: Session) -> None:
        at, line = _line(made)
        quotes = [place + 2 for place in range(len(line)) if line.startswith(b'":"', place)]
        place = made.rng.choice(quotes) + 1 if quotes and made.rng.random() < 0.7 else made.rng.randrange(len(line) + 1)
        made.lines[at] = line[:place] + piece + line[place:]

    return damage


def _bom(made: Session) -> None:
    made.lines[0] = b"\xef\xbb\xbf" + made.lines[0]


def _crlf(made: Session) -> None:
    made.separator = b"\r\n"


def _fused(made: Session) -> None:
    at = _at(made)
    made.lines[at : at + 2] = [b"".join(made.lines[at : at + 2])]


def _torn_and_whole(made: Session) -> None:
    at, line = _line(made)
    torn = line[: made.rng.randrange(len(line) + 1)]
    made.lines[at : at + 2] = [torn + b"".join(made.lines[at + 1 : at + 2])]


def _torn_entry(made: Session) -> None:
    at, line = _line(made)
    made.lines[at] = line[: made.rng.randrange(len(line) + 1)]


def _nuls(made: Session) -> None:
    at, line = _line(made)
    place = made.rng.choice((0, len(line), made.rng.randrange(len(line) + 1)))
    made.lines[at] = line[:place] + b"\0" * made.rng.choice((1, 512, 4096)) + line[place:]


def _lost(made: Session) -> None:
    del made.lines[_at(made)]


def _twice(made: Session) -> None:
    at, line = _line(made)
    made.lines.insert(made.rng.randrange(at, len(made.lines) + 1), line)


def _first_twice(made: Session) -> None:
    count = made.rng.randrange(1, 8)
    made.lines[1:1] = made.lines[1 : 1 + count]


def _all_twice(made: Session) -> None:
    made.lines = [line for line in made.lines for _ in range(2)]


def _id_of_another(made: Session, entry: Json) -> None:
    entry["id"] = _some(made)


def _child_of_another(made: Session, entry: Json) -> None:
    entry["parentId"] = _some(made)


def _shuffled(made: Session) -> None:
    at = _at(made)
    piece = made.lines[at : at + 6]
    made.rng.shuffle(piece)
    made.lines[at : at + 6] = piece


def _no_header(made: Session) -> None:
    del made.lines[0]


def _bad_header(made: Session) -> None:
    line = made.lines[0]
    place = made.rng.randrange(len(line) + 1)
    made.lines[0] = line[:place] + made.rng.choice((b"", b"}", b"\xff", b"\\", b'"')) + line[place + 1 :]


def _header_later(made: Session) -> None:
    made.lines.insert(_at(made), made.lines.pop(0) if made.lines else b"")


def _header_twice(made: Session) -> None:
    made.lines.insert(made.rng.randrange(len(made.lines) + 1), made.lines[0] if made.lines else b"")


def _header(key: str, *values: Any) -> Callable[[Session], None]:
    def damage(made: Session) -> None:
        header = _object(made.lines[0])
        if header is not None:
            made.lines[0] = dump({**header, key: made.rng.choice(values)})

    return damage


def _truncated(made: Session) -> None:
    last = made.lines[-1]
    made.lines[-1] = last[: made.rng.randrange(len(last) + 1)]
    made.end = b""


def _no_end(made: Session) -> None:
    made.end = made.rng.choice((b"", b"\r", b" ", b"\n\n\n"))


def _long(made: Session) -> None:
    at = _at(made)
    data = {"type": "image", "mimeType": "image/png", "data": "A" * LONG}
    message = {"role": "toolResult", "toolName": "read", "content": [data]}
    entry = {"type": "message", "id": f"{made.rng.getrandbits(32):08x}", "parentId": _some(made), "message": message}
    made.lines.insert(at + 1, dump(entry))


def _deep(made: Session) -> None:
    at, line = _line(made)
    depth = made.rng.choice((90, 130, 900, 1100, 5000))
    opening, closing = made.rng.choice((("[", "]"), ('{"a":', "}")))
    nested = f'{{"deep":{opening * depth}1{closing * made.rng.choice((depth, depth, depth, depth - 1))},'
    made.lines[at] = nested.encode() + line[1:]


def _set(key: str, *values: Any) -> Callable[[Session, Json], None]:
    def change(made: Session, entry: Json) -> None:
        entry[key] = made.rng.choice(values)

    return change


def _dropped(key: str) -> Callable[[Session, Json], None]:
    def change(_made: Session, entry: Json) -> None:
        entry.pop(key, None)

    return change


def _self_parent(_made: Session, entry: Json) -> None:
    entry["parentId"] = entry.get("id")


def _session_parent(made: Session, entry: Json) -> None:
    entry["parentId"] = (_object(made.lines[0]) or {}).get("id", "no session")


def _odd_message(made: Session, entry: Json) -> None:
    message = entry.get("message")
    if isinstance(message, dict):
        key = made.rng.choice(("role", "stopReason", "toolName", "content"))
        message[key] = made.rng.choice((7, None, [], {}, True, "other"))


def _surrogate(made: Session, entry: Json) -> None:
    key = made.rng.choice(("id", "parentId", "extra", "type", "customType"))
    entry[key] = made.rng.choice(("\ud83d", "a\udc00b", "\udc00\ud83d"))


def _number_ids(made: Session) -> None:
    """A parent and its child that know each other by a number."""
    at = _at(made)
    for place, key in ((at, "id"), (at + 1, "parentId")):
        entry = _object(made.lines[place]) if place < len(made.lines) else None
        if entry is not None:
            made.lines[place] = dump({**entry, key: at + 1})


ODD: tuple[Any, ...] = (None, True, [])
_FOREIGN = (b"7", b"0", b"[]", b"[1]", b'"x"', b'""', b"true", b"false", b"null", b"{}", b'{"id":"lonely"}')

DAMAGES: dict[str, Callable[[Session], None]] = {
    "byte order mark": _bom,
    "crlf": _crlf,
    "blank lines": _inserted(lambda made: made.rng.choice((b"", b"  ", b"\t", b"\r", b"\x0b"))),
    "nul block": _nuls,
    "invalid escape": _within(b"\\*"),
    "control character": _within(b"\x01"),
    "invalid utf-8": _within(b"\xff\xed\xa0\x80"),
    "line separators": _within("\u2028\u2029\x85".encode()),
    "cut quote": _within(b'"'),
    "lone surrogate": _changed(_surrogate),
    "fused line": _fused,
    "torn and whole on one line": _torn_and_whole,
    "torn entry": _torn_entry,
    "lost line": _lost,
    "line twice": _twice,
    "first entries twice": _first_twice,
    "every line twice": _all_twice,
    "id of another entry": _changed(_id_of_another),
    "child of another entry": _changed(_child_of_another),
    "missing parent": _changed(_set("parentId", "ffffffff", "", "no such entry")),
    "self parent": _changed(_self_parent),
    "parent is session id": _changed(_session_parent),
    "parent of another type": _changed(_set("parentId", 7, 0, *ODD, {"a": 1})),
    "no parent": _changed(_dropped("parentId")),
    "second root": _changed(_set("parentId", None)),
    "no id": _changed(_dropped("id")),
    "id of another type": _changed(_set("id", *ODD, 0, 7, 1.5, {}, "")),
    "ids that are numbers": _number_ids,
    "ids that are no hex": _changed(_set("id", "pi-info-1", "e001", "<id>", "é", "a b", "__proto__", "x" * 300)),
    "unknown type": _changed(_set("type", "leaf", "child_usage_attributed", 7, None, [])),
    "message of another shape": _changed(_odd_message),
    "fields of another type": _changed(_set("customType", 7, [], None)),
    "foreign line": _inserted(lambda made: made.rng.choice(_FOREIGN)),
    "garbage line": _inserted(lambda made: made.rng.randbytes(made.rng.randrange(1, 60)).replace(b"\n", b" ")),
    "order of lines": _shuffled,
    "header absent": _no_header,
    "header corrupt": _bad_header,
    "header later": _header_later,
    "header twice": _header_twice,
    "header of another version": _header("version", *ODD, 0, 1, 2, 4, 2.5, "3", "2", "x", "", {}, -1),
    "header without id": _header("id", None, 7, "", []),
    "long line": _long,
    "deep line": _deep,
    "truncated tail": _truncated,
    "no line end at the end": _no_end,
}
