"""What can go wrong in here, told apart by who has to act; `daemon.server` maps each to one wire code.

Texts name ids, states and limits, never content.
"""

from __future__ import annotations


class StateError(Exception):
    """Base; raised before anything is changed."""


class NotAllowedError(StateError):
    """The peer sent an event that the session's state does not allow."""


class RefusedError(StateError):
    """A person or the model asked for something that cannot be done now; the text is for them."""
