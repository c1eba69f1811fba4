"""Settings: whose count, what is refused, and that choosing a mode harms nothing else in the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from builders import SESSION_ID, Json
from daemon import settings
from daemon.host import Host
from daemon.settings import SettingsError, checked_mode, load, save_mode
from protocol import effects as fx
from protocol import events as ev
from protocol.rpc import PROTOCOL


class Folders:
    """The agent's folder and a project's."""

    def __init__(self, root: Path) -> None:
        self.agent, self.project = root / "agent", root / "project"
        self.file = self.agent / "settings.json"
        self.agent.mkdir()
        (self.project / ".pi").mkdir(parents=True)

    def user(self, values: Any) -> None:
        self.file.write_text(json.dumps(values))

    def theirs(self, values: Any) -> None:
        (self.project / ".pi" / "settings.json").write_text(json.dumps(values))

    def load(self, *, trusted: bool = True) -> settings.Settings:
        return load(self.agent, self.project, trusted=trusted)

    def host(self, *, trusted: bool = True) -> Host:
        host = Host()
        facts: Json = {"protocol": PROTOCOL, "pi_version": "1.6.0", "ui": "rpc"}
        host.handle(
            "initialize",
            ev.Initialize(**facts, cwd=str(self.project), agent_dir=str(self.agent), trusted=trusted),
        )
        host.handle("session_start", ev.SessionStart(session_id=SESSION_ID, leaf_id=None, reason="startup"))
        return host


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_without_files_there_are_defaults(folders: Folders) -> None:
    found = folders.load()
    assert (found.mode, found.reserve) == ("tree", 0)


def test_the_users_settings_count(folders: Folders) -> None:
    folders.user({"contextd": {"mode": "local"}, "compaction": {"reserveTokens": 20_000}, "theme": "dark"})
    found = folders.load()
    assert (found.mode, found.reserve) == ("local", 20_000)


@pytest.mark.parametrize(("trusted", "mode", "reserve"), [(True, "off", 5), (False, "local", 20_000)])
def test_a_projects_settings_count_over_the_users_only_when_it_is_trusted(
    folders: Folders,
    trusted: bool,  # noqa: FBT001
    mode: str,
    reserve: int,
) -> None:
    folders.user({"contextd": {"mode": "local"}, "compaction": {"reserveTokens": 20_000}})
    folders.theirs({"contextd": {"mode": "off"}, "compaction": {"reserveTokens": 5}})
    found = folders.load(trusted=trusted)
    assert (found.mode, found.reserve) == (mode, reserve)


def test_what_a_project_does_not_say_is_the_users(folders: Folders) -> None:
    folders.user({"contextd": {"mode": "local"}, "compaction": {"reserveTokens": 20_000}})
    folders.theirs({"contextd": {"other": 1}, "compaction": {"keepRecentTokens": 7}})
    found = folders.load()
    assert (found.mode, found.reserve) == ("local", 20_000)


def test_a_project_that_is_not_trusted_cannot_even_make_an_error(folders: Folders) -> None:
    folders.theirs({"contextd": {"mode": "nonsense"}})
    assert folders.load(trusted=False).mode == "tree"
    with pytest.raises(SettingsError):
        folders.load(trusted=True)


@pytest.mark.parametrize("mode", ["nonsense", "", "TREE", "Tree ", None, 5, True, ["tree"], {}])
def test_an_unknown_mode_is_an_error_that_names_those_that_are_known(folders: Folders, mode: Any) -> None:
    folders.user({"contextd": {"mode": mode}})
    with pytest.raises(SettingsError) as error:
        folders.load()
    assert str(error.value) == "contextd.mode must be one of off, local, tree."


def test_remote_is_an_error_of_its_own_and_never_another_mode() -> None:
    with pytest.raises(SettingsError) as error:
        checked_mode("remote")
    assert str(error.value) == "contextd.mode: remote is not available in this version; use one of off, local, tree."


@pytest.mark.parametrize("mode", ["off", "local", "tree"])
def test_a_mode_of_this_version_is_taken(mode: str) -> None:
    assert checked_mode(mode) == mode


BROKEN = [
    b"",
    b"{",
    b'{"contextd": {"mode": "off"},}',
    b"// comment\n{}",
    b"[]",
    b'"text"',
    b"7",
    b"null",
    b"\xff\xfe",
    b"[" * 100_000,
    b'\xef\xbb\xbf{"contextd":{"mode":"off"}}',
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda raw: repr(raw[:12]))
def test_a_file_that_is_no_json_says_nothing(folders: Folders, content: bytes) -> None:
    folders.file.write_bytes(content)
    (folders.project / ".pi" / "settings.json").write_bytes(content)
    assert folders.load() == settings.Settings()


@pytest.mark.parametrize("section", [None, [], "tree", 5])
def test_a_section_of_pis_of_another_type_says_nothing(folders: Folders, section: Any) -> None:
    folders.user({"compaction": section})
    assert folders.load() == settings.Settings()


@pytest.mark.parametrize("section", [None, [], "off", 5])
def test_a_section_of_ours_of_another_type_is_an_error(folders: Folders, section: Any) -> None:
    """It was meant to say something, and nobody should run in another mode than they believe."""
    for ours, named in [(section, "contextd"), ({"shake": section}, "contextd.shake")]:
        folders.user({"contextd": ours})
        with pytest.raises(SettingsError) as error:
            folders.load()
        assert str(error.value) == f"{named} must be an object."


@pytest.mark.parametrize("reserve", [None, "5", 5.5, True, [], {}])
def test_a_reserve_that_is_no_number_is_none(folders: Folders, reserve: Any) -> None:
    folders.user({"compaction": {"reserveTokens": reserve}})
    assert folders.load().reserve == 0


# Saving


def test_saving_keeps_every_other_key_and_its_order(folders: Folders) -> None:
    folders.user({"theme": "dark", "contextd": {"shake": {"profile": "default"}, "mode": "off"}, "z": [1, {"a": "é"}]})
    save_mode(folders.agent, "local")
    saved = json.loads(folders.file.read_text())
    assert saved == {
        "theme": "dark",
        "contextd": {"shake": {"profile": "default"}, "mode": "local"},
        "z": [1, {"a": "é"}],
    }
    assert list(saved) == ["theme", "contextd", "z"]
    assert "é" in folders.file.read_text(encoding="utf-8")
    assert folders.load().mode == "local"


@pytest.mark.parametrize("bits", [0o600, 0o644, 0o640])
def test_saving_keeps_the_files_mode(folders: Folders, bits: int) -> None:
    folders.user({})
    folders.file.chmod(bits)
    save_mode(folders.agent, "off")
    assert folders.file.stat().st_mode & 0o777 == bits


def test_saving_makes_the_file_and_leaves_nothing_beside_it(folders: Folders) -> None:
    save_mode(folders.agent, "off")
    assert json.loads(folders.file.read_text()) == {"contextd": {"mode": "off"}}
    assert [path.name for path in folders.agent.iterdir()] == ["settings.json"]


def test_saving_follows_a_link(folders: Folders, tmp_path: Path) -> None:
    """Settings often lie among somebody's dotfiles."""
    real = tmp_path / "dotfiles"
    real.mkdir()
    (real / "pi.json").write_text('{"theme":"dark"}')
    folders.file.symlink_to(real / "pi.json")
    save_mode(folders.agent, "off")
    assert folders.file.is_symlink()
    assert json.loads((real / "pi.json").read_text()) == {"theme": "dark", "contextd": {"mode": "off"}}


def test_saving_keeps_what_no_unicode_text_can_hold(folders: Folders) -> None:
    folders.file.write_text('{"odd":"\\ud800"}')
    save_mode(folders.agent, "off")
    assert json.loads(folders.file.read_text()) == {"odd": "\ud800", "contextd": {"mode": "off"}}


@pytest.mark.parametrize("content", BROKEN, ids=lambda raw: repr(raw[:12]))
def test_a_file_that_is_no_json_is_never_overwritten(folders: Folders, content: bytes) -> None:
    """A comma too many must not cost a person all their settings."""
    folders.file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"is not readable JSON\. Mend it first; nothing was changed\."):
        save_mode(folders.agent, "off")
    assert folders.file.read_bytes() == content
    assert [path.name for path in folders.agent.iterdir()] == ["settings.json"]


def test_a_file_that_cannot_be_written_is_told(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.user({"theme": "dark"})

    def full(_self: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SettingsError, match=r"settings\.json cannot be written: No space left on device\."):
        save_mode(folders.agent, "off")
    assert json.loads(folders.file.read_text()) == {"theme": "dark"}
    assert [path.name for path in folders.agent.iterdir()] == ["settings.json"]


def test_links_that_lead_in_a_circle_are_told(folders: Folders) -> None:
    folders.file.symlink_to(folders.file)
    with pytest.raises(SettingsError, match="Mend it first"):
        save_mode(folders.agent, "off")


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Mend it first"):
        save_mode(tmp_path / "a\0b", "off")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot be written: No such file or directory\."):
        save_mode(tmp_path / "nowhere", "off")


# `/context mode`


def said(host: Host, args: str) -> fx.Notify:
    reply = host.handle("command", ev.Command(session_id=SESSION_ID, leaf_id=None, name="context", args=args))
    assert isinstance(reply, fx.Reply)
    (effect,) = reply.effects
    assert isinstance(effect, fx.Notify)
    return effect


def test_a_mode_is_chosen_for_the_next_session_and_this_one_goes_on(folders: Folders) -> None:
    host = folders.host()
    told = said(host, "mode off")
    assert (told.level, "From the next session on: off." in told.text) == ("info", True)
    assert "▸ tree" in told.text
    assert folders.load().mode == "off"
    assert "▸ off" in said(folders.host(), "mode").text


def test_a_choice_that_a_project_overrides_is_kept_and_the_user_is_told(folders: Folders) -> None:
    folders.theirs({"contextd": {"mode": "local"}})
    told = said(folders.host(), "mode off").text
    assert told.startswith("This project's settings say local, so off counts everywhere but here.\n")
    assert folders.load(trusted=False).mode == "off"


@pytest.mark.parametrize("mode", ["nonsense", "remote", "TREE"])
def test_a_mode_that_is_not_to_be_had_changes_nothing(folders: Folders, mode: str) -> None:
    folders.user({"theme": "dark"})
    told = said(folders.host(), f"mode {mode}")
    assert told.level == "error"
    assert "contextd.mode" in told.text
    assert folders.file.read_text() == '{"theme": "dark"}'


def test_a_broken_file_is_told_when_a_mode_is_chosen(folders: Folders) -> None:
    folders.file.write_text("{,}")
    told = said(folders.host(), "mode off")
    assert (told.level, "Mend it first" in told.text) == ("error", True)


def test_the_mode_that_the_process_began_with_outlives_a_change(folders: Folders) -> None:
    folders.user({"contextd": {"mode": "off"}})
    host = Host()
    initialize = ev.Initialize(
        protocol=PROTOCOL,
        pi_version="1.6.0",
        ui="rpc",
        cwd=str(folders.project),
        agent_dir=str(folders.agent),
        mode="local",
    )
    answer = host.handle("initialize", initialize)
    assert isinstance(answer, fx.Initialized)
    assert (answer.mode, len(answer.tools)) == ("local", 4)
    found = folders.host().handle("status", ev.Status())
    assert getattr(found, "mode", None) == "off"
