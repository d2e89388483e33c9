"""DHCPv4: the client and its packets."""

from dranet.linux.dhcp.client import DhcpClient, DhcpError, Lease, LeaseRefused

__all__ = ["DhcpClient", "DhcpError", "Lease", "LeaseRefused"]
