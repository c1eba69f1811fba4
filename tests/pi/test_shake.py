"""`/shake` in real Pi 1.6.0: folds, undo, where folds go, what is summarised, and what a person reads (design 6)."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pi.harness import HERE, Call, Json, PiHome, Request, Step, TuiPi, Usage
from pi.product import HANDS, daemon, extensions, notices
from pi.test_retrieval import Model

DISTURB = HERE / "disturb.ts"

OLD = "".join(f"{number:05d} a line of the long old output\n" for number in range(600))
SECOND = "".join(f"{number:05d} a line of the second output\n" for number in range(300))
TALK = "we talk about it " * 1_100
"""More than the tail of the default profile."""

PLACEHOLDER = re.compile(r"\[read output omitted \(~[\d,]+ tokens\); history item ([0-9a-f]{8})\]")
DONE = "Shook 1 tool result (~5,385 tokens). Protects the last 4,000 tokens. Profile: default (built in)."
NEEDS_SCOPE = "/shake dry-run needs a scope here: elide, images, thinking."


@pytest.fixture
def pi_version() -> str:
    return "1.6.0"


# Driving it


class Person(Model):
    """Who talks to a model and folds what it has read."""

    def shake(self, arguments: str = "") -> str:
        """Enter the command; what is said then, which is one notice."""
        [said] = self.says(f"/shake {arguments}".rstrip())
        return said

    def says(self, text: str) -> list[str]:
        """Enter something that starts no turn; the notices that follow."""
        before = len(notices(self._pi))
        self._pi.prompt(text)
        return notices(self._pi)[before:]

    def asks(self, prompt: str) -> Request:
        """One more turn; what the model was sent."""
        self.does(Step(text=f"so much for {prompt}"), prompt=prompt)
        return self._home.requests("main")[-1]

    def reads(self, name: str = "old.txt", text: str = OLD) -> None:
        """A turn in which the model reads a file."""
        (self._home.work / name).write_text(text, encoding="utf-8")
        self.does(Step(tools=[Call("read", {"path": name})]), Step(text=f"I read {name}"), prompt=f"read {name}")

    def talks(self) -> None:
        """A turn that fills the tail."""
        self.does(Step(text=TALK), prompt="talk about it")

    def go(self, entry_id: str) -> None:
        """Navigate, as /tree does."""
        assert self.says(f"/go {entry_id}")[-1] == "moved"

    def leaf(self) -> str:
        return str(self._home.session().leaf["id"])

    def fork(self, command: str, **fields: Any) -> None:
        """Go on in a new file."""
        assert not self._pi.call(command, **fields)["data"]["cancelled"]

    def compacts(self) -> None:
        assert self._pi.call("compact")["success"]

    def stops(self) -> None:
        assert self._pi.extension_errors == []
        assert self._pi.close() == 0


@contextmanager
def at_work(home: PiHome, *args: str, **options: Any) -> Iterator[Person]:
    """Pi with a person at it, another extension of theirs, and no extension in trouble."""
    with home.rpc(args=list(args), extensions=extensions(HANDS, DISTURB), **options) as pi:
        person = Person(home, pi)
        yield person
        if pi.alive:
            person.stops()


def sent(request: Request) -> list[str]:
    """The messages of a request, byte for byte."""
    return [json.dumps(message) for message in request.messages]


def raw(request: Request) -> bool:
    """Whether the model saw the old file in full; otherwise in its place stands a placeholder."""
    text = "\n".join(request.texts)
    assert (OLD in text) != bool(PLACEHOLDER.search(text)), text
    return OLD in text


def edits(home: PiHome) -> list[Json]:
    return home.session().of_type("context_edit")


def logs(home: PiHome) -> list[Json]:
    return [entry["data"] for entry in home.session().of_type("custom/shake")]


def counts(home: PiHome) -> tuple[int, int]:
    """How many overlays and logs the session holds."""
    return len(edits(home)), len(logs(home))


# Fold, undo, fold again


def test_a_fold_leaves_a_placeholder_and_an_undo_the_same_bytes_as_before(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        before = person.asks("the first look")
        assert person.shake().split("\n")[0] == DONE
        folded = person.asks("the second look")
        assert person.shake("undo") == "Restored 1 entry (~5,385 tokens)."
        after = person.asks("the third look")
    assert raw(before)
    assert not raw(folded)
    assert sent(after)[: len(before.messages)] == sent(before)
    assert [message["role"] for message in folded.messages][: len(before.messages)] == [
        message["role"] for message in before.messages
    ]
    target = home.session().of_type("message/toolResult")[0]
    assert [edit["targetId"] for edit in edits(home)] == [target["id"]] * 2
    assert edits(home)[-1]["replacement"]["content"] == target["message"]["content"]
    assert [(log["op"], [one["id"] for one in log["targets"]]) for log in logs(home)] == [
        ("fold", [target["id"]]),
        ("undo", [target["id"]]),
    ]


def test_a_repeated_fold_and_a_repeated_undo_append_nothing(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        assert person.shake("undo") == "Nothing to restore."
        assert counts(home) == (0, 0)
        person.shake()
        assert person.shake() == "Nothing to shake."
        assert counts(home) == (1, 1)
        person.shake("undo")
        assert person.shake("undo") == "Nothing to restore."
        assert counts(home) == (2, 2)
        assert person.shake().split("\n")[0] == DONE
        assert counts(home) == (3, 3)
        assert not raw(person.asks("a look"))


def test_a_session_without_anything_heavy_has_nothing_to_shake(home: PiHome) -> None:
    with at_work(home) as person:
        before = len(home.session_files())
        assert person.shake() == "Nothing to shake."
        assert person.shake("images") == "No images to shake."
        assert person.shake("thinking") == "No thinking blocks to shake."
        assert len(home.session_files()) == before
        person.asks("a little")
        assert person.shake() == "Nothing to shake."
        assert counts(home) == (0, 0)


def test_the_results_of_parallel_calls_are_folded_each_with_its_call(home: PiHome) -> None:
    with at_work(home) as person:
        for name, text in (("old.txt", OLD), ("second.txt", SECOND), ("small.txt", "small")):
            (home.work / name).write_text(text, encoding="utf-8")
        calls = [Call("read", {"path": name}) for name in ("old.txt", "small.txt", "second.txt")]
        person.does(Step(tools=calls), Step(text="I read all three"), prompt="read them")
        person.talks()
        assert person.shake().startswith("Shook 2 tool results (~")
        request = person.asks("a look")
    results = [message for message in request.messages if message["role"] == "toolResult"]
    shown = [result["content"][0]["text"] for result in results]
    assert [bool(PLACEHOLDER.fullmatch(text)) for text in shown] == [True, False, True]
    spoken = [block for message in request.messages if message["role"] == "assistant" for block in message["content"]]
    called = [block["id"] for block in spoken if block["type"] == "toolCall"]
    assert [result["toolCallId"] for result in results] == called
    assert counts(home) == (2, 1)


# Images and reasoning


def png() -> str:
    """A picture of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")), chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def images(request: Request) -> list[str]:
    """The roles of the messages that hold an image."""
    return [
        message["role"]
        for message in request.messages
        for block in message.get("content") or []
        if isinstance(block, dict) and block["type"] == "image"
    ]


def test_images_of_a_user_and_of_a_tool_are_folded_and_come_back(home: PiHome) -> None:
    picture = {"type": "image", "data": png(), "mimeType": "image/png"}
    (home.work / "picture.png").write_bytes(base64.b64decode(png()))
    with at_work(home) as person:
        look = Step(tools=[Call("read", {"path": "picture.png"})])
        person.does(look, Step(text="both are red"), prompt="compare this one", images=[picture])
        before = person.asks("the first look")
        assert images(before) == ["user", "toolResult"]
        assert person.shake() == "Nothing to shake."
        assert person.shake("images").startswith("Shook 2 images (~")
        assert person.shake("images") == "No images to shake."
        folded = person.asks("the second look")
        assert images(folded) == []
        assert sum("[image omitted (~1,200 tokens); history item " in text for text in folded.texts) == 2
        assert any("compare this one" in text for text in folded.texts)
        person.shake("undo")
        after = person.asks("the third look")
    assert sent(after)[: len(before.messages)] == sent(before)


def test_reasoning_is_folded_without_a_word_and_comes_back_with_its_signatures(home: PiHome) -> None:
    with at_work(home) as person:
        (home.work / "old.txt").write_text("short", encoding="utf-8")
        person.does(
            Step(thinking="first I look " * 50, signature="c2lnbmVk", tools=[Call("read", {"path": "old.txt"})]),
            Step(thinking="now I know " * 50, signature="c2lnbmVkIHRvbw==", text="it is short"),
            prompt="how long is it",
        )
        before = person.asks("the first look")
        assert person.shake("thinking").startswith("Shook 2 thinking blocks (~")
        assert person.shake("thinking") == "No thinking blocks to shake."
        folded = person.asks("the second look")
        person.shake("undo")
        after = person.asks("the third look")
    assert sum("<thinking" in text for text in before.texts) == 2
    assert not any("<thinking" in text for text in folded.texts)
    assert any(text.startswith("assistant: <read ") for text in folded.texts)
    assert "assistant: it is short" in folded.texts
    assert sent(after)[: len(before.messages)] == sent(before)
    assert '"thinkingSignature": "c2lnbmVk"' in "".join(sent(after))


# Where folds go


def test_a_rewind_shows_the_raw_text_and_switching_back_the_fold(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        earlier = person.leaf()
        person.shake()
        assert not raw(person.asks("on the folded branch"))
        later = person.leaf()
        person.go(earlier)
        assert person.shake("status") == "Nothing is folded. Profile: default (built in)."
        assert raw(person.asks("on the raw branch"))
        person.go(later)
        assert person.shake("status").startswith("1 entry is folded (~5,3")
        assert not raw(person.asks("back on the folded branch"))
        person.shake("undo")
        assert raw(person.asks("after the undo"))
        person.go(later)
        assert not raw(person.asks("where nothing was undone"))


def test_the_tree_of_the_terminal_does_the_same(home: PiHome) -> None:
    (home.work / "old.txt").write_text(OLD, encoding="utf-8")
    home.script(
        Step(tools=[Call("read", {"path": "old.txt"})]),
        Step(text="I read old.txt"),
        Step(text=f"talked over: {TALK} to the end"),
        *[Step(text=f"answer {number}") for number in range(3)],
    )
    with home.tui() as pi:
        ask(pi, "read old.txt", "I read old.txt")
        ask(pi, "talk about it", "to the end")
        enter(pi, "/shake", "Shook 1 tool result")
        ask(pi, "folded branch", "answer 0")
        select(pi, "talked over")
        ask(pi, "raw branch", "answer 1")
        select(pi, "answer 0")
        ask(pi, "folded again", "answer 2")
    assert [raw(request) for request in home.requests("main")[-3:]] == [False, True, False]


def ask(pi: TuiPi, prompt: str, answer: str) -> None:
    """Prompt, and wait until the answer stands above an editor that takes the next one."""
    pi.submit(prompt)
    pi.wait_screen(lambda screen: answer in screen and "Working" not in screen)


def enter(pi: TuiPi, command: str, shown: str) -> None:
    """Enter a command as it stands, without a completion."""
    pi.type(command)
    pi.key("esc")
    pi.key("enter")
    pi.wait_screen(shown)


def select(pi: TuiPi, entry: str) -> None:
    """Go to an entry by /tree, without a summary."""
    enter(pi, "/tree", "Type to search")
    pi._send(entry.encode())
    pi.wait_screen(lambda screen: f"Type to search: {entry}" in screen)
    pi.key("enter")
    pi.wait_screen("No summary")
    pi.key("enter")
    pi.wait_screen("Navigated to selected point")


def test_a_fork_at_the_leaf_keeps_the_folds_and_their_undo(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        before = person.asks("before")
        person.shake()
        person.asks("folded")
        first = home.session_files()[-1]
        person.fork("clone")
        assert not raw(person.asks("in the fork"))
        assert home.session_files()[-1] != first
        assert person.shake("status").startswith("1 entry is folded")
        assert person.shake().startswith("Nothing to shake.")
        assert person.shake("undo").startswith("Restored 1 entry")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)


def test_a_fork_at_an_earlier_message_starts_raw(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        target = home.session().of_type("message/user")[-1]["id"]
        person.shake()
        person.asks("folded")
        person.fork("fork", entryId=target)
        assert person.shake("status").startswith("Nothing is folded.")
        assert raw(person.asks("in the fork"))
        person.talks()
        assert person.shake().startswith("Shook 1 tool result")
        assert not raw(person.asks("folded there too"))


def test_a_resumed_session_is_folded_as_it_was(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        before = person.asks("before")
        person.shake()
    with at_work(home, "--session", str(home.session_files()[-1])) as person:
        assert person.shake("status").startswith("1 entry is folded")
        assert not raw(person.asks("folded"))
        assert person.shake("undo").startswith("Restored 1 entry")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)


def test_a_copy_of_the_file_holds_the_folds(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.shake()
        person.asks("folded")
    copy = home.root / "copy.jsonl"
    shutil.copy(home.session_files()[-1], copy)
    shutil.rmtree(home.sessions)
    home.sessions.mkdir()
    with at_work(home, "--session", str(copy)) as person:
        assert not raw(person.asks("in the copy"))
        assert person.shake("undo").startswith("Restored 1 entry")
        assert raw(person.asks("undone"))


def test_export_and_import_in_the_terminal_keep_the_folds(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.shake()
        person.asks("folded")
    copy = home.root / "copy.jsonl"
    home.script(Step(text="answer 0"), Step(text="answer 1"))
    with home.tui(args=["--continue"]) as pi:
        enter(pi, f"/export {copy}", "exported to")
    shutil.rmtree(home.sessions)
    home.sessions.mkdir()
    with home.tui() as pi:
        enter(pi, f"/import {copy}", "Yes")
        pi.key("enter")
        pi.wait_screen("mported")
        ask(pi, "in the import", "answer 0")
        enter(pi, "/shake undo", "Restored 1 entry")
        ask(pi, "undone there", "answer 1")
    assert [raw(request) for request in home.requests("main")[-2:]] == [False, True]


# Compaction


def fold_two(person: Person, *, split: bool) -> None:
    """Two folded results; Pi keeps the second, which stands in a turn of its own or in one with the first."""
    (person._home.work / "old.txt").write_text(OLD, encoding="utf-8")
    (person._home.work / "second.txt").write_text(SECOND, encoding="utf-8")
    first, second = (Step(tools=[Call("read", {"path": name})]) for name in ("old.txt", "second.txt"))
    weight = "this weighs enough to be kept " * 60
    if split:
        second = Step(text=weight, tools=second.tools)
        person.does(first, second, Step(text="I read both"), prompt="read both")
    else:
        person.does(first, Step(text="I read old.txt"), prompt="read old.txt")
        person.does(second, Step(text="I read second.txt"), prompt=f"read second.txt {weight}")
    person.talks()
    assert person.shake().startswith("Shook 2 tool results")


def check_compacted(home: PiHome, person: Person) -> None:
    """The first file was summarised from its text, of which Pi shows the start; the second stays folded."""
    summarised = "\n".join(text for request in home.requests("summary") for text in request.texts)
    assert OLD[:1_900] in summarised
    assert SECOND[:1_900] not in summarised
    assert "omitted" not in summarised
    request = person.asks("after it")
    [placeholder] = [text for text in request.texts if text.startswith("toolResult: ")]
    assert PLACEHOLDER.search(placeholder)
    assert person.shake("status").startswith("1 entry is folded")
    assert person.shake("undo").startswith("Restored 1 entry")
    assert any(SECOND in text for text in person.asks("undone").texts)


KEEPS_THE_SECOND = {"enabled": True, "reserveTokens": 1_000, "keepRecentTokens": len(TALK) // 4 + 200}


@pytest.mark.parametrize("split", [False, True], ids=["whole turns", "a split turn"])
def test_compaction_summarises_the_full_text_and_keeps_folded_what_it_keeps(home: PiHome, *, split: bool) -> None:
    """Seed: "compact while the content is still visible"; here without an undo before it."""
    home.settings(compaction=KEEPS_THE_SECOND)
    with at_work(home) as person:
        fold_two(person, split=split)
        person.compacts()
        assert len(home.requests("summary")) == (2 if split else 1)
        check_compacted(home, person)


@pytest.mark.parametrize("split", [False, True], ids=["whole turns", "a split turn"])
def test_auto_compaction_does_the_same(home: PiHome, *, split: bool) -> None:
    home.settings(compaction=KEEPS_THE_SECOND)
    with at_work(home) as person:
        fold_two(person, split=split)
        person.does(Step(text="that is much", usage=Usage(input=199_500)), prompt="one more")
        [compaction] = home.session().of_type("compaction")
        assert compaction["fromHook"] is False
        check_compacted(home, person)


def test_after_a_compaction_what_it_stopped_showing_is_not_folded(home: PiHome) -> None:
    home.settings(compaction=KEEPS_THE_SECOND)
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.compacts()
        assert person.shake() == "Nothing to shake."
        assert counts(home) == (0, 0)


def test_a_fold_after_which_pi_would_refuse_to_compact_says_so(home: PiHome) -> None:
    home.settings(compaction={"enabled": True, "keepRecentTokens": 8_000})
    with at_work(home) as person:
        person.reads()
        person.talks()
        assert "Afterwards /compact would find next to nothing to do: it keeps the last 8,000 tokens." in person.shake()
        refused = person._pi.call("compact")
    assert "Nothing to compact" in refused["error"]


# Dry run, status, completions, settings


def test_a_dry_run_asks_for_the_scope_and_changes_nothing(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        before = home.session_files()[-1].read_bytes()
        for chosen, said in (
            ("elide", f"[dry-run] · {DONE}"),
            ("images", "[dry-run] · No images to shake."),
            ("thinking", "[dry-run] · No thinking blocks to shake."),
        ):
            mark = person._pi.mark
            command = person._pi.send("prompt", message="/shake dry-run")
            popup = person._pi.wait_for(lambda event: event.get("method") == "select", after=mark)
            assert popup["options"] == ["elide", "images", "thinking"]
            person._pi.answer_ui(popup, value=chosen)
            assert person._pi.response(command)["success"]
            assert notices(person._pi)[-1].split("\n")[0] == said
            assert person.shake(f"dry-run {chosen}").split("\n")[0] == said
        mark = person._pi.mark
        command = person._pi.send("prompt", message="/shake dry-run")
        popup = person._pi.wait_for(lambda event: event.get("method") == "select", after=mark)
        seen = len(notices(person._pi))
        person._pi.answer_ui(popup, cancelled=True)
        assert person._pi.response(command)["success"]
        assert len(notices(person._pi)) == seen
        assert home.session_files()[-1].read_bytes() == before
        assert raw(person.asks("a look"))


def test_a_dry_run_explains_its_figures(home: PiHome) -> None:
    with at_work(home, model="fake/fake-priced") as person:
        person.reads()
        person.talks()
        said = person.shake("dry-run elide --explain").split("\n")
        assert said[0] == f"[dry-run] · {DONE}"
        # The words in the order in which they stand, below the line with the figures.
        assert [line.split()[0] for line in said[2:]] == ["F", "S", "r,", "turns", "cache", "undo", "rules"]
        prices = "$0.3 and $3.75 a million tokens, the prices of fake-priced for reading and writing its cache"
        assert f"  r, w   {prices}" in said
        assert "  cache  warm" in said
        assert counts(home) == (0, 0)


def test_without_a_screen_a_dry_run_needs_a_scope(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
    before = home.session_files()[-1].read_bytes()
    ran = home.run_print("/shake dry-run", args=["--continue"])
    assert (ran.returncode, ran.stderr.strip(), ran.requests) == (0, NEEDS_SCOPE, [])
    assert home.session_files()[-1].read_bytes() == before


def test_print_mode_folds_and_undoes(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
    home.script(Step(text="printed"))
    ran = home.run_print("/shake", "a look", args=["--continue"])
    assert (ran.returncode, ran.stdout.strip(), raw(ran.requests[-1])) == (0, "printed", False)
    ran = home.run_print("/shake undo", "another look", args=["--continue"])
    assert (ran.returncode, ran.stdout.strip(), raw(ran.requests[-1])) == (0, "printed", True)


def test_the_terminal_completes_subcommands_and_shows_popup_and_notice(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
    with home.tui(args=["--continue"]) as pi:
        pi.type("/shake ")
        screen = pi.wait_screen("Bring back everything that is folded")
        assert all(word in screen for word in ("images", "thinking", "status", "undo", "dry-run"))
        pi._send(b"dr")
        pi.wait_screen(lambda screen: "dry-run  " in screen and "Fold all images" not in screen)
        pi.key("tab")
        pi.wait_editor(lambda text: text == "/shake dry-run")
        pi.key("enter")
        screen = pi.wait_screen("What would be folded")
        assert "→ elide" in screen
        pi.key("enter")
        pi.wait_screen("[dry-run] · Shook 1 tool result (~5,385 tokens).")
        enter(pi, "/shake", "\n Shook 1 tool result (~5,385 tokens).")
        enter(pi, "/shake status", "1 entry is folded (~5,385 tokens). Profile: default (built in).")


def test_the_profile_comes_from_the_settings(home: PiHome) -> None:
    home.settings(contextd={"shake": {"profile": "aggressive"}})
    with at_work(home) as person:
        person.reads()
        person.talks()
        profile = "Protects the last 2,000 tokens. Profile: aggressive (settings.json (agent-directory))."
        assert profile in person.shake("dry-run elide").split("\n")[0]
        assert person.shake("status").endswith("Profile: aggressive (settings.json (agent-directory)).")


def test_a_projects_profile_counts_when_the_project_is_trusted(home: PiHome) -> None:
    home.settings(contextd={"shake": {"profile": "aggressive"}})
    (home.work / ".pi").mkdir()
    (home.work / ".pi" / "settings.json").write_text('{"contextd": {"shake": {"profile": "conservative"}}}')
    with at_work(home, "--no-approve") as person:
        assert person.shake("status").endswith("Profile: aggressive (settings.json (agent-directory)).")
    with at_work(home, "--approve") as person:
        assert person.shake("status").endswith("Profile: conservative (settings.json (project)).")


def test_an_unknown_subcommand_brings_the_list(home: PiHome) -> None:
    with at_work(home) as person:
        listed = [line.partition(":")[0] for line in person.shake("harder").split("\n")]
        subcommands = ("images", "thinking", "status", "undo", "dry-run")
        assert listed == ["/shake", *(f"/shake {word}" for word in subcommands)]


# Economics


def test_with_cache_prices_a_notice_tells_after_how_many_turns_a_fold_pays(home: PiHome) -> None:
    """(w - r)/r · S/F turns, with S tokens read anew and F tokens freed (facts: shake-and-peers 0.10)."""
    with at_work(home, model="fake/fake-priced") as person:
        person.reads()
        person.talks()
        [figures] = [line for line in person.shake("dry-run elide").split("\n") if line.startswith("Frees")]
        assert re.sub(r"[\d,]+", "#", figures) == (
            "Frees ~# tokens a turn; ~# are read anew once. On a warm cache it pays after # turns."
        )
        freed, anew, turns = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", figures))
        assert turns == round((3.75 - 0.3) / 0.3 * anew / freed)
        assert figures in person.shake()


def test_after_a_fork_and_a_rewind_the_next_request_is_cold_anyway(home: PiHome) -> None:
    with at_work(home, model="fake/fake-priced") as person:
        person.reads()
        person.talks()
        earlier = person.leaf()
        person.asks("one more")
        person.go(earlier)
        cold = "which costs nothing: the first request after moving in the tree is cold anyway."
        assert cold in person.shake("dry-run elide")
        person.asks("which reads all anew")
        assert "On a warm cache it pays after" in person.shake("dry-run elide")
        person.fork("clone")
        cold = "which costs nothing: the first request of a fork is cold anyway."
        assert cold in person.shake("dry-run elide")
        assert cold in person.shake()


def test_reasoning_that_a_fold_makes_worthless_is_named_and_folded_on_request(home: PiHome) -> None:
    """Facts: shake-and-peers 0.2."""
    with at_work(home, model="fake/fake-priced") as person:
        person.reads()
        person.does(Step(thinking="think " * 200, signature="c2lnbmVk", text=TALK), prompt="talk about it")
        before = person.asks("a look")
        warning = "This model drops 1 signed thinking block after the first change; "
        assert f"{warning}--with-thinking folds it too." in person.shake("dry-run elide").split("\n")
        said = person.shake("--with-thinking")
        assert said.startswith("Shook 1 tool result + 1 thinking block (~")
        assert "signed" not in said
        folded = person.asks("another look")
        assert not raw(folded)
        assert not any("<thinking" in text for text in folded.texts)
        assert person.shake("undo").startswith("Restored 2 entries")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)


# What the model reads back


def test_the_model_reads_a_folded_item_back_and_that_is_not_folded_at_once(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.shake()
        found = PLACEHOLDER.search("\n".join(person.asks("a look").texts))
        assert found
        item = person.call("history", action="read_item", item_id=found[1])["item"]
        assert item["content"]
        assert OLD.startswith(item["content"])
        person.talks()
        assert person.shake() == "Nothing to shake."
        person.talks()
        person.talks()
        assert person.shake().startswith("Shook 1 tool result")


def test_without_the_history_tool_a_placeholder_names_no_item(home: PiHome) -> None:
    home.settings(contextd={"mode": "off"})
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.shake()
        assert "toolResult: [read output omitted (~5,400 tokens)]" in person.asks("a look").texts
        assert person.shake("undo").startswith("Restored 1 entry")


# When something comes between


def test_while_the_model_answers_it_is_refused(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        home.script(*person._steps, Step(text="at last", wait_for="answer"))
        person._pi.prompt("a long question")
        home.gate("answer").wait_reached()
        refused = "Pi is still working. /shake changes what the model sees between turns only."
        assert [person.shake(what) for what in ("", "images", "thinking", "undo")] == [refused] * 4
        assert person.shake("dry-run elide").startswith("[dry-run] · Shook 1 tool result")
        assert person.shake("status").startswith("Nothing is folded.")
        home.gate("answer").open()
        person._pi.settled(person._settled + 1)
    assert counts(home) == (0, 0)


def test_when_the_session_went_on_meanwhile_the_fold_is_planned_anew(home: PiHome) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        person.says("/meanwhile 1")
        assert person.shake().split("\n")[0] == DONE
        assert len(home.session().of_type("custom/beside")) == 1
        assert counts(home) == (1, 1)
        assert not raw(person.asks("a look"))


@pytest.mark.parametrize("what", ["", "undo"], ids=["fold", "undo"])
def test_when_the_session_goes_on_all_the_time_nothing_is_changed(home: PiHome, what: str) -> None:
    with at_work(home) as person:
        person.reads()
        person.talks()
        if what == "undo":
            person.shake()
        before = counts(home)
        person.says("/meanwhile 99")
        assert person.shake(what) == "/shake: the session went on meanwhile. Nothing was changed."
        assert counts(home) == before


def test_a_hung_daemon_does_not_keep_a_fold_from_happening_once(home: PiHome) -> None:
    """It is killed, started anew and asked again."""
    with at_work(home) as person:
        person.reads()
        person.talks()
        os.kill(daemon(person._pi), signal.SIGSTOP)
        said = person.says("/shake")
        assert DONE in [text.split("\n")[0] for text in said]
        assert counts(home) == (1, 1)
        assert not raw(person.asks("a look"))


def read_both(person: Person) -> None:
    person.reads()
    person.reads("second.txt", SECOND)
    person.talks()


@pytest.mark.parametrize("what", ["context_edit 2", "shake 1"])
def test_what_a_failed_write_left_folded_is_logged_and_undone(home: PiHome, what: str) -> None:
    with at_work(home, env={"CONTEXTD_TEST_FAILS_AT": what}) as person:
        read_both(person)
        before = person.asks("before")
        said = person.shake()
        assert said.startswith("/shake broke off: ENOSPC")
        folded = 1 if what == "context_edit 2" else 2
        assert counts(home) == (folded, 1)
        assert [one["id"] for one in logs(home)[0]["targets"]] == [edit["targetId"] for edit in edits(home)]
        assert person.shake("status").startswith(f"{folded} entr")
        assert not raw(person.asks("half folded"))
        assert person.shake("undo").startswith(f"Restored {folded} entr")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)
        assert person.shake().startswith("Shook 2 tool results")


@pytest.mark.parametrize("what", ["context_edit 2", "shake 1"])
def test_what_a_killed_pi_left_folded_is_recognised_and_undone(home: PiHome, what: str) -> None:
    with at_work(home, env={"CONTEXTD_TEST_DIES_AT": what}) as person:
        read_both(person)
        before = person.asks("before")
        person._pi.send("prompt", message="/shake")
        person._pi._process.wait(timeout=20)
    folded = 1 if what == "context_edit 2" else 2
    assert counts(home) == (folded, 0)
    with at_work(home, "--continue") as person:
        assert person.shake("status").startswith(f"{folded} entr")
        assert not raw(person.asks("half folded"))
        assert person.shake("undo").startswith(f"Restored {folded} entr")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)


def test_what_a_failed_write_left_of_an_undo_is_finished_by_the_next(home: PiHome) -> None:
    with at_work(home, env={"CONTEXTD_TEST_FAILS_AT": "context_edit 4"}) as person:
        read_both(person)
        before = person.asks("before")
        person.shake()
        assert person.shake("undo").startswith("/shake broke off: ENOSPC")
        assert person.shake("status").startswith("1 entry is folded")
        assert person.shake("undo").startswith("Restored 1 entry")
        assert sent(person.asks("undone"))[: len(before.messages)] == sent(before)


# Older Pi


@pytest.mark.parametrize("pi_version", ["0.85.0"])
def test_a_pi_without_context_edits_is_told_so_and_nothing_changes(home: PiHome) -> None:
    too_old = "/shake needs Pi 0.87 or newer: this one cannot record folds in the session. Nothing was changed."
    with home.rpc() as pi:
        person = Person(home, pi)
        person.reads()
        person.talks()
        before = home.session_files()[-1].read_bytes()
        for what in ("", "images", "thinking", "undo", "dry-run", "dry-run elide", "--with-thinking"):
            assert person.shake(what) == too_old
        assert person.shake("status").startswith("Nothing is folded.")
        assert home.session_files()[-1].read_bytes() == before
        assert OLD in "\n".join(person.asks("a look").texts)
        person.stops()
