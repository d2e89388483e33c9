"""Evidence from the output of NCCL (``NCCL_DEBUG=INFO``), Open MPI and ``ip addr``.

The messages of NCCL differ between versions and plugins, so each pattern matches as little of a line as possible.
Unknown lines are ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from dranet.advise.report.runs import Evidence

_MESSAGE = re.compile(r"([\w.-]+):\d+:\d+ (?:\[-?\d+\] )?NCCL INFO (.*)")
_WARNING = re.compile(r"NCCL WARN (.*)")
_USING = re.compile(r"NET/(\w+) ?: Using (\[.*)")
_DEVICE = re.compile(r"\[(\d+)\]([\w.-]+)(?::\d+)?[:/]")
_NETWORK = re.compile(r"Using network (\S+)|Initialized NET plugin (\S+)|NET/(\w+) ?: IbDev")
_NO_DEVICE = re.compile(r"NET/(?:IB|gIB)\S* ?: No device found")
_CHANNEL = re.compile(r"via NET/([^/\s]+)/(\d+)(?:\(\d+\))?(/\S*GDRDMA)?")
_GDR = re.compile(r"GPU Direct RDMA(?: \([\w-]+\))? (enabled|disabled) for (?:HCA|GPU)", re.IGNORECASE)
_HCA = re.compile(r"HCA \d+ '([\w.-]+)'")
_ENVIRONMENT = re.compile(r"(NCCL_\w+) set by environment to (\S+)")
_TUNED = re.compile(r"(\d+) Bytes -> Algo (\w+) proto")
_ALGORITHMS = {"0": "Tree", "1": "Ring", "4": "NVLS", "5": "NVLSTree"}
"""Numbers in old versions of NCCL; newer versions print the names."""
_NAMES = {name.upper(): name for name in _ALGORITHMS.values()} | {"NVLS_TREE": "NVLSTree"}
_MPI_HOST = re.compile(r"^\s*Local host:\s+(\S+)")
_MPI_DEVICE = re.compile(r"^\s*(?:Device name|Local device):\s+(\S+)")
_ENDED = re.compile(r"mpirun noticed that process .*|Remote daemon:\s.*\bon node \S+")
_LINK = re.compile(r"^(\d+): ([\w.-]+)(?:@\S+)?: <[A-Z,_]*>")
_TRAFFIC = re.compile(r"^# Traffic of (\S+): (.*)")
_BYTES = re.compile(r"(\S+) (\d+)")


@dataclass
class EvidenceReader:
    """Evidence while a log is read. Dictionaries without values are ordered sets."""

    nics: dict[str, dict[str, None]] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    networks: dict[str, None] = field(default_factory=dict)
    direct: dict[str, None] = field(default_factory=dict)
    staged: dict[str, None] = field(default_factory=dict)
    interfaces: dict[str, None] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    traffic: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    tuned: str = ""
    tuned_size: int = -1
    mpi_host: str = ""
    last_link: int = 0

    def read(self, line: str) -> None:
        if found := _MESSAGE.search(line):
            self._nccl(found[1], found[2])
        elif warned := _WARNING.search(line):
            self.warnings[warned[1].strip()] = None
        elif counted := _TRAFFIC.match(line):
            self.traffic[counted[1]] = {name: int(number) for name, number in _BYTES.findall(counted[2])}
        else:
            self._other_line(line)

    def has_any(self) -> bool:
        return self.evidence() != Evidence()

    def evidence(self) -> Evidence:
        return Evidence(
            nics={host: tuple(names) for host, names in self.nics.items()},
            used=frozenset(self.used),
            networks=tuple(self.networks),
            direct=tuple(self.direct),
            staged=tuple(self.staged),
            interfaces=tuple(self.interfaces),
            pod_links=tuple(self.links),
            environment=dict(self.environment),
            traffic={host: dict(links) for host, links in self.traffic.items()},
            warnings=tuple(self.warnings),
            ended=tuple(self.ended),
            tuned=self.tuned,
        )

    def _nccl(self, host: str, message: str) -> None:
        if using := _USING.search(message):
            self._devices(host, using[1], using[2])
        elif network := _NETWORK.search(message):
            self.networks[next(filter(None, network.groups()))] = None
        elif channel := _CHANNEL.search(message):
            self._channel(channel[1], int(channel[2]), bool(channel[3]), message)
        elif direct := _GDR.search(message):
            (self.direct if direct[1].lower() == "enabled" else self.staged)[message.strip()] = None
        elif setting := _ENVIRONMENT.search(message):
            self.environment[setting[1]] = setting[2].rstrip(".")
        elif _NO_DEVICE.search(message):
            self.warnings[message.strip()] = None
        elif tuned := _TUNED.search(message):
            self._tuned(int(tuned[1]), tuned[2])
        if nic := _HCA.search(message):
            self.nics.setdefault(host, {})[nic[1]] = None

    def _tuned(self, size: int, named: str) -> None:
        """Keep the choice for the largest message, because results are quoted for large ones."""
        if size >= self.tuned_size:
            self.tuned_size, self.tuned = size, _ALGORITHMS.get(named) or _NAMES.get(named.upper(), "")

    def _devices(self, host: str, network: str, listed: str) -> None:
        names = dict.fromkeys(name for _, name in _DEVICE.findall(listed.partition("; OOB")[0]))
        if network == "Socket":
            self.interfaces.update(names)
        else:
            self.nics.setdefault(host, {}).update(names)

    def _channel(self, network: str, nic: int, direct: bool, message: str) -> None:
        self.networks[network] = None
        if network == "Socket":
            return
        self.used.add(nic)
        (self.direct if direct else self.staged)[message.strip()] = None

    def _other_line(self, line: str) -> None:
        if host := _MPI_HOST.match(line):
            self.mpi_host = host[1]
        elif device := _MPI_DEVICE.match(line):
            self.nics.setdefault(self.mpi_host, {})[device[1]] = None
        elif ended := _ENDED.search(line):
            self.ended[" ".join(ended[0].split())] = None
        elif link := _LINK.match(line):
            self._link(int(link[1]), link[2])

    def _link(self, number: int, name: str) -> None:
        """Indices increase within a listing; a second listing is of another pod or a later time."""
        if number <= self.last_link:
            self.last_link = 1 << 32
            return
        self.last_link = number
        self.links.append(name)
