"""How the house is built: which package may know which, and where the outside may come in (design 2)."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RANKS = {"protocol": 0, "state": 1, "daemon": 2}
OUTSIDE = {
    *("anyio", "asyncio", "os", "pathlib", "sys", "io", "time", "random", "secrets", "uuid", "logging", "structlog"),
    *("subprocess", "socket", "threading", "tempfile", "shutil", "click", "rich", "jsonrpcserver"),
}


def modules(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found, f"{package} has no modules"
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            yield node.module or ""


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)}


def every_module() -> list[Path]:
    return [path for package in RANKS for path in modules(package)]


@pytest.mark.parametrize("package", RANKS)
def test_imports_point_from_daemon_to_state_to_protocol(package: str) -> None:
    above = {name for name, rank in RANKS.items() if rank > RANKS[package]}
    wrong = {path.name: found for path in modules(package) if (found := tops(path) & above)}
    assert wrong == {}


@pytest.mark.parametrize("package", ["protocol", "state"])
def test_rules_and_shapes_know_no_io_no_clock_and_no_randomness(package: str) -> None:
    wrong = {path.name: found for path in modules(package) if (found := tops(path) & OUTSIDE)}
    assert wrong == {}


@pytest.mark.parametrize("package", ["protocol", "state"])
def test_rules_and_shapes_open_nothing_and_ask_for_no_time(package: str) -> None:
    called = [
        (path.name, node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        for path in modules(package)
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    ]
    assert [call for call in called if call[1] in {"open", "input", "now", "utcnow", "today", "__import__"}] == []


def test_the_product_imports_nothing_from_the_tests() -> None:
    names = {"builders", "pi", "tests", "pytest", "hypothesis"}
    assert [path.name for path in every_module() if tops(path) & names] == []


def test_any_exception_is_caught_in_the_server_alone() -> None:
    """One place turns exceptions into errors on the wire (design 9)."""
    broad = {
        path.relative_to(ROOT).as_posix()
        for path in every_module()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    }
    assert broad == {"daemon/server.py"}


def test_nothing_prints() -> None:
    """The protocol owns stdout (design 3)."""
    prints = [
        path.name
        for path in every_module()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert prints == []


def test_the_wire_types_of_the_shim_are_those_of_the_structs() -> None:
    """`scripts/generate-protocol` makes them; what it needs is installed by `scripts/setup`."""
    if not (ROOT / "tests" / "pi" / "node_modules").exists():
        pytest.skip("the schema-to-TypeScript tool is not installed: run scripts/setup")
    command = [sys.executable, str(ROOT / "scripts" / "generate-protocol"), "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "shim/protocol.d.ts is up to date\n")
