"""Blocks that a fold can take out: where fences and top-level XML spans begin and end, to the character."""

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from state.shake.scanner import scan


def found(text: str) -> list[str]:
    return [text[block.start : block.end] for block in scan(text)]


# Fences


@pytest.mark.parametrize(
    "fence",
    [
        "```\ncode\n```",
        "~~~\ncode\n~~~",
        "```python\ncode\n```",
        "``` python title=x\ncode\n```",
        "~~~ an `info` with ```\ncode\n~~~",
        "````\ncode\n````",
        "```\ncode\n`````",
        "```\ncode\n```   ",
        "```\ncode\n   ```",
        "```\n\n\n```",
        "```\n```",
        "````\n```\nnested\n```\n````",
        "```\n~~~\nnested\n~~~\n```",
        "~~~\n```\nnested\n```\n~~~",
        "```\n``` not a closing fence\n```",
        "```\n``\n```",
        "```\n    ```\n```",
        "```\n> ```\n```",
        "```\n- ```\n```",
    ],
)
def test_a_fence_is_a_block_from_its_opening_to_its_closing_line(fence: str) -> None:
    """CommonMark 0.31, 4.5."""
    text = f"before\n{fence}\nafter"
    assert found(text) == [fence]
    assert [block.name for block in scan(text)] == [""]


@pytest.mark.parametrize(
    "text",
    [
        "```\ncode",
        "```\ncode\n~~~",
        "````\ncode\n```",
        "```\ncode\n    ```",
        "```\ncode\n``` x",
        "``\ncode\n``",
        "    ```\n    code\n    ```",
        "``` a`b\ncode\nafter",
        "text ```\ncode\ntext ```",
        "```",
        "```\n",
        "- ```\n  ",
        "- ```\n  code\n\nout of the list, which ends the fence",
        "\\```\ncode\n\\```",
        "",
    ],
)
def test_what_is_not_closed_is_no_block(text: str) -> None:
    """Unterminated fences are ignored (facts: shake-and-peers 1.3)."""
    assert scan(text) == []


@pytest.mark.parametrize("indent", [0, 1, 2, 3])
def test_a_fence_may_be_indented_by_up_to_three_spaces(indent: int) -> None:
    text = f"before\n{' ' * indent}```\ncode\n{' ' * indent}```\nafter"
    assert found(text) == [f"```\ncode\n{' ' * indent}```"]


def test_four_spaces_make_a_line_of_code_and_no_fence() -> None:
    assert scan("before\n\n    ```\n    code\n    ```\n\nafter") == []


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("- ```\n  code\n  ```\n- next", "```\n  code\n  ```"),
        ("- item\n\n  ```py\n  code\n  ```\n\nafter", "```py\n  code\n  ```"),
        ("1. one\n   ~~~\n   code\n   ~~~\n2. two", "~~~\n   code\n   ~~~"),
        ("10) ```\n    code\n    ```", "```\n    code\n    ```"),
        ("- a\n  - b\n    ```\n    code\n    ```\n- c", "```\n    code\n    ```"),
        ("- ```\n  code\n  ````\n", "```\n  code\n  ````"),
    ],
)
def test_a_fence_in_a_list_is_a_block_and_the_lists_mark_stays(text: str, block: str) -> None:
    assert found(text) == [block]


@pytest.mark.parametrize(
    "text",
    ["> ```\n> code\n> ```", "> > ~~~\n> > code\n> > ~~~", "- > ```\n  > code\n  > ```", "> - ```\n>   code\n>   ```"],
)
def test_a_fence_in_a_quote_is_left_alone(text: str) -> None:
    """Its lines begin with the quote's mark and cannot be taken out whole."""
    assert scan(f"{text}\n\nafter") == []


def test_a_fence_after_a_quote_is_a_block() -> None:
    assert found("> ```\n> quoted\n\n```\ncode\n```") == ["```\ncode\n```"]


def test_several_fences_are_several_blocks_in_order() -> None:
    text = "```\na\n```\nbetween\n~~~\nb\n~~~\n```\nc\n```"
    assert found(text) == ["```\na\n```", "~~~\nb\n~~~", "```\nc\n```"]


def test_a_fence_that_is_not_closed_does_not_hide_what_stood_before() -> None:
    assert found("```\na\n```\n\n```\nnever closed") == ["```\na\n```"]


def test_windows_line_ends_belong_to_no_block() -> None:
    text = "before\r\n```py\r\ncode\r\n```\r\nafter\r\n<file>\r\nx\r\n</file>\r\nend"
    assert found(text) == ["```py\r\ncode\r\n```", "<file>\r\nx\r\n</file>"]


def test_a_lone_carriage_return_ends_no_line() -> None:
    assert scan("a\r```\rcode\r```") == []
    assert found("```\na\rb\n```") == ["```\na\rb\n```"]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\x1c", "\0"])
def test_nothing_but_a_line_feed_ends_a_line(mark: str) -> None:
    assert found(f"{mark}a\n```\nx{mark}```{mark}y\n```\nend") == [f"```\nx{mark}```{mark}y\n```"]


@pytest.mark.parametrize("sign", ["é", "漢", "😀", "👩‍👩‍👧", "\ufeff", "\ud83d"])
def test_offsets_count_code_points(sign: str) -> None:
    fence, span = f"```{sign}\n{sign * 3}\n```", f"<file>\n{sign}\n</file>"
    assert found(f"{sign * 7}\n{fence}\n{sign}\n{span}\n{sign}") == [fence, span]


# XML


@pytest.mark.parametrize(
    ("span", "name"),
    [
        ("<file>\ntext\n</file>", "file"),
        ('<file name="/a/b.ts">\ntext\n</file>', "file"),
        ('<skill name="x" location="/s/SKILL.md">\ntext\n</skill>', "skill"),
        ("<a>\n<a>\ninner\n</a>\n</a>", "a"),
        ("<a>\n<b>\ninner\n</b>\n</a>", "a"),
        ("<a>\n<b>\ncrossed\n</a>", "a"),
        ("<a>\n</b>\ninner\n</a>", "a"),
        ("<a>\n<a/>\n<a />\n</a>", "a"),
        ("<a>\n  <a>\n</a>", "a"),
        ("<a>\n  </a>\n</a>", "a"),
        ("<a>\ntext </a>\n</a>", "a"),
        ("<system-reminder>\nx\n</system-reminder>", "system-reminder"),
        ("<ns:tag.x_1>\nx\n</ns:tag.x_1>", "ns:tag.x_1"),
        ("<Tag>\nx\n</Tag>", "Tag"),
        ("<a>\n</a>", "a"),
        ("<a>\n```\ncode\n```\n</a>", "a"),
        ("<a>\n```\n</a>\n```\n</a>", "a"),
        ("<a>\n```\nnever closed\n</a>", "a"),
        ("<a>\n\n    indented\n\n</a>", "a"),
    ],
)
def test_a_top_level_span_is_a_block_with_its_name(span: str, name: str) -> None:
    text = f"before\n{span}\nafter"
    assert found(text) == [span]
    assert [block.name for block in scan(text)] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "<a>\nnever closed",
        " <a>\nindented\n </a>",
        "\t<a>\nindented\n</a>",
        "<a>\nx\n </a>",
        "text <a>\nx\n</a>",
        "<a> text\nx\n</a>",
        "<a>x</a>",
        "<a>\nx\n</a> text",
        "<a>\nx\n</A>",
        "<a/>\nx\n</a>",
        "<a />\nx\n</a>",
        '<a b="c" />\nx\n</a>',
        "</a>\nx\n<a>",
        "<1>\nx\n</1>",
        "<>\nx\n</>",
        "<!-- -->\nx\n<!-- -->",
        "< a>\nx\n</a>",
        "> <a>\n> x\n> </a>",
    ],
)
def test_what_is_indented_or_has_no_other_end_is_no_span(text: str) -> None:
    assert scan(text) == []


def test_of_two_openings_and_one_closing_the_inner_ones_are_a_span() -> None:
    assert found("<a>\nx\n<a>\ny\n</a>\nz") == ["<a>\ny\n</a>"]


def test_tags_inside_a_fence_are_code() -> None:
    fence = "```xml\n<a>\nx\n</a>\n```"
    assert [block.name for block in scan(f"before\n{fence}\nafter")] == [""]
    assert found(f"<b>\n{fence}\n") == [fence], "a fence inside what is no span after all"


def test_a_fence_directly_after_a_tag_is_found() -> None:
    """A CommonMark parser that knows HTML blocks would swallow it."""
    assert found("<div>\n```\ncode\n```\n") == ["```\ncode\n```"]


def test_blocks_of_both_kinds_come_in_the_order_of_the_text() -> None:
    text = "<a>\n1\n</a>\n```\n2\n```\n<b>\n3\n</b>\n"
    assert [block.name for block in scan(text)] == ["a", "", "b"]


# Any text


LINES = st.sampled_from(
    [
        *("```", "~~~", "````", "~~~~~", "``` py", "~~~ a`b", " ```", "   ~~~", "    ```", "\t```", "``", "```x```"),
        *("<a>", "</a>", '<a b="c">', "<a />", "<b>", "</b>", " <a>", "</a> ", "<a>\r", "```\r", "<skill>", "</skill>"),
        *("- ```", "  ```", "- x", "1. ~~~", "   ~~~", "> ```", "> x", "- > ~~~", "> <a>", "* * *", "===", "---"),
        *(
            "text",
            "",
            " ",
            "\t",
            "# h",
            "[a]: b",
            "| a | b |",
            "<!--",
            "-->",
            "<pre>",
            "😀",
            "\u2028",
            "\x0c",
            "\0",
            "\ud800",
        ),
    ]
)
TEXTS = st.one_of(
    st.lists(LINES, max_size=40).map("\n".join),
    st.text(alphabet="`~<>/a \n\r\t-", max_size=200),
    st.text(alphabet=string.printable, max_size=200),
)


@given(TEXTS)
@example("- ```\n  ")
@example("> ```\n```\n```")
@example("<a>\n<b>\n</a>\n</b>")
def test_blocks_are_disjoint_in_order_and_begin_and_end_with_their_own_marks(text: str) -> None:
    at = 0
    for block in scan(text):
        assert at <= block.start < block.end <= len(text)
        lines = text[block.start : block.end].split("\n")
        assert len(lines) > 1
        if block.name:
            assert block.start == 0 or text[block.start - 1] == "\n"
            assert re.fullmatch(rf"<{re.escape(block.name)}(\s[^<>]*)?>\s*", lines[0])
            assert re.fullmatch(rf"</{re.escape(block.name)}\s*>[ \t]*", lines[-1])
        else:
            opening = re.match(r"(`{3,})[^`]*\Z|(~{3,})", lines[0])
            assert opening is not None
            mark = opening.group(1) or opening.group(2)
            assert re.fullmatch(rf"[ \t]*{mark[0]}{{{len(mark)},}}[ \t]*", lines[-1])
        assert text[block.end :].split("\n", maxsplit=1)[0].strip("\r") == "", "nothing of the last line is left"
        at = block.end


@given(TEXTS, TEXTS)
def test_what_a_fold_leaves_can_be_scanned_again(before: str, after: str) -> None:
    text = f"{before}\n\n{after}"
    blocks = scan(text)
    left = text
    for block in reversed(blocks):
        left = f"{left[: block.start]}[omitted]{left[block.end :]}"
    assert left.count("[omitted]") >= len(blocks)
    scan(left)


@pytest.mark.parametrize(
    "text",
    [
        "<a>\n" * 20_000 + "</b>",
        "<a>\n" * 10_000 + "</a>\n" * 10_000,
        "```\nx\n```\n" * 5_000,
        "> " * 5_000 + "\n```\nx\n```",
        "".join(f"{' ' * depth}- a\n" for depth in range(500)) + "```\nx\n```",
    ],
    ids=["openings", "nested spans", "fences", "nested quotes", "nested lists"],
)
def test_a_hostile_text_takes_no_time_to_speak_of(text: str) -> None:
    """The daemon answers one session at a time: what is quadratic would hold up the user (it took 12 s for 20 KB)."""
    assert len(scan(text)) <= 5_000
