"""Find out which cloud the node runs in, quickly even when the answer is none.

Everybody is asked at once, each with a short time-out; if several answer, the rank they declare decides. Where the
firmware names the cloud, only that one is asked, and patiently, since its metadata service may still be starting.
A cloud that fails costs its attributes, never the inventory: what went wrong is reported as a problem.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from dranet.inventory.cloud import webhook
from dranet.inventory.cloud.installed import announced, installed_clouds
from dranet.inventory.cloud.provider import Cloud, CloudContext, CloudProvider
from dranet.model.errors import DranetError, InvalidInput

METADATA_URL_VARIABLE = "DRANET_METADATA_URL"
WEBHOOK = "webhook"
NO_CLOUD = frozenset({"NONE", "none"})


class Patience(msgspec.Struct, frozen=True):
    """How long to wait, in seconds: for a guess, and for a cloud that somebody or something named."""

    guess: float = 2.0
    named: float = 15.0
    pause: float = 1.0


DEFAULT_PATIENCE = Patience()


class Found(NamedTuple):
    """The provider, if any, and what went wrong on the way, in words."""

    provider: CloudProvider | None
    problems: tuple[str, ...] = ()


async def find_provider(
    context: CloudContext,
    hint: str = "",
    *,
    clouds: Iterable[Cloud] | None = None,
    patience: Patience = DEFAULT_PATIENCE,
) -> Found:
    """The cloud named by ``hint`` (a name, ``webhook``, or ``NONE``), or the one that answers where it is empty."""
    if hint in NO_CLOUD:
        return Found(None)
    context = _with_environment(replace(context, timeout=patience.guess / 2))
    try:
        known = {c.name: c for c in (installed_clouds() if clouds is None else clouds)}
    except InvalidInput as error:
        return Found(None, (f"{error}; going on without cloud attributes",))
    known[WEBHOOK] = webhook.CLOUD
    found = await _find(known, hint, context, patience)
    return Found(found.provider, (*found.problems, *_unused_options(context, found.provider)))


async def _find(known: Mapping[str, Cloud], hint: str, context: CloudContext, patience: Patience) -> Found:
    if hint:
        return await _named(known, hint, context, patience)
    for cloud in known.values():
        if cloud.is_machine(context):
            return await _patiently(cloud, context, patience)
    return await _guess(known.values(), context, patience.guess)


def check_options(options: Mapping[str, Mapping[str, str]], hint: str) -> None:
    """Refuse options that no provider takes, or another than the one that is named."""
    clouds = {cloud.name.lower(): cloud for cloud in installed_clouds()} if options else {}
    for provider, said in options.items():
        if provider not in clouds:
            raise InvalidInput(f"no cloud provider is called {provider!r}; known are {', '.join(clouds)}")
        if hint and hint.lower() != provider:
            raise InvalidInput(f"options of {provider} while the cloud provider is {hint}; leave one of the two out")
        for option, value in said.items():
            _check_option(clouds[provider], option, value)


def _check_option(cloud: Cloud, option: str, value: str) -> None:
    if option not in cloud.options:
        taken = ", ".join(cloud.options) or "none"
        raise InvalidInput(f"{cloud.name} has no option {option!r}; it takes: {taken}")
    try:
        cloud.options[option](value)
    except ValueError as error:
        raise InvalidInput(f"{cloud.name.lower()}.{option}: {error}") from error


def _unused_options(context: CloudContext, provider: CloudProvider | None) -> list[str]:
    name = provider.name if provider is not None else "none"
    return [
        f"options of {other} are not used: the cloud here is {name}"
        for other in context.options
        if other != name.lower()
    ]


def hint_problem(hint: str, webhook_url: str) -> str | None:
    """Why a hint cannot be used, or None where it can."""
    if hint == WEBHOOK and not webhook_url:
        return f"the cloud provider {WEBHOOK} needs --webhook-url"
    if hint in {"", WEBHOOK, *NO_CLOUD}:
        return None
    known = announced()
    return None if hint in known else _unknown(hint, [*known, WEBHOOK])


def _unknown(hint: str, known: Iterable[str]) -> str:
    return f"no cloud provider is called {hint!r}; known are {', '.join(known)} and NONE"


def _with_environment(context: CloudContext) -> CloudContext:
    return replace(context, metadata_url=context.metadata_url or os.environ.get(METADATA_URL_VARIABLE, ""))


async def _named(known: Mapping[str, Cloud], hint: str, context: CloudContext, patience: Patience) -> Found:
    if hint not in known:
        return Found(None, (_unknown(hint, known),))
    if hint == WEBHOOK and not context.webhook_url:
        return Found(None, (str(hint_problem(hint, "")),))
    return await _patiently(known[hint], context, patience)


async def _patiently(cloud: Cloud, context: CloudContext, patience: Patience) -> Found:
    """Ask again until the cloud answers or patience ends."""
    end = time.monotonic() + patience.named
    while True:
        provider, problem, final = await _ask(cloud, context, end - time.monotonic())
        if provider is not None:
            return Found(provider)
        if final or time.monotonic() + patience.pause >= end:
            return Found(None, (f"{problem}; going on without cloud attributes",))
        await asyncio.sleep(patience.pause)


async def _guess(clouds: Iterable[Cloud], context: CloudContext, budget: float) -> Found:
    asked = [asyncio.create_task(_ask(cloud, context, budget)) for cloud in clouds]
    try:
        for task in asked:
            provider = (await task).provider
            if provider is not None:
                return Found(provider)
        return Found(None)
    finally:
        for task in asked:
            task.cancel()


class _Answer(NamedTuple):
    provider: CloudProvider | None
    problem: str
    final: bool = False
    """Asking again would not help."""


async def _ask(cloud: Cloud, context: CloudContext, budget: float) -> _Answer:
    who = f"cloud provider {cloud.name}"
    try:
        async with asyncio.timeout(max(budget, 0)):
            provider = await cloud.detect(context)
    except TimeoutError:
        return _Answer(None, f"{who}: no answer within {budget:.0f} s")
    except InvalidInput as error:
        return _Answer(None, f"{who}: {error}", final=True)
    except (DranetError, OSError) as error:
        return _Answer(None, f"{who}: {error}")
    return _Answer(provider, f"{who}: the metadata service here is not its own")
