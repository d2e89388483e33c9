"""Label selectors over pods and namespaces. No selector matches nothing; an empty one matches everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dranet.model.untyped import mappings, sequence, texts

Labels = Mapping[str, str]


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Labels) -> bool:
        """Whether labels meet it; a label that is not there is in no set."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


class Selector(msgspec.Struct, frozen=True):
    """Conditions that must all be met."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Labels) -> bool:
        """Whether labels meet all of them."""
        return not self.nothing and all(one.matches(labels) for one in self.requirements)

    @property
    def everything(self) -> bool:
        """Whether it asks nothing."""
        return not self.nothing and not self.requirements

    @property
    def keys(self) -> frozenset[str]:
        """The labels it looks at."""
        return frozenset(one.key for one in self.requirements)

    def also(self, more: Iterable[Requirement]) -> Selector:
        """With further conditions; nothing stays nothing."""
        return Selector((*self.requirements, *more), self.nothing)


NOTHING = Selector(nothing=True)


def read_selector(raw: Any) -> Selector:
    """A v1 LabelSelector."""
    if not isinstance(raw, dict):
        return NOTHING
    labels = [Requirement(key, "In", frozenset({value})) for key, value in texts(raw.get("matchLabels")).items()]
    return Selector((*labels, *map(_requirement, mappings(raw.get("matchExpressions")))))


def equal_to(labels: Labels) -> tuple[Requirement, ...]:
    """One condition for each label."""
    return tuple(Requirement(key, "In", frozenset({value})) for key, value in labels.items())


def label_keys(keys: Any, operator: str, labels: Labels) -> tuple[Requirement, ...]:
    """``matchLabelKeys`` and its opposite: the pod's own values of these labels, where it has them."""
    named = [str(key) for key in sequence(keys)]
    return tuple(Requirement(key, operator, frozenset({labels[key]})) for key in named if key in labels)


def _requirement(raw: dict[str, Any]) -> Requirement:
    values = frozenset(str(value) for value in sequence(raw.get("values")))
    return Requirement(str(raw.get("key")), str(raw.get("operator")), values)
