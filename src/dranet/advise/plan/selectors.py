"""CEL selectors of classes and requests: the attributes they read, the devices they match, the drivers they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from dranet.advise.manifests import Claim, Manifests, Request
from dranet.advise.plan.hardware import PublishedDevice
from dranet.cel import Issue
from dranet.core.names import DRIVER_NAME
from dranet.scheduler.allocation.equivalence import DeviceEquivalence, Mask
from dranet.scheduler.allocation.kubernetes_cel import COST_LIMIT, MAX_LENGTH
from dranet.scheduler.allocation.selectors import (
    DeviceInput,
    DeviceSelector,
    compile_new,
    device_input,
    shared_compiler,
)
from dranet.scheduler.releases import NEWEST, OLDEST, Release, as_release

_REFERENCE = re.compile(
    r"""device\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*(?P<q>["'])(?P<domain>[^"']*)(?P=q)\s*\]"""
    r"""\s*(?:\.\s*\??\s*(?P<dot>[A-Za-z_]\w*)(?!\w*\s*\()|\[\s*\??\s*["'](?P<key>[^"']*)["']\s*\])"""
)


def attributes_read(text: str) -> Iterator[tuple[int, str]]:
    """The offset of each name, and the name with its domain."""
    for match in _REFERENCE.finditer(text):
        group = "dot" if match["dot"] else "key"
        yield match.start(group), f"{match['domain']}/{match[group]}"


_TOO_LONG = f"Too long: may not be more than {MAX_LENGTH} bytes"
_TOO_COSTLY = "too complex, exceeds cost limit"
REFUSALS = (_TOO_LONG, _TOO_COSTLY)
"""The API server's messages for an expression that compiles but exceeds a limit."""


class SelectorTester(msgspec.Struct, frozen=True):
    """Compiles each expression, converts each device and evaluates each pair once, for one release."""

    kubernetes: tuple[int, int] = (1, 36)
    _problems: dict[str, tuple[str, tuple[Issue, ...]]] = msgspec.field(default_factory=dict)
    _inputs: dict[int, tuple[PublishedDevice, DeviceInput]] = msgspec.field(default_factory=dict)
    _verdicts: dict[str, tuple[DeviceSelector, dict[int, bool | str]]] = msgspec.field(default_factory=dict)

    def problems(self, expression: str) -> tuple[str, tuple[Issue, ...]]:
        """The API server's error for a new expression, and its positions; empty if the expression is valid."""
        if expression not in self._problems:
            self._problems[expression] = self._problems_of(expression)
        return self._problems[expression]

    def _problems_of(self, expression: str) -> tuple[str, tuple[Issue, ...]]:
        if len(expression.encode()) > MAX_LENGTH:
            return _TOO_LONG, ()
        compiled = compile_new(self._release, expression)
        if (compiled.cost_estimate() or 0) > COST_LIMIT:
            return _TOO_COSTLY, ()
        return compiled.error or "", compiled.issues

    def verdict(self, expression: str, unit: PublishedDevice) -> bool | str | None:
        """True or false, the scheduler's error text, or None for an expression that does not compile."""
        known = self._verdicts.get(expression)
        if known is None:
            compiled = shared_compiler(self._release).compile(expression)
            known = self._verdicts[expression] = (compiled, {})
        compiled, answers = known
        if compiled.error is not None:
            return None
        found = answers.get(id(unit))
        if found is None:
            answer = compiled.evaluate(self._input(unit))
            found = answer.matches if answer.matches is not None else answer.error or "unknown error"
            answers[id(unit)] = found
        return found

    def group_devices(self, units: Iterable[PublishedDevice]) -> DeviceEquivalence:
        """The devices, grouped for evaluating many selectors."""
        return DeviceEquivalence(map(self._input, units))

    def matching(self, devices: DeviceEquivalence, among: Mask, expression: str) -> Mask:
        """The devices that an expression matches; one that fails or does not compile matches none."""
        return devices.evaluate(among, shared_compiler(self._release).compile(expression))[0]

    @property
    def _release(self) -> Release:
        return as_release(min(max(self.kubernetes, OLDEST), NEWEST))

    def _input(self, unit: PublishedDevice) -> DeviceInput:
        # Keep the device with its input: after garbage collection another object could get the same id.
        known = self._inputs.get(id(unit))
        if known is None:
            known = self._inputs[id(unit)] = (unit, device_input(unit.driver, unit.raw))
        return known[1]


_DRIVER = re.compile(r"""device\.driver\s*==\s*["']([^"']+)["']|["']([^"']+)["']\s*==\s*device\.driver""")


def class_selectors(manifests: Manifests, name: str) -> tuple[str, ...]:
    """The expressions of a class, in order; none where the class is unknown."""
    return manifests.class_selectors.get(name, ())


def selector_texts(manifests: Manifests) -> list[str]:
    """Every selector and constraint, once each: attributes that they do not mention cannot tell two nodes apart."""
    texts = [selector.text for selector in manifests.selectors]
    texts += [text for name in manifests.classes for text in class_selectors(manifests, name)]
    texts += [s.text for claim in manifests.all_claims for request in claim.requests for s in request.selectors]
    texts += [str(r.fields.get("derivedAttributes") or "") for claim in manifests.all_claims for r in claim.requests]
    texts += [str(constraint) for claim in manifests.all_claims for constraint in claim.constraints]
    return list(dict.fromkeys(texts))


def request_drivers(manifests: Manifests, request: Request) -> frozenset[str]:
    """Drivers named by the request's class and selectors; none where they name none, or the class is unknown."""
    texts = (*class_selectors(manifests, request.device_class), *(selector.text for selector in request.selectors))
    return named_drivers(texts)


@lru_cache(maxsize=4096)
def named_drivers(texts: tuple[str, ...]) -> frozenset[str]:
    """Drivers that expressions compare ``device.driver`` with."""
    return frozenset(left or right for text in texts for left, right in _DRIVER.findall(text))


def _is_gpu_request(manifests: Manifests, request: Request) -> bool:
    """Whether a request is for GPUs: their drivers are called ``gpu.<vendor>``."""
    return any(driver.startswith("gpu.") or driver == "gpu" for driver in request_drivers(manifests, request))


def _is_nic_request(manifests: Manifests, request: Request) -> bool:
    """Whether a request is for devices of our driver."""
    return DRIVER_NAME in request_drivers(manifests, request)


def gpu_requests(manifests: Manifests, claim: Claim) -> list[Request]:
    """The claim's requests for GPUs."""
    return [request for request in claim.requests if _is_gpu_request(manifests, request)]


def nic_requests(manifests: Manifests, claim: Claim) -> list[Request]:
    """The claim's requests for NICs."""
    return [request for request in claim.requests if _is_nic_request(manifests, request)]
