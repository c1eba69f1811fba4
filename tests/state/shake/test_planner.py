"""Which entries a fold changes, and into what (facts: shake-and-peers 6; design 6)."""

from typing import Any

import pytest
from shaking import (
    AGGRESSIVE,
    CONSERVATIVE,
    DEFAULT,
    PLAIN,
    call,
    calls,
    content_of,
    done,
    fenced,
    image,
    later,
    one_result,
    plan,
    ran,
    result,
    rules,
    says,
    shake,
    shown,
    targets,
    text,
    thinking,
    words,
)

from builders import PiSession, marker_details
from protocol.entries import WINDOW
from state.shake.planner import GUIDES, SCOPES, Profile, Rules

# The tail


def with_tail_of(tokens: int) -> tuple[PiSession, str]:
    """A result that has just so many tokens after it."""
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(1_000))
    says(pi, text(words(tokens)))
    return pi, target


@pytest.mark.parametrize("profile", [DEFAULT, CONSERVATIVE, AGGRESSIVE], ids=lambda profile: profile.name)
def test_the_tail_protects_what_has_fewer_tokens_than_it_after_it(profile: Profile) -> None:
    """OMP's rule (facts: shake-and-peers 6.4)."""
    for after, eligible in ((profile.tail - 1, False), (profile.tail, True), (profile.tail + 1, True)):
        pi, target = with_tail_of(after)
        found = targets(plan(pi, rules=Rules(profile=profile, recall=False)))
        assert found == ([target] if eligible else [])


def test_the_profiles_are_those_of_the_seed() -> None:
    assert (DEFAULT.tail, DEFAULT.block) == (4_000, 400)
    assert (CONSERVATIVE.tail, CONSERVATIVE.block) == (8_000, 800)
    assert (AGGRESSIVE.tail, AGGRESSIVE.block) == (2_000, 200)


def test_the_tail_counts_what_the_model_sees_and_not_what_is_stored() -> None:
    pi = PiSession()
    pi.user("go")
    first = ran(pi, 1, words(1_000))
    second = ran(pi, 2, words(5_000))
    done(pi)
    pi.overlay(second, [text("short")])
    assert targets(plan(pi)) == []
    pi.overlay(second, [text(words(4_000))])
    assert targets(plan(pi)) == [first]


def test_every_message_counts_towards_the_tail_also_those_that_are_never_folded() -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(1_000))
    done(pi)
    pi.append("message", message={"role": "bashExecution", "command": words(1_000), "output": words(3_000)})
    assert targets(plan(pi)) == [target]


def test_the_tail_moves_on_as_the_talk_grows() -> None:
    """Seed: each new turn exposes the entries above it to the next fold."""
    pi = PiSession()
    pi.user("go")
    found = []
    for number in range(4):
        ran(pi, number, words(2_000))
        done(pi)
        found.append(len(targets(plan(pi))))
        shake(pi)
        pi.user("more")
    assert found == [0, 0, 1, 1]


@pytest.mark.parametrize("scope", ["images", "thinking"])
def test_images_and_reasoning_have_no_tail(scope: str) -> None:
    pi = PiSession()
    user = pi.message("user", [image()])
    answer = says(pi, thinking(), text("done"))
    assert targets(plan(pi, scope, rules(tail=8_000))) == [user if scope == "images" else answer]


# Blocks


@pytest.mark.parametrize("profile", [DEFAULT, CONSERVATIVE, AGGRESSIVE], ids=lambda profile: profile.name)
@pytest.mark.parametrize("kind", ["fence", "span"])
def test_blocks_below_the_least_size_of_the_profile_stay(profile: Profile, kind: str) -> None:
    def block(tokens: int) -> str:
        return fenced(tokens) if kind == "fence" else f"<file>\n{'x' * (tokens * 4 - 15)}\n</file>"

    pi = PiSession()
    small = pi.user(block(profile.block - 1))
    large = pi.user(block(profile.block))
    later(pi, 9_000)
    made = plan(pi, rules=Rules(profile=profile, recall=False))
    assert small not in targets(made)
    what = "code block" if kind == "fence" else "<file> block"
    assert content_of(made, large) == [text(f"[{what} omitted (~{profile.block:,} tokens)]")]


def test_only_the_block_is_taken_out_of_a_text() -> None:
    pi = PiSession()
    target = pi.user(f"Look 😀:\n{fenced(500)}\nand\n\n{fenced(100)}\n<log>\n{words(600)}\n</log>\nThat's it.")
    later(pi)
    made = plan(pi)
    assert content_of(made, target) == [
        text(
            f"Look 😀:\n[code block omitted (~500 tokens)]\nand\n\n{fenced(100)}\n"
            "[<log> block omitted (~604 tokens)]\nThat's it."
        )
    ]
    assert made.counts.blocks == 2


def test_a_block_is_sought_in_each_text_of_its_own() -> None:
    """No block crosses a text (facts: shake-and-peers 1.3)."""
    pi = PiSession()
    opening, closing = fenced(1_000).split("\n", 1)
    target = pi.message("user", [text(f"{opening}\n{words(500)}"), text(closing), image(), text(fenced(500))])
    later(pi)
    content = content_of(plan(pi), target)
    assert content[:3] == [text(f"{opening}\n{words(500)}"), text(closing), image()]
    assert content[3] == text("[code block omitted (~500 tokens)]")


@pytest.mark.parametrize("kind", ["user", "custom", "assistant"])
def test_a_message_that_is_a_plain_text_stays_one(kind: str) -> None:
    pi = PiSession()
    content = f"a\n{fenced(500)}\nb"
    target = pi.custom_message("note", content) if kind == "custom" else pi.message(kind, content)
    later(pi)
    assert content_of(plan(pi), target) == "a\n[code block omitted (~500 tokens)]\nb"


def test_blocks_inside_a_tool_result_go_with_it() -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, fenced(2_000))
    later(pi)
    made = plan(pi)
    assert content_of(made, target) == [text("[bash output omitted (~2,000 tokens)]")]
    assert made.counts.blocks == 0


def test_a_placeholder_names_where_the_full_text_can_be_read() -> None:
    pi, target = one_result(9_045)
    assert content_of(plan(pi), target) == [text("[bash output omitted (~9,045 tokens)]")]
    note = f"[bash output omitted (~9,045 tokens); history item {target}]"
    assert content_of(plan(pi, rules=Rules()), target) == [text(note)]


# Turns that are under way


@pytest.mark.parametrize("scope", SCOPES)
def test_an_unfinished_turn_is_not_touched(scope: str) -> None:
    pi = PiSession()
    pi.message("user", [text(fenced(1_000)), image()])
    calls(pi, thinking(), text(fenced(1_000)), call("c1"))
    result(pi, "c1", [text(words(1_000)), image()])
    assert targets(plan(pi, scope, rules())) == []
    done(pi)
    assert targets(plan(pi, scope, rules())) != []


def test_turns_before_an_unfinished_one_are_folded() -> None:
    pi, target = one_result()
    pi.user("go")
    calls(pi, call("c9"))
    result(pi, "c9", words(9_000))
    assert targets(plan(pi, rules=rules())) == [target]


@pytest.mark.parametrize("stop", ["stop", "length", "error", "aborted"])
def test_a_turn_that_came_to_any_end_is_folded(stop: str) -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(1_000))
    pi.message("assistant", [text("...")], stopReason=stop)
    assert targets(plan(pi, rules=rules())) == [target]


def test_a_user_message_that_waits_for_its_answer_can_be_folded() -> None:
    pi = PiSession()
    done(pi)
    target = pi.message("user", [image()])
    assert targets(plan(pi, "images")) == [target]


def test_of_parallel_calls_each_result_is_judged_alone() -> None:
    pi = PiSession()
    pi.user("go")
    caller = calls(pi, *(call(f"c{number}", "read") for number in range(5)))
    sizes = (1_000, 3, 1_000, 0, 1_000)
    results = [result(pi, f"c{number}", words(size), "read") for number, size in enumerate(sizes)]
    before = later(pi).entry(caller)
    made = plan(pi, rules=Rules())
    assert targets(made) == [results[0], results[2], results[4]]
    shake(pi)
    assert pi.entry(caller) == before


def test_a_result_beside_an_unanswered_call_is_folded_but_not_the_message_of_both() -> None:
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(), call("c1"), call("c2"))
    target = result(pi, "c1", words(1_000))
    later(pi)
    assert targets(plan(pi)) == [target]
    assert targets(plan(pi, "thinking")) == []


def test_a_failed_result_is_folded_and_stays_a_failure() -> None:
    pi = PiSession()
    pi.user("go")
    calls(pi, call("c1"))
    target = result(pi, "c1", words(1_000), error=True)
    later(pi)
    assert targets(plan(pi)) == [target]
    shake(pi)
    assert pi.entry(target)["message"]["isError"] is True


# What is protected


@pytest.mark.parametrize("name", sorted(GUIDES))
@pytest.mark.parametrize("folder", ["", "/a/b/", "C:\\a\\"])
def test_a_guide_that_was_read_stays(name: str, folder: str) -> None:
    pi, _ = one_result(1_000, "read", path=folder + name)
    assert targets(plan(pi)) == []


def test_a_guide_is_protected_from_no_other_tool() -> None:
    pi, target = one_result(1_000, "bash", path="/a/SKILL.md")
    assert targets(plan(pi)) == [target]


@pytest.mark.parametrize("key", ["path", "file_path"])
def test_files_of_the_skills_that_pi_knows_stay(key: str) -> None:
    pi, target = one_result(1_000, "read", **{key: "/s/review.md"})
    assert targets(plan(pi, rules=Rules(skills=("/s/review.md",)))) == []
    assert targets(plan(pi, rules=Rules(skills=("/s/other.md",)))) == [target]


@pytest.mark.parametrize(
    ("patterns", "stays"),
    [
        (("PLAN.md",), True),
        (("*.md",), True),
        (("/w/*",), True),
        (("/w/docs/PLAN.md",), True),
        (("*/PLAN.md",), True),
        (("plan.md",), False),
        (("PLAN",), False),
        ((), False),
    ],
)
@pytest.mark.parametrize("tool", ["read", "edit", "mcp_fs"])
def test_paths_are_protected_by_pattern_for_every_tool(patterns: tuple[str, ...], tool: str, *, stays: bool) -> None:
    pi, target = one_result(1_000, tool, path="/w/docs/PLAN.md")
    assert targets(plan(pi, rules=Rules(paths=patterns))) == ([] if stays else [target])


@pytest.mark.parametrize(("patterns", "stays"), [(("bash",), True), (("b*",), True), (("Bash",), False), ((), False)])
def test_tools_are_protected_by_pattern(patterns: tuple[str, ...], *, stays: bool) -> None:
    pi, target = one_result()
    assert targets(plan(pi, rules=Rules(tools=patterns))) == ([] if stays else [target])


def test_what_is_protected_keeps_its_images_too() -> None:
    pi = PiSession()
    pi.user("go")
    ran(pi, 1, [image()], "screen")
    later(pi)
    assert targets(plan(pi, "images", Rules(tools=("screen",)))) == []


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_recovered_text_stays_for_two_turns(turns: int) -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, words(9_000), "history", action="read_item")
    done(pi)
    for _ in range(turns):
        pi.user("more")
        done(pi)
    assert targets(plan(pi, rules=rules())) == ([target] if turns >= 2 else [])


def test_a_skill_that_was_called_up_stays_while_other_spans_go() -> None:
    pi = PiSession()
    skill = f'<skill name="a" location="/s/a/SKILL.md">\n{fenced(1_000)}\n</skill>'
    target = pi.user(f'{skill}\n<file name="b">\n{words(500)}\n</file>')
    later(pi)
    [block] = content_of(plan(pi), target)
    assert block["text"] == f"{skill}\n[<file> block omitted (~506 tokens)]"


@pytest.mark.parametrize(
    "content",
    [
        f'<context>\n<skill name="a" location="b">\n{words(500)}\n</skill>\n</context>',
        f'```\n<skill name="a" location="b">\n{words(500)}\n</skill>\n```',
        f'<skill name="a" location="b">\nA fence that is not closed:\n```\n{words(500)}\n</skill>\n\n```\nmine\n```',
    ],
    ids=["in a span", "in a fence", "cut by a fence"],
)
def test_a_block_that_holds_any_part_of_a_skill_stays(content: str) -> None:
    pi = PiSession()
    pi.user(content)
    later(pi)
    assert targets(plan(pi)) == []


# Overlays of others


@pytest.mark.parametrize("scope", SCOPES)
def test_what_somebody_else_has_laid_over_an_entry_stays_and_is_counted(scope: str) -> None:
    pi = PiSession()
    target = pi.message("user", [text("first"), image()])
    says(pi, text("done"))
    later(pi)
    pi.overlay(target, [text(fenced(1_000)), image()])
    made = plan(pi, scope)
    assert (targets(made), made.left) == ([], 1)


def test_what_pi_has_left_out_after_an_overflow_is_neither_folded_nor_counted() -> None:
    pi = PiSession()
    pi.user("go")
    failed = calls(pi, call("c1"))
    answer = result(pi, "c1", words(9_000))
    later(pi)
    for omitted in (failed, answer):
        pi.overlay(omitted, None)
    made = plan(pi)
    assert (targets(made), made.left) == ([], 0)
    assert shown(pi)[answer] is None


def test_an_overlay_that_restores_an_entry_leaves_it_to_be_folded() -> None:
    pi, target = one_result()
    pi.overlay(target, [text("theirs")])
    pi.overlay(target, [text(words(1_000))])
    made = plan(pi)
    assert (targets(made), made.left) == ([target], 0)


# Images and results


def test_images_stay_under_elide_in_their_places() -> None:
    pi = PiSession()
    pi.user("go")
    blocks = [image(), text(words(500)), image(), text(words(500)), {"type": "resource", "uri": "x"}]
    target = ran(pi, 1, blocks)
    later(pi)
    note = text("[bash output omitted (~1,000 tokens)]")
    assert content_of(plan(pi), target) == [image(), note, image(), {"type": "resource", "uri": "x"}]


def test_a_result_of_images_alone_is_nothing_for_elide() -> None:
    pi = PiSession()
    pi.user("go")
    ran(pi, 1, [image(), image()])
    later(pi)
    assert targets(plan(pi)) == []


def test_each_image_becomes_a_text_and_its_neighbours_stay() -> None:
    pi = PiSession()
    target = pi.message("user", [text("a"), image(), text("b"), image()])
    done(pi)
    note = text("[image omitted (~1,200 tokens)]")
    made = plan(pi, "images")
    assert content_of(made, target) == [text("a"), note, text("b"), note]
    assert made.counts.images == 2


def test_images_that_were_folded_are_no_text_to_fold() -> None:
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, [image(), image()])
    later(pi)
    shake(pi, "images")
    assert targets(plan(pi)) == []
    assert shown(pi)[target] == [text("[image omitted (~1,200 tokens)]")] * 2


@pytest.mark.parametrize("kind", ["user", "custom", "toolResult"])
def test_images_are_folded_wherever_they_stand(kind: str) -> None:
    pi = PiSession()
    pi.user("go")
    if kind == "custom":
        target = pi.custom_message("shot", [image()])
    else:
        target = pi.message(kind, [image()]) if kind == "user" else ran(pi, 1, [image()])
    done(pi)
    assert targets(plan(pi, "images")) == [target]


def test_a_result_that_is_a_plain_text_is_folded() -> None:
    pi = PiSession()
    pi.user("go")
    calls(pi, call("c1"))
    target = pi.message("toolResult", words(1_000), toolCallId="c1", toolName="bash")
    later(pi)
    assert content_of(plan(pi), target) == [text("[bash output omitted (~1,000 tokens)]")]


@pytest.mark.parametrize("name", [None, "", 5])
def test_a_result_without_a_tools_name_is_folded_all_the_same(name: Any) -> None:
    pi = PiSession()
    pi.user("go")
    target = pi.message("toolResult", [text(words(1_000))], toolCallId="c1", toolName=name)
    later(pi)
    [note] = content_of(plan(pi), target)
    assert note["text"] == f"[{name or 'tool'} output omitted (~1,000 tokens)]"


@pytest.mark.parametrize("scope", SCOPES)
def test_what_pi_lets_nobody_edit_is_not_touched(scope: str) -> None:
    """Facts: shake-and-peers 0.8."""
    pi = PiSession()
    pi.message("bashExecution", [text(fenced(1_000)), image(), thinking()], command=words(1_000), output=words(1_000))
    pi.message("system", [text(fenced(1_000)), image(), thinking()])
    pi.summary(pi.leaf, None, fenced(1_000))
    pi.custom("data", {"content": fenced(1_000)})
    later(pi)
    assert targets(plan(pi, scope, rules(tail=1_000))) == []


# Where the model's sight begins


def compacted(kept_from: str | None) -> tuple[PiSession, str, str]:
    """Results before and after the first entry that a compaction keeps."""
    pi = PiSession()
    pi.message("user", [text("go"), image()])
    old = ran(pi, 1, words(1_000))
    says(pi, thinking(), text("done"))
    kept = pi.user("more")
    new = ran(pi, 2, words(1_000))
    later(pi)
    pi.compact({"kept": kept, None: None, "gone": "ffffffff"}[kept_from])
    return pi, old, new


def test_what_a_compaction_has_left_behind_is_not_folded() -> None:
    """Overlays there would be inert (seed)."""
    pi, _, new = compacted("kept")
    assert targets(plan(pi)) == [new]
    assert targets(plan(pi, "images")) == targets(plan(pi, "thinking")) == []


@pytest.mark.parametrize("kept", [None, "gone"])
def test_a_compaction_that_keeps_nothing_leaves_nothing_to_fold(kept: str | None) -> None:
    pi, _, _ = compacted(kept)
    assert targets(plan(pi, rules=rules())) == []
    newer = ran(pi, 3, words(1_000))
    later(pi)
    assert targets(plan(pi)) == [newer]


def test_the_last_of_several_compactions_counts() -> None:
    pi, _, new = compacted("kept")
    kept = pi.user("and more")
    newer = ran(pi, 3, words(1_000))
    later(pi)
    assert targets(plan(pi)) == [new, newer]
    pi.compact(kept)
    assert targets(plan(pi)) == [newer]
    assert [one.role for one in plan(pi).seen].count("compaction") == 1


def test_a_compaction_inside_what_a_later_one_keeps_is_not_seen() -> None:
    """Older compactions in the kept range emit nothing (facts: shake-and-peers 3)."""
    pi = PiSession()
    kept = pi.user("go")
    target = ran(pi, 1, words(1_000))
    done(pi)
    pi.compact(None, words(9_000))
    pi.user("more")
    done(pi)
    pi.compact(kept, "the summary")
    seen = plan(pi).seen
    assert [one.content for one in seen if one.role == "compaction"] == ["the summary"]
    assert targets(plan(pi)) == [], "the older summary is no part of the tail"
    assert targets(plan(pi, rules=rules())) == [target]


def test_a_compaction_on_another_branch_leaves_this_one_alone() -> None:
    pi, target = one_result()
    there = pi.leaf
    pi.compact(None)
    pi.leaf = there
    assert targets(plan(pi)) == [target]


def test_in_local_mode_nothing_before_the_latest_marker_is_folded() -> None:
    pi, old = one_result()
    marker = pi.custom_message(WINDOW, "marker", marker_details(1))
    new = ran(pi, 2, words(1_000))
    later(pi)
    assert targets(plan(pi)) == [old, new]
    assert targets(plan(pi, since=marker)) == [new]


def test_a_marker_that_a_compaction_has_left_behind_cuts_nothing_more() -> None:
    pi, _ = one_result()
    marker = pi.custom_message(WINDOW, "marker", marker_details(1))
    kept = pi.user("more")
    new = ran(pi, 2, words(1_000))
    later(pi)
    pi.compact(kept)
    assert targets(plan(pi, since=marker)) == [new]


# Reasoning


def test_reasoning_goes_without_a_word() -> None:
    pi = PiSession()
    pi.user("go")
    target = calls(pi, thinking(), text("I look."), thinking("more " * 20), call("c1"))
    result(pi, "c1", "small")
    done(pi)
    made = plan(pi, "thinking")
    assert content_of(made, target) == [text("I look."), call("c1")]
    assert made.counts.thinking == 2


def test_a_message_that_is_reasoning_alone_does_not_become_empty() -> None:
    """Pi skips empty assistants, so two user messages would meet (facts: shake-and-peers 3)."""
    pi = PiSession()
    pi.user("go")
    target = says(pi, thinking(words(100)), thinking(words(100)))
    assert content_of(plan(pi, "thinking"), target) == [text("[thinking omitted (~200 tokens)]")]


def test_a_message_that_is_a_little_reasoning_alone_stays() -> None:
    pi = PiSession()
    pi.user("go")
    says(pi, thinking("hm"))
    assert targets(plan(pi, "thinking")) == []


@pytest.mark.parametrize(
    ("api", "provider", "model", "goes"),
    [
        ("anthropic-messages", "anthropic", "claude-opus-5-5", True),
        ("google-generative-ai", "google", "gemini-3", True),
        ("openai-completions", "openai", "gpt-4.1", True),
        ("openai-completions", "groq", "llama", True),
        ("openai-completions", "deepseek", "deepseek-reasoner", False),
        ("openai-completions", "moonshotai", "kimi-k2", False),
        ("openai-completions", "openrouter", "z-ai/glm-4.6", False),
        ("anthropic-messages", "deepseek", "deepseek-chat", True),
        ("openai-responses", "openai", "gpt-6", False),
        (None, None, None, True),
    ],
)
def test_reasoning_of_calls_stays_where_the_provider_wants_it_back(
    api: str | None, provider: str | None, model: str | None, *, goes: bool
) -> None:
    """Facts: shake-and-peers 0.4 and 6.8."""
    pi = PiSession()
    pi.user("go")
    target = calls(pi, thinking(), call("c1"), api=api, provider=provider, model=model)
    result(pi, "c1", "small")
    done(pi)
    assert targets(plan(pi, "thinking")) == ([target] if goes else [])


def test_reasoning_in_anything_but_an_assistant_is_not_ours_to_fold() -> None:
    pi = PiSession()
    pi.message("user", [thinking()])
    done(pi)
    assert targets(plan(pi, "thinking")) == []


# The plan as a whole


def test_changes_come_oldest_first_and_change_nothing_but_content() -> None:
    pi = PiSession()
    pi.user("go")
    found = [ran(pi, number, words(1_000)) for number in range(5)]
    later(pi)
    made = plan(pi, rules=PLAIN)
    assert targets(made) == found
    assert made.freed == sum(change.tokens_before - change.tokens_after for change in made.changes) == 5 * (1_000 - 10)


def test_ten_thousand_entries_are_planned_at_once() -> None:
    """The user waits for it (facts: shake-and-peers 1.3)."""
    pi = PiSession()
    pi.user("go")
    for number in range(5_000):
        ran(pi, number, words(100), "read", path=f"/a/{number}.py")
    done(pi)
    assert len(targets(plan(pi, rules=Rules(paths=("*.md",), recall=False)))) == 5_000 - 38
