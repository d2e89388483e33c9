"""What tests of health share."""

from __future__ import annotations

import pytest

from dranet.linux.namespaces import Namespace, NamespaceError


@pytest.fixture(scope="session")
def may_make_namespaces() -> None:
    """Skip what needs network namespaces where the tests may not make any."""
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
