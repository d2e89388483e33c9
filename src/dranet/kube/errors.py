"""What the API server can answer, as exceptions.

The split that matters: an :class:`ApiError` is an answer (the server decided), a :class:`ConnectionLost` is none (the
request may or may not have been carried out, so look before writing again).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.model.errors import DranetError


class KubeError(DranetError):
    """Anything that goes wrong between us and the API server."""


class ConfigError(KubeError):
    """No way to reach a cluster can be made from what was given."""


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
    """403: our account may not do this."""


class Missing(ApiError):
    """404: the object, or the whole resource type, does not exist."""


class Conflict(ApiError):
    """409: somebody else wrote first, the object exists already, or it is another one of the same name."""


class Expired(ApiError):
    """410: the resource version or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the server's validation refused the object; ``causes`` names the fields."""


_BY_CODE: dict[int, type[ApiError]] = {403: Forbidden, 404: Missing, 409: Conflict, 410: Expired, 422: Invalid}


def api_error(request: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> ApiError:
    """The most specific exception for an error answer."""
    return _BY_CODE.get(code, ApiError)(request, code, status, retry_after)
