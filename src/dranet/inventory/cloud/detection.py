"""Find out which cloud the node runs in, quickly even when the answer is none.

Everybody is asked at once, each with a short time-out; if several answer, the fixed order below decides. Where the
firmware names the cloud, only that one is asked, and patiently, since its metadata service may still be starting.
A cloud that fails costs its attributes, never the inventory: what went wrong is reported as a problem.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from dranet.inventory.cloud.provider import CloudProvider, Context
from dranet.model.errors import DranetError, InvalidInput

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "dranet.cloud_providers"
METADATA_URL_VARIABLE = "DRANET_METADATA_URL"
WEBHOOK = "webhook"
NO_CLOUD = frozenset({"NONE", "none"})
_ORDER = ("GCE", "AWS", "AZURE", "OKE", "ALIBABA")

Detect = Callable[[Context], Awaitable[CloudProvider | None]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: for a guess, and for a cloud that somebody or something named."""

    guess: float = 2.0
    named: float = 15.0
    pause: float = 1.0


DEFAULT_PATIENCE = Patience()


class Found(NamedTuple):
    """The provider, if any, and what went wrong on the way, in words."""

    provider: CloudProvider | None
    problems: tuple[str, ...] = ()


class Candidate(NamedTuple):
    """A cloud that can be asked, and how to tell from the firmware that it is the one."""

    name: str
    detect: Detect
    is_machine: Callable[[Context], bool]


async def find_provider(
    context: Context,
    hint: str = "",
    *,
    candidates: Iterable[Candidate] | None = None,
    patience: Patience = DEFAULT_PATIENCE,
) -> Found:
    """The cloud named by ``hint`` (a name, ``webhook``, or ``NONE``), or the one that answers where it is empty."""
    if hint in NO_CLOUD:
        return Found(None)
    context = _with_environment(replace(context, timeout=patience.guess / 2))
    known = {c.name: c for c in (installed_candidates() if candidates is None else candidates)}
    known[WEBHOOK] = _webhook()
    if hint:
        return await _named(known, hint, context, patience)
    for candidate in known.values():
        if candidate.is_machine(context):
            return await _patiently(candidate, context, patience)
    return await _guess(known.values(), context, patience.guess)


def installed_candidates() -> list[Candidate]:
    """Every provider that an installed package announces: ours in their order, then others by name."""
    found = {entry.name: entry for entry in _entry_points()}
    ranked = sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return [_load(name, found[name].module, found[name].attr) for name in ranked]


def hint_problem(hint: str, webhook_url: str) -> str | None:
    """Why a hint cannot be used, or None where it can."""
    if hint == WEBHOOK and not webhook_url:
        return f"the cloud provider {WEBHOOK} needs --webhook-url"
    if hint in {"", WEBHOOK, *_ORDER, *NO_CLOUD}:
        return None
    known = [entry.name for entry in _entry_points()]
    return None if hint in known else _unknown(hint, [*known, WEBHOOK])


def _unknown(hint: str, known: Iterable[str]) -> str:
    return f"no cloud provider is called {hint!r}; known are {', '.join(known)} and NONE"


def _entry_points() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # slow to import, and needed only to find a cloud

    return entry_points(group=GROUP)


def _load(name: str, module_name: str, attribute: str) -> Candidate:
    module = importlib.import_module(module_name)
    return Candidate(name, getattr(module, attribute), getattr(module, "is_machine", lambda _: False))


def _webhook() -> Candidate:
    from dranet.inventory.cloud import webhook

    return Candidate(WEBHOOK, webhook.detect, lambda _: False)


def _with_environment(context: Context) -> Context:
    return replace(context, metadata_url=context.metadata_url or os.environ.get(METADATA_URL_VARIABLE, ""))


async def _named(known: Mapping[str, Candidate], hint: str, context: Context, patience: Patience) -> Found:
    if hint not in known:
        return Found(None, (_unknown(hint, known),))
    if hint == WEBHOOK and not context.webhook_url:
        return Found(None, (str(hint_problem(hint, "")),))
    return await _patiently(known[hint], context, patience)


async def _patiently(candidate: Candidate, context: Context, patience: Patience) -> Found:
    """Ask again until the cloud answers or patience ends."""
    end = time.monotonic() + patience.named
    while True:
        provider, problem, final = await _ask(candidate, context, end - time.monotonic())
        if provider is not None:
            return Found(provider)
        if final or time.monotonic() + patience.pause >= end:
            return Found(None, (f"{problem}; going on without cloud attributes",))
        await asyncio.sleep(patience.pause)


async def _guess(candidates: Iterable[Candidate], context: Context, budget: float) -> Found:
    asked = [asyncio.create_task(_ask(candidate, context, budget)) for candidate in candidates]
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


async def _ask(candidate: Candidate, context: Context, budget: float) -> _Answer:
    who = f"cloud provider {candidate.name}"
    try:
        async with asyncio.timeout(max(budget, 0)):
            provider = await candidate.detect(context)
    except TimeoutError:
        return _Answer(None, f"{who}: no answer within {budget:.0f} s")
    except InvalidInput as error:
        return _Answer(None, f"{who}: {error}", final=True)
    except (DranetError, OSError) as error:
        return _Answer(None, f"{who}: {error}")
    return _Answer(provider, f"{who}: the metadata service here is not its own")
