"""Tests against real Pi processes."""
