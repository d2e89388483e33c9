"""All that talks to Linux, and knows no Kubernetes: netlink, namespaces, RDMA, ethtool, BPF, sysctl, sysfs, DHCP.

Modules, from the ground up:

* `codec` packs and unpacks netlink's bytes; `netlink` is the one socket class every request goes through;
  `namespaces` opens, makes and enters network namespaces; `generic` finds generic netlink families.
* `links`, `virtual_links`, `addresses`, `routes`, `rules`, `neighbours`: route netlink, one kind of object each.
* `ethtool`, `rdma`: features and flags of a card, RDMA devices. `traffic`: queueing disciplines, shares of bandwidth,
  BPF programs on links.
* `sysfs` reads a tree with a root that can be set; `hardware` makes PCI, RDMA, netdev and NUMA records of it; `sysctl`
  and `chardev` are the other files of the kernel.
* `announce`, `dhcp`: packets on the wire. `events`: when to look again.

Conventions:

* Reading gives frozen records: `list_things(socket)` is one request however many things there are.
* Changing is in two steps: a builder (`links.change`, `addresses.add`, ...) makes a `Message`, a socket sends it,
  alone (`socket.request`, raises) or with others (`socket.batch`, tells about each). Builders touch nothing.
* Addresses are text (`10.0.0.1`, `fd00::/64`), hardware addresses lower case with colons, links are indexes.
* Everything is synchronous: the kernel answers in microseconds to milliseconds. Call it from a thread where that is
  long.
* Errors derive from `KernelError`; `NetlinkError` carries `errno`, the kernel's own words and what was asked.
"""

from dranet.kernel.errors import KernelError

__all__ = ["KernelError"]
