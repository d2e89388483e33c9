"""The daemon: builds everything, starts it in order, and stops it in order.

Ready means: registered with the kubelet, synchronised with the runtime, and published. The driver waits for whatever
becomes unavailable later (runtime, API server, kubelet); only invalid flags or an unusable store end the process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dranet import __version__
from dranet.core.backoff import Backoff
from dranet.core.device import FaultKind
from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api.claims import ClaimStatusWriter
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import load_config
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.events import EventRecorder
from dranet.kubernetes.api.publisher import ResourceSlicePublisher
from dranet.kubernetes.api.taints import TaintPolicy
from dranet.kubernetes.kubelet.plugin import Plugin as KubeletPlugin
from dranet.kubernetes.nri.plugin import Plugin as NriPlugin
from dranet.kubernetes.nri.plugin import State
from dranet.linux.sysfs import Sysfs, is_sysfs
from dranet.node.claims.leases import Leases
from dranet.node.claims.planner import Planner
from dranet.node.claims.prepare import Preparer
from dranet.node.edits.edits_writer import ContainerEditsWriter
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.health.checks import FaultHistory, Finding
from dranet.node.health.node_reader import NodeReader, expected_from_shape, pci_by_device
from dranet.node.health.policy import default_policy, read_policy
from dranet.node.health.readings import DeviceReading
from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel
from dranet.node.inventory.watcher import Watcher, WatchIntervals
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.namespaces import Host
from dranet.node.server import options, process, shutdown
from dranet.node.server.api_server import ApiServer
from dranet.node.server.attach import Attacher
from dranet.node.server.discovery import NodeUplinks, Providers, find_providers
from dranet.node.server.handover import ClaimHandover
from dranet.node.server.health_watch import (
    FaultReports,
    HealthWatch,
    claimed_devices,
    pods_by_device,
    with_known_faults,
)
from dranet.node.server.hooks import Hooks
from dranet.node.server.metrics import Metrics, owners
from dranet.node.server.metrics_access import Certificate, MetricsGuard
from dranet.node.server.node_devices import NodeDevices, in_use, lent_addresses
from dranet.node.server.options import Options
from dranet.node.server.probes import HealthState, ProbeServer
from dranet.node.server.recovery import Reconciler, Recovery
from dranet.node.server.repair import PodRepairs
from dranet.node.server.reports import Reports
from dranet.node.server.service import ClaimService
from dranet.node.store import Store

if TYPE_CHECKING:
    from dranet.machines.shape import Shape

log = get_logger(__name__)

_NRI_INDEX = "00"
_CONSUMABLE_CAPACITY_SINCE = (1, 36)
"""DRAConsumableCapacity is on by default from this Kubernetes version on."""


def _gates(folder: str) -> ReadinessGates:
    visible = process.is_host_folder(folder)
    if not visible:
        log.warning(
            "--cdi-dir is not mounted from the host, so the runtime does not see it; mount the host's folder. Until "
            "then only hooks hold back containers, and RDMA devices go to all containers of a pod",
            path=folder,
        )
    return ReadinessGates(folder, visible_to_runtime=visible)


def _edits_writer(settings: Options) -> ContainerEditsWriter:
    # Below the kubelet's folder for the plugin, which has the same path on the host.
    folder = Path(settings.kubelet_root_dir, "plugins", DRIVER_NAME, "metadata")
    return ContainerEditsWriter(folder, settings.sysfs, metadata=settings.enable_device_metadata)


def _shape(name: str) -> Shape:
    from dranet.machines.shape import load_shape  # imports importlib.resources: a megabyte that few nodes need

    return load_shape(name)


class Daemon:
    """One node's driver."""

    def __init__(self, settings: Options) -> None:
        self.settings = settings
        self.node = settings.node
        self.metrics = Metrics()
        self.store = Store(process.store_path(settings.db_path) if settings.db_path else None)
        self.host = Host.open(settings.proc_root, sysfs_root=settings.sysfs, may_rebind=settings.rebind_lost_cards)
        self.lifecycle = DeviceLifecycle(self.host, self.store, _gates(settings.cdi_dir), edits=_edits_writer(settings))
        self.leases = Leases(self.host, self.store)
        config = load_config(settings.kubeconfig or None)
        self.client = KubeClient.from_config(config)
        self.uplinks = NodeUplinks(self.client, self.node, config.host)
        self.events = EventRecorder(self.client, host=self.node)
        self.status = ClaimStatusWriter(self.client)
        self.reports = Reports(self.status, self.events)
        self.publisher = ResourceSlicePublisher(
            self.client, self.node, recorder=self.events, on_published=self.metrics.publish.published
        )
        self.devices = NodeDevices(self.node, TaintPolicy.parse(settings.taint_effect), self.publisher.publish)
        # Pods have the real sysfs, which does not match a generated tree.
        self.reader = NodeReader(
            settings.sysfs, in_pods=is_sysfs(settings.sysfs), moves=self.lifecycle.move_counts.count
        )
        self.shape = _shape(settings.machine_shape) if settings.machine_shape else None
        self.history = FaultHistory(read_policy(settings.health_policy) if settings.health_policy else default_policy())
        self.health = HealthWatch(
            self._read_devices,
            self.history,
            self._report_faults,
            rescan=self.devices.rescan,
            interval=settings.health_interval,
        )
        self.metrics.devices.owners = lambda: owners(self.store)
        self.faults = FaultReports(self.node, self.metrics.faults, self.events, lambda: pods_by_device(self.store))
        self.health_state = HealthState(self.missing)
        cert, key = settings.tls_cert_file, settings.tls_private_key_file
        self.probes = ProbeServer(
            self.metrics.text,
            long_missing=self._long_missing,
            missing=self.missing,
            certificate=Certificate(cert, key) if cert else None,
            guard=MetricsGuard(self.client) if settings.metrics_authorization else None,
        )
        self.started = False
        self.registered = False
        self._is_uninstalled = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set, then stop in order."""
        await self.probes.start(self.settings.bind_address)
        await self._build()
        async with asyncio.TaskGroup() as group:
            services = (self.status.run, self.events.run, self.nri.run, self._serve_claims, self.health_state.run)
            tasks = [group.create_task(service()) for service in services]
            self.started = True
            log.info("Started driver", version=__version__, node=self.node)
            await stopping.wait()
            await self._stop()
            self._is_uninstalled = await self._check_uninstalled()
            for task in tasks:
                task.cancel()
        await self.probes.stop()

    async def _serve_claims(self) -> None:
        """Publish and serve the kubelet, once the plans of all pods are known."""
        await self.recovery.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.publisher.run())
            group.create_task(self._watch())
            group.create_task(self.health.run())
            group.create_task(self.repairs.run())
            await self.kubelet.start()
            process.release_startup_memory()

    async def _watch(self) -> None:
        await self.uplinks.discover()
        await self.watcher.run()

    def _read_devices(self) -> list[DeviceReading]:
        snapshot = self.devices.latest
        if self.shape is not None:
            self.history.expected = expected_from_shape(self.shape, pci_by_device(snapshot.devices))
        readings: Sequence[DeviceReading] = self.reader(snapshot, claimed_devices(self.store))
        readings = with_known_faults(readings, FaultKind.DEVICE_GONE, self.lifecycle.missing)
        readings = with_known_faults(readings, FaultKind.FOREIGN_LINK, self.lifecycle.occupied)
        self.metrics.devices.readings = readings
        return readings

    def _report_faults(self, findings: Sequence[Finding]) -> None:
        self.faults.report(findings)
        self.devices.set_findings(findings)
        self.metrics.faults.checks.inc()

    async def _build(self) -> None:
        """Build what needs the cloud and the API server. Not part of `__init__`, because it may take long and /healthz
        and /readyz reply in the meantime."""
        settings = self.settings
        providers = await find_providers(
            settings, Sysfs(settings.sysfs), self.uplinks.node_labels, lambda: lent_addresses(self.store)
        )
        self.watcher = self.devices.watcher = self._build_watcher(await self._build_inventory(providers))
        cluster = ApiServer(self.client)
        preparer = Preparer(
            node=self.node,
            store=self.store,
            lifecycle=self.lifecycle,
            planner=Planner(self.host, Sysfs(settings.sysfs), settings.dev_root),
            cluster=cluster,
            inventory=self.devices,
            profiles=providers.profiles,
            leases=self.leases,
            trust_claims=settings.trust_claims,
        )
        self.recovery = Recovery(
            self.store,
            node=self.node,
            cluster=cluster,
            preparer=preparer,
            delays=Backoff(self.client.rng),
            reference=settings.reference_db or (settings.db_path if self.store.path != settings.db_path else ""),
        )
        self.hooks = self._build_hooks(cluster, preparer)
        self.kubelet = KubeletPlugin(
            DRIVER_NAME,
            ClaimService(preparer, self.reports, self.metrics.claims, self.devices),
            root=Path(settings.kubelet_root_dir),
            pod_uid=settings.pod_uid,
            on_status=self._on_registered,
        )
        self.nri = NriPlugin(DRIVER_NAME, _NRI_INDEX, self.hooks, socket=Path(settings.nri_socket))

    async def _build_inventory(self, providers: Providers) -> Inventory:
        settings = self.settings
        return Inventory(
            InventoryOptions(
                filter=settings.filter,
                move_ib_interfaces=settings.move_ib_interfaces,
                list_attributes=settings.list_attributes,
                uplink_interfaces=settings.uplink_interfaces,
                offer_interfaces=settings.offer_interfaces,
                rails=settings.rail_source,
                shared_nics=await self._if_supported("--shared-cards", settings.shared_cards),
                sriov_vfs=await self._if_supported("--sriov-vfs", settings.sriov_vfs),
            ),
            kernel=LiveKernel(settings.sysfs),
            cloud=providers.cloud,
            problems=providers.problems,
            uplink_targets=lambda: self.uplinks.targets,
        )

    def _build_watcher(self, inventory: Inventory) -> Watcher:
        return Watcher(
            inventory,
            self.devices.set_snapshot,
            claimed=lambda: in_use(self.store),
            intervals=WatchIntervals(
                min_interval=self.settings.inventory_min_poll_interval,
                max_interval=self.settings.inventory_max_poll_interval,
                burst=self.settings.inventory_poll_burst,
            ),
            on_scan=self.health.request_check,
        )

    def _build_hooks(self, cluster: ApiServer, preparer: Preparer) -> Hooks:
        rescan = self.devices.request_rescan
        attacher = Attacher(self.lifecycle, self.reports, self.leases, Backoff(self.client.rng, first=1.0))
        self.repairs = PodRepairs(attacher, self.settings.health_interval)
        return Hooks(
            attacher=attacher,
            reconciler=Reconciler(attacher, recover=self.recovery, on_detached=rescan),
            handover=ClaimHandover(cluster, attacher, preparer, self._handover_delays),
            metrics=self.metrics.hooks,
            on_detached=rescan,
            lift_memlock=self.settings.lift_memlock,
        )

    async def _if_supported(self, flag: str, expression: str) -> str:
        """The expression of a flag that shares or splits NICs; empty where the server is too old to count shares."""
        if not expression:
            return ""
        try:
            version = await self.client.server_version()
        except KubeError as error:
            log.warning("Cannot read the API server's version; assuming it supports the flag", flag=flag, error=error)
            return expression
        if version >= _CONSUMABLE_CAPACITY_SINCE:
            return expression
        log.warning("Ignoring flag: shares of devices need Kubernetes 1.36", flag=flag, server="%d.%d" % version)
        return ""

    def _handover_delays(self) -> Iterator[float]:
        """Between two checks of the claims of a pod that waits for another pod's devices."""
        backoff = Backoff(self.client.rng, first=0.5, limit=10.0)
        while True:
            yield backoff.next()

    def missing(self) -> list[str]:
        """What is missing; empty when ready."""
        if not self.started:
            return ["start"]
        found = [] if self.store.is_complete else ["recovery of the plans of running pods"]
        found += [] if self.registered else ["kubelet registration"]
        found += [] if self.nri.state is State.READY else [f"the runtime at {self.settings.nri_socket}"]
        found += [] if self.publisher.in_sync else ["ResourceSlice publication"]
        found += [] if self.publisher.is_watching else ["the watch of ResourceSlices"]
        return found

    def _long_missing(self) -> list[str]:
        """Why the driver is unhealthy: it has not started yet, or something is missing for long."""
        return self.health_state.long_missing() if self.started else self.missing()

    def _on_registered(self, registered: bool) -> None:
        self.registered = registered
        if registered:
            self.publisher.reconnect()

    async def _stop(self) -> None:
        """Take no new claims once another driver can serve them; then wait for pods that are starting; then stop."""
        log.info("Stopping driver")
        began, has_successor = time.monotonic(), self.kubelet.has_successor
        await shutdown.wait_for_successor(self._pods, has_successor, began)
        await self.kubelet.stop()
        await shutdown.wait_until_quiet(self._pods, self.hooks.last_activity, has_successor, began)
        await self.nri.stop()

    async def _check_uninstalled(self) -> bool:
        """Only where no state is needed any more, and the Node could be read before."""
        keeps = self._pods() or self.store.unreadable or self.store.set_aside or self.kubelet.has_successor()
        if keeps or not self.store.is_complete or not self.uplinks.has_read_node:
            return False
        return await shutdown.account_is_deleted(self.client, self.node)

    def _pods(self) -> set[str]:
        """The UIDs of pods that have devices, or are about to."""
        return {plan.pod.uid for plan in self.store.plans.values()}

    def close(self) -> None:
        """Close everything; devices stay in their pods for the next driver."""
        self.reader.close()
        self.leases.close()
        self.lifecycle.close()
        self.store.close()
        self.host.close()
        if self._is_uninstalled:
            shutdown.remove_files(self.store.path, [self.kubelet.paths.lock, self.kubelet.paths.sockets_lock])


async def _serve(settings: Options) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    daemon = Daemon(settings)
    try:
        await daemon.run(stopping)
    except ExceptionGroup as several:
        raise _first_error(several) from several
    finally:
        daemon.close()
        await daemon.client.close()


def _first_error(error: Exception) -> Exception:
    """The one error that ended a group of tasks: the others were only cancelled."""
    return _first_error(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


def main(arguments: Sequence[str]) -> int:
    """`dranet run`: parse the flags and serve; errors are one line."""
    if set(arguments) & {"-h", "--help", "-help"}:
        print(options.help_text())
        return 0
    process.limit_heap()
    # A scan computes for ten milliseconds in its own thread; a hook must not wait for the default interval of five.
    sys.setswitchinterval(0.0005)
    try:
        settings = options.parse(arguments)
        process.set_up_logging(settings.log_format, settings.v, settings.node)
        asyncio.run(_serve(settings))
    except DranetError as error:
        print(f"dranet: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"dranet: {error}; see --bind-address, --kubelet-root-dir and --cdi-dir", file=sys.stderr)
        return 1
    return 0
