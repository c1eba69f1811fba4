"""Settings: the key `contextd` of Pi's own `settings.json`, the user's and the project's.

A project's settings count over the user's, but only when Pi trusts the project. What is not among the allowed
values is an error that names them: nobody should run in another mode than they believe.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from state.errors import StateError
from state.modes import AVAILABLE, DEFAULT, MODES
from state.shake.command import Shaking
from state.shake.economics import KEEP_RECENT
from state.shake.planner import PROFILES, Rules

KEY: Final = "contextd"


class SettingsError(StateError):
    """A setting has a value that is not allowed."""


class Settings(Struct, frozen=True):
    """What is in force. `reserve` is Pi's compaction reserve in tokens, 0 when it is not set."""

    mode: str = DEFAULT
    reserve: int = 0
    shaking: Shaking = Shaking()


def load(agent_dir: Path, cwd: Path, *, trusted: bool) -> Settings:
    """Read both files; one that is absent or no JSON says nothing."""
    user = _read(agent_dir / "settings.json")
    project = _read(cwd / ".pi" / "settings.json") if trusted else {}
    ours = {**_own(user, KEY), **_own(project, KEY)}
    compaction = {**_section(user, "compaction"), **_section(project, "compaction")}
    return Settings(
        mode=checked_mode(ours.get("mode", DEFAULT)),
        reserve=_count(compaction.get("reserveTokens"), 0),
        shaking=_shaking(
            _own(_own(user, KEY), "shake", f"{KEY}."),
            _own(_own(project, KEY), "shake", f"{KEY}."),
            _count(compaction.get("keepRecentTokens"), KEEP_RECENT),
        ),
    )


def _shaking(user: dict[str, Any], project: dict[str, Any], keep_recent: int) -> Shaking:
    """How `/shake` folds. The profile's source is named as a person finds it; protections add up."""
    sources = ((project, "settings.json (project)"), (user, "settings.json (agent-directory)"))
    found = next(((each["profile"], source) for each, source in sources if "profile" in each), ("default", "built in"))
    name, source = found
    if not isinstance(name, str) or name not in PROFILES:
        raise SettingsError(f"{KEY}.shake.profile must be one of {', '.join(PROFILES)}.")
    rules = Rules(
        profile=PROFILES[name],
        tools=(*_names(user, "protectTools"), *_names(project, "protectTools")),
        paths=(*_names(user, "protectPaths"), *_names(project, "protectPaths")),
    )
    return Shaking(rules, source, keep_recent)


def _names(section: dict[str, Any], key: str) -> tuple[str, ...]:
    names = section.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SettingsError(f"{KEY}.shake.{key} must be a list of names or patterns.")
    return tuple(names)


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def checked_mode(mode: object) -> str:
    """The mode, if there is one of this name and this version has it."""
    if mode == "remote":
        raise SettingsError(f"{KEY}.mode: remote is not available in this version; use one of {', '.join(AVAILABLE)}.")
    if not isinstance(mode, str) or mode not in MODES:
        raise SettingsError(f"{KEY}.mode must be one of {', '.join(AVAILABLE)}.")
    return mode


def save_mode(agent_dir: Path, mode: str) -> None:
    """Write the user's choice, leaving everything else as it is; whole or not at all.

    A file that is no JSON object is not touched: a person has to mend it, and would lose the rest of it.
    """
    file = agent_dir / "settings.json"
    try:
        file = file.resolve()  # it may be a link into somebody's dotfiles
        settings = _parse(file) if file.exists() else {}
    except (OSError, ValueError, RuntimeError):  # the last for links in a circle, and for JSON that is too deep
        raise SettingsError(f"{file} is not readable JSON. Mend it first; nothing was changed.") from None
    settings[KEY] = {**_section(settings, KEY), "mode": mode}
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    try:
        _replace(file, text.encode("utf-8", "backslashreplace"))  # lone surrogates stay the escapes that they were
    except OSError as error:
        raise SettingsError(f"{file} cannot be written: {error.strerror}.") from None


def _replace(file: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".settings-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        if file.exists():
            Path(name).chmod(file.stat().st_mode & 0o777)
        Path(name).replace(file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _own(settings: dict[str, Any], key: str, above: str = "") -> dict[str, Any]:
    """A section of ours: what stands there and is no object was meant to say something."""
    section = settings.get(key, {})
    if not isinstance(section, dict):
        raise SettingsError(f"{above}{key} must be an object.")
    return section


def _section(settings: dict[str, Any], key: str) -> dict[str, Any]:
    section = settings.get(key)
    return section if isinstance(section, dict) else {}


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parse(file)
    except (OSError, ValueError, RecursionError):
        return {}


def _parse(file: Path) -> dict[str, Any]:
    settings = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one kind of error for one kind of failure
    return settings
