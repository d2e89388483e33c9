"""The kernel room's branch of the exception tree."""

from __future__ import annotations

from dranet.model.errors import DranetError


class KernelError(DranetError):
    """Linux refused something, or is not what we need it to be."""
