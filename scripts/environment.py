"""Puts a script into the virtual environment of the checkout, which `scripts/setup` makes.

A script calls `enter` before it imports anything that is not in the standard library, and can then be started with
whatever Python there is.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def enter() -> None:
    """Make the checkout ready and start the script again in its environment; nothing, when it runs there already."""
    if Path(sys.prefix).resolve() == VENV:
        return
    if subprocess.run([sys.executable, ROOT / "scripts" / "setup"], check=False).returncode != 0:
        sys.exit(1)
    python = str(VENV / "bin" / "python")
    os.execv(python, [python, *sys.argv])  # noqa: S606 - this very script, in its place
