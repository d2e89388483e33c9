"""What a rule is: an id, a severity, words, an example of bad and good, and a function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from dranet.allocation.alike_devices import AlikeDevices, Mask
from dranet.manifests.claim_views import Request, World
from dranet.manifests.reading import Object, ReadProblem
from dranet.manifests.yaml_nodes import FieldPath, Mark
from dranet.predict.hardware import Hardware, Unit
from dranet.predict.matching import Tester
from dranet.predict.request_drivers import class_selectors

T = TypeVar("T")

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)


class Finding(msgspec.Struct, frozen=True):
    """One thing to know about one place in a file."""

    rule: str
    severity: str
    file: str
    line: int
    column: int
    message: str
    fix: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `dranet lint -o json` prints it."""
        return msgspec.structs.asdict(self)


class Context(msgspec.Struct, frozen=True):
    """What the rules look at.

    Rules ask again and again what a class offers and what a request may get. The answers are kept by what is asked, the
    class and the texts of the selectors: ten thousand claims that are alike cost as much as one.
    """

    world: World
    problems: tuple[ReadProblem, ...] = ()
    hardware: Hardware | None = None
    """One node of each kind; None where nobody said on what machines this will run."""
    tester: Tester = msgspec.field(default_factory=Tester)
    severities: tuple[str, ...] = SEVERITIES
    """What is wanted; the rest need not be found."""
    kept: dict[object, Any] = msgspec.field(default_factory=dict)

    @property
    def kubernetes(self) -> tuple[int, int]:
        """The release of the server."""
        return self.tester.kubernetes

    def once(self, key: object, work: Callable[[], T]) -> T:
        """What the work gives, done once for each key; the key must hold all that the answer depends on."""
        if key not in self.kept:
            self.kept[key] = work()
        found: T = self.kept[key]
        return found

    def offered(self, device_class: str) -> list[Unit]:
        """Devices a class offers; those its selectors fail on are left out."""
        return self._units(self._offered(device_class))

    def candidates(self, request: Request) -> list[Unit]:
        """Devices a request may get: its class and all its selectors match. Requests that may get the same have the
        very same list."""
        texts = content(request)
        taken = self.once(("taken", texts), lambda: self._taken(self._offered(request.device_class), texts[1:]))
        return self._units(taken)

    def _offered(self, device_class: str) -> Mask:
        if device_class not in self.world.classes or self.hardware is None:
            return 0
        texts = class_selectors(self.world, device_class)
        return self.once(("class", device_class), lambda: self._taken(self._devices.all, texts))

    def _taken(self, among: Mask, texts: Sequence[str]) -> Mask:
        for text in texts:
            among = self.tester.taken(self._devices, among, text)
        return among

    def _units(self, taken: Mask) -> list[Unit]:
        units = self.hardware.units if self.hardware is not None else ()
        return self.once(("units", taken), lambda: [unit for i, unit in enumerate(units) if taken >> i & 1])

    @property
    def _devices(self) -> AlikeDevices:
        units = self.hardware.units if self.hardware is not None else ()
        return self.once("devices", lambda: self.tester.alike(units))


def content(request: Request) -> tuple[str, ...]:
    """What a request asks for in kind, whatever it is called: its class and the texts of its selectors."""
    return (request.device_class, *(selector.text for selector in request.selectors))


Check = Callable[[Context], Iterator[Finding]]


class Rule(msgspec.Struct, frozen=True):
    """A rule with all that its page in docs/lint-rules.md says."""

    id: str
    severity: str
    title: str
    why: str
    bad: str
    good: str
    check: Check
    shape: str = ""
    """The machine the example is about, where the rule needs one."""


RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: str, title: str, *, why: str, bad: str, good: str, shape: str = ""
) -> Callable[[Check], Check]:
    """Register a check under its id."""

    def register(check: Check) -> Check:
        assert id not in RULES, f"two rules are called {id}"
        RULES[id] = Rule(id, severity, title, why, bad.strip("\n") + "\n", good.strip("\n") + "\n", check, shape)
        return check

    return register


def finding(
    id: str, obj: Object, where: FieldPath | Mark, message: str, fix: str = "", *, severity: str = ""
) -> Finding:
    """A finding of a registered rule at a field or a place of an object."""
    mark = where if isinstance(where, Mark) else obj.at(where)
    return Finding(id, severity or RULES[id].severity, obj.file, mark.line, mark.column, message, fix)
