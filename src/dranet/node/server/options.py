"""The daemon's flags: every flag of the reference driver, with its name and default, and additional ones.

Parsed in the style of Go's flag package (one dash or two, `--flag=value`, bare booleans), so that the reference's
container arguments work unchanged. `docs/reference/flags.md` is generated from the table here.

Every flag may also come from the environment (``DRANET_POD_UID`` for ``--pod-uid``); an argument takes precedence. Our
chart sets the flags that the reference does not have that way: users and test suites patch the reference's arguments by
their position.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dranet.core.attributes import DEFAULT_FILTER
from dranet.core.errors import InvalidInput
from dranet.kubernetes.api.taints import TaintPolicy
from dranet.node.inventory.infrastructure import parse_patterns
from dranet.node.inventory.rails import RailSource

FEATURE_GATES = ("DRAListTypeAttributes", "PersistentResourceSliceAttributes")
_GATE_GROUPS: dict[str, tuple[str, ...]] = {"AllAlpha": FEATURE_GATES, "AllBeta": ()}
"""The groups that Kubernetes' own flag accepts for all gates of a stage."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE, _FALSE = {"1", "t", "true", "TRUE", "True", "T"}, {"0", "f", "false", "FALSE", "False", "F"}
_KLOG_VALUES = ("vmodule", "stderrthreshold", "log_backtrace_at", "log_dir", "log_file", "log_file_max_size")
_KLOG_SWITCHES = (
    "logtostderr",
    "alsologtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
    "add_dir_header",
    "legacy_stderr_threshold_behavior",
)
_REPEATED = ("cloud-provider-options",)
"""Flags that may be repeated."""
_ENVIRONMENT = "DRANET_"
"""The prefix of a flag's environment variable."""
_KLOG_FLAGS = (*_KLOG_VALUES, *_KLOG_SWITCHES)
"""Flags of the reference's logging library: accepted, without effect."""


def duration(text: str) -> float:
    """Seconds of a Go duration such as ``2s``, ``1m30s`` or ``500ms``."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 2s, 1m or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def boolean(text: str) -> bool:
    """A flag's value as Go's flag package reads it."""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError(f"{text!r} is not true or false")


def gates(text: str) -> dict[str, bool]:
    """``Name=true, Other=false``; an unknown name is an error. A gate's own name overrides its group."""
    values: dict[str, bool] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in (*FEATURE_GATES, *_GATE_GROUPS) or not equals:
            raise ValueError(f"{part!r}: write NAME=true or NAME=false with NAME one of {', '.join(FEATURE_GATES)}")
        values[name] = boolean(value)
    groups = {gate: values[group] for group, gates in _GATE_GROUPS.items() if group in values for gate in gates}
    return groups | {name: value for name, value in values.items() if name in FEATURE_GATES}


def provider_options(lines: str) -> dict[str, dict[str, str]]:
    """``oke.rdma-child-ipv4-cidr=10.208.0.0/12``, one per line: a value may contain commas."""
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        key, equals, value = line.partition("=")
        provider, dot, option = key.strip().partition(".")
        if not (equals and dot and provider and option):
            raise ValueError(f"{line!r}: write PROVIDER.OPTION=VALUE, as in oke.rdma-child-ipv4-cidr=10.208.0.0/12")
        if option in found.setdefault(provider, {}):
            raise ValueError(f"{key.strip()} is given twice")
        found[provider][option] = value.strip()
    return found


def one_of(*allowed: str) -> Callable[[str], str]:
    """A flag that accepts only these values."""

    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} is not one of {', '.join(allowed)}")
        return text

    return check


def taint_effects(text: str) -> str:
    """Checked by :meth:`TaintPolicy.parse`."""
    try:
        TaintPolicy.parse(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    return text


def rail_source(text: str) -> RailSource:
    """Parsed by :meth:`RailSource.parse`."""
    try:
        return RailSource.parse(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _flag(default: Any, meaning: str, parse: Callable[[str], Any] = str, *, ours: bool = False, shown: str = "") -> Any:
    metadata = {"meaning": meaning, "parse": parse, "ours": ours, "shown": shown or _shown(default)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default) if default != "" else "empty"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The daemon's settings; field names are flag names with underscores."""

    kubeconfig: str = _flag("", "kubeconfig file; empty: the pod's service account")
    bind_address: str = _flag(
        ":9177", "address of /livez, /healthz, /readyz and /metrics; without a host: all addresses of the node"
    )
    tls_cert_file: str = _flag(
        "", "certificate chain (PEM) for that port, read again when the file changes; empty: plain HTTP", ours=True
    )
    tls_private_key_file: str = _flag("", "private key (PEM) of --tls-cert-file", ours=True)
    metrics_authorization: bool = _flag(
        False,
        "serve /metrics only to clients with a bearer token whose user may get the non-resource URL /metrics; needs "
        "--tls-cert-file",
        boolean,
        ours=True,
    )
    hostname_override: str = _flag("", "node name; empty: the machine's host name")
    node_name: str = _flag("", "alias of --hostname-override, with precedence", ours=True)
    filter: str = _flag(
        DEFAULT_FILTER, "CEL expression over `attributes`; only devices for which it is true are published"
    )
    db_path: str = _flag(
        "/var/run/dranet/dranet.db",
        "the durable store. A name that ends in .db is the reference driver's file, read and never written: this "
        "driver's store is next to it and ends in .sqlite, unless an earlier version has its store there. "
        "Empty: in memory only, recovered from the cluster after a restart",
    )
    reference_db: str = _flag(
        "",
        "the reference driver's database, read and never written, if it is not at --db-path; this driver takes over "
        "the pods in it",
        ours=True,
    )
    inventory_min_poll_interval: float = _flag(2.0, "refill time of the budget for scans", duration, shown="2s")
    inventory_max_poll_interval: float = _flag(60.0, "longest time between two scans", duration, shown="1m")
    inventory_poll_burst: int = _flag(5, "scans that may follow each other without a delay", int)
    move_ib_interfaces: bool = _flag(True, "move IPoIB netdevs; false: the device is RDMA only", boolean)
    uplink_interfaces: tuple[str, ...] = _flag(
        (),
        "the node's uplinks, never published: names separated by commas, * and ? as in a shell; empty: links with "
        "default routes. Links with the node's address or a route to the API server are always uplinks",
        parse_patterns,
        ours=True,
        shown="empty",
    )
    offer_interfaces: tuple[str, ...] = _flag(
        (),
        "interfaces (or PCI addresses) to publish although the node's network uses them, in the same form",
        parse_patterns,
        ours=True,
        shown="empty",
    )
    shared_cards: str = _flag(
        "",
        "CEL expression like --filter; NICs for which it is true can be shared by several claims; empty: none. Needs "
        "Kubernetes 1.36",
        ours=True,
    )
    sriov_vfs: str = _flag(
        "",
        "CEL expression like --filter; physical functions for which it is true are published as a whole and as their "
        "virtual functions, which are created when first claimed; empty: none. Needs Kubernetes 1.36",
        ours=True,
    )
    rail_source: RailSource = _flag(
        RailSource(),
        "source of dra.net/rail: auto (names of GKE and OKE, networks of GCE), network, subnet, "
        "interface:PATTERN with the rail in parentheses, or off",
        rail_source,
        ours=True,
        shown="auto",
    )
    cloud_provider_hint: str = _flag("", "name of a cloud provider, webhook or NONE; empty: detect")
    cloud_provider_options: dict[str, dict[str, str]] = _flag(
        {},
        "PROVIDER.OPTION=VALUE for one option of the cloud provider, its name in lower case; may be repeated",
        provider_options,
        shown="empty",
    )
    profile_provider: str = _flag(
        "cloud", "provider of profiles: cloud, webhook or none", one_of("cloud", "webhook", "none")
    )
    webhook_url: str = _flag("", "http://, https:// or unix:///path of the webhook provider")
    kubelet_root_dir: str = _flag("/var/lib/kubelet", "the kubelet's folder, with plugins/ and plugins_registry/")
    feature_gates: dict[str, bool] = _flag({}, "NAME=BOOL pairs: " + ", ".join(FEATURE_GATES), gates, shown="empty")
    v: int = _flag(2, "verbosity; 4 and more logs debug lines", int)
    sysfs: str = _flag("/sys", "root of sysfs", ours=True)
    proc_root: str = _flag("/proc", "the host's /proc, where sysctls are written", ours=True)
    dev_root: str = _flag("/", "root below which dev/infiniband is looked up", ours=True)
    nri_socket: str = _flag("/var/run/nri/nri.sock", "the runtime's NRI socket", ours=True)
    cdi_dir: str = _flag("/var/run/cdi", "the runtime's CDI folder, where readiness gates are written", ours=True)
    enable_device_metadata: bool = _flag(
        True, "mount device metadata files into containers that name a claim (KEP-5304)", boolean, ours=True
    )
    lift_memlock: bool = _flag(
        False,
        "remove RLIMIT_MEMLOCK for containers that get RDMA devices, so that they can pin memory without IPC_LOCK",
        boolean,
        ours=True,
    )
    taint_effect: str = _flag(
        "NoSchedule",
        "taint of broken devices: NoSchedule, NoExecute, None or off, with exceptions by fault: "
        "NoSchedule,link-down=None",
        taint_effects,
        ours=True,
    )
    health_policy: str = _flag(
        "",
        "TOML file with severities and limits of faults other than the defaults (docs/tasks/check.md)",
        ours=True,
    )
    health_interval: float = _flag(
        3.0,
        "longest time between two health checks, at least 1.5s; kernel events cause additional ones",
        duration,
        ours=True,
        shown="3s",
    )
    machine_shape: str = _flag(
        "",
        "the expected machine shape, or a shape file: how many NICs there must be, and their speed; empty: NICs are "
        "compared only with each other",
        ours=True,
    )
    rebind_lost_cards: bool = _flag(
        True,
        "as a last resort, rebind the PCI function of a NIC that a pod has hidden in a namespace that cannot be found; "
        "false: its claim stays until that namespace is deleted",
        boolean,
        ours=True,
    )
    trust_claims: bool = _flag(
        False,
        "let claims set what else only a DeviceClass or a profile may set: `vf` and `interface.disableEbpfPrograms` "
        "(docs/concepts/security.md)",
        boolean,
        ours=True,
    )
    pod_uid: str = _flag("", "UID of the driver's own pod; needed for two drivers that overlap in an update", ours=True)
    log_format: str = _flag("text", "format of log lines: text or json", one_of("text", "json"), ours=True)

    @property
    def node(self) -> str:
        """The node's name: from flag or environment, else the host name; trimmed and in lower case."""
        return (
            (self.node_name or self.hostname_override or os.environ.get("NODE_NAME") or socket.gethostname())
            .strip()
            .lower()
        )

    @property
    def list_attributes(self) -> bool:
        return self.feature_gates.get("DRAListTypeAttributes", False)


def flag_name(name: str) -> str:
    """The flag of a field: dashes for underscores."""
    return name.replace("_", "-")


def variable_name(flag: str) -> str:
    """The environment variable of a flag."""
    return _ENVIRONMENT + flag.replace("-", "_").upper()


def parse(arguments: Sequence[str]) -> Options:
    """Options from command-line arguments and the environment; raises InvalidInput with one clear line."""
    known = {flag_name(f.name): f for f in fields(Options)}
    values: dict[str, Any] = {}
    for name, (where, value) in (_from_environment(known) | _from_arguments(arguments, known)).items():
        if name in _KLOG_FLAGS:
            continue
        try:
            values[known[name].name] = known[name].metadata["parse"](value)
        except ValueError as error:
            raise InvalidInput(f"{where}: {error}") from error
    options = Options(**values)
    if "webhook" in (options.cloud_provider_hint, options.profile_provider) and not options.webhook_url:
        raise InvalidInput("--webhook-url is needed when --cloud-provider-hint or --profile-provider is webhook")
    if bool(options.tls_cert_file) != bool(options.tls_private_key_file):
        raise InvalidInput("--tls-cert-file and --tls-private-key-file are needed together")
    if options.metrics_authorization and not options.tls_cert_file:
        raise InvalidInput("--metrics-authorization needs --tls-cert-file: tokens must not cross the network in clear")
    return options


def _from_arguments(arguments: Sequence[str], known: dict[str, Any]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    rest = list(arguments)
    while rest:
        name, value = _next(rest, known)
        before = found[name][1] + "\n" if name in _REPEATED and name in found else ""
        found[name] = (f"--{name}", before + value)
    return found


def _from_environment(known: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The flags in the environment: their variables and values."""
    variables = {name: variable_name(name) for name in known}
    return {
        name: (f"${variable}", os.environ[variable]) for name, variable in variables.items() if variable in os.environ
    }


def _next(rest: list[str], known: dict[str, Any]) -> tuple[str, str]:
    argument = rest.pop(0)
    name, equals, value = argument.lstrip("-").partition("=")
    if not argument.startswith("-") or (name not in known and name not in _KLOG_FLAGS):
        raise InvalidInput(f"unknown argument {argument!r}; `dranet run --help` lists the flags")
    if equals:
        return name, value
    takes_no_value = name in _KLOG_SWITCHES or (name in known and known[name].metadata["parse"] is boolean)
    if takes_no_value and not (rest and rest[0] in _TRUE | _FALSE):
        return name, "true"
    if not rest:
        raise InvalidInput(f"--{name} needs a value")
    return name, rest.pop(0)


def help_text() -> str:
    """The output of `dranet run --help`."""
    lines = ["Usage: dranet run [flags]", "", "Run the driver of one node. Flags:"]
    for f in fields(Options):
        lines.append(f"  --{flag_name(f.name)} (default {f.metadata['shown']})\n        {f.metadata['meaning']}")
    return "\n".join(lines)
