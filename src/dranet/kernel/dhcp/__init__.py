"""An address for a card that the network gives out: the client, and its packets."""

from dranet.kernel.dhcp.client import DhcpClient, DhcpError, Lease, LeaseRefused

__all__ = ["DhcpClient", "DhcpError", "Lease", "LeaseRefused"]
