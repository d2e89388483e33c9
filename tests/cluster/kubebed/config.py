"""Configuration files and command lines of the daemons, with the reason for every setting that is not plain.

Each function turns the layout into text or arguments and does nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path

from . import parts
from .images import BUSYBOX_IMAGE
from .layout import Layout, NodeLayout


def etcd_arguments(layout: Layout, quota: int = 0) -> list[str]:
    limit = [f"--quota-backend-bytes={quota}"] if quota else []
    return [
        *limit,
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls={layout.etcd_peer_url}",
        f"--initial-advertise-peer-urls={layout.etcd_peer_url}",
        f"--initial-cluster=default={layout.etcd_peer_url}",
        "--unsafe-no-fsync",  # the data is thrown away with the bed
    ]


def feature_gates(version: str, extra: dict[str, bool]) -> str:
    """DRA is on by itself from 1.34."""
    gates = {"DynamicResourceAllocation": True} if parts.minor(version) < 34 else {}
    return ",".join(f"{name}={str(on).lower()}" for name, on in {**gates, **extra}.items())


def api_server_arguments(layout: Layout, version: str, gates: str) -> list[str]:
    pki = layout.pki
    # Off by default in 1.33 alone; with it a watch says where its initial events end.
    gates += ",WatchList=true" if parts.minor(version) < 34 else ""
    served = ["resource.k8s.io/v1beta1=true", "resource.k8s.io/v1beta2=true"]
    # An alpha version is served only by name, whatever its gate says.
    served += ["scheduling.k8s.io/v1alpha2=true"] if "GenericWorkload=true" in gates else []
    return [
        f"--etcd-servers={layout.etcd_url}",
        # Listening on the first service address lets clients in pods reach the API server without a kube-proxy.
        f"--bind-address={layout.api_address}",
        "--secure-port=443",
        f"--advertise-address={layout.hub_address}",
        f"--service-cluster-ip-range={layout.services}",
        f"--tls-cert-file={pki}/api.crt",
        f"--tls-private-key-file={pki}/api.key",
        f"--client-ca-file={pki}/ca.crt",
        # Without these two the controller manager and the scheduler log an error every few seconds.
        f"--requestheader-client-ca-file={pki}/ca.crt",
        "--requestheader-allowed-names=front-proxy",
        f"--token-auth-file={pki}/tokens.csv",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        f"--runtime-config={','.join(served)}",
        *_gates(gates),
    ]


def controller_manager_arguments(layout: Layout, gates: str) -> list[str]:
    return [
        f"--kubeconfig={layout.pki}/controller-manager.conf",
        f"--bind-address={layout.hub_address}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",  # else nodes never lose their taints
        f"--service-account-private-key-file={layout.pki}/sa.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        *_gates(gates),
    ]


def scheduler_arguments(layout: Layout, gates: str) -> list[str]:
    return [
        f"--kubeconfig={layout.pki}/scheduler.conf",
        f"--bind-address={layout.hub_address}",
        "--leader-elect=false",
        *_gates(gates),
    ]


def kubelet_arguments(node: NodeLayout, gates: str) -> list[str]:
    return [
        f"--config={node.folder}/kubelet.json",
        f"--kubeconfig={node.bed.pki}/{node.name}.conf",
        "--root-dir=/var/lib/kubelet",
        "--cert-dir=/var/lib/kubelet/pki",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        "--v=2",
        *_gates(gates),
    ]


def kubelet_config(node: NodeLayout) -> str:
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": "127.0.0.1",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        # The kubelet listens on the bed's own bridge only, and the bed holds nothing worth guarding.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "resolvConf": "",
        "clusterDNS": [node.bed.hub_address],
        "clusterDomain": "cluster.local",
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "maxPods": 200,
        # A test waits for pods to start and end; the defaults of 5 a second would be most of that time.
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }
    return json.dumps(settings, indent=1)


def containerd_config(node: NodeLayout, cni_plugins: Path, runc: Path) -> str:
    """NRI is on by default and listens where drivers look for it, /var/run/nri/nri.sock."""
    return f"""\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{BUSYBOX_IMAGE}'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{node.folder}/registries'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE a lower score cannot be set, and every sandbox would fail with words about a child's PID.
  restrict_oom_score_adj = true
  enable_cdi = true

  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{cni_plugins}']
    conf_dir = '{node.folder}/net.d'

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = '{runc}'

[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
"""


def cni_config(node: NodeLayout) -> str:
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    return json.dumps({"cniVersion": "1.0.0", "name": "bed", "plugins": [bridge]}, indent=1)


def dns_config(layout: Layout) -> str:
    return f"""\
.:53 {{
    bind {layout.hub_address}
    errors
    kubernetes cluster.local {layout.network}.0.0/16 {{
        kubeconfig {layout.kubeconfig}
        pods insecure
    }}
    cache 2
}}
"""


def _gates(gates: str) -> list[str]:
    return [f"--feature-gates={gates}"] if gates else []
