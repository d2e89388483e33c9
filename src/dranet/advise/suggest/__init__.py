"""Claim templates that give aligned devices on given machines, proved by planning them."""

from dranet.advise.suggest.fleet import Fleet, fleet_text, suggest_fleet
from dranet.advise.suggest.rails import same_rails_text, suggest_same_rails
from dranet.advise.suggest.suggestion import (
    best_on,
    compute_domain,
    machine_kinds,
    single_machine,
    stateful_set,
    suggest,
    suggestion_text,
)
from dranet.advise.suggest.templates import cel_attribute
from dranet.advise.suggest.workload import align_workloads, pod_snippet

__all__ = [
    "Fleet",
    "align_workloads",
    "best_on",
    "cel_attribute",
    "compute_domain",
    "fleet_text",
    "machine_kinds",
    "pod_snippet",
    "same_rails_text",
    "single_machine",
    "stateful_set",
    "suggest",
    "suggest_fleet",
    "suggest_same_rails",
    "suggestion_text",
]
