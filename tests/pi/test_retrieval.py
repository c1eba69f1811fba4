"""Retrieval in real Pi: after a rollover the model finds, exactly and in bounds, what it needs (both versions)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pi.harness import Call, PiHome, RpcPi, Step

NEW = Call("new_context", {})
NOTE = "goal: find it\nstate: read"
LONG = "".join(f"{n:05d} a line of the long old output\n" for n in range(600))


class Model:
    """A scripted model that is told its next steps while the session goes on."""

    def __init__(self, home: PiHome, pi: RpcPi) -> None:
        self._home = home
        self._pi = pi
        self._steps: list[Step] = []
        self._settled = 0

    def does(self, *steps: Step, prompt: str = "go on", settles: int = 1, **fields: Any) -> None:
        """Prompt it and let it take these steps; `settles` counts the runs that this takes, `fields` go to Pi."""
        self._steps += steps
        self._home.script(*self._steps, summary=[Step(text="SUMMARY ZERO"), Step(text="SUMMARY ONE")])
        self._pi.prompt(prompt, **fields)
        self._settled += settles
        self._pi.settled(self._settled)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Let it call a tool; the result as the contract has it."""
        self.does(Step(tools=[Call(tool, arguments)]), Step(text="seen"))
        return self.last_result()

    def last_result(self) -> dict[str, Any]:
        """What the last tool call returned to the model."""
        results = self._home.session().of_type("message/toolResult")
        message = results[-1]["message"]
        assert not message["isError"], message
        text = json.loads(message["content"][0]["text"])
        assert message["details"] == {"codexHistoryNotes": text}
        return text  # type: ignore[no-any-return]

    def last_error(self) -> str:
        """The text of the last tool call, which failed."""
        message = self._home.session().of_type("message/toolResult")[-1]["message"]
        assert message["isError"]
        return str(message["content"][0]["text"])


@contextmanager
def running(home: PiHome, *args: str, **options: Any) -> Iterator[Model]:
    """Pi with a model that a test leads."""
    with home.rpc(args=list(args), **options) as pi:
        yield Model(home, pi)
        assert pi.extension_errors == []
        pi.close()


def archive_work(home: PiHome, model: Model) -> None:
    """One window with a long tool result and a note, archived."""
    (home.work / "old.txt").write_text(LONG, encoding="utf-8")
    model.does(
        Step(tools=[Call("read", {"path": "old.txt"})]),
        Step(tools=[Call("notes", {"action": "write_file", "path": "checkpoint.md", "text": NOTE})]),
        Step(text="off to a new window", tools=[NEW]),
        Step(text="I am in window 1"),
        prompt="read the old file",
        settles=2,
    )


def read_whole(model: Model, window_id: str, item_id: str) -> str:
    """An item through all its pages."""
    text, offset = "", 0
    while True:
        place = {"window_id": window_id, "item_id": item_id, "offset_chars": offset}
        item = model.call("history", action="read_item", **place)["item"]
        text += str(item["content"])
        if "next_offset_chars" not in item:
            assert len(text) == item["total_chars"]
            return text
        offset = item["next_offset_chars"]


def find_everything(model: Model) -> None:
    """What a model does that has forgotten all: note, windows, search, read."""
    note = model.call("notes", action="read_file", path="/root/notes/checkpoint.md")["file"]
    assert note["content"] == "goal: find it\nstate: read"
    windows = model.call("history", action="list_windows")["windows"]
    archived = windows[0]["window_id"]
    assert windows[0]["item_count"] >= 8
    listed = model.call("history", action="list_items", window_id=archived)["items"]
    assert listed[0]["role"] == "assistant"
    assert "SUMMARY ZERO" in listed[0]["truncated_content"]
    found = model.call("history", action="search_contents", query="00123 a line of the long", tool_name="read")["items"]
    assert [(item["window_id"], item["role"], item["tool_name"]) for item in found] == [(archived, "tool", "read")]
    assert "00123 a line" in found[0]["truncated_content"]
    whole = read_whole(model, archived, found[0]["item_id"])
    assert whole.startswith(LONG.rstrip("\n"))


def test_a_model_finds_its_note_and_an_old_tool_result_after_a_rollover_and_after_continue(home: PiHome) -> None:
    with running(home) as model:
        archive_work(home, model)
        find_everything(model)
    with running(home, "--continue") as model:
        find_everything(model)


def test_the_marker_of_the_new_window_names_the_note_the_summary_and_the_last_requests(home: PiHome) -> None:
    with running(home) as model:
        archive_work(home, model)
    session = home.session()
    marker = session.of_type("custom_message/codex-context-window")[-1]["content"]
    summary = session.of_type("branch_summary")[-1]["id"]
    user = session.of_type("message/user")[0]["id"]
    window = session.of_type("custom/codex-context-tree-archive")[-1]["data"]["windowId"]
    assert "- /root/notes/checkpoint.md (2 lines, 25 UTF-8 bytes)" in marker
    ids = f'{{"window_id":"{window}","summary_item_id":"{summary}","user_item_ids":["{user}"]}}'
    assert f"Previous window history IDs: {ids}" in marker


def test_notes_survive_two_cuts_and_can_be_appended_to(home: PiHome) -> None:
    with running(home) as model:
        archive_work(home, model)
        model.call("notes", action="append_to_file", path="checkpoint.md", text="\nmore")
        model.does(Step(tools=[NEW]), Step(text="in window 2"), settles=2)
        note = model.call("notes", action="read_file", path="checkpoint.md")["file"]
    assert note["content"] == "goal: find it\nstate: read\nmore"


def test_wrong_types_and_unknown_items_are_answered_as_the_contract_has_it(home: PiHome) -> None:
    with running(home) as model:
        archive_work(home, model)
        window = model.call("history", action="list_windows", limit="5", made_up=True)["windows"][0]["window_id"]
        assert model.call("history", action="read_item", window_id=window, item_id="nowhere")["item"] is None
        assert model.call("history", action="list_items", window_id="unknown")["items"] == []
        model.does(Step(tools=[Call("history", {"action": "read_item", "window_id": window})]), Step(text="seen"))
        assert "item_id is required" in model.last_error()


def test_a_fork_reads_its_archives_from_the_parent_file_and_names_what_is_lost_when_that_is_gone(home: PiHome) -> None:
    with home.rpc() as pi:
        model = Model(home, pi)
        archive_work(home, model)
        model.does(Step(tools=[NEW]), Step(text="in window 2"), settles=2)
        model.does(Step(text="before the fork"), prompt="fork here")
        parent = home.session_files()[-1]
        target = home.session().of_type("message/user")[-1]["id"]
        pi.call("fork", entryId=target)
        pi.prompt("in the fork")
        pi.settled(model._settled + 1)
        pi.close()
    fork = home.session_files()[-1]
    assert fork != parent
    archived = [entry["data"]["windowId"] for entry in home.session().of_type("custom/codex-context-tree-archive")]
    assert len(archived) == 2
    with running(home, "--session", str(fork)) as model:
        windows = model.call("history", action="list_windows")
        assert [window["window_id"] for window in windows["windows"]][:2] == archived
        assert "unavailable_windows" not in windows
        query = "00123 a line of the long"
        found = model.call("history", action="search_contents", query=query, window_id=archived[0])["items"]
        assert read_whole(model, archived[0], found[0]["item_id"]).startswith("00000 a line")
        assert not any("SUMMARY" in text for text in home.requests("main")[-1].texts)
    away = parent.rename(parent.with_suffix(".away"))
    with running(home, "--session", str(fork)) as model:
        windows = model.call("history", action="list_windows")
        assert windows["unavailable_windows"] == archived
        call = Call("history", {"action": "read_item", "window_id": archived[0], "item_id": "x"})
        model.does(Step(tools=[call]), Step(text="seen"))
        assert parent.name in model.last_error()
        shown = [text for text in home.requests("main")[-1].texts if "SUMMARY" in text]
        assert len(shown) == 2
    assert away.exists()
