"""The process around the rules: stdio, dispatch, session files, command line. The only place with IO."""

__version__ = "0.1.0"
