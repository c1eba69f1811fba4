"""History: what its four actions answer (facts: tree-upstream 2.2, 3.1, 10; codex-and-sidecar 1.5)."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import FACTS, PREAMBLE, SESSION_ID, Json, PiSession, roll_over, tree_of, uuids
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import ARCHIVE, NOTE, NOTE_SNAPSHOT
from protocol.tools import HistoryArguments
from state.archive import ArchiveIndex
from state.arguments import parse
from state.errors import RefusedError
from state.history import Shelf, run, shelf
from state.moment import Moment
from state.session import Search, Session

CALL: Json = {"type": "toolCall", "id": "call_1", "name": "history", "arguments": {"action": "search_contents"}}


def shelf_of(pi: PiSession) -> Shelf:
    tree = tree_of(pi.entries)
    branch = tree.branch(pi.leaf)
    return shelf(tree, branch, ArchiveIndex(tree).of(branch))


def ask(pi: PiSession, action: str, **arguments: Any) -> Json:
    return run(shelf_of(pi), parse("history", {"action": action, **arguments}, HistoryArguments))


def ids(result: Json) -> list[str]:
    return [item["item_id"] for item in result["items"]]


def listed(pi: PiSession, **arguments: Any) -> list[str]:
    return ids(ask(pi, "list_items", **{"limit": 25, **arguments}))


def searched(pi: PiSession, query: str, **arguments: Any) -> list[str]:
    return ids(ask(pi, "search_contents", query=query, **{"limit": 25, **arguments}))


def content(pi: PiSession, item_id: str, window: str = "window-0") -> str:
    return str(ask(pi, "read_item", window_id=window, item_id=item_id)["item"]["content"])


def refused(pi: PiSession, action: str, **arguments: Any) -> str:
    with pytest.raises(RefusedError) as error:
        ask(pi, action, **arguments)
    return str(error.value)


def opened() -> PiSession:
    pi = PiSession()
    pi.marker(0)
    return pi


class TwoWindows:
    """One archived window, and a current one that ends with the message that makes the call."""

    def __init__(self) -> None:
        self.pi = pi = opened()
        self.task = pi.user("first task")
        self.call = pi.assistant("let me see", stop="toolUse", call="bash")
        self.result = pi.tool_result("bash", "out: 42")
        self.answer = pi.assistant("It is 42.")
        self.summary = roll_over(pi, 0, "The first task was done.")
        self.more = pi.user("second task")
        self.calling = pi.message("assistant", [CALL], stopReason="toolUse")


def many(count: int, text: str = "x") -> PiSession:
    pi = opened()
    for number in range(count):
        pi.user(f"{number} {text}")
    return pi


def windows(count: int) -> PiSession:
    pi = opened()
    for number in range(count - 1):
        pi.user(f"task {number}")
        roll_over(pi, number)
    return pi


# list_windows


def test_windows_are_listed_oldest_first_with_the_number_of_their_items() -> None:
    """The summary counts, the marker and the message that makes the call do not."""
    assert ask(TwoWindows().pi, "list_windows") == {
        "source": "pi-session",
        "windows": [{"window_id": "window-0", "item_count": 5}, {"window_id": "window-1", "item_count": 1}],
    }


def test_windows_are_listed_newest_first_on_demand() -> None:
    found = ask(TwoWindows().pi, "list_windows", recent_first=True)["windows"]
    assert [window["window_id"] for window in found] == ["window-1", "window-0"]


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 20), (1, 1), (0, 1), (-7, 1), (100, 100), (101, 100), (10**30, 100), ("5", 5)]
)
def test_the_limit_of_windows_is_twenty_and_at_most_a_hundred(limit: object, count: int) -> None:
    found = ask(windows(102), "list_windows", limit=limit)
    assert [window["window_id"] for window in found["windows"]] == [f"window-{number}" for number in range(count)]
    assert (found["has_more"], found["next_cursor"]) == (True, f"window-{count - 1}")


def test_nothing_more_is_told_of_a_whole_list() -> None:
    assert set(ask(windows(20), "list_windows")) == {"source", "windows"}


def test_a_session_without_a_marker_has_no_windows() -> None:
    """Facts: tree-upstream 3.1."""
    pi = PiSession()
    pi.user("task")
    assert ask(pi, "list_windows") == {"source": "pi-session", "windows": []}
    assert ask(pi, "list_items") == {"source": "pi-session", "items": []}


def test_windows_of_local_mode_lie_on_the_branch_from_marker_to_marker() -> None:
    pi = PiSession()
    pi.user("before any window")
    pi.marker(0)
    first = pi.user("one")
    pi.marker(1)
    second = pi.user("two")
    assert [w["item_count"] for w in ask(pi, "list_windows")["windows"]] == [1, 1]
    assert (listed(pi, window_id="window-0"), listed(pi, window_id="window-1")) == ([first], [second])


def test_an_archive_that_cannot_be_read_is_named_and_says_why() -> None:
    two = TwoWindows()
    pi = two.pi
    pi.entries.remove(pi.entry(two.task))
    found = ask(pi, "list_windows")
    assert found["unavailable_windows"] == ["window-0"]
    assert [window["window_id"] for window in found["windows"]] == ["window-1"]
    why = f"This window cannot be read: entry {two.task} is missing."
    assert refused(pi, "read_item", window_id="window-0", item_id=two.answer) == why
    assert ask(pi, "list_items", window_id="window-0") == {"source": "pi-session", "items": []}


# list_items


def test_items_carry_these_fields() -> None:
    two = TwoWindows()
    summary = PREAMBLE + "The first task was done."
    call = 'let me see\n{"tool":"bash","arguments":{}}'
    one = {"window_id": "window-0"}
    assert ask(two.pi, "list_items") == {
        "source": "pi-session",
        "items": [
            {
                **one,
                "item_id": two.summary,
                "role": "assistant",
                "truncated_content": summary,
                "content_chars": len(summary),
            },
            {**one, "item_id": two.task, "role": "user", "truncated_content": "first task", "content_chars": 10},
            {
                **one,
                "item_id": two.call,
                "role": "assistant",
                "tool_name": "bash",
                "truncated_content": call,
                "content_chars": len(call),
            },
            {
                **one,
                "item_id": two.result,
                "role": "tool",
                "tool_name": "bash",
                "truncated_content": "out: 42",
                "content_chars": 7,
            },
            {**one, "item_id": two.answer, "role": "assistant", "truncated_content": "It is 42.", "content_chars": 9},
            {
                "window_id": "window-1",
                "item_id": two.more,
                "role": "user",
                "truncated_content": "second task",
                "content_chars": 11,
            },
        ],
    }


def test_recent_first_turns_windows_and_items_but_the_summary_stays_first() -> None:
    two = TwoWindows()
    expected = [two.more, two.summary, two.answer, two.result, two.call, two.task]
    assert listed(two.pi, recent_first=True) == expected


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 10), (0, 1), (-1, 1), (25, 25), (26, 25), (10**30, 25), ("7", 7), (7.0, 7)]
)
@pytest.mark.parametrize("action", ["list_items", "search_contents"])
def test_the_limit_of_items_is_ten_and_at_most_twenty_five(action: str, limit: object, count: int) -> None:
    found = ask(many(30), action, query="x", limit=limit)
    assert len(found["items"]) == count
    assert (found["has_more"], found["next_cursor"]) == (True, found["items"][-1]["item_id"])


@pytest.mark.parametrize(("given", "chars"), [(None, 1000), (5000, 1000), (10, 10), (0, 1), (-3, 1), ("4", 4)])
def test_previews_take_a_thousand_characters_or_less(given: object, chars: int) -> None:
    """Models were seen to ask for 5000 (facts: codex-and-sidecar 1.5)."""
    pi = opened()
    pi.user("0123456789" * 300)
    (item,) = ask(pi, "list_items", max_chars_per_item=given)["items"]
    assert item["truncated_content"] == ("0123456789" * 300)[:chars]
    assert item["content_chars"] == 3000


def test_fields_that_an_action_does_not_have_are_ignored() -> None:
    """Models send them (facts: tree-upstream 8.1, changesets)."""
    two = TwoWindows()
    extra = {"query": "x", "item_id": "y", "offset_chars": 3, "unheard_of": {"a": 1}, "recursive": True}
    assert ask(two.pi, "list_items", **extra) == ask(two.pi, "list_items")
    assert ask(two.pi, "list_windows", role="tool", **extra) == ask(two.pi, "list_windows")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": "x"}, "history: Expected `int | null`, got `str` - at `$.limit`"),
        ({"limit": 5.5}, "history: Expected `int | null`, got `float` - at `$.limit`"),
        ({"limit": True}, "history: Expected `int | null`, got `bool` - at `$.limit`"),
        ({"limit": [1]}, "history: Expected `int | null`, got `array` - at `$.limit`"),
        ({"query": 5}, "history: Expected `str | null`, got `int` - at `$.query`"),
        ({"window_id": {}}, "history: Expected `str | null`, got `object` - at `$.window_id`"),
        ({"role": "nobody"}, "history: Invalid enum value 'nobody' - at `$.role`"),
        ({"action": "delete"}, "history: Invalid enum value 'delete' - at `$.action`"),
    ],
)
def test_what_is_of_another_type_is_answered_with_what_was_expected(arguments: Json, message: str) -> None:
    assert refused(opened(), **{"action": "list_items", **arguments}) == message


@pytest.mark.parametrize("arguments", [{}, {"action": None}, [], None, "list_items"])
def test_arguments_without_an_action_are_refused(arguments: object) -> None:
    with pytest.raises(RefusedError, match="history: "):
        parse("history", arguments, HistoryArguments)


@pytest.mark.parametrize("word", ["null", "true", "5", "None"])
def test_a_query_may_look_like_another_type(word: str) -> None:
    pi = opened()
    user = pi.user(f"it says {word}")
    assert searched(pi, word) == [user]


# Filters


@pytest.mark.parametrize(
    ("role", "names"),
    [
        ("user", ["task", "more"]),
        ("assistant", ["summary", "call", "answer"]),
        ("tool", ["result"]),
        ("developer", []),
        ("system", []),
        (None, ["summary", "task", "call", "result", "answer", "more"]),
    ],
)
def test_items_of_one_role(role: str | None, names: list[str]) -> None:
    two = TwoWindows()
    assert listed(two.pi, role=role) == [getattr(two, name) for name in names]


def test_one_window_alone() -> None:
    two = TwoWindows()
    assert listed(two.pi, window_id="window-1") == [two.more]
    assert searched(two.pi, "task", window_id="window-0") == [two.summary, two.task]
    assert listed(two.pi, window_id=None) == listed(two.pi)


@pytest.mark.parametrize("agent", [None, "", "/root"])
def test_the_main_agent_has_several_names(agent: str | None) -> None:
    two = TwoWindows()
    assert ask(two.pi, "list_items", agent_name=agent) == ask(two.pi, "list_items")


@pytest.mark.parametrize(
    ("action", "empty"),
    [
        ("list_windows", {"windows": []}),
        ("list_items", {"items": []}),
        ("search_contents", {"items": []}),
        ("read_item", {"item": None}),
    ],
)
@pytest.mark.parametrize("agent", ["/root/other", "root", "another"])
def test_another_agent_has_no_history_here(action: str, empty: Json, agent: str) -> None:
    """Not even a `source` (facts: tree-upstream 2.2)."""
    assert ask(TwoWindows().pi, action, agent_name=agent, query="task") == empty


def router() -> tuple[PiSession, dict[str, str]]:
    pi = opened()
    call = {**CALL, "name": "notes", "arguments": {"action": "read_file", "path": "a"}}
    bash = {**CALL, "name": "bash", "arguments": {"command": "ls"}}
    names = {
        "search": pi.message("assistant", [CALL]),
        "note": pi.message("assistant", [call]),
        "both": pi.message("assistant", [bash, call]),
        "odd": pi.message("assistant", [{**CALL, "arguments": {"action": 7}}]),
        "bash": pi.message("assistant", [{"type": "text", "text": "action read_file"}, bash]),
        "result": pi.tool_result("history", "found"),
    }
    pi.custom_message("elsewhere", "developer read_file")
    pi.user("read_file")
    pi.assistant("calling")
    return pi, names


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"tool_name": "search_contents"}, ["search"]),
        ({"tool_name": "read_file"}, ["note", "both"]),
        ({"tool_name": "read_file", "tool_namespace": "notes"}, ["note", "both"]),
        ({"tool_name": "read_file", "tool_namespace": "history"}, []),
        ({"tool_namespace": "history"}, ["search"]),
        ({"tool_name": "history"}, ["odd", "result"]),
        ({"tool_name": "bash"}, ["both", "bash"]),
        ({"tool_name": "bash", "role": "tool"}, []),
        ({"tool_name": "history", "role": "tool"}, ["result"]),
        ({"tool_name": "nothing"}, []),
        ({"tool_name": ""}, None),
        ({"tool_namespace": "", "tool_name": None}, None),
    ],
)
def test_tools_are_found_by_any_call_of_a_message_and_routers_by_their_action(
    wanted: Json, names: list[str] | None
) -> None:
    pi, known = router()
    expected = listed(pi) if names is None else [known[name] for name in names]
    assert listed(pi, **wanted) == expected
    found = [one for one in searched(pi, "e", **wanted) if one in expected]
    assert searched(pi, "e", **wanted) == found


def test_an_item_is_named_after_its_first_call() -> None:
    pi, known = router()
    tools = {
        item["item_id"]: (item.get("tool_name"), item.get("tool_namespace")) for item in ask(pi, "list_items")["items"]
    }
    assert tools[known["search"]] == ("search_contents", "history")
    assert tools[known["both"]] == ("bash", None)
    assert tools[known["odd"]] == ("history", None)
    assert tools[known["result"]] == ("history", None)


# read_item


def test_an_item_is_read_whole_by_its_id() -> None:
    two = TwoWindows()
    assert ask(two.pi, "read_item", window_id="window-0", item_id=two.result) == {
        "source": "pi-session",
        "item": {
            "window_id": "window-0",
            "item_id": two.result,
            "role": "tool",
            "tool_name": "bash",
            "content": "out: 42",
            "total_chars": 7,
        },
    }
    assert content(two.pi, two.summary) == PREAMBLE + "The first task was done."


@pytest.mark.parametrize(
    ("offset", "limit", "text", "following"),
    [
        (None, None, "0123456789", None),
        (0, 4, "0123", 4),
        (4, 4, "4567", 8),
        (8, 4, "89", None),
        (10, 4, "", None),
        (99, 4, "", None),
        (-5, 4, "0123", 4),
        (0, 0, "0", 1),
        (0, -9, "0", 1),
        (9, 10**30, "9", None),
        ("2", "3", "234", 5),
    ],
)
def test_an_item_is_read_from_an_offset_and_tells_where_to_go_on(
    offset: object, limit: object, text: str, following: int | None
) -> None:
    pi = opened()
    user = pi.user("0123456789")
    item = ask(pi, "read_item", window_id="window-0", item_id=user, offset_chars=offset, limit_chars=limit)["item"]
    assert (item["content"], item.get("next_offset_chars"), item["total_chars"]) == (text, following, 10)


def test_eight_thousand_characters_are_read_at_most() -> None:
    pi = opened()
    user = pi.user("😀" * 8001)
    for limit in (None, 8000, 9000):
        item = ask(pi, "read_item", window_id="window-0", item_id=user, limit_chars=limit)["item"]
        assert (item["content"], item["next_offset_chars"]) == ("😀" * 8000, 8000)


def test_an_unknown_window_or_item_is_nothing() -> None:
    two = TwoWindows()
    nothing: Json = {"source": "pi-session", "item": None}
    assert ask(two.pi, "read_item", window_id="window-9", item_id=two.task) == nothing
    assert ask(two.pi, "read_item", window_id="window-1", item_id=two.task) == nothing
    assert ask(two.pi, "read_item", window_id="window-0", item_id="ffffffff") == nothing
    assert ask(two.pi, "read_item", window_id="window-0", item_id=two.pi.last(ARCHIVE)["id"]) == nothing
    assert ask(two.pi, "list_items", window_id="window-9") == {"source": "pi-session", "items": []}
    assert ask(two.pi, "search_contents", window_id="window-9", query="task") == {"source": "pi-session", "items": []}


@pytest.mark.parametrize(
    ("action", "arguments", "message"),
    [
        ("read_item", {"window_id": "window-0"}, "item_id is required."),
        ("read_item", {"item_id": "", "window_id": "window-0"}, "item_id is required."),
        ("search_contents", {}, "query is required."),
        ("search_contents", {"query": ""}, "query is required."),
        ("list_items", {"cursor": "ffffffff"}, "cursor names nothing in this list. Leave it out to start again."),
        ("list_windows", {"cursor": "window-9"}, "cursor names nothing in this list. Leave it out to start again."),
        (
            "search_contents",
            {"query": "x", "cursor": "ffffffff"},
            "cursor names nothing in this list. Leave it out to start again.",
        ),
    ],
)
def test_what_is_lacking_is_named(action: str, arguments: Json, message: str) -> None:
    assert refused(TwoWindows().pi, action, **arguments) == message


def test_an_item_without_a_window_is_read_from_the_newest_that_has_it() -> None:
    """The placeholder of a fold names the item alone (design 6)."""
    two = TwoWindows()
    for item, window in ((two.result, "window-0"), (two.summary, "window-0"), (two.more[-4:], "window-1")):
        assert ask(two.pi, "read_item", item_id=item)["item"]["window_id"] == window
    assert ask(two.pi, "read_item", item_id="ffffffff") == {"source": "pi-session", "item": None}


def test_a_unique_ending_of_four_characters_stands_for_an_id() -> None:
    two = TwoWindows()
    read = ask(two.pi, "read_item", window_id="window-0", item_id=two.result[-4:])["item"]
    assert read["item_id"] == two.result
    for ending in (two.result[-3:], two.result[-1:]):
        assert ask(two.pi, "read_item", window_id="window-0", item_id=ending)["item"] is None


def test_an_ending_of_several_ids_tells_how_many() -> None:
    """Upstream reads the first one (facts: tree-upstream 2.2)."""
    pi = many(3)
    for number, entry in enumerate(pi.entries[1:]):
        entry["id"] = f"{number}aaa5a5a5"
        entry["parentId"] = entry["parentId"] if number == 0 else f"{number - 1}aaa5a5a5"
    pi.leaf = "2aaa5a5a5"
    message = "item_id is ambiguous: 3 items of this window end so. Give the whole id."
    assert refused(pi, "read_item", window_id="window-0", item_id="a5a5") == message
    assert content(pi, "1aaa5a5a5") == "1 x"


def test_a_whole_id_that_ends_another_one_is_no_riddle() -> None:
    pi = many(2)
    pi.entries[1]["id"], pi.entries[2]["id"] = "abcd", "12abcd"
    pi.entries[2]["parentId"] = "abcd"
    pi.leaf = "12abcd"
    assert content(pi, "abcd") == "0 x"


# search_contents


def test_summaries_come_first_and_the_newest_window_before_older_ones() -> None:
    pi = opened()
    summaries, tasks = [], []
    for number in range(3):
        tasks.append([pi.user("find me"), pi.user("and find me")])
        summaries.append(roll_over(pi, number, f"find me in {number}"))
    live = [pi.user("find me live"), pi.user("find me now")]
    expected = [*summaries[::-1], *live, *tasks[2], *tasks[1], *tasks[0]]
    assert searched(pi, "find me") == expected
    turned = [*summaries[::-1], *live[::-1], *tasks[2][::-1], *tasks[1][::-1], *tasks[0][::-1]]
    assert searched(pi, "find me", recent_first=True) == turned


def test_a_search_is_literal_and_knows_case() -> None:
    pi = opened()
    user = pi.user("Grüße, a.b [c] \\d")
    for query in ("Grüße", "a.b", "[c]", "\\d", " [c] \\", "ß"):
        assert searched(pi, query) == [user]
    for query in ("grüße", "a-b", "a.*b", "^G", "ss", "\\\\d"):
        assert searched(pi, query) == []


@pytest.mark.parametrize(
    ("before", "after", "starts"),
    [(5000, 5000, 5000 - 333), (10, 5000, 0), (5000, 10, 5000 + 6 + 10 - 1000), (10, 10, 0)],
)
def test_a_preview_surrounds_the_match(before: int, after: int, starts: int) -> None:
    """Upstream shows the first thousand characters (facts: tree-upstream 2.2)."""
    text = "<" * before + "NEEDLE" + ">" * after
    pi = opened()
    pi.user(text)
    (item,) = ask(pi, "search_contents", query="NEEDLE")["items"]
    assert item["truncated_content"] == text[starts : starts + 1000]
    assert "NEEDLE" in item["truncated_content"]
    assert item["content_chars"] == len(text)


def test_the_message_that_makes_the_call_is_no_history() -> None:
    """Its query would be all that is found."""
    two = TwoWindows()
    assert searched(two.pi, "search_contents") == []
    assert two.calling not in listed(two.pi)
    assert ask(two.pi, "read_item", window_id="window-1", item_id=two.calling)["item"] is None
    two.pi.tool_result("history", "nothing")
    assert two.calling not in listed(two.pi), "calls of one message may run side by side"
    two.pi.assistant("the next one")
    assert searched(two.pi, "search_contents") == [two.calling]


# Pages


def pages(answer: Callable[..., Json], key: str = "items") -> Iterator[list[Json]]:
    cursor: Json = {}
    for _ in range(10_000):
        page = answer(**cursor)
        yield page[key]
        if not page.get("has_more"):
            assert "next_cursor" not in page
            return
        assert page[key], "a page that promises more holds something"
        cursor = {"cursor": page["next_cursor"]}
    pytest.fail("the pages do not end")


def session_of(shape: list[int]) -> PiSession:
    pi = opened()
    for number, count in enumerate(shape):
        if number:
            roll_over(pi, number - 1, f"x {number}")
        for at in range(count):
            pi.user(f"x {at}" if at % 3 else f"x {at} " + "long " * 500)
    return pi


shapes = st.lists(st.integers(0, 5), min_size=1, max_size=4)


@given(shapes, st.sampled_from(["list_items", "search_contents"]), st.booleans(), st.lists(st.integers(1, 30)))
def test_pages_of_any_size_join_to_exactly_the_whole_list(
    shape: list[int],
    action: str,
    recent_first: bool,  # noqa: FBT001
    sizes: list[int],
) -> None:
    pi = session_of(shape)
    limits = itertools.chain(sizes, itertools.repeat(25))
    joined = [
        item["item_id"]
        for page in pages(
            lambda **cursor: ask(pi, action, query="x", recent_first=recent_first, limit=next(limits), **cursor)
        )
        for item in page
    ]
    expected = [window["item_count"] for window in ask(pi, "list_windows", limit=100)["windows"]]
    assert len(joined) == len(set(joined)) == sum(expected) == sum(shape) + len(shape) - 1
    if action == "list_items" and not recent_first:
        entries = [one["id"] for one in pi.entries if one["type"] == "message"]
        assert [one for one in joined if one in entries] == entries


@given(st.integers(1, 30), st.lists(st.integers(1, 7)), st.booleans())
def test_pages_of_windows_join_to_all_windows(
    count: int,
    sizes: list[int],
    recent_first: bool,  # noqa: FBT001
) -> None:
    pi = windows(count)
    limits = itertools.chain(sizes, itertools.repeat(100))
    joined = [
        window["window_id"]
        for page in pages(
            lambda **cursor: ask(pi, "list_windows", recent_first=recent_first, limit=next(limits), **cursor), "windows"
        )
        for window in page
    ]
    expected = [f"window-{number}" for number in range(count)]
    assert joined == (expected[::-1] if recent_first else expected)


happenings = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.booleans()), max_size=8)


@given(shapes, st.sampled_from(["list_items", "search_contents"]), st.booleans(), happenings)
def test_what_is_appended_between_pages_repeats_nothing_and_hides_nothing(
    shape: list[int],
    action: str,
    recent_first: bool,  # noqa: FBT001
    happening: list[tuple[int, int, bool]],
) -> None:
    """Not even when the window is archived meanwhile."""
    pi = session_of(shape)
    number = len(shape) - 1
    plan = iter(happening)
    arguments: Json = {"query": "x", "recent_first": recent_first}
    first = [item["item_id"] for page in pages(lambda **c: ask(pi, action, **arguments, **c)) for item in page]
    joined: list[str] = []

    def answer(**cursor: Any) -> Json:
        nonlocal number
        limit, fresh, rolls = next(plan, (25, 0, False))
        page = ask(pi, action, **arguments, limit=limit, **cursor)
        for _ in range(fresh):
            pi.user("x new")
        if rolls:
            roll_over(pi, number, "x")
            number += 1
        return page

    for page in pages(answer):
        joined += [item["item_id"] for item in page]
    assert len(joined) == len(set(joined))
    assert [one for one in joined if one in first] == first
    if action == "list_items" and not recent_first:
        messages = [one["id"] for one in pi.entries if one["type"] == "message"]
        assert [one for one in joined if one in messages] == messages[: len([one for one in joined if one in messages])]


@pytest.mark.parametrize("text", ["x" * 2000, "x" + "é" * 2000, "x" + '"' * 2000, "x" + "😀" * 2000])
@pytest.mark.parametrize("action", ["list_items", "search_contents"])
def test_a_page_takes_eight_thousand_characters(action: str, text: str) -> None:
    pi = opened()
    for _ in range(20):
        pi.user(text)
    found = ask(pi, action, query="x", limit=25)
    sizes = [len(json.dumps(item, ensure_ascii=False, separators=(",", ":"))) for item in found["items"]]
    assert sum(sizes) <= 8000 < sum(sizes) + sizes[0]
    assert found["has_more"] is True


def test_the_first_item_of_a_page_is_there_however_large() -> None:
    pi = opened()
    calls = [pi.tool_result("t" * 9000, "x"), pi.tool_result("t" * 9000, "x")]
    assert [[item["item_id"] for item in page] for page in pages(lambda **c: ask(pi, "list_items", **c))] == [
        [call] for call in calls
    ]


def test_a_search_that_nobody_waits_for_looks_no_further() -> None:
    found = run(shelf_of(many(30)), HistoryArguments(action="search_contents", query="x"), lambda: True)
    assert found == {"source": "pi-session", "items": []}


# Which entries are items, and their text


def test_entries_that_are_no_items_are_neither_listed_nor_found_nor_read_nor_counted() -> None:
    pi = opened()
    others = [
        pi.marker(0, kind="reminder"),
        pi.custom_message("codex-context-window", "WINDOW malformed", {"protocol": 7}),
        pi.message("system", [{"type": "text", "text": "WINDOW"}]),
        pi.custom_message("elsewhere", [{"type": "text", "text": "WINDOW"}]),
        pi.custom("elsewhere", {"text": "WINDOW"}),
        pi.custom(NOTE, {"protocol": 1, "action": "write", "path": "/root/notes/a", "text": "WINDOW", "timestamp": 1}),
        pi.custom(NOTE_SNAPSHOT, {"protocol": 1, "timestamp": 1, "files": []}),
        pi.summary(pi.leaf, "a0000001", "WINDOW of a person's own navigation"),
        pi.append("compaction", summary="WINDOW", firstKeptEntryId="a0000001", tokensBefore=1),
        pi.append("context_edit", targetId="a0000001", replacement="WINDOW"),
        pi.append("label", targetId="a0000001", label="WINDOW"),
        pi.append("session_info", name="WINDOW"),
        pi.append("unheard_of", text="WINDOW"),
        pi.thinking("medium"),
        pi.model("WINDOW", "m"),
    ]
    item = pi.custom_message("elsewhere", "WINDOW is an item")
    for archived in (False, True):
        summaries = [roll_over(pi, 0)] if archived else []
        assert listed(pi, window_id="window-0") == [*summaries, item]
        assert searched(pi, "WINDOW", window_id="window-0") == [item]
        (window, *_) = ask(pi, "list_windows")["windows"]
        assert window == {"window_id": "window-0", "item_count": 1 + archived}
        for other in others:
            assert ask(pi, "read_item", window_id="window-0", item_id=other)["item"] is None


@pytest.mark.parametrize(
    ("role", "shown"),
    [
        ("user", "user"),
        ("assistant", "assistant"),
        ("toolResult", "tool"),
        ("compactionSummary", "compactionSummary"),
        ("", "unknown"),
    ],
)
def test_a_message_has_its_role_and_pis_tool_results_are_tools(role: str, shown: str) -> None:
    pi = opened()
    pi.message(role, "text")
    pi.assistant("calling")
    (item,) = ask(pi, "list_items")["items"]
    assert (item["role"], item["truncated_content"]) == (shown, "text")


def test_a_custom_message_of_text_is_the_developers() -> None:
    pi = opened()
    pi.custom_message("elsewhere", "advice")
    (item,) = ask(pi, "list_items", role="developer")["items"]
    assert (item["role"], item["truncated_content"]) == ("developer", "advice")


BLOCKS: dict[str, tuple[Any, str]] = {
    "a string": ("plain\ntext", "plain\ntext"),
    "an empty string": ("", ""),
    "no blocks": ([], ""),
    "text": ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    "empty text": ([{"type": "text", "text": ""}, {"type": "text", "text": "b"}], "\nb"),
    "thinking": ([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}], "hm"),
    "text before thinking before type": ([{"type": "image", "text": "t", "thinking": "h"}], "t"),
    "thinking before type": ([{"type": "toolCall", "thinking": "h"}], "h"),
    "an image": ([{"type": "image", "data": "iVBO", "mimeType": "image/png"}], "[image image/png]"),
    "an image of no type": ([{"type": "image", "data": "iVBO"}], "[image ]"),
    "an image of a type that is none": ([{"type": "image", "mimeType": None}], "[image ]"),
    "a call": (
        [{"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": 'a "b"\n', "n": [1, None]}}],
        '{"tool":"bash","arguments":{"command":"a \\"b\\"\\n","n":[1,null]}}',
    ),
    "a call without arguments": ([{"type": "toolCall", "name": "x"}], '{"tool":"x","arguments":{}}'),
    "a call without a name": ([{"type": "toolCall", "arguments": {}}], '{"tool":"","arguments":{}}'),
    "a call with a name that is none": (
        [{"type": "toolCall", "name": 7, "arguments": None}],
        '{"tool":"","arguments":null}',
    ),
    "an unknown block": ([{"type": "video", "url": "u", "x": {"y": [1]}}], '{"type":"video","url":"u","x":{"y":[1]}}'),
    "a block of no type": ([{"a": 1}], '{"a":1}'),
    "a block whose type is none": ([{"type": 5, "name": None}], '{"type":5,"name":None}'.replace("None", "null")),
    "text that is none": ([{"type": "text", "text": None}], '{"type":"text","text":null}'),
    "blocks that are none": (["s", 7, None, [1]], '"s"\n7\nnull\n[1]'),
    "a text block with other fields": ([{"type": "text", "text": "t", "name": None, "mimeType": 3}], "t"),
}


@pytest.mark.parametrize(("blocks", "text"), BLOCKS.values(), ids=BLOCKS.keys())
def test_content_is_rendered(blocks: Any, text: str) -> None:
    pi = opened()
    item = pi.message("user", blocks)
    assert content(pi, item) == text
    assert listed(pi) == [item]
    for query in {text, text[:5], text[-5:], text[2:9]} - {""}:
        assert searched(pi, query) == [item], query


@pytest.mark.parametrize("given", [{"a": 1}, 7, None])
def test_content_of_another_shape_is_the_json_of_the_message(given: Any) -> None:
    pi = opened()
    item = pi.message("user", given)
    assert json.loads(content(pi, item)) == pi.entry(item)["message"]


def test_a_shell_command_of_the_user_is_the_json_of_its_message() -> None:
    pi = opened()
    message = {"role": "bashExecution", "command": "ls", "output": "a\nb", "exitCode": 0, "timestamp": 1}
    item = pi.append("message", message=message)
    text = '{"role":"bashExecution","command":"ls","output":"a\\nb","exitCode":0,"timestamp":1}'
    assert content(pi, item) == text
    assert ask(pi, "list_items")["items"][0]["role"] == "bashExecution"
    assert searched(pi, '"output":"a\\nb"') == [item]


def test_a_tool_result_whose_tool_is_no_name_is_an_item() -> None:
    pi = opened()
    item = pi.message("toolResult", [{"type": "text", "text": "x"}], toolName=None)
    assert listed(pi) == [item]


# As the session answers


def test_the_answer_is_the_result_as_json_and_again_in_its_details() -> None:
    two = TwoWindows()
    tree = tree_of(two.pi.entries)
    session = Session(SESSION_ID, tree, ui="tui")

    def call(**arguments: Any) -> fx.ToolReply:
        event = ev.ToolExecute(
            session_id=SESSION_ID, leaf_id=two.pi.leaf, tool="history", call_id="c", arguments=arguments
        )
        found = session.handle(event, Moment(now=1, new_id=uuids(), host=FACTS))
        assert isinstance(found, Search)
        return found.answer(lambda: False)

    reply = call(action="search_contents", query="42", extra="ignored")
    expected = ask(two.pi, "search_contents", query="42")
    assert ids(expected) == [two.result, two.answer]
    assert json.loads(reply.text) == reply.details["codexHistoryNotes"] == expected
    assert not reply.is_error
    assert not reply.effects
    failed = call(action="search_contents")
    assert (failed.text, failed.is_error, failed.details) == ("query is required.", True, {})
