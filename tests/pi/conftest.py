"""Fixtures of the tests that run a real Pi: its versions, and a home. How Pi is driven belongs in harness.py."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from pi.harness import VERSIONS, PiHome, missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.pi)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures that a test recorded, which say more than that it passed."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    home = getattr(item, "funcargs", {}).get("home")
    if report.when == "call" and report.failed and isinstance(home, PiHome):
        report.sections.append((f"Pi {home.version} in {home.root}", home.report()))
    return report


@pytest.fixture(params=VERSIONS)
def pi_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path, pi_version: str) -> Iterator[PiHome]:
    home = PiHome(tmp_path, pi_version)
    yield home
    home.close()
