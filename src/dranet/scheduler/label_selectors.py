"""Label selectors over pods and namespaces. A missing selector matches nothing; an empty one matches everything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from dranet.core.untyped import as_dicts, as_list, as_strings

Labels = Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        return requirement_matches(labels.get(self.key), self.operator, self.values)


def requirement_matches(value: str | None, operator: str, values: Collection[str]) -> bool:
    """Whether a label with this value, None if there is none, meets a requirement. Gt and Lt are for nodes only."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        actual, wanted = int(value or ""), int(next(iter(values)))
    except (ValueError, StopIteration):
        return False
    return actual > wanted if operator == "Gt" else operator == "Lt" and actual < wanted


class LabelSelector(msgspec.Struct, frozen=True):
    """Requirements that must all match."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Labels) -> bool:
        return not self.nothing and all(one.matches(labels) for one in self.requirements)

    @property
    def everything(self) -> bool:
        """Whether it matches all labels."""
        return not self.nothing and not self.requirements

    def with_requirements(self, more: Iterable[Requirement]) -> LabelSelector:
        return LabelSelector((*self.requirements, *more), self.nothing)


NOTHING = LabelSelector(nothing=True)


def read_label_selector(raw: Any) -> LabelSelector:
    """From a v1 LabelSelector."""
    if not isinstance(raw, dict):
        return NOTHING
    return LabelSelector(
        (*equal_to(as_strings(raw.get("matchLabels"))), *map(_read, as_dicts(raw.get("matchExpressions"))))
    )


def equal_to(labels: Labels) -> tuple[Requirement, ...]:
    """One requirement for each label."""
    return tuple(Requirement(key, "In", frozenset({value})) for key, value in labels.items())


def match_label_keys(keys: Any, operator: str, labels: Labels) -> tuple[Requirement, ...]:
    """``matchLabelKeys`` (In) and ``mismatchLabelKeys`` (NotIn): the pod's own values of these labels."""
    named = [str(key) for key in as_list(keys)]
    return tuple(Requirement(key, operator, frozenset({labels[key]})) for key in named if key in labels)


def _read(raw: dict[str, Any]) -> Requirement:
    values = frozenset(str(value) for value in as_list(raw.get("values")))
    return Requirement(str(raw.get("key")), str(raw.get("operator")), values)
