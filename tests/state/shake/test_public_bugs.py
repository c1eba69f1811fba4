"""Failures that other folders of context were reported for, each with an input of our own (facts: shake-and-peers 5).

Rows that cannot occur here, and why:
- 15 (an automatic fold repeats itself for ever), 27 (folds at a fixed size make the model read the same files again):
  nothing is folded unless a person types `/shake`.
- 28 (Han counted at a quarter of its price): figures are Pi's own estimates on purpose, since Pi compacts by them.
- 29 (inserting in the `context` hook moves cache anchors): folds are overlays in the session; nothing is inserted.
- 30 (the context is stale after /new or /reload): the shim's matter, tested in real Pi; a plan begins with the leaf
  that it was made for, tested with the command.
- 32 (clear_thinking while thinking is off): no provider is asked to edit anything.
"""

from typing import Any

import pytest
from msgspec import structs
from shaking import (
    BINDING,
    DEFAULT,
    PLAIN,
    call,
    calls,
    content_of,
    done,
    edits,
    fenced,
    folded,
    fork,
    image,
    later,
    one_result,
    plan,
    ran,
    request,
    result,
    rules,
    says,
    shake,
    shown,
    targets,
    text,
    thinking,
    undoing,
    words,
)

from builders import PiSession
from state.shake.command import run
from state.shake.planner import SCOPES, Rules
from state.tokens import content_tokens


def ids_of_calls(contents: dict[str, Any]) -> list[str]:
    return [block["id"] for content in contents.values() for block in content or [] if block.get("type") == "toolCall"]


@pytest.mark.parametrize("scope", SCOPES)
def test_01_no_message_is_ever_taken_out(scope: str) -> None:
    """earendil-works/pi#11227."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(words(50)), text(fenced(500)), call("c1"))
    result(pi, "c1", [text(words(1_000)), image()])
    later(pi)
    planned = edits(run(request(pi, scope)).effects)
    assert planned
    assert all(edit.replacement.content for edit in planned)


def test_02_a_result_keeps_its_call_when_the_tail_begins_between_them() -> None:
    """openclaw/openclaw#10700, #52024."""
    pi = PiSession()
    pi.user("go")
    calls(pi, text(fenced(500)), call("c1"), call("c2"))
    first = result(pi, "c1", words(1_000))
    second = result(pi, "c2", words(1_000))
    done(pi)
    pi.user(words(2_500))
    says(pi, text("done"))
    made = plan(pi, rules=Rules(profile=structs.replace(DEFAULT, tail=3_000), recall=False))
    assert first in targets(made)
    assert second not in targets(made)
    before = shown(pi)
    shake(pi, rules=Rules(profile=structs.replace(DEFAULT, tail=3_000)))
    assert ids_of_calls(shown(pi)) == ids_of_calls(before) == ["c1", "c2"]
    assert shown(pi).keys() == before.keys()


def test_03_a_call_outside_what_is_folded_keeps_a_result_inside_it() -> None:
    """ranxianglei/opencode-acp#247."""
    pi = PiSession()
    pi.user("go")
    caller = calls(pi, call("c1"))
    target = result(pi, "c1", words(1_000))
    later(pi)
    made = plan(pi)
    assert targets(made) == [target], "a call has nothing to fold"
    shake(pi)
    assert shown(pi)[caller] == [call("c1")]
    [note] = shown(pi)[target]
    assert note == text("[bash output omitted (~1,000 tokens)]")


def test_04_reasoning_that_a_fold_makes_worthless_is_named() -> None:
    """earendil-works/pi#9391."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(), call("c0"))
    result(pi, "c0", "small")
    ran(pi, 1, words(1_000))
    calls(pi, thinking(), call("c2"))
    result(pi, "c2", "small")
    says(pi, thinking(), thinking("unsigned", None), text("done"))
    later(pi)
    notice = shake(pi, "dry-run elide", model=BINDING)
    assert "This model drops 2 signed thinking blocks after the first change" in notice


def test_05_reasoning_that_would_be_refused_is_folded_along_on_demand() -> None:
    """anomalyco/opencode#48637, earendil-works/pi#10954."""
    pi = PiSession()
    pi.user("go")
    early = says(pi, thinking(), text("before the first change"))
    pi.user("go on")
    target = ran(pi, 1, words(1_000))
    late = says(pi, thinking(), text("after it"))
    later(pi)
    notice = shake(pi, "--with-thinking", model=BINDING)
    assert notice.startswith("Shook 1 tool result + 1 thinking block (~")
    assert "signed thinking" not in notice
    assert folded(pi) == [target, late]
    assert shown(pi)[early][0]["type"] == "thinking", "what stands before the change stays valid"
    assert shown(pi)[late] == [text("after it")]


def test_06_reasoning_of_the_call_that_runs_stays() -> None:
    """openclaw/openclaw#44436, #49573."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(), call("c1"))
    assert targets(plan(pi, "thinking")) == []
    result(pi, "c1", "the result is there, the model has not gone on")
    assert targets(plan(pi, "thinking")) == []


def test_07_an_empty_thinking_block_without_signature_is_not_made_anything_of() -> None:
    """openclaw/openclaw#114197."""
    pi = PiSession()
    pi.user("go")
    empty = says(pi, thinking("", None))
    before = shown(pi)
    for scope in SCOPES:
        assert shake(pi, scope).endswith("to shake.")
    assert shown(pi) == before
    assert before[empty] == [thinking("", None)]


def test_08_a_turn_with_reasoning_between_its_calls_is_not_touched_before_it_has_ended() -> None:
    """openclaw/openclaw#98398."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(), call("c1"))
    target = result(pi, "c1", words(9_000))
    calls(pi, thinking(), call("c2"))
    result(pi, "c2", words(9_000))
    assert targets(plan(pi, rules=rules())) == []
    done(pi)
    assert target in targets(plan(pi, rules=rules()))


@pytest.mark.parametrize("api", ["openai-responses", "azure-openai-responses", "openai-codex-responses"])
def test_09_a_function_call_of_the_responses_api_keeps_its_reasoning(api: str) -> None:
    """vercel/ai#11036."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(signature="rs_1"), call("call_1|fc_1"), api=api, model="gpt-6")
    result(pi, "call_1|fc_1", "small")
    answer = says(pi, thinking(signature="rs_2"), text("done"), api=api, model="gpt-6")
    later(pi)
    assert targets(plan(pi, "thinking")) == [answer]


@pytest.mark.parametrize(
    ("provider", "model"), [("deepseek", "deepseek-chat"), ("openrouter", "moonshotai/kimi-k2"), ("zai", "GLM-5")]
)
def test_10_a_call_keeps_the_reasoning_that_its_chat_model_wants_back(provider: str, model: str) -> None:
    """crynta/terax-ai#445, zeroclaw-labs/zeroclaw#10398."""
    pi = PiSession()
    pi.user("go")
    fields = {"api": "openai-completions", "provider": provider, "model": model}
    calls(pi, thinking(), call("c1"), **fields)
    result(pi, "c1", "small")
    answer = says(pi, thinking(), text("done"), **fields)
    later(pi)
    assert targets(plan(pi, "thinking")) == [answer]


def test_11_a_call_with_a_signature_of_its_own_comes_through_a_fold_and_an_undo_unharmed() -> None:
    """code_puppy#165, QwenPaw#6867."""
    pi = PiSession()
    pi.user("go")
    signed = {**call("c1", "read", path="a"), "thoughtSignature": "c2lnbmVk"}
    caller = calls(pi, thinking(), text(fenced(500), textSignature='{"v":1,"id":"msg_1"}'), signed)
    result(pi, "c1", words(1_000))
    later(pi)
    before = shown(pi)
    shake(pi)
    shake(pi, "thinking")
    [spoken, kept] = shown(pi)[caller]
    assert kept == signed
    assert spoken["textSignature"] == '{"v":1,"id":"msg_1"}'
    shake(pi, "undo")
    assert shown(pi) == before


@pytest.mark.parametrize("size", [0, 1, 5, 10, 12])
def test_12_a_result_that_is_smaller_than_its_placeholder_stays(size: int) -> None:
    """can1357/oh-my-pi#7204."""
    pi, _ = one_result(size)
    assert targets(plan(pi, rules=Rules())) == []


def test_13_the_newest_result_stays() -> None:
    """can1357/oh-my-pi#7776."""
    pi = PiSession()
    pi.user("go")
    older = ran(pi, 1, words(9_000))
    newest = ran(pi, 2, words(9_000))
    done(pi)
    assert targets(plan(pi)) == [older]
    assert targets(plan(pi, rules=rules(tail=0))) == [older, newest]


def test_14_what_the_model_fetched_back_is_not_folded_again_at_once() -> None:
    """can1357/oh-my-pi#7327."""
    pi, _ = one_result(9_000)
    shake(pi)
    pi.user("what was in it?")
    fetched = ran(pi, 2, words(9_000), "history", action="read_item")
    later(pi)
    assert targets(plan(pi)) == []
    later(pi)
    assert targets(plan(pi)) == [fetched], "but it is, once the talk has moved on"


def test_16_figures_come_from_what_the_model_sees_and_not_from_the_last_usage() -> None:
    """can1357/oh-my-pi#7310, Tarquinen/opencode-dynamic-context-pruning#563."""
    pi = PiSession()
    pi.user("go")
    ran(pi, 1, words(30_000))
    says(pi, text("done"), usage={"input": 50_000, "output": 5, "totalTokens": 50_005})
    later(pi)
    total = sum(one.tokens for one in plan(pi).seen)
    assert total == sum(content_tokens(content) for content in shown(pi).values())
    freed = plan(pi).freed
    shake(pi)
    assert sum(one.tokens for one in plan(pi).seen) == total - freed
    assert freed > 29_000


def test_17_an_image_beside_a_folded_text_stays_and_is_not_counted() -> None:
    """can1357/oh-my-pi#8102."""
    pi = PiSession()
    pi.user("go")
    target = ran(pi, 1, [text(words(10_000)), image()], "read")
    later(pi)
    made = plan(pi)
    assert content_of(made, target) == [text("[read output omitted (~10,000 tokens)]"), image()]
    assert (made.counts.results, made.counts.images) == (1, 0)


def test_18_results_that_are_images_can_be_folded() -> None:
    """openclaw/openclaw#41789."""
    pi = PiSession()
    pi.user("go")
    shots = [ran(pi, number, [image()], "screenshot") for number in range(15)]
    later(pi)
    assert targets(plan(pi, "elide")) == []
    assert targets(plan(pi, "images")) == shots


def test_19_all_images_go_at_once_so_that_a_session_that_is_too_large_lives_again() -> None:
    """earendil-works/pi#9686."""
    pi = PiSession()
    for number in range(12):
        pi.message("user", [text("look"), {**image(), "data": "A" * 1_000}])
        says(pi, text(f"seen {number}"))
    assert shake(pi, "images").startswith("Shook 12 images (~")
    assert not any(block["type"] == "image" for content in shown(pi).values() for block in content)


def test_20_a_folded_result_hides_no_older_one_from_the_next_fold() -> None:
    """anomalyco/opencode#30807."""
    pi = PiSession()
    pi.user("go")
    older = ran(pi, 1, words(1_000), "history")
    newer = ran(pi, 2, words(1_000))
    later(pi)
    shake(pi)
    assert folded(pi) == [newer]
    later(pi)
    later(pi)
    assert targets(plan(pi)) == [older]


def test_21_a_file_that_is_read_again_after_a_fold_is_shown_in_full() -> None:
    """NousResearch/hermes-agent#113194."""
    pi, first = one_result(1_000, "read", path="a.py")
    shake(pi)
    pi.user("read it again")
    again = ran(pi, 2, words(1_000), "read", path="a.py")
    done(pi)
    assert targets(plan(pi)) == []
    assert shown(pi)[again] == [text(words(1_000))]
    assert shown(pi)[first] == [text("[read output omitted (~1,000 tokens)]")]


def test_22_skills_stay_however_old() -> None:
    """NousResearch/hermes-agent#86421, anthropics/claude-code#74990."""
    pi = PiSession()
    span = f'<skill name="pdf" location="/s/pdf/SKILL.md">\n{words(500)}\n\n```\n{words(500)}\n```\n</skill>\n\ndo it'
    pi.message("user", [text(span)])
    ran(pi, 1, words(1_000), "read", path="/s/pdf/SKILL.md")
    ran(pi, 2, words(1_000), "read", path="/s/pdf/forms.md")
    steps = [ran(pi, number, words(1_000)) for number in range(3, 15)]
    later(pi)
    assert targets(plan(pi, rules=Rules(skills=("/s/pdf/forms.md",)))) == steps


def test_23_results_of_tools_that_the_user_protects_stay() -> None:
    """anthropics/claude-code#57788."""
    pi = PiSession()
    pi.user("go")
    ran(pi, 1, words(1_000), "mcp__memory__recall")
    other = ran(pi, 2, words(1_000), "mcp__web__get")
    later(pi)
    assert targets(plan(pi, rules=Rules(tools=("mcp__memory__*",)))) == [other]


def test_24_folds_outlive_a_restart_a_fork_and_a_compaction() -> None:
    """Tarquinen/opencode-dynamic-context-pruning#16, #457, #521."""
    pi, target = one_result()
    raw = shown(pi)
    shake(pi)
    forked = fork(pi)
    assert folded(forked) == [target]
    assert shake(forked) == "Nothing to shake."
    shake(forked, "undo")
    assert shown(forked) == raw
    kept = pi.user("more")
    newer = ran(pi, 5, words(1_000))
    later(pi)
    pi.compact(kept)
    assert targets(plan(pi)) == [newer]
    shake(pi)
    assert targets(undoing(pi)) == [newer], "what was compacted away is not brought back"


def test_25_an_undo_does_not_touch_what_somebody_else_laid_over_a_fold() -> None:
    """Tarquinen/opencode-dynamic-context-pruning#537."""
    pi, target = one_result()
    shake(pi)
    pi.overlay(target, [text("consumed into block 1")])
    assert shake(pi, "undo") == "Nothing to restore. 1 entry under another overlay left alone."
    assert shown(pi)[target] == [text("consumed into block 1")]


def test_26_a_call_that_nobody_has_answered_stays_as_it_is() -> None:
    """Tarquinen/opencode-dynamic-context-pruning#170."""
    pi = PiSession()
    pi.user("go")
    calls(pi, thinking(), text(fenced(500)), call("c1", "write", content=words(5_000)))
    later(pi)
    for scope in SCOPES:
        assert targets(plan(pi, scope)) == []


def test_31_a_call_without_reasoning_is_no_trouble() -> None:
    """LibreChat-AI/agents#115."""
    pi = PiSession()
    pi.user("go")
    calls(pi, call("c1"))
    result(pi, "c1", "small")
    later(pi)
    for scope in SCOPES:
        assert targets(plan(pi, scope)) == []


@pytest.mark.parametrize(
    "content", [None, "", [], "text", [None], ["text"], [{}], {}, 5, True, [{"type": "text"}], [text("")]]
)
@pytest.mark.parametrize("role", ["user", "assistant", "toolResult"])
@pytest.mark.parametrize("scope", SCOPES)
def test_no_content_that_a_file_may_hold_breaks_a_fold(role: str, content: Any, scope: str) -> None:
    """Each of those crashes had its odd message; bad input never crashes us (design 7)."""
    pi = PiSession()
    odd = pi.message(role, content)
    target = ran(pi, 1, [text(words(1_000)), image()])
    later(pi)
    made = plan(pi, scope)
    assert odd not in targets(made)
    pi.overlay(target, content)
    plan(pi, scope)
    undoing(pi)


def test_no_rule_is_asked_of_a_session_without_messages() -> None:
    for scope in SCOPES:
        assert targets(plan(PiSession(), scope, PLAIN)) == []
    assert targets(undoing(PiSession())) == []
