"""One file a group of rules; importing this package registers them all."""

from dranet.manifests.rules import alignment, choices, expressions, fields, limits, parameters, pods
from dranet.manifests.rules.base import RULES, Context, Finding, Rule

__all__ = [
    "RULES", "Context", "Finding", "Rule",
    "alignment", "choices", "expressions", "fields", "limits", "parameters", "pods",
]  # fmt: skip
