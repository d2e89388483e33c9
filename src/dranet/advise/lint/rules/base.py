"""What a rule consists of: id, severity, texts, a bad and a good example, and a function that yields findings."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dranet.advise.manifests import Claim, FieldPath, Manifests, Mark, Object, ReadProblem, Request
from dranet.advise.plan.hardware import Hardware, PublishedDevice
from dranet.advise.plan.selectors import SelectorTester, class_selectors
from dranet.advise.plan.unknowns import Unknowns
from dranet.scheduler.allocation.equivalence import DeviceEquivalence, Mask

T = TypeVar("T")

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)


class Finding(msgspec.Struct, frozen=True):
    """One problem at one position of a file."""

    rule: str
    severity: str
    file: str
    line: int
    column: int
    message: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class Context(msgspec.Struct, frozen=True):
    """The input of the rules.

    What a class offers and what a request may get is cached by class and selectors, so that ten thousand equal claims
    cost as much as one.
    """

    manifests: Manifests
    problems: tuple[ReadProblem, ...] = ()
    hardware: Hardware | None = None
    """One node of each kind; None without --shape and --slices."""
    tester: SelectorTester = msgspec.field(default_factory=SelectorTester)
    severities: tuple[str, ...] = SEVERITIES
    """Severities to report; rules may skip the others."""
    cache: dict[object, Any] = msgspec.field(default_factory=dict)

    @property
    def kubernetes(self) -> tuple[int, int]:
        """Minor release of the API server."""
        return self.tester.kubernetes

    def cached(self, key: object, work: Callable[[], T]) -> T:
        """The result of `work`, computed once a key. The key must contain everything that the result depends on."""
        if key not in self.cache:
            self.cache[key] = work()
        found: T = self.cache[key]
        return found

    def class_devices(self, device_class: str) -> list[PublishedDevice]:
        """Devices that match the selectors of a class."""
        return self._units(self._class_mask(device_class))

    def candidates(self, request: Request) -> list[PublishedDevice]:
        """Devices that match the class and all selectors of a request. Equal requests get the identical list."""
        texts = signature(request)
        taken = self.cached(("taken", texts), lambda: self._narrow(self._class_mask(request.device_class), texts[1:]))
        return self._units(taken)

    def _class_mask(self, device_class: str) -> Mask:
        if device_class not in self.manifests.classes or self.hardware is None:
            return 0
        texts = class_selectors(self.manifests, device_class)
        return self.cached(("class", device_class), lambda: self._narrow(self._devices.all, texts))

    def _narrow(self, among: Mask, texts: Sequence[str]) -> Mask:
        for text in texts:
            among = self.tester.matching(self._devices, among, text)
        return among

    def _units(self, taken: Mask) -> list[PublishedDevice]:
        units = self.hardware.devices if self.hardware is not None else ()
        return self.cached(("units", taken), lambda: [unit for i, unit in enumerate(units) if taken >> i & 1])

    def unknown(self, claim: Claim, request: Request) -> str:
        """Why nothing is known about the devices of a request: its class or an attribute is not in the input."""
        texts = [selector.text for selector in request.selectors]
        compared = [str(c.get("matchAttribute") or c.get("distinctAttribute")) for c in claim.constraints_of(request)]
        key = ("unknown", signature(request), *compared)
        return self.cached(key, lambda: self.unknowns.of_request(request.device_class, texts, compared))

    @property
    def unknowns(self) -> Unknowns:
        """What the input does not say."""
        return self.cached("unknowns", lambda: Unknowns(self.manifests, self.hardware, self.tester))

    @property
    def _devices(self) -> DeviceEquivalence:
        units = self.hardware.devices if self.hardware is not None else ()
        return self.cached("devices", lambda: self.tester.group_devices(units))


def signature(request: Request) -> tuple[str, ...]:
    """The class and selectors of a request: requests with equal ones may get the same devices."""
    return (request.device_class, *(selector.text for selector in request.selectors))


Check = Callable[[Context], Iterator[Finding]]


class Rule(msgspec.Struct, frozen=True):
    """A rule with the texts of its section in docs/reference/lint-rules.md."""

    id: str
    severity: str
    title: str
    why: str
    bad: str
    good: str
    check: Check
    shape: str = ""
    """The machine shape of the examples, if the rule needs hardware."""

    def findings(self, context: Context) -> Iterator[Finding]:
        """What the check yields, with the id of the rule and, where it sets none, the rule's severity."""
        for one in self.check(context):
            yield msgspec.structs.replace(one, rule=self.id, severity=one.severity or self.severity)


RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: str, title: str, *, why: str, bad: str, good: str, shape: str = ""
) -> Callable[[Check], Check]:
    """Register a check under its id."""

    def register(check: Check) -> Check:
        assert id not in RULES, f"duplicate rule {id}"
        RULES[id] = Rule(id, severity, title, why, bad.strip("\n") + "\n", good.strip("\n") + "\n", check, shape)
        return check

    return register


def finding(obj: Object, where: FieldPath | Mark, message: str, fix: str = "", severity: str = "") -> Finding:
    """A finding at a field or position of an object. The linter fills in the rule and its severity."""
    mark = where if isinstance(where, Mark) else obj.at(where)
    return Finding("", severity, obj.file, mark.line, mark.column, message, fix)


def request_example(name: str = "nic", device_class: str = "dranet", **fields: object) -> str:
    """A request with these fields below ``exactly:``."""
    lines = [f"- name: {name}", "  exactly:", f"    deviceClassName: {device_class}"]
    return "\n".join([*lines, *(f"    {key}: {value}" for key, value in fields.items())]) + "\n"


def selectors_example(expression: str) -> str:
    """The value of ``selectors:`` for one expression."""
    return f"\n    - cel:\n        expression: {expression}"


def config_example(*, request: str = "", driver: str = "dra.net", **interface: object) -> str:
    """A config with these parameters of the interface, for all requests or for one."""
    parameters = ", ".join(f"{key}: {value}" for key, value in interface.items())
    lines = [f"requests: [{request}]"] * bool(request)
    lines += ["opaque:", f"  driver: {driver}", f"  parameters: {{interface: {{{parameters}}}}}"]
    return "- " + "\n  ".join(lines) + "\n"


def claim_example(*requests: str, name: str = "nic", **lists: str) -> str:
    """A ResourceClaim with these requests, and with other lists under ``devices:``."""
    return f"{_head('ResourceClaim', name, 'v1')}  devices:\n{_indented(_devices(requests, lists), 4)}"


def template_example(*requests: str, name: str = "nic", below_spec: str = "", **lists: str) -> str:
    """A ResourceClaimTemplate with these requests, and `below_spec` next to ``devices:``."""
    body = f"  spec:\n    devices:\n{_indented(_devices(requests, lists), 6)}{_indented(below_spec, 4)}"
    return f"{_head('ResourceClaimTemplate', name, 'v1')}{body}"


def _devices(requests: Sequence[str], lists: Mapping[str, str]) -> str:
    return "".join(f"{key}:\n{items}" for key, items in {"requests": "".join(requests), **lists}.items())


def class_example(expression: str = 'device.driver == "dra.net"', *, name: str = "dranet", version: str = "v1") -> str:
    """A DeviceClass with one selector."""
    selectors = f"  selectors: [{{cel: {{expression: '{expression}'}}}}]\n"
    return f"{_head('DeviceClass', name, version)}{selectors}"


def _head(kind: str, name: str, version: str) -> str:
    return f"apiVersion: resource.k8s.io/{version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"


def _indented(text: str, spaces: int) -> str:
    return textwrap.indent(text, " " * spaces)
