"""One file a group of rules; importing this package registers them all."""

from dranet.lint.rules import (
    alignment,
    api_versions,
    choices,
    documents,
    expressions,
    fields,
    limits,
    parameters,
    pods,
    references,
)
from dranet.lint.rules.base import RULES, Context, Finding, Rule

__all__ = [
    "RULES", "Context", "Finding", "Rule", "alignment", "api_versions", "choices", "documents", "expressions", "fields",
    "limits", "parameters", "pods", "references",
]  # fmt: skip
