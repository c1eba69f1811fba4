"""What every test shares: asynchronous tests run on asyncio alone. Fixtures of one kind of test do not belong here."""

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may be slow at any moment; how long an example takes says nothing about the product.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
