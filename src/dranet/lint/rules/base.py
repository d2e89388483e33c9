"""What a rule is: an id, a severity, words, an example of bad and good, and a function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from dranet.manifests.claim_views import World
from dranet.manifests.reading import Object, ReadProblem
from dranet.manifests.yaml_nodes import FieldPath, Mark
from dranet.predict.hardware import Hardware
from dranet.predict.matching import Tester

ERROR, WARNING, INFO = "error", "warning", "info"
SEVERITIES = (ERROR, WARNING, INFO)


@dataclass(frozen=True, slots=True)
class Finding:
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
        return asdict(self)


@dataclass(frozen=True)
class Context:
    """What the rules look at."""

    world: World
    problems: tuple[ReadProblem, ...] = ()
    hardware: Hardware | None = None
    """None where nobody said on what machines this will run."""
    tester: Tester = field(default_factory=Tester)

    @property
    def kubernetes(self) -> tuple[int, int]:
        """The release of the server."""
        return self.tester.kubernetes


Check = Callable[[Context], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule with all that its page in docs/lint-rules.md says."""

    id: str
    severity: str
    title: str
    why: str
    bad: str
    good: str
    check: Check = field(repr=False)
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
