"""JSON that other programs wrote: what JavaScript reads is read (facts: codex-and-sidecar 2.4), and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.jsonio import decode_object, encode

any_text = st.text(st.characters(), max_size=12)
"""With lone surrogates among it."""
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


def well_formed(text: str) -> str:
    """JavaScript's toWellFormed: what is no pair becomes U+FFFD, one for one."""
    paired = text.encode("utf-16-le", "surrogatepass")
    units = [int.from_bytes(paired[at : at + 2], "little") for at in range(0, len(paired), 2)]
    found = []
    at = 0
    while at < len(units):
        unit = units[at]
        low = units[at + 1] if at + 1 < len(units) else 0
        if 0xD800 <= unit < 0xDC00 and 0xDC00 <= low < 0xE000:
            found.append(chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)))
            at += 2
            continue
        found.append("\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit))
        at += 1
    return "".join(found)


def scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [scrubbed(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): scrubbed(item) for key, item in value.items()}
    return value


@given(st.dictionaries(any_text, values, max_size=4), st.booleans())
def test_an_object_is_read_with_lone_surrogates_replaced(value: dict[str, Any], escaped: bool) -> None:  # noqa: FBT001
    raw = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    expected = scrubbed(json.loads(raw.decode("utf-8", "replace")))
    assert decode_object(raw) == expected
    assert decode_object(encode(expected)) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"[]",
        b"[{}]",
        b"7",
        b'"text"',
        b"null",
        b"{",
        b'{"a":1}x',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"{'a':1}",
    ],
)
def test_what_is_no_json_object_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - several kinds, one type
        decode_object(raw)


@pytest.mark.parametrize("depth", [300, 480, 600, 900, 1_000, 5_000, 100_000])
@pytest.mark.parametrize("odd", [b"", b"\\ud800"])
def test_deep_nesting_is_read_or_is_a_value_error(depth: int, odd: bytes) -> None:
    raw = b'{"odd":"' + odd + b'","deep":' + b"[" * depth + b"]" * depth + b"}"
    try:
        assert "deep" in decode_object(raw)
    except ValueError:
        assert depth > 300


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"a":"\\u0000"}', {"a": "\0"}),
        (b'{"a":123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a":"\u2028"}'.encode(), {"a": "\u2028"}),
        (b'{"a":"\xff"}', {"a": "\ufffd"}),
        (b'{"\\ud800":1}', {"\ufffd": 1}),
        (b' {"a" : [ ] } \r', {"a": []}),
    ],
)
def test_unusual_json_is_read_as_javascript_reads_it(raw: bytes, value: dict[str, Any]) -> None:
    assert decode_object(raw) == value
