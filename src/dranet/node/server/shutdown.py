"""When the driver may stop: not while a pod is starting that only this driver can serve.

The reference's rule: stop when no pod has devices, or when no container of such a pod was created in the last ten
seconds (pods never seen count from the moment stopping began), or after five minutes. Two rules are added. During an
update the new driver, which shares the store, already serves the runtime, so there is nothing to wait for. While it is
only starting, which takes long on a busy node, this driver serves the claims of new pods.

An update and an uninstall look the same to the process. The service account tells them apart: an update keeps it, an
uninstall deletes it with the driver. A driver that loses permissions it had before therefore removes its files. A wrong
guess costs the next driver a list of claims, because its store starts empty.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dranet.core.logs import get_logger
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ApiError, KubeError
from dranet.kubernetes.api.resources import NODES

log = get_logger(__name__)

_QUIET_SECONDS = 10.0
_MAX_SECONDS = 300.0
_NRI_TIMEOUT_SECONDS = 2.0
"""The runtime's timeout for one request: after it, no request from before the successor is left."""
_SUCCESSOR_SECONDS = 10.0
"""How long to wait for a successor; after that there is none."""
_POLL_SECONDS = 0.5
_REQUEST_SECONDS = 5.0
_REFUSED = (401, 403)
_STORE_SUFFIXES = ("", "-wal", "-shm", ".lock", ".sharing.lock", ".functions.lock")

Clock = Callable[[], float]


def may_stop(
    pods: Iterable[str], activity: Mapping[str, float], began: float, now: float, *, relieved: float | None = None
) -> bool:
    """The rule at one moment; `relieved` is when another instance of the driver started to serve this node."""
    if now - began >= _MAX_SECONDS or (relieved is not None and now - relieved >= _NRI_TIMEOUT_SECONDS):
        return True
    return all(now - activity.get(pod, began) >= _QUIET_SECONDS for pod in pods)


async def wait_for_successor(
    pods: Callable[[], Iterable[str]],
    has_successor: Callable[[], bool],
    began: float,
    *,
    clock: Clock = time.monotonic,
    poll: float = _POLL_SECONDS,
) -> None:
    """Wait until another driver can serve claims; not on a node where no pod has devices."""
    while any(pods()) and not has_successor() and clock() - began < _SUCCESSOR_SECONDS:  # noqa: ASYNC110
        await asyncio.sleep(poll)


async def wait_until_quiet(
    pods: Callable[[], Iterable[str]],
    activity: Mapping[str, float],
    has_successor: Callable[[], bool],
    began: float,
    *,
    clock: Clock = time.monotonic,
    poll: float = _POLL_SECONDS,
) -> None:
    """Wait until the rule allows to stop."""
    relieved = None
    while not may_stop(pods(), activity, began, clock(), relieved=relieved):
        await asyncio.sleep(poll)
        relieved = (clock() if relieved is None else relieved) if has_successor() else None


async def account_is_deleted(client: KubeClient, node: str) -> bool:
    """Whether the driver may not read its Node any more; False where the API server does not answer."""
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            await client.get(NODES, node)
    except ApiError as error:
        return error.code in _REFUSED
    except (KubeError, TimeoutError):
        return False
    return False


def remove_files(store: str | None, locks: Iterable[Path]) -> None:
    """Remove the store, which must be closed and without plans, and the lock files."""
    files = [Path(f"{store}{suffix}") for suffix in _STORE_SUFFIXES] if store else []
    for path in [*files, *locks]:
        path.unlink(missing_ok=True)
    log.info("Driver was uninstalled; removed its files from this node")
