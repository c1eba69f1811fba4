"""What every test shares: asynchronous tests run on asyncio alone. Fixtures of one kind of test do not belong here."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
