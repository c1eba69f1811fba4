"""Logs: JSON lines on stderr, ids and numbers only. Importing this costs; nobody does before `ready`."""

from __future__ import annotations

import logging
import os
import sys

import msgspec
import structlog

LEVEL_VARIABLE = "PI_CONTEXTD_LOG"
"""Names the least level that is logged: debug, info, warning (the default), error."""


def configure() -> structlog.typing.FilteringBoundLogger:
    """Set up structlog once, and keep every other library's log lines, which may hold content, out of sight."""
    name = os.environ.get(LEVEL_VARIABLE, "warning").upper()
    level = logging.getLevelNamesMapping().get(name, logging.WARNING)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=_serialize),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("jsonrpcserver").addHandler(logging.NullHandler())
    logging.getLogger("jsonrpcserver").propagate = False
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def _serialize(value: object, **_options: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=repr)
