"""Errors of API requests.

An :class:`ApiError` is the server's answer. A :class:`ConnectionLost` is no answer: the server may or may not have
carried out the request, so read before writing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.core.errors import DranetError


class KubeError(DranetError):
    """Any error between the client and the API server."""


class ConfigError(KubeError):
    """The configuration does not lead to a cluster."""


class ConnectionLost(KubeError):
    """No complete answer came: the outcome of the request is unknown."""


class ApiError(KubeError):
    """The server answered with an error status."""

    def __init__(self, request: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or "no message")
        self.causes: tuple[Mapping[str, Any], ...] = tuple((status.get("details") or {}).get("causes") or ())
        self.retry_after = retry_after
        super().__init__(f"{request}: the API server answered {code} {self.reason}: {self.message}")


class Forbidden(ApiError):
    """403: the account has no permission."""


class ObjectNotFound(ApiError):
    """404: the object, or the whole resource type, does not exist."""


class Conflict(ApiError):
    """409: a concurrent write, or the object exists already, or it has another UID."""


class Expired(ApiError):
    """410: the resource version or continue token is too old; list again."""


class Invalid(ApiError):
    """422: validation rejected the object; ``causes`` has the fields."""


_BY_CODE: dict[int, type[ApiError]] = {403: Forbidden, 404: ObjectNotFound, 409: Conflict, 410: Expired, 422: Invalid}


def api_error(request: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """The most specific exception for an error response."""
    return _BY_CODE.get(code, ApiError)(request, code, status, retry_after)
