"""Which driver's devices a request is for, as far as its class and selectors say."""

from __future__ import annotations

import re
from functools import lru_cache

from dranet.manifests.claim_views import Claim, Request, World
from dranet.model.names import DRIVER_NAME

_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']|["']([^"']+)["']\s*==\s*device\.driver""")


def class_selectors(world: World, name: str) -> tuple[str, ...]:
    """The expressions of a class, in order; none where the class is unknown."""
    return world.class_texts.get(name, ())


def texts_of(world: World) -> list[str]:
    """Every selector and constraint at hand, each text once: what they do not mention cannot tell two nodes apart."""
    texts = [selector.text for selector in world.selectors]
    texts += [text for name in world.classes for text in class_selectors(world, name)]
    texts += [s.text for claim in world.all_claims for request in claim.requests for s in request.selectors]
    texts += [str(constraint) for claim in world.all_claims for constraint in claim.constraints]
    return list(dict.fromkeys(texts))


def drivers_of(world: World, request: Request) -> frozenset[str]:
    """Drivers named by the request's class and selectors; the class's own name where they name none."""
    texts = (*class_selectors(world, request.device_class), *(selector.text for selector in request.selectors))
    return _named(texts) or frozenset({request.device_class})


@lru_cache(maxsize=4096)
def _named(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(left or right for text in texts for left, right in _DRIVER.findall(text))


def is_gpu_request(world: World, request: Request) -> bool:
    """Whether it asks for GPUs: their drivers are called ``gpu.<vendor>``."""
    return any(driver.startswith("gpu.") or driver == "gpu" for driver in drivers_of(world, request))


def is_nic_request(world: World, request: Request) -> bool:
    """Whether it asks for our cards."""
    return DRIVER_NAME in drivers_of(world, request)


def gpu_requests(world: World, claim: Claim) -> list[Request]:
    """The claim's requests for GPUs."""
    return [request for request in claim.requests if is_gpu_request(world, request)]


def nic_requests(world: World, claim: Claim) -> list[Request]:
    """The claim's requests for cards."""
    return [request for request in claim.requests if is_nic_request(world, request)]
