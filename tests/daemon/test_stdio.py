"""Lines out of chunks: LF alone ends one, and no line is too long to go on after it (facts: codex-and-sidecar 2.3)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.stdio import Splitter, TooLong


def split(*chunks: bytes, limit: int = 1000) -> list[bytes | TooLong]:
    splitter = Splitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)]


def model(raw: bytes, limit: int) -> list[bytes | TooLong]:
    *lines, _rest = raw.split(b"\n")
    return [TooLong() if len(line) > limit else line.removesuffix(b"\r") for line in lines]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", "é\u2028".encode(), b"0123456789"])), st.data())
def test_any_chunking_gives_the_same_lines(parts: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(parts)
    limit = data.draw(st.integers(0, 20), "limit")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8), "cuts"))
    chunks = [raw[start:end] for start, end in itertools.pairwise([0, *cuts, len(raw)])]
    assert split(*chunks, limit=limit) == model(raw, limit)


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\r\n", [b"a", b"b\r"]),
        (b"a\rb\n", [b"a\rb"]),
        ("a\u2028b\x85c\n".encode(), ["a\u2028b\x85c".encode()]),
        (b"\n\n", [b"", b""]),
        (b"unfinished", []),
        (b"", []),
    ],
)
def test_lf_alone_ends_a_line_and_one_cr_before_it_is_dropped(raw: bytes, lines: list[bytes]) -> None:
    assert split(raw) == lines


def test_a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() -> None:
    assert split(b"x" * 11 + b"\nnext\n", limit=10) == [TooLong(), b"next"]
    assert split(b"x" * 10 + b"\nnext\n", limit=10) == [b"x" * 10, b"next"]


def test_a_line_that_is_too_long_is_not_kept_while_it_comes() -> None:
    splitter = Splitter(10)
    for _ in range(100):
        assert splitter.feed(b"x" * 9) == []
        assert sum(map(len, splitter._parts)) <= 10
    assert splitter.feed(b"\nnext\n") == [TooLong(), b"next"]
