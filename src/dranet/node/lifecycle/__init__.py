"""Attach and detach devices: order, locks, deadline and readiness gates. Knows features by their interface only."""
