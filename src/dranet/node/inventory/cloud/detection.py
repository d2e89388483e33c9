"""Detects the cloud that the node runs in, quickly even where there is none.

All providers are asked at once with a short timeout; if several answer, their rank decides. If the firmware names the
cloud, only that provider is asked, with a longer timeout, because its metadata service may still be starting. A
provider that fails costs its attributes, never the inventory: the failure becomes a problem of the snapshot.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from dranet.core.cloud_plugins import entry_points, load_cloud, registered_names, unusable
from dranet.core.errors import DranetError, InvalidInput
from dranet.node.inventory.cloud import webhook
from dranet.node.inventory.cloud.provider import Cloud, CloudContext, CloudProvider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

METADATA_URL_VARIABLE = "DRANET_METADATA_URL"
WEBHOOK = "webhook"
NO_CLOUD = frozenset({"NONE", "none"})


class DetectionTimeouts(msgspec.Struct, frozen=True):
    """Seconds to wait: for any cloud, for a cloud that the operator or the firmware names, and between attempts."""

    any_cloud: float = 2.0
    named_cloud: float = 15.0
    retry_delay: float = 1.0


DEFAULT_TIMEOUTS = DetectionTimeouts()


class DetectionResult(NamedTuple):
    """The provider, if any, and the problems of the detection."""

    provider: CloudProvider | None
    problems: tuple[str, ...] = ()


def installed_clouds() -> list[Cloud]:
    """Every registered provider, by rank and name."""
    return sorted(map(_cloud, entry_points()), key=lambda cloud: (cloud.rank, cloud.name))


def _cloud(entry: EntryPoint) -> Cloud:
    found = load_cloud(entry)
    if not isinstance(found, Cloud):
        raise unusable(entry, f"{entry.module} has no CLOUD of type dranet.node.inventory.cloud.provider.Cloud")
    return found


async def find_provider(
    context: CloudContext,
    hint: str = "",
    *,
    clouds: Iterable[Cloud] | None = None,
    timeouts: DetectionTimeouts = DEFAULT_TIMEOUTS,
) -> DetectionResult:
    """The cloud named by ``hint`` (a name, ``webhook``, or ``NONE``), or the one that answers where it is empty."""
    if hint in NO_CLOUD:
        return DetectionResult(None)
    context = _with_environment(replace(context, timeout=timeouts.any_cloud / 2))
    try:
        known = {c.name: c for c in (installed_clouds() if clouds is None else clouds)}
    except InvalidInput as error:
        return DetectionResult(None, (f"{error}; continuing without cloud attributes",))
    known[WEBHOOK] = webhook.CLOUD
    found = await _detect(known, hint, context, timeouts)
    return DetectionResult(found.provider, (*found.problems, *_unused_options(context, found.provider)))


async def _detect(
    known: Mapping[str, Cloud], hint: str, context: CloudContext, timeouts: DetectionTimeouts
) -> DetectionResult:
    if hint:
        return await _detect_hinted(known, hint, context, timeouts)
    for cloud in known.values():
        if cloud.is_machine(context):
            return await _detect_named(cloud, context, timeouts)
    return await _detect_any(known.values(), context, timeouts.any_cloud)


def check_options(options: Mapping[str, Mapping[str, str]], hint: str) -> None:
    """Reject options of unknown providers, and of providers other than the hinted one."""
    clouds = {cloud.name.lower(): cloud for cloud in installed_clouds()} if options else {}
    for provider, values in options.items():
        if provider not in clouds:
            raise InvalidInput(f"unknown cloud provider {provider!r}; known providers are {', '.join(clouds)}")
        if hint and hint.lower() != provider:
            raise InvalidInput(f"options of {provider}, but the cloud provider is {hint}; remove one of the two")
        for option, value in values.items():
            _check_option(clouds[provider], option, value)


def _check_option(cloud: Cloud, option: str, value: str) -> None:
    if option not in cloud.options:
        known = ", ".join(cloud.options) or "none"
        raise InvalidInput(f"{cloud.name} has no option {option!r}; known options: {known}")
    try:
        cloud.options[option](value)
    except ValueError as error:
        raise InvalidInput(f"{cloud.name.lower()}.{option}: {error}") from error


def _unused_options(context: CloudContext, provider: CloudProvider | None) -> list[str]:
    name = provider.name if provider is not None else "none"
    return [
        f"options of {other} are not used: the cloud provider is {name}"
        for other in context.options
        if other != name.lower()
    ]


def hint_problem(hint: str, webhook_url: str) -> str | None:
    """Why a hint cannot be used, or None where it can."""
    if hint == WEBHOOK and not webhook_url:
        return f"the cloud provider {WEBHOOK} needs --webhook-url"
    if hint in {"", WEBHOOK, *NO_CLOUD}:
        return None
    known = registered_names()
    return None if hint in known else _unknown(hint, [*known, WEBHOOK])


def _unknown(hint: str, known: Iterable[str]) -> str:
    return f"unknown cloud provider {hint!r}; known providers are {', '.join(known)} and NONE"


def _with_environment(context: CloudContext) -> CloudContext:
    return replace(context, metadata_url=context.metadata_url or os.environ.get(METADATA_URL_VARIABLE, ""))


async def _detect_hinted(
    known: Mapping[str, Cloud], hint: str, context: CloudContext, timeouts: DetectionTimeouts
) -> DetectionResult:
    if hint not in known:
        return DetectionResult(None, (_unknown(hint, known),))
    if hint == WEBHOOK and not context.webhook_url:
        return DetectionResult(None, (str(hint_problem(hint, "")),))
    return await _detect_named(known[hint], context, timeouts)


async def _detect_named(cloud: Cloud, context: CloudContext, timeouts: DetectionTimeouts) -> DetectionResult:
    """Ask until the cloud answers or the timeout expires."""
    end = time.monotonic() + timeouts.named_cloud
    while True:
        provider, problem, final = await _ask(cloud, context, end - time.monotonic())
        if provider is not None:
            return DetectionResult(provider)
        if final or time.monotonic() + timeouts.retry_delay >= end:
            return DetectionResult(None, (f"{problem}; continuing without cloud attributes",))
        await asyncio.sleep(timeouts.retry_delay)


async def _detect_any(clouds: Iterable[Cloud], context: CloudContext, budget: float) -> DetectionResult:
    asked = [asyncio.create_task(_ask(cloud, context, budget)) for cloud in clouds]
    try:
        for task in asked:
            provider = (await task).provider
            if provider is not None:
                return DetectionResult(provider)
        return DetectionResult(None)
    finally:
        for task in asked:
            task.cancel()


class _Answer(NamedTuple):
    provider: CloudProvider | None
    problem: str
    final: bool = False
    """A retry would not help."""


async def _ask(cloud: Cloud, context: CloudContext, budget: float) -> _Answer:
    source = f"cloud provider {cloud.name}"
    try:
        async with asyncio.timeout(max(budget, 0)):
            provider = await cloud.detect(context)
    except TimeoutError:
        return _Answer(None, f"{source}: no answer within {budget:.0f} s")
    except InvalidInput as error:
        return _Answer(None, f"{source}: {error}", final=True)
    except (DranetError, OSError) as error:
        return _Answer(None, f"{source}: {error}")
    return _Answer(provider, f"{source}: the metadata service belongs to another cloud")
