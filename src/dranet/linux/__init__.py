"""Access to Linux, without any Kubernetes: netlink, namespaces, RDMA, ethtool, tc, BPF, sysctl, sysfs, DHCP.

* `codec` packs and unpacks netlink messages; `netlink` has the sockets that send all requests; `namespaces` opens,
  creates and enters network namespaces.
* `links`, `virtual_links`, `addresses`, `routes`, `rules`, `neighbours`: route netlink, one kind of object each.
  `devconf`: sysctls of a link.
* `ethtool`, `rdma`, `gids`, `sriov`: features of NICs. `traffic`: qdiscs, bandwidth shares, BPF programs on links.
* `sysfs` reads a tree with a configurable root; `hardware` makes PCI, RDMA, netdev and NUMA records of it; `pci` has
  PCIe link speeds and driver rebinding; `sysctl` and `chardev` are the kernel's other files.
* `announce`, `dhcp`: packets on the wire. `events`: notifications of changes.

Conventions:

* Reads return frozen records: `list_things(socket)` is one request for any number of things.
* Changes have two steps: a builder (`links.change`, `addresses.add`, ...) returns a `Message`, and a socket sends it
  alone (`socket.request`, raises) or with others (`socket.batch`, returns an error for each). Builders have no effects.
* Addresses are text (`10.0.0.1`, `fd00::/64`), hardware addresses lower case with colons, links are indexes.
* All calls are synchronous: the kernel replies in microseconds to milliseconds. Use a thread if that is too long.
* Errors derive from `KernelError`; `NetlinkError` has `errno`, the kernel's message and what was requested.
"""

from dranet.core.errors import KernelError

__all__ = ["KernelError"]
