"""The libraries that only the driver needs, and what to say where they are not.

A laptop that plans and lints has no use for gRPC, protobuf and metrics, so the package asks for them only as
``dranet[driver]``. The image has them.
"""

from __future__ import annotations

from importlib.util import find_spec

from dranet.model.errors import DranetError

LIBRARIES = {"grpclib": "grpclib", "google.protobuf": "protobuf", "prometheus_client": "prometheus-client"}
"""Module and the name it is installed by; `driver` in pyproject.toml."""


def require_driver_libraries(command: str) -> None:
    """Raise before half of the driver is imported, with the line that helps."""
    missing = [package for module, package in LIBRARIES.items() if not _is_there(module)]
    if missing:
        raise DranetError(
            f"{command} runs the driver, whose libraries are not installed here ({', '.join(missing)}): "
            "pip install 'dranet[driver]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it, such as google, is not there either
        return False
