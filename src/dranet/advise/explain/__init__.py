"""Why a pod or claim got its devices, or why it gets none and which change would help."""

from dranet.advise.explain.explanation import (
    Explanation,
    explain,
    explain_claim,
    explain_held,
    explain_refusals,
    find_claim,
)
from dranet.advise.explain.render import explanation_json, explanation_text, explanation_verdict

__all__ = [
    "Explanation",
    "explain",
    "explain_claim",
    "explain_held",
    "explain_refusals",
    "explanation_json",
    "explanation_text",
    "explanation_verdict",
    "find_claim",
]
