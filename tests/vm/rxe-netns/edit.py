# SPDX-License-Identifier: GPL-2.0
"""Edits the kernel's soft-RoCE driver (rxe) so that its devices can move between network namespaces, and be shared.

Stock rxe refuses `rdma dev set ... netns` and dies when its NIC changes namespace; an mlx5 does neither. Stock
rxe sends by a child of its NIC (macvlan, ipvlan) in another namespace and never hears the answer: it listens where the
NIC is, and takes packets of the NIC alone. An mlx5 sees packets before the kernel knows of children. Each
edit below replaces one exact piece of the kernel's source with another, and a piece that is not found exactly once
stops the build: a new kernel then needs a look, not luck.
"""

import sys
from pathlib import Path

EDITS: tuple[tuple[str, str, str, str], ...] = (
    (
        "rxe_verbs.c",
        "the RDMA core moves only devices that can take their user contexts away",
        "static const struct ib_device_ops rxe_dev_ops = {\n",
        "static void rxe_disassociate_ucontext(struct ib_ucontext *ibuc)\n{\n}\n\n"
        "static const struct ib_device_ops rxe_dev_ops = {\n"
        "\t.disassociate_ucontext = rxe_disassociate_ucontext,\n",
    ),
    (
        "rxe_verbs.c",
        "a function without a link can be named, which makes an RDMA-only NIC of it",
        "int rxe_register_device(",
        "static char *nic;\nmodule_param(nic, charp, 0644);\n\n"
        "static struct device *rxe_nic(struct net_device *ndev)\n{\n"
        "\tstruct device *found = NULL;\n\n"
        "\tkernel_param_lock(THIS_MODULE);\n"
        "\tif (nic)\n\t\tfound = bus_find_device_by_name(&pci_bus_type, NULL, nic);\n"
        "\tkernel_param_unlock(THIS_MODULE);\n"
        "\treturn found ?: ndev->dev.parent;\n}\n\n"
        "int rxe_register_device(",
    ),
    (
        "rxe_verbs.c",
        "the PCI bus is searched for that function",
        '#include "rxe.h"\n',
        '#include <linux/pci.h>\n#include "rxe.h"\n',
    ),
    (
        "rxe_verbs.c",
        "sysfs shows the device under its NIC, as it does for hardware",
        "\tib_set_device_ops(dev, &rxe_dev_ops);\n\terr = ib_device_set_netdev(",
        "\tdev->dev.parent = rxe_nic(ndev);\n\tib_set_device_ops(dev, &rxe_dev_ops);\n\terr = ib_device_set_netdev(",
    ),
    (
        "rxe_net.c",
        "a NIC that only changes namespace is not gone: leave the old namespace's socket",
        "\tcase NETDEV_UNREGISTER:\n",
        "\tcase NETDEV_UNREGISTER:\n"
        "\t\tif (ndev->reg_state == NETREG_REGISTERED) {\n"
        "\t\t\trxe_net_del(&rxe->ib_dev);\n"
        "\t\t\tbreak;\n"
        "\t\t}\n",
    ),
    (
        "rxe_net.c",
        "and open one in the namespace where the NIC arrives",
        "\tcase NETDEV_CHANGEMTU:\n",
        "\tcase NETDEV_REGISTER:\n\t\trxe_net_init(ndev);\n\t\tbreak;\n\tcase NETDEV_CHANGEMTU:\n",
    ),
    (
        "rxe_net.c",
        "a child of a NIC is served by the NIC's device",
        "static int rxe_udp_encap_recv(struct sock *sk,",
        "static int rxe_is_on(struct net_device *lower, struct netdev_nested_priv *priv)\n{\n"
        "\tpriv->data = rxe_get_dev_from_net(lower);\n"
        "\treturn !!priv->data;\n}\n\n"
        "static struct rxe_dev *rxe_get_dev_below(struct net_device *ndev)\n{\n"
        "\tstruct netdev_nested_priv priv = { .data = NULL };\n\n"
        "\trcu_read_lock();\n"
        "\tnetdev_walk_all_lower_dev_rcu(ndev, rxe_is_on, &priv);\n"
        "\trcu_read_unlock();\n"
        "\treturn priv.data;\n}\n\n"
        "static int rxe_udp_encap_recv(struct sock *sk,",
    ),
    (
        "rxe_net.c",
        "so it takes what arrives at the child",
        "\tif (!rxe && is_vlan_dev(ndev))\n\t\trxe = rxe_get_dev_from_net(vlan_dev_real_dev(ndev));\n",
        "\tif (!rxe)\n\t\trxe = rxe_get_dev_below(ndev);\n",
    ),
    (
        "rxe_net.c",
        "and listens in the child's namespace; the end of the namespace ends that",
        "\tif (!rxe)\n\t\treturn NOTIFY_OK;\n",
        "\tif (!rxe) {\n"
        "\t\trxe = event == NETDEV_UP ? rxe_get_dev_below(ndev) : NULL;\n"
        "\t\tif (rxe && !rxe_ns_pernet_sk4(dev_net(ndev)))\n\t\t\trxe_net_init(ndev);\n"
        "\t\tif (rxe)\n\t\t\tib_device_put(&rxe->ib_dev);\n"
        "\t\treturn NOTIFY_OK;\n\t}\n",
    ),
    (
        "rxe_qp.c",
        "the core makes the management queue pair again after a move, before the old number is forgotten",
        "\t\tif (init->qp_type == IB_QPT_GSI && port->qp_gsi_index) {\n",
        "\t\tif (false) {\n",
    ),
)


def main(folder: Path) -> None:
    for name, reason, old, new in EDITS:
        text = (folder / name).read_text()
        if text.count(old) != 1:
            sys.exit(f"{name}: expected exactly one place to edit ({reason}), found {text.count(old)}")
        (folder / name).write_text(text.replace(old, new))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
