"""The tools as the model gets them: what they cost in every request, and that schemas and arguments agree."""

import math
from typing import Any, get_args, get_type_hints

import jsonschema  # type: ignore[import-untyped]  # comes with jsonrpcserver
import msgspec
import pytest

from builders import Json
from protocol.effects import ToolSpec
from protocol.tools import HistoryAction, HistoryArguments, NotesAction, NotesArguments, Role
from state.arguments import parse
from state.tools import TOOLS
from state.windows import GUIDANCE

BY_NAME = {tool.name: tool for tool in TOOLS}
ROUTERS: dict[str, type[Any]] = {"history": HistoryArguments, "notes": NotesArguments}


def as_sent(tool: ToolSpec) -> str:
    """What Pi puts into a request of a tool."""
    sent = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return msgspec.json.encode(sent).decode()


def tokens(text: str) -> int:
    """The rule of thumb, four characters each."""
    return math.ceil(len(text) / 4)


def test_what_every_request_pays_for_tools_and_guidance_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    costs = {tool.name: tokens(as_sent(tool)) for tool in TOOLS} | {"guidance": tokens(GUIDANCE)}
    with capsys.disabled():
        shown = ", ".join(f"{name} {cost}" for name, cost in costs.items())
        print(f"\ntokens: {shown} = {sum(costs.values())}")  # noqa: T201 - the figure is half of this test
    assert sum(costs.values()) < 1_500


def test_there_are_four_tools_and_writing_ones_run_one_at_a_time() -> None:
    """Facts: tree-upstream 2.1."""
    assert [(tool.name, tool.sequential) for tool in TOOLS] == [
        ("new_context", True),
        ("get_context_remaining", False),
        ("history", False),
        ("notes", True),
    ]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_schema_is_a_valid_and_open_schema_of_an_object(tool: ToolSpec) -> None:
    jsonschema.Draft202012Validator.check_schema(tool.parameters)
    assert tool.parameters["type"] == "object"
    assert tool.parameters.get("additionalProperties", True) is True
    assert set(tool.parameters.get("required", [])) <= set(tool.parameters["properties"])


@pytest.mark.parametrize("name", ["new_context", "get_context_remaining"])
def test_two_tools_take_nothing(name: str) -> None:
    assert BY_NAME[name].parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(("name", "shape"), ROUTERS.items())
def test_every_argument_is_in_the_schema_and_every_property_is_an_argument(name: str, shape: type[Any]) -> None:
    assert set(BY_NAME[name].parameters["properties"]) == set(shape.__struct_fields__)
    assert BY_NAME[name].parameters["required"] == ["action"]


KINDS = {str: "string", int: "integer", bool: "boolean"}


@pytest.mark.parametrize(("name", "shape"), ROUTERS.items())
def test_every_property_has_the_type_and_the_choices_of_its_argument(name: str, shape: type[Any]) -> None:
    hints = get_type_hints(shape)
    for field, schema in BY_NAME[name].parameters["properties"].items():
        options = [one for one in (get_args(hints[field]) or (hints[field],)) if one is not type(None)]
        choices = [one for option in options for one in get_args(option)] or [
            one for one in options if isinstance(one, str)
        ]
        if choices:
            assert (schema["type"], schema["enum"]) == ("string", choices), field
        else:
            assert schema["type"] == KINDS[options[0]], field


def test_actions_come_in_the_order_of_the_contract() -> None:
    """Facts: tree-upstream 2.1."""
    assert get_args(HistoryAction) == ("list_windows", "list_items", "read_item", "search_contents")
    assert get_args(NotesAction) == (
        *("list_files_by_prefix", "read_file", "search_contents", "append_to_file", "write_file"),
    )
    assert get_args(Role) == ("user", "assistant", "tool", "system", "developer")


@pytest.mark.parametrize(("name", "shape"), ROUTERS.items())
def test_every_action_is_explained_in_the_description(name: str, shape: type[Any]) -> None:
    del shape
    for action in BY_NAME[name].parameters["properties"]["action"]["enum"]:
        assert f"{action}:" in BY_NAME[name].description


EXAMPLES: list[tuple[str, Json]] = [
    ("history", {"action": "list_items", "role": "user", "limit": 8, "max_chars_per_item": 5000, "recent_first": True}),
    ("history", {"action": "read_item", "window_id": "w", "item_id": "a0000001", "offset_chars": 0, "limit_chars": 1}),
    ("notes", {"action": "list_files_by_prefix", "file_order": "descending", "file_order_by": "updated_at"}),
    ("notes", {"action": "read_file", "path": "a", "start_line": -5, "stop_line": 0}),
]


@pytest.mark.parametrize(("name", "arguments"), EXAMPLES)
def test_what_fits_the_schema_is_accepted(name: str, arguments: Json) -> None:
    jsonschema.validate(arguments, BY_NAME[name].parameters)
    found: Any = parse(name, arguments, ROUTERS[name])
    given = {key: value for key, value in msgspec.to_builtins(found).items() if value is not None}
    assert given == arguments
