"""History over real files: what is searched are bytes that two kinds of writers made, what is found is text."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import Json, PiSession, roll_over
from daemon.journal import Journal
from protocol.tools import HistoryArguments
from state.archive import ArchiveIndex
from state.arguments import parse
from state.history import Shelf, needles_of, run, shelf
from state.tree import Tree

numbers = itertools.count()
LONE = "@LONE@"


def paired(text: str) -> str:
    """JavaScript knows no two halves side by side, they are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): mapped(item, change) for key, item in value.items()}
    return value


def stringify(value: Any) -> str:
    """JSON.stringify: everything raw but what JSON escapes, and lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[\ud800-\udfff]", lambda one: f"\\u{ord(one[0]):04x}", text)


ENCODERS: dict[str, Callable[[Any], str]] = {"JSON.stringify": stringify, "json.dumps": json.dumps}


# A renderer that starts from values instead of lines


def well_formed(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def shown_json(value: Any, encoder: Callable[[Any], str]) -> str:
    """As it stands in the file, but for lone surrogates."""
    return encoder(mapped(value, lambda text: re.sub("[\ud800-\udfff]", LONE, text))).replace(LONE, "\ufffd")


def part_text(block: Any, encoder: Callable[[Any], str]) -> str:
    match block:
        case {"text": str(text)} | {"thinking": str(text)}:
            return well_formed(text)
        case {"type": "image"}:
            return well_formed(f"[image {block.get('mimeType', '')}]")
        case {"type": "toolCall"}:
            name, arguments = (
                shown_json(block[key], encoder) if key in block else "{}" for key in ("name", "arguments")
            )
            return f'{{"tool":{name},"arguments":{arguments}}}'
    return shown_json(block, encoder)


def item_text(entry: Json, encoder: Callable[[Any], str]) -> str:
    if entry["type"] == "branch_summary":
        return well_formed(entry["summary"])
    holder = entry.get("message", entry)
    content = holder.get("content")
    if isinstance(content, str):
        return well_formed(content)
    if isinstance(content, list):
        return "\n".join(part_text(block, encoder) for block in content)
    return shown_json(holder, encoder)


# Sessions

FRAGMENTS = [
    *("a", "b", "word", "image", "im", "age", "tool", "arguments", "text", "null", "5", "[image image/png]", "u00e9"),
    *("漢字", "かな", "é", "ß", "\x7f", "\x85", "\xa0", "😀", "🦀", "\ufffd", "\ud83d", "\ude00", "\udfff"),
    *("\0", "\r\n", "\n", "\t", '"', "\\", "/", "\u2028", "\u2029", "\x1f", "\x08", " ", "{", "}", "[", "]", ":", ","),
]
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(), max_size=3), max_size=7).map("".join).map(paired)
values = st.recursive(
    texts | st.integers(-99, 99) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda text: {"type": "thinking", "thinking": text, "thinkingSignature": "sig"}, texts),
    st.builds(lambda mime: {"type": "image", "data": "iVBO", "mimeType": mime}, st.sampled_from(["image/png", "x"])),
    st.builds(
        lambda name, arguments: {"type": "toolCall", "id": "c", "name": name, "arguments": arguments}, texts, values
    ),
    st.builds(lambda arguments, name: {"arguments": arguments, "name": name, "type": "toolCall"}, values, texts),
    st.builds(lambda name: {"type": "toolCall", "id": "c", "name": name}, texts),
    st.builds(lambda value: {"type": "video", "data": value}, values),
)
contents = texts | st.lists(blocks, max_size=4)
items = st.one_of(
    st.builds(lambda content: ("user", content), contents),
    st.builds(lambda content: ("assistant", content), contents),
    st.builds(lambda content: ("toolResult", content), contents),
    st.builds(lambda output: ("bashExecution", output), texts),
    st.builds(lambda content: ("custom", content), texts),
)


def session_of(windows: list[tuple[str, list[tuple[str, Any]]]]) -> tuple[PiSession, list[tuple[str, list[str]]]]:
    """A session, and its windows, oldest first: the id of the summary, "" for the current one, and those of items."""
    pi = PiSession()
    pi.marker(0)
    made = []
    for number, (summary, entries) in enumerate(windows):
        found = []
        for role, content in entries:
            if role == "bashExecution":
                found.append(pi.append("message", message={"role": role, "command": "ls", "output": content}))
            elif role == "custom":
                found.append(pi.custom_message("elsewhere", content))
            else:
                found.append(pi.message(role, content, **({"toolName": "bash"} if role == "toolResult" else {})))
        last = number + 1 == len(windows)
        made.append(("" if last else roll_over(pi, number, summary), found))
    pi.assistant("calling", stop="toolUse")
    return pi, made


def shelf_of(pi: PiSession, file: Path, encoder: Callable[[Any], str]) -> tuple[Shelf, Journal]:
    lines = [encoder(entry).encode() for entry in [pi.header(), *pi.entries]]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    journal = Journal(file)
    tree = Tree(journal.raw, journal.scan)
    journal.refresh(tree)
    assert not journal.anomalies
    branch = tree.branch(pi.leaf)
    return shelf(tree, branch, ArchiveIndex(tree).of(branch)), journal


def ask(shelf: Shelf, action: str, **arguments: Any) -> Json:
    return run(shelf, parse("history", {"action": action, **arguments}, HistoryArguments))


def every_item(shelf: Shelf, **arguments: Any) -> list[Json]:
    """All pages of a search."""
    found: list[Json] = []
    cursor: Json = {}
    while True:
        page = ask(shelf, "search_contents", **arguments, **cursor)
        found += page["items"]
        if "next_cursor" not in page:
            return found
        cursor = {"cursor": page["next_cursor"]}


def read_whole(shelf: Shelf, window: str, item: str, limit: int) -> str:
    text = ""
    offset = 0
    while True:
        page = ask(shelf, "read_item", window_id=window, item_id=item, offset_chars=offset, limit_chars=limit)["item"]
        page["content"].encode()  # no half of a character
        text += str(page["content"])
        assert len(page["content"]) <= limit
        if "next_offset_chars" not in page:
            assert page["total_chars"] == len(text)
            return text
        offset = page["next_offset_chars"]
        assert offset == len(text)


sessions = st.lists(st.tuples(texts, st.lists(items, max_size=5)), min_size=1, max_size=4)


@given(sessions, st.sampled_from(sorted(ENCODERS)), st.data())
@settings(max_examples=300)
def test_read_item_pages_join_to_the_rendered_content_and_search_finds_exactly_the_items_that_hold_the_query(
    tmp_path_factory: pytest.TempPathFactory,
    windows: list[tuple[str, list[tuple[str, Any]]]],
    encoder_name: str,
    data: st.DataObject,
) -> None:
    encoder = ENCODERS[encoder_name]
    pi, made = session_of(windows)
    file = tmp_path_factory.getbasetemp() / f"history-{next(numbers)}.jsonl"
    shelf, journal = shelf_of(pi, file, encoder)
    rendered = {one: item_text(pi.entry(one), encoder) for summary, found in made for one in (summary, *found) if one}
    for number, (summary, found) in enumerate(made):
        for one in [summary, *found] if summary else found:
            assert read_whole(shelf, f"window-{number}", one, data.draw(st.integers(1, 300), "limit")) == rendered[one]
    order = [summary for summary, _ in reversed(made) if summary]
    order += [one for _, found in reversed(made) for one in found]
    for query in queries(data, list(rendered.values())):
        limit = data.draw(st.integers(1, 25), "page")
        holding = every_item(shelf, query=query, limit=limit)
        assert [item["item_id"] for item in holding] == [one for one in order if query in rendered[one]], query
        assert all(query in item["truncated_content"] for item in holding)
    journal.close()
    file.unlink()


def queries(data: st.DataObject, rendered: list[str]) -> list[str]:
    """What stands in items, what may, and what straddles the places that rendering made."""
    found = [well_formed(data.draw(texts, "text")) for _ in range(2)]
    found.append(
        data.draw(st.sampled_from(["[image image/png]", "mage im", " im", "e i", ':{"', '{"tool":"', "ments"]))
    )
    for text in data.draw(st.lists(st.sampled_from(rendered), max_size=6), "held") if rendered else []:
        start = data.draw(st.integers(0, max(0, len(text) - 1)), "start")
        found.append(text[start : start + data.draw(st.integers(1, 30), "length")])
    return [query for query in found if query]


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS.keys())
@pytest.mark.parametrize(
    ("content", "query"),
    [
        ([{"type": "image", "mimeType": "image/png"}], "[image image/png]"),
        ([{"type": "image", "mimeType": "image/png"}], "mage im"),
        ([{"type": "image", "mimeType": "image/png"}], "e i"),
        ([{"type": "image", "mimeType": "image/png"}], " im"),
        ([{"type": "image"}], "image ]"),
        ([{"type": "toolCall", "name": "x"}], "guments"),
        ([{"type": "toolCall", "name": "x"}], '"arguments":{}'),
        ([{"type": "toolCall", "name": "x", "arguments": 5}], ":5"),
        ([{"type": "toolCall", "name": "a\x08b", "arguments": {}}], '\\bb"'),
        ([{"type": "toolCall", "name": "é", "arguments": {}}, {"type": "text", "text": "ü"}], "ü"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "e\nt"),
        ("漢字 😀 and 漢字", "字 😀 a"),
        ("a\u2028b\x7fc", "a\u2028b\x7fc"),
        ("x\ud83dy", "x\ufffdy"),
        ("x\ud83d😀y", "\ufffd😀"),
        ("nul\0 and \r\n", "\0 and \r\n"),
        ('C:\\ud800\\new "x"', 'C:\\ud800\\new "x"'),
    ],
)
def test_what_an_item_shows_is_found_however_it_was_written(
    tmp_path: Path, encoder: Callable[[Any], str], content: Any, query: str
) -> None:
    pi, ((_, [item]),) = session_of([("", [("user", content)])])
    shelf, journal = shelf_of(pi, tmp_path / "s.jsonl", encoder)
    assert [one["item_id"] for one in every_item(shelf, query=query)] == [item]
    journal.close()


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS.keys())
def test_a_lone_surrogate_changes_nothing_else_of_its_line(tmp_path: Path, encoder: Callable[[Any], str]) -> None:
    """What is shown of it must be found in the bytes of the file."""
    arguments = {"list": [1, 2], "é": 1.0, "\ud800": "\\ud800", "pair": "😀"}
    content = [{"type": "toolCall", "name": "x", "arguments": arguments}]
    pi, ((_, [item]),) = session_of([("", [("user", content)])])
    shelf, journal = shelf_of(pi, tmp_path / "s.jsonl", encoder)
    shown = read_whole(shelf, "window-0", item, 8000)
    assert shown == f'{{"tool":"x","arguments":{encoder({**arguments}).replace(chr(92) + "ud800", "?", 1)}}}'.replace(
        "?", "\ufffd"
    )
    assert [one["item_id"] for one in every_item(shelf, query=encoder([1, 2])[1:-1])] == [item]
    journal.close()


def test_a_query_that_is_longer_than_a_block_of_the_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.journal._SCAN", 16)
    text = "0123456789" * 10
    pi, ((_, [_, item, after]),) = session_of([("", [("user", "0"), ("user", text), ("user", "1" * 200)])])
    shelf, journal = shelf_of(pi, tmp_path / "s.jsonl", stringify)
    for length in (8, 15, 16, 17, 31, 32, 33, 99, 100):
        assert [one["item_id"] for one in every_item(shelf, query=text[-length:])] == [item], length
    assert [one["item_id"] for one in every_item(shelf, query="1" * 99)] == [after]
    journal.close()


def test_a_session_that_is_closed_under_a_search_is_no_error(tmp_path: Path) -> None:
    pi, _made = session_of([("", [("user", "text")])])
    shelf, journal = shelf_of(pi, tmp_path / "s.jsonl", stringify)
    journal.close()
    journal._fd = 10**6  # what a search may still hold
    assert every_item(shelf, query="text") == []
    journal._fd = None
    assert every_item(shelf, query="text") == []


@given(st.text(min_size=1, max_size=10))
@example("image")
@example(" ")
@example("\ufffd")
def test_needles_are_never_longer_than_what_json_makes_of_the_query(query: str) -> None:
    needles = needles_of(query)
    assert needles
    plain, escaped = query.encode(), json.dumps(query).encode()
    assert all(needle in (b"toolCall", b"") or needle in plain or needle in escaped for needle in needles)
