"""The daemon: builds everything, starts it in the right order, and leaves in the right order.

Ready means: registered with the kubelet, synchronised with the runtime, and published. Whatever goes away later
(runtime, API server, kubelet) is waited for; only a mistake in the flags or an unusable store ends the process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dranet import __version__
from dranet.basics.backoff import Backoff
from dranet.driver.claims.leases import Leases
from dranet.driver.claims.planner import Planner
from dranet.driver.claims.prepare import Preparer
from dranet.driver.moving.cards import Cards
from dranet.driver.moving.receipt import Receipts
from dranet.driver.moving.telling import Telling
from dranet.driver.namespaces import Host
from dranet.driver.serving import logs, memory, options, shutdown
from dranet.driver.serving.api_server import ApiServer
from dranet.driver.serving.attaching import Attaching
from dranet.driver.serving.card_counters import owners
from dranet.driver.serving.fault_reports import FaultReports, holders
from dranet.driver.serving.health_watch import HealthWatch, held_cards
from dranet.driver.serving.hooks import Hooks
from dranet.driver.serving.lifelines import NodeLifelines
from dranet.driver.serving.metrics import Metrics
from dranet.driver.serving.node_devices import NodeDevices, in_use, lent_addresses
from dranet.driver.serving.options import Options
from dranet.driver.serving.places import is_hosts, own_store
from dranet.driver.serving.providers import find_providers
from dranet.driver.serving.rebuild import Rebuilder
from dranet.driver.serving.reconcile import Reconciler
from dranet.driver.serving.reports import Reports
from dranet.driver.serving.service import ClaimService
from dranet.driver.serving.standing import Standing
from dranet.driver.serving.successors import Successors
from dranet.driver.serving.web import Web
from dranet.driver.store import Store
from dranet.health.history import History
from dranet.health.judging import Finding
from dranet.health.node import NodeReader, expected_of, pci_of
from dranet.health.policy import default_policy, read_policy
from dranet.health.reading import CardReading
from dranet.inventory import Inventory, LiveKernel
from dranet.inventory import Options as InventoryOptions
from dranet.inventory.watcher import Pace, Watcher
from dranet.kernel.namespace_sysfs import is_sysfs
from dranet.kernel.sysfs import Sysfs
from dranet.kube.claims import ClaimStatusWriter
from dranet.kube.client import KubeClient
from dranet.kube.config import load_config
from dranet.kube.errors import KubeError
from dranet.kube.events import EventRecorder
from dranet.kube.publisher import ResourceSlicePublisher
from dranet.kube.taints import TaintPolicy
from dranet.kubelet.plugin import Plugin as KubeletPlugin
from dranet.model.errors import DranetError
from dranet.model.names import DRIVER_NAME
from dranet.nri.plugin import Plugin as NriPlugin
from dranet.nri.plugin import State

if TYPE_CHECKING:
    from dranet.topology.shape import Shape

log = logging.getLogger(__name__)

NRI_INDEX = "00"
COUNTED_SINCE = (1, 36)
"""DRAConsumableCapacity is on by default from here on."""


def _receipts(folder: str) -> Receipts:
    seen = is_hosts(folder)
    if not seen:
        log.warning(
            "%s is this container's own folder, which the runtime does not see: mount the host's. Until then "
            "containers are guarded by the hooks alone, and RDMA devices go to all containers of a pod",
            folder,
        )
    return Receipts(folder, seen_by_runtime=seen)


def _telling(settings: Options) -> Telling:
    """Below the kubelet's folder for our plugin, which the host has under the same path."""
    folder = Path(settings.kubelet_root_dir, "plugins", DRIVER_NAME, "metadata")
    return Telling(folder, settings.sysfs, metadata=settings.enable_device_metadata)


def _shape(name: str) -> Shape:
    from dranet.topology.shape import load_shape  # with importlib.resources: a megabyte that few nodes need

    return load_shape(name)


class Daemon:
    """One node's driver."""

    def __init__(self, settings: Options) -> None:
        self.settings = settings
        self.node = settings.node
        self.metrics = Metrics()
        self.store = Store(own_store(settings.db_path) if settings.db_path else None)
        self.host = Host.open(settings.proc_root, sysfs_root=settings.sysfs, may_rebind=settings.rebind_lost_cards)
        self.cards = Cards(self.host, self.store, _receipts(settings.cdi_dir), telling=_telling(settings))
        self.leases = Leases(self.host, self.store)
        config = load_config(settings.kubeconfig or None)
        self.client = KubeClient.from_config(config)
        self.lifelines = NodeLifelines(self.client, self.node, config.host)
        self.events = EventRecorder(self.client, host=self.node)
        self.status = ClaimStatusWriter(self.client)
        self.reports = Reports(self.status, self.events)
        self.publisher = ResourceSlicePublisher(
            self.client, self.node, recorder=self.events, on_published=self.metrics.publish.published
        )
        self.devices = NodeDevices(self.node, TaintPolicy.parse(settings.taint_effect), self.publisher.publish)
        # A made tree does not go on in pods: what the real one shows there would be another machine.
        self.reader = NodeReader(settings.sysfs, in_pods=is_sysfs(settings.sysfs), moves=self.cards.moves.count)
        self.shape = _shape(settings.machine_shape) if settings.machine_shape else None
        self.history = History(read_policy(settings.health_policy) if settings.health_policy else default_policy())
        self.health = HealthWatch(
            self._read_cards,
            self.history,
            self._judged,
            look_anew=self.devices.look_again,
            interval=settings.health_interval,
        )
        self.metrics.cards.owners = lambda: owners(self.store)
        self.faults = FaultReports(self.node, self.metrics.faults, self.events, lambda: holders(self.store))
        self.standing = Standing(self.missing)
        self.web = Web(self.metrics.text, long_missing=self._long_missing, missing=self.missing)
        self.started = False
        self.registered = False
        self._goes_for_good = False

    async def run(self, stopping: asyncio.Event) -> None:
        """Serve until `stopping` is set, then leave in order."""
        await self.web.start(self.settings.bind_address)
        await self._build()
        async with asyncio.TaskGroup() as group:
            services = (self.status.run, self.events.run, self.nri.run, self._serve_claims, self.standing.run)
            tasks = [group.create_task(service()) for service in services]
            self.started = True
            log.info("dranet %s drives node %s", __version__, self.node)
            await stopping.wait()
            await self._leave()
            self._goes_for_good = await self._is_uninstalled()
            for task in tasks:
                task.cancel()
        await self.web.stop()

    async def _serve_claims(self) -> None:
        """Publish and answer the kubelet, once it is known which pods have cards."""
        await self.rebuilder.finished()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.publisher.run())
            group.create_task(self._watch())
            group.create_task(self.health.run())
            await self.kubelet.start()
            memory.settle()

    async def _watch(self) -> None:
        await self.lifelines.learn()
        await self.watcher.run()

    def _read_cards(self) -> list[CardReading]:
        snapshot = self.devices.latest
        if self.shape is not None:
            self.history.expected = expected_of(self.shape, pci_of(snapshot.devices))
        cards = self.reader(snapshot, held_cards(self.store))
        self.metrics.cards.cards = cards
        return cards

    def _judged(self, findings: Sequence[Finding]) -> None:
        self.faults.tell(findings)
        self.devices.judged(findings)
        self.metrics.faults.looks.inc()

    async def _build(self) -> None:
        """What has to ask the cloud and the API server first. Not part of `__init__`, because that may take long and
        /healthz and /readyz answer meanwhile."""
        settings = self.settings
        providers = await find_providers(
            settings, Sysfs(settings.sysfs), self.lifelines.node_labels, lambda: lent_addresses(self.store)
        )
        inventory = Inventory(
            InventoryOptions(
                filter=settings.filter,
                move_ib_interfaces=settings.move_ib_interfaces,
                list_attributes=settings.list_attributes,
                uplink_interfaces=settings.uplink_interfaces,
                offer_interfaces=settings.offer_interfaces,
                rails=settings.rail_source,
                shared_cards=await self._if_counted("--shared-cards", settings.shared_cards),
                sriov_vfs=await self._if_counted("--sriov-vfs", settings.sriov_vfs),
            ),
            kernel=LiveKernel(settings.sysfs),
            cloud=providers.cloud,
            problems=providers.problems,
            lifelines=lambda: self.lifelines.known,
        )
        pace = Pace(
            min_interval=settings.inventory_min_poll_interval,
            max_interval=settings.inventory_max_poll_interval,
            burst=settings.inventory_poll_burst,
        )
        self.watcher = Watcher(
            inventory,
            self.devices.changed,
            in_use=lambda: in_use(self.store),
            pace=pace,
            looked=self.health.request_look,
        )
        self.devices.watcher = self.watcher
        cluster = ApiServer(self.client)
        preparer = Preparer(
            node=self.node,
            store=self.store,
            cards=self.cards,
            planner=Planner(self.host, Sysfs(settings.sysfs), settings.dev_root),
            cluster=cluster,
            inventory=self.devices,
            profiles=providers.profiles,
            leases=self.leases,
        )
        self.rebuilder = Rebuilder(
            self.store,
            node=self.node,
            cluster=cluster,
            preparer=preparer,
            delays=Backoff(self.client.rng),
            reference=settings.reference_db or (settings.db_path if self.store.path != settings.db_path else ""),
        )
        look = self.devices.request_look
        reconciler = Reconciler(self.cards, self.reports, self.leases, rebuild=self.rebuilder, on_returned=look)
        self.hooks = Hooks(
            cards=self.cards,
            attaching=Attaching(self.cards, self.reports, self.leases, Backoff(self.client.rng, first=1.0)),
            reports=self.reports,
            reconciler=reconciler,
            successors=Successors(cluster, self.cards, self.reports, self.leases, self._pauses, preparer),
            leases=self.leases,
            metrics=self.metrics.hooks,
            on_returned=look,
            lift_memlock=settings.lift_memlock,
        )
        service = ClaimService(preparer, self.reports, self.metrics.claims, self.devices)
        self.kubelet = KubeletPlugin(
            DRIVER_NAME,
            service,
            root=Path(settings.kubelet_root_dir),
            pod_uid=settings.pod_uid,
            on_status=self._on_registered,
        )
        self.nri = NriPlugin(DRIVER_NAME, NRI_INDEX, self.hooks, socket=Path(settings.nri_socket))

    async def _if_counted(self, flag: str, asked: str) -> str:
        """Which cards are shared or split: none where the server is known to be too old to count what is taken."""
        if not asked:
            return ""
        try:
            version = await self.client.server_version()
        except KubeError as error:
            log.warning("the API server's version is not known, %s holds as asked: %s", flag, error)
            return asked
        if version >= COUNTED_SINCE:
            return asked
        log.warning("%s is off: parts of cards are counted since Kubernetes 1.36, this server is %d.%d", flag, *version)
        return ""

    def _pauses(self) -> Iterator[float]:
        """Between two looks at the claims of a pod that waits for another's cards."""
        backoff = Backoff(self.client.rng, first=0.5, limit=10.0)
        while True:
            yield backoff.next()

    def missing(self) -> list[str]:
        """What is not there yet; empty when ready."""
        if not self.started:
            return ["start"]
        found = [] if self.store.is_complete else ["which pods have cards: the store began empty and is being rebuilt"]
        found += [] if self.registered else ["kubelet registration"]
        found += [] if self.nri.state is State.READY else [f"the runtime at {self.settings.nri_socket}"]
        found += [] if self.publisher.in_sync else ["ResourceSlice publication"]
        return found

    def _long_missing(self) -> list[str]:
        """What keeps the driver from being well: a start that is not done yet, or what it lacks for long."""
        return self.standing.long_missing() if self.started else self.missing()

    def _on_registered(self, registered: bool) -> None:
        self.registered = registered

    async def _leave(self) -> None:
        """No new claims, once others can serve them; then wait for pods that are just starting; then let go."""
        log.info("stopping")
        began, successor = time.monotonic(), self.kubelet.has_successor
        await shutdown.wait_for_successor(self._pods, successor, began)
        await self.kubelet.stop()
        await shutdown.wait_until_quiet(self._pods, self.hooks.last_activity, successor, began)
        await self.nri.stop()

    async def _is_uninstalled(self) -> bool:
        """Only where nothing is kept for anybody, and a refusal means something: the node could be read before."""
        keeps = self._pods() or self.store.unreadable or self.store.set_aside or self.kubelet.has_successor()
        if keeps or not self.store.is_complete or not self.lifelines.has_seen_node:
            return False
        return await shutdown.account_is_gone(self.client, self.node)

    def _pods(self) -> set[str]:
        """Pods that have cards, or are about to."""
        return {plan.pod.uid for plan in self.store.plans.values()}

    def close(self) -> None:
        """Let go of everything; cards stay where they are, for the next driver."""
        self.reader.close()
        self.leases.close()
        self.cards.close()
        self.store.close()
        self.host.close()
        if self._goes_for_good:
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
        raise _first(several) from several
    finally:
        daemon.close()
        await daemon.client.close()


def _first(error: Exception) -> Exception:
    """The one error that ended a group of tasks: the others were only cancelled."""
    return _first(error.exceptions[0]) if isinstance(error, ExceptionGroup) else error


def main(arguments: Sequence[str]) -> int:
    """`dranet run`: parse, serve, and say in one line why it cannot."""
    if set(arguments) & {"-h", "--help", "-help"}:
        print(options.help_text())
        return 0
    memory.be_frugal()
    # A look at all cards computes for ten milliseconds in a thread of its own; a hook need not wait for the usual five.
    sys.setswitchinterval(0.0005)
    try:
        settings = options.parse(arguments)
        logs.set_up(settings.log_format, settings.v, settings.node)
        asyncio.run(_serve(settings))
    except DranetError as error:
        print(f"dranet: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"dranet: {error}; see --bind-address, --kubelet-root-dir and --cdi-dir", file=sys.stderr)
        return 1
    return 0
