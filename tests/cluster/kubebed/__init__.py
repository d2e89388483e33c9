"""A real Kubernetes of several nodes on one Linux machine, without Docker and without pulling images.

Every daemon is the real one: etcd, API server, controller manager, scheduler, and for each node a kubelet and a
containerd with NRI. A node is a set of Linux namespaces: its own mounts, network, processes and host name. Network
NICs for drivers to hand out are virtual links into a fabric that joins the nodes.

    python tests/cluster/kubebed up          # prints the path of a kubeconfig
    python tests/cluster/kubebed down
"""

import sys
from pathlib import Path

# The bed also runs by path, with nothing installed and no environment: then the project is not on the way of imports.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from .cache import BedError
from .cluster import Cluster, Options
from .existing import ExistingCluster
from .helm import Helm
from .kubectl import Kubectl, KubectlError
from .nics import Nic, default_nics

__all__ = [
    "BedError",
    "Nic",
    "Cluster",
    "ExistingCluster",
    "Helm",
    "Kubectl",
    "KubectlError",
    "Options",
    "default_nics",
]
