"""`/shake` as it is typed and read: wording, subcommands, refusals, and what becomes of a plan in a session."""

import pytest
from shaking import (
    AGGRESSIVE,
    CLAUDE,
    CONSERVATIVE,
    append,
    call,
    calls,
    done,
    edits,
    fenced,
    folded,
    image,
    later,
    logs,
    one_result,
    ran,
    request,
    result,
    rules,
    says,
    says_only,
    shake,
    shown,
    text,
    thinking,
    words,
)

from builders import PiSession, Player
from protocol import effects as fx
from protocol import events as ev
from protocol.entries import SHAKE
from state.commands import COMMANDS, completions
from state.shake.command import run
from state.shake.planner import SCOPES, Rules

AGENT_DIRECTORY = "settings.json (agent-directory)"


def first(notice: str) -> str:
    return notice.split("\n", maxsplit=1)[0]


# What it says


def test_a_dry_run_says_what_the_seed_says() -> None:
    pi = PiSession()
    pi.user("go")
    for number in range(46):
        ran(pi, number, words(166 if number < 39 else 165))
    done(pi, words(2_000))
    aggressive = {"rules": Rules(profile=AGGRESSIVE, recall=False), "source": AGENT_DIRECTORY}
    before = len(pi.entries)
    notice = shake(pi, "dry-run elide", **aggressive)
    shook = (
        "Shook 46 tool results (~7,215 tokens). Protects the last 2,000 tokens. "
        "Profile: aggressive (settings.json (agent-directory))."
    )
    assert first(notice) == f"[dry-run] · {shook}"
    assert len(pi.entries) == before
    real = shake(pi, "", **aggressive)
    assert first(real) == shook
    assert real == notice.removeprefix("[dry-run] · "), "the same wording as the real run"


@pytest.mark.parametrize(
    ("scope", "what"),
    [
        ("elide", "Shook 2 tool results + 1 block (~2,475 tokens). Protects the last 8,000 tokens."),
        ("images", "Shook 1 image (~1,192 tokens)."),
        ("thinking", "Shook 3 thinking blocks (~120 tokens)."),
    ],
)
def test_a_fold_names_what_it_has_folded(scope: str, what: str) -> None:
    pi = PiSession()
    pi.message("user", [text(fenced(1_000)), image()])
    calls(pi, thinking(), call("c1"), call("c2"))
    result(pi, "c1", words(1_000))
    result(pi, "c2", words(503))
    says(pi, thinking(), thinking(), text("done"))
    later(pi)
    notice = first(shake(pi, scope, rules=Rules(profile=CONSERVATIVE, recall=False)))
    assert notice == what + (" Profile: conservative (built in)." if scope == "elide" else "")


def test_one_of_a_kind_is_told_as_one() -> None:
    pi, _ = one_result()
    assert first(shake(pi)).startswith("Shook 1 tool result (~990 tokens).")
    assert shake(pi, "status") == "1 entry is folded (~990 tokens). Profile: default (built in)."
    assert shake(pi, "undo") == "Restored 1 entry (~990 tokens)."


def test_several_are_told_with_thousands_marks() -> None:
    pi = PiSession()
    pi.user("go")
    for number in range(1_001):
        ran(pi, number, words(110))
    later(pi)
    assert first(shake(pi)).startswith("Shook 1,001 tool results (~101,101 tokens).")
    assert shake(pi, "status").startswith("1,001 entries are folded (~101,101 tokens).")
    assert shake(pi, "undo") == "Restored 1,001 entries (~101,101 tokens)."


@pytest.mark.parametrize(
    ("args", "text_is"),
    [
        ("", "Nothing to shake."),
        ("elide", "Nothing to shake."),
        ("images", "No images to shake."),
        ("thinking", "No thinking blocks to shake."),
        ("dry-run elide", "[dry-run] · Nothing to shake."),
        ("dry-run images", "[dry-run] · No images to shake."),
        ("undo", "Nothing to restore."),
        ("status", "Nothing is folded. Profile: default (built in)."),
    ],
)
def test_nothing_to_do_is_said_in_a_line(args: str, text_is: str) -> None:
    assert says_only(run(request(done(PiSession()), args))) == text_is


def test_entries_under_another_overlay_are_counted_aloud() -> None:
    pi, target = one_result()
    pi.overlay(target, [text("theirs")])
    assert shake(pi) == "Nothing to shake. 1 entry under another overlay left alone."
    ran(pi, 2, words(1_000))
    later(pi)
    assert first(shake(pi)).endswith("Profile: default (built in). 1 entry under another overlay left alone.")


def test_the_status_names_profile_and_source() -> None:
    pi, _ = one_result()
    given = {"rules": Rules(profile=AGGRESSIVE), "source": "settings.json (project)"}
    assert shake(pi, "status", **given) == "Nothing is folded. Profile: aggressive (settings.json (project))."


def test_a_fold_tells_its_price() -> None:
    pi, _ = one_result()
    assert "Frees ~990 tokens a turn; ~" in shake(pi, model=CLAUDE)


# What can be typed


@pytest.mark.parametrize("args", ["", "  ", "elide", " elide "])
def test_elide_needs_no_word(args: str) -> None:
    pi, target = one_result()
    shake(pi, args)
    assert folded(pi) == [target]


@pytest.mark.parametrize(
    "args",
    ["melt", "all", "Images", "images thinking", "undo 3", "status now", "dry-run elide images", "--force", "elide x"],
)
def test_what_is_no_subcommand_is_answered_with_those_there_are(args: str) -> None:
    pi, _ = one_result()
    answer = run(request(pi, args))
    known = [line.partition(":")[0] for line in says_only(answer).split("\n")]
    assert known == ["/shake", "/shake images", "/shake thinking", "/shake status", "/shake undo", "/shake dry-run"]
    assert [effect.level for effect in answer.effects if isinstance(effect, fx.Notify)] == ["warning"]


def test_a_dry_run_of_an_unknown_scope_names_the_scopes() -> None:
    assert says_only(run(request(done(PiSession()), "dry-run all"))) == "/shake dry-run elide|images|thinking"


def test_a_dry_run_without_a_scope_asks_for_one() -> None:
    pi, _ = one_result()
    [choose] = run(request(pi, "dry-run --explain --with-thinking")).effects
    assert isinstance(choose, fx.Choose)
    assert choose.command == "shake"
    assert choose.options == {scope: f"dry-run {scope} --explain --with-thinking" for scope in SCOPES}
    for args in choose.options.values():
        assert shake(pi, args).startswith("[dry-run] · ")


def test_a_dry_run_without_anybody_to_ask_needs_its_scope() -> None:
    pi, _ = one_result()
    answer = run(request(pi, "dry-run", has_ui=False))
    assert says_only(answer) == "/shake dry-run needs a scope here: elide, images, thinking."
    assert shake(pi, "dry-run elide", has_ui=False).startswith("[dry-run] · Shook 1 tool result")


@pytest.mark.parametrize("args", ["", "images", "thinking", "undo"])
def test_nothing_is_changed_while_pi_works(args: str) -> None:
    pi, _ = one_result()
    answer = run(request(pi, args, idle=False))
    assert says_only(answer) == "Pi is still working. /shake changes what the model sees between turns only."


@pytest.mark.parametrize("args", ["status", "dry-run elide"])
def test_looking_is_allowed_while_pi_works(args: str) -> None:
    pi, _ = one_result()
    assert "still working" not in says_only(run(request(pi, args, idle=False)))


@pytest.mark.parametrize("args", ["", "images", "thinking", "undo", "dry-run", "dry-run elide"])
def test_a_pi_that_cannot_record_folds_is_told_in_one_line(args: str) -> None:
    pi, _ = one_result()
    said = says_only(run(request(pi, args, context_edit=False, idle=False)))
    assert said == "/shake needs Pi 0.87 or newer: this one cannot record folds in the session. Nothing was changed."


def test_completions_are_the_subcommands_and_then_the_scopes() -> None:
    assert [each.value for each in completions("shake", "")] == ["images", "thinking", "status", "undo", "dry-run"]
    assert [each.value for each in completions("shake", "th")] == ["thinking"]
    assert [each.value for each in completions("shake", "dry-run ")] == [f"dry-run {scope}" for scope in SCOPES]
    assert [each.value for each in completions("shake", "dry-run im")] == ["dry-run images"]
    assert completions("shake", "melt") == []
    assert "shake" in [command.name for command in COMMANDS]


def test_every_completion_is_understood() -> None:
    pi, _ = one_result()
    for each in [*completions("shake", ""), *completions("shake", "dry-run ")]:
        effects = run(request(pi, each.value)).effects
        assert not any(isinstance(effect, fx.Notify) and effect.level == "warning" for effect in effects)


# In a session


class Shaker(Player):
    """A player that types `/shake`."""

    def shake(self, args: str = "", **fields: object) -> list[str]:
        """The notices, with their levels."""
        before = len(self.notices)
        self.tell(ev.Command, **self.typed(args, **fields))
        return [f"{level}: {text}" for level, text in self.notices[before:]]

    def plan(self, args: str = "", **fields: object) -> list[fx.AnyEffect]:
        """The effects, before any of them is performed."""
        return self.send(ev.Command, **self.typed(args, **fields)).effects

    @staticmethod
    def typed(args: str, **fields: object) -> dict[str, object]:
        return {"name": "shake", "args": args, "context_edit": True, **fields}


def playing(ui: ev.UiMode = "tui") -> tuple[Shaker, list[str]]:
    """A session in tree mode with two large results out of the tail."""
    player = Shaker(ui=ui)
    player.start()
    player.pi.user("go")
    found = [ran(player.pi, number, words(1_000)) for number in range(2)]
    later(player.pi)
    return player, found


def test_a_session_folds_with_placeholders_that_name_their_history_item() -> None:
    player, found = playing()
    [notice] = player.shake()
    assert notice.startswith("info: Shook 2 tool results (~")
    assert [shown(player.pi)[each] for each in found] == [
        [text(f"[bash output omitted (~1,000 tokens); history item {each}]")] for each in found
    ]
    assert player.shake("undo") == ["info: Restored 2 entries (~1,970 tokens)."]


def test_a_session_without_history_names_no_item() -> None:
    player, found = playing()
    player.session.mode = "off"
    player.shake()
    assert shown(player.pi)[found[0]] == [text("[bash output omitted (~1,000 tokens)]")]


def test_skills_that_pi_names_are_protected() -> None:
    player = Shaker()
    player.start()
    player.pi.user("go")
    ran(player.pi, 1, words(1_000), "read", path="/s/review.md")
    later(player.pi)
    assert player.shake("", skills=["/s/review.md"]) == ["info: Nothing to shake."]
    assert player.shake()[0].startswith("info: Shook 1 tool result")


def test_in_local_mode_only_the_window_is_folded() -> None:
    player, _ = playing()
    player.session.mode = "local"
    player.pi.marker(1)
    assert player.shake() == ["info: Nothing to shake."]


@pytest.mark.parametrize(("ui", "asks"), [("tui", True), ("rpc", True), ("print", False), ("json", False)])
def test_a_popup_is_for_those_who_can_see_it(ui: ev.UiMode, *, asks: bool) -> None:
    player, _ = playing(ui)
    [effect] = player.plan("dry-run")
    assert isinstance(effect, fx.Choose) is asks


def test_a_plan_is_made_anew_once_when_the_leaf_has_moved() -> None:
    player, found = playing()
    effects = player.plan()
    newest = ran(player.pi, 7, words(1_000))
    later(player.pi)
    player.perform(effects)
    assert folded(player.pi) == [*found, newest]
    assert [level for level, _ in player.notices] == ["info"]
    assert len(logs(player.pi)) == 1


def test_a_plan_whose_leaf_moves_again_is_given_up_and_nothing_was_changed() -> None:
    player, _ = playing()
    effects = player.plan()
    player.pi.user("more")
    raw = shown(player.pi)
    again = player.send(ev.EffectFailed, effect="expect_leaf", error="the session went on meanwhile").effects
    assert effects[0] != again[0]
    player.pi.user("and more")
    player.perform(again)
    warning = ("warning", "/shake: the session went on meanwhile. Nothing was changed.")
    assert player.notices == [warning]
    assert folded(player.pi) == []
    assert all(shown(player.pi)[each] == raw[each] for each in raw)
    assert player.plan()[0] == fx.ExpectLeaf(leaf_id=player.pi.leaf), "and can be asked for again"


def test_a_plan_for_a_leaf_that_another_daemon_knew_is_not_made_anew() -> None:
    player, _ = playing()
    effects = player.plan()
    player.restart_daemon()
    player.pi.user("more")
    player.perform(effects)
    assert folded(player.pi) == []
    assert [level for level, _ in player.notices] == ["warning"]


@pytest.mark.parametrize("after_replan", [False, True])
def test_a_full_disk_leaves_a_log_of_what_was_folded(*, after_replan: bool) -> None:
    player, found = playing()
    raw = shown(player.pi)
    effects = player.plan()
    if after_replan:
        player.pi.user("more")
        effects = player.send(ev.EffectFailed, effect="expect_leaf", error="moved").effects
    player.perform(effects[:2])
    player.tell(ev.EffectFailed, effect="append_context_edit", error="ENOSPC")
    [(level, notice)] = player.notices
    assert level == "error"
    assert "ENOSPC" in notice
    assert "Nothing was changed" not in notice
    assert folded(player.pi) == found[:1]
    player.shake("undo")
    assert all(shown(player.pi)[each] == raw[each] for each in raw)


def test_a_log_that_could_not_be_written_is_written_again() -> None:
    """Reasoning has no placeholder: without its log it could not be brought back."""
    player = Shaker()
    player.start()
    player.pi.user("go")
    target = says(player.pi, thinking(), text("done"))
    effects = player.plan("thinking")
    player.perform([effect for effect in effects if not isinstance(effect, fx.AppendEntry | fx.Notify)])
    player.tell(ev.EffectFailed, effect="append_entry", error="EIO")
    assert folded(player.pi) == [target]


@pytest.mark.parametrize(("reason", "folds"), [("manual", True), ("threshold", True), ("overflow", False)])
def test_what_is_folded_is_summarised_in_full_unless_there_is_no_room(reason: str, *, folds: bool) -> None:
    """Seed: compact first, shake second; without the user doing it (design 6)."""
    player, found = playing()
    player.shake()
    verdict = player.send(ev.SessionBeforeCompact, reason=reason)
    assert isinstance(verdict, fx.Verdict)
    assert verdict.unfold == (found if folds else [])
    player.shake("undo")
    verdict = player.send(ev.SessionBeforeCompact, reason=reason)
    assert isinstance(verdict, fx.Verdict)
    assert verdict.unfold == []


# When the cache is cold


def cold(player: Shaker) -> str | None:
    """Why a fold is free just now, as the dry-run says it."""
    player.shake("dry-run elide", model=CLAUDE)
    free = [each for each in player.notices[-1][1].split("\n") if ", which costs nothing: " in each]
    return free[0].split(": ", 1)[1].rstrip(".") if free else None


def test_after_a_turn_the_cache_is_warm() -> None:
    player, _ = playing()
    assert cold(player) is None


@pytest.mark.parametrize(("seconds", "minutes"), [(300, None), (301, 5), (360, 6), (7_200, 120)])
def test_after_five_minutes_the_cache_is_cold(seconds: int, minutes: int | None) -> None:
    player, _ = playing()
    player.pi.clock += seconds * 1_000
    assert cold(player) == (None if minutes is None else f"the cache is cold after {minutes} minutes")


def test_a_request_that_kept_the_cache_warm_counts() -> None:
    player, _ = playing()
    player.pi.clock += 7_200_000
    player.pi.append("usage", kind="cache_warm")
    assert cold(player) is None


def test_a_fork_is_cold_until_its_first_request() -> None:
    player, _ = playing()
    player.start("fork")
    assert cold(player) == "the first request of a fork is cold anyway"
    player.look()
    assert cold(player) is None


def test_a_move_in_the_tree_makes_the_cache_cold_until_the_next_request() -> None:
    player, _ = playing()
    there = player.pi.leaf
    player.pi.user("a side way")
    assert there is not None
    player.travel(there, summarize=False)
    assert cold(player) == "the first request after moving in the tree is cold anyway"
    player.look()
    assert cold(player) is None


def test_where_nothing_was_read_yet_nothing_is_cached() -> None:
    player = Shaker()
    player.start()
    target = player.pi.message("user", [text(fenced(1_000)), image()])
    player.shake("dry-run images", model=CLAUDE)
    assert "which costs nothing: nothing was read yet." in player.notices[-1][1]
    assert target in shown(player.pi)


# Beside rollovers


def test_folds_are_of_their_window_and_go_with_it() -> None:
    """An archived window keeps its own overlays; the new one begins raw."""
    player, found = playing()
    player.shake()
    player.rollover()
    assert player.shake("status") == ["info: Nothing is folded. Profile: default (built in)."]
    assert player.shake("undo") == ["info: Nothing to restore."]
    assert not set(found) & set(shown(player.pi))


def test_a_log_is_an_entry_that_the_model_never_sees() -> None:
    pi, _ = one_result()
    append(pi, list(edits(run(request(pi)).effects)))
    shake(pi, rules=rules())
    assert all(entry["type"] == "custom" for entry in pi.entries if entry.get("customType") == SHAKE)
