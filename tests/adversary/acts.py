"""All that a hostile pod does, by name. A seed picks by this order: one act more, and it plays another story."""

from __future__ import annotations

from tests.adversary import changing, taking
from tests.adversary.attacker import Act

ACTS: dict[str, Act] = {act.__name__: act for act in (*changing.ACTS, *taking.ACTS)}
RUINOUS = frozenset({"delete", "delete_all", "child_forgotten", "die"})
HIDING = frozenset({"child_kept_by_a_descriptor", "child_kept_by_a_process", "child_kept_by_a_mount"})
"""Both seldom, or no card would be left for the others."""
