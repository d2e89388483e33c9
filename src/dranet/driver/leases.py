"""DHCP leases: obtained at prepare, kept alive while the pod lives, given back at the end."""

from __future__ import annotations
