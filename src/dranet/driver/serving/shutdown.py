"""When the driver may leave, and what goes with it: not while a pod is just starting that only this driver can serve.

The reference's rule: leave when no pod has cards, or when no container of such a pod was created in the last ten
seconds (pods never seen count from the moment stopping began), or after five minutes. Two more are ours. During an
update the successor, which shares our store, already serves the runtime beside us, so there is nothing to wait for. And
while it is only starting, which takes long on a busy node, somebody has to serve the claims of pods that come: we do.

To the process that ends, an update and a removal look alike. What tells them apart is the account: an update leaves it
alone, and whoever uninstalls takes it away together with the driver. So a driver that is refused what it was allowed
before takes its files with it. A wrong guess costs the next one a list of claims, because its memory begins empty.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from dranet.kube.client import KubeClient
from dranet.kube.errors import ApiError, KubeError
from dranet.kube.resources import NODES

log = logging.getLogger(__name__)

QUIET_SECONDS = 10.0
LONGEST_SECONDS = 300.0
HAND_OVER_SECONDS = 2.0
"""The runtime's patience with one request: what began before the successor was there has ended."""
SUCCESSOR_SECONDS = 10.0
"""How long a successor may take to appear; then none is coming."""
POLL_SECONDS = 0.5
ASK_SECONDS = 5.0
REFUSED = (401, 403)
_BESIDE_THE_STORE = ("", "-wal", "-shm", ".lock", ".sharing.lock", ".functions.lock")

Clock = Callable[[], float]


def may_leave(
    pods: Iterable[str], activity: Mapping[str, float], began: float, now: float, *, relieved: float | None = None
) -> bool:
    """The rule, at one moment; `relieved` is since when another instance of the driver serves this node."""
    if now - began >= LONGEST_SECONDS or (relieved is not None and now - relieved >= HAND_OVER_SECONDS):
        return True
    return all(now - activity.get(pod, began) >= QUIET_SECONDS for pod in pods)


async def wait_for_successor(
    pods: Callable[[], Iterable[str]],
    has_successor: Callable[[], bool],
    began: float,
    *,
    clock: Clock = time.monotonic,
    poll: float = POLL_SECONDS,
) -> None:
    """Wait until somebody else can serve claims; not on a node without pods that have cards."""
    while any(pods()) and not has_successor() and clock() - began < SUCCESSOR_SECONDS:  # noqa: ASYNC110
        await asyncio.sleep(poll)


async def wait_until_quiet(
    pods: Callable[[], Iterable[str]],
    activity: Mapping[str, float],
    has_successor: Callable[[], bool],
    began: float,
    *,
    clock: Clock = time.monotonic,
    poll: float = POLL_SECONDS,
) -> None:
    """Wait until the rule lets us go."""
    relieved = None
    while not may_leave(pods(), activity, began, clock(), relieved=relieved):
        await asyncio.sleep(poll)
        relieved = (clock() if relieved is None else relieved) if has_successor() else None


async def account_is_gone(client: KubeClient, node: str) -> bool:
    """Whether the driver may not even look at its node any more; a server that does not answer says nothing."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await client.get(NODES, node)
    except ApiError as error:
        return error.code in REFUSED
    except (KubeError, TimeoutError):
        return False
    return False


def remove_files(store: str | None, locks: Iterable[Path]) -> None:
    """The store, which must be closed and without plans, and what was locked beside it and at the kubelet's place."""
    beside = [Path(f"{store}{ending}") for ending in _BESIDE_THE_STORE] if store else []
    for path in [*beside, *locks]:
        path.unlink(missing_ok=True)
    log.info("the driver was uninstalled: its files on this node are removed")
