"""On a machine with an NVIDIA GPU: does NCCL keep our topology file, and gloo the interface we name? Run by hand.

    python3 tests/device/nccl_topology.py FOLDER

Needs a Python with PyTorch (CUDA) and msgspec; no network. A folder `build/wheels` of the repository is searched for
packages that the machine's Python lacks. Two files are tried: the machine as its sysfs shows it, and the same GPU with
a NIC below a switch that exists in no machine. NCCL reads both through a configuration file, as pods do. FOLDER gets
for each the file, NCCL's dump and its log, then `gloo.log` and `result.json` with versions and verdicts. Ends with 1
where a check failed. What was found on which machine is in docs/evidence/in-the-pod.md, and a recorded dump is test
data of tests/node/edits/test_nccl_topology.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "build" / "wheels")]

from dranet.linux.hardware import PciFunction, pci_functions  # noqa: E402
from dranet.linux.sysfs import Sysfs  # noqa: E402
from dranet.node.edits.nccl_topology import topology_file  # noqa: E402

NVIDIA = "10de"
PATIENCE_SECONDS = 240
SWITCH_PATH = "pci0000:e0/0000:e0:01.0/0000:e1:00.0"
"""A root port and a switch's upstream port that no machine has."""
NIC = "0000:e4:00.0"


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    gpu, nics = hardware()
    result: dict[str, object] = {"versions": versions(), "gpu": gpu.address, "nics": [nic.address for nic in nics]}
    found = {gpu.address: "", **{nic.address: name_of(nic) for nic in nics}}
    socket_nic = next((name for name in found.values() if name), "eth0")
    with tempfile.TemporaryDirectory() as made:
        behind = behind_a_switch(Path(made), gpu)
        result["as it is"] = nccl(folder, "as-it-is", Sysfs(), found, gpu.address)
        nets = {gpu.address: "", NIC: socket_nic}
        result["behind a switch"] = nccl(folder, "behind-a-switch", behind, nets, gpu.address)
    result["gloo"] = gloo(folder)
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    verdicts = [result["as it is"], result["behind a switch"], result["gloo"]]
    return int(any(verdict["problems"] for verdict in verdicts))  # type: ignore[index]


def hardware() -> tuple[PciFunction, list[PciFunction]]:
    """The first GPU, and every NIC on the PCI bus."""
    functions = pci_functions(Sysfs(), frozenset({"02", "03"}))
    gpus = [one for one in functions if one.class_code.startswith("03") and one.vendor == NVIDIA]
    if not gpus:
        sys.exit("no NVIDIA GPU on the PCI bus of this machine")
    return gpus[0], [one for one in functions if one.class_code.startswith("02")]


def name_of(nic: PciFunction) -> str:
    """How NCCL calls it: by its RDMA device, else by its interface."""
    return next(iter((*nic.rdma_devices, *nic.netdevs)), "")


def versions() -> dict[str, str]:
    import torch  # type: ignore[import-not-found,unused-ignore]

    asked = ["nvidia-smi", "--query-gpu=name,driver_version,pci.bus_id", "--format=csv,noheader"]
    return {
        "gpu": subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip(),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "cuda": str(torch.version.cuda),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def behind_a_switch(root: Path, gpu: PciFunction) -> Sysfs:
    """A sysfs with a switch of generation 5, this GPU below one of its ports and a NIC below another."""
    bus = root / "bus/pci/devices"
    bus.mkdir(parents=True)
    switch = f"{SWITCH_PATH}/0000:e2"
    made = {
        SWITCH_PATH.rpartition("/")[0]: ("0x8086", "0x352a", "0x060400"),
        SWITCH_PATH: ("0x1000", "0xc030", "0x060400"),
        f"{switch}:00.0": ("0x1000", "0xc030", "0x060400"),
        f"{switch}:01.0": ("0x1000", "0xc030", "0x060400"),
        f"{switch}:00.0/{gpu.address}": (f"0x{gpu.vendor}", f"0x{gpu.device}", f"0x{gpu.class_code}"),
        f"{switch}:01.0/{NIC}": ("0x15b3", "0x1021", "0x020000"),
    }
    for path, (vendor, device, code) in made.items():
        place = root / "devices" / path
        place.mkdir(parents=True)
        values = {"vendor": vendor, "device": device, "class": code, "numa_node": "0"}
        values |= {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
        for name, value in values.items():
            (place / name).write_text(f"{value}\n")
        (bus / place.name).symlink_to(f"../../../devices/{path}")
    node = root / "devices/system/node/node0"
    node.mkdir(parents=True)
    (node / "cpumap").write_text(Path("/sys/devices/system/cpu/cpu0/topology/package_cpus").read_text())
    return Sysfs(str(root))


def nccl(folder: Path, name: str, sysfs: Sysfs, nets: dict[str, str], gpu: str) -> dict[str, object]:
    """One rank with our file: what NCCL says and what is left of the file in its dump."""
    ours, dump, log = (folder / f"{name}{end}" for end in (".xml", "-dump.xml", ".log"))
    content, missing = topology_file(sysfs, nets)
    ours.write_bytes(content)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(f"NCCL_TOPO_FILE={ours.resolve()}\n")
        conf.flush()
        environment = {
            "NCCL_CONF_FILE": conf.name,
            "NCCL_TOPO_DUMP_FILE": str(dump.resolve()),
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV",
        }
        code, said = ranks("nccl", 1, environment)
    log.write_text(said)
    problems = [f"sysfs has no {address}" for address in missing] + ([f"ended with {code}"] if code else [])
    problems += [line for line in said.splitlines() if " NCCL WARN " in line]
    if str(ours.resolve()) not in said:
        problems.append("NCCL does not say that it loads the file")
    kept: dict[str, object] = {}
    if dump.exists():
        written, kept_tree = ElementTree.parse(ours).getroot(), ElementTree.parse(dump).getroot()
        for address in nets:
            ahead, behind = above(written, address), above(kept_tree, address)
            problems += [] if ahead == behind else [f"above {address} NCCL has {behind}, we wrote {ahead}"]
        ours_at, theirs_at = places_of_nets(written), places_of_nets(kept_tree)
        problems += [] if ours_at == theirs_at else [f"NCCL has nets at {theirs_at}, we wrote {ours_at}"]
        kept = {"above the GPU": above(kept_tree, gpu), "nets": theirs_at}
    else:
        problems.append("no dump was written")
    return {**kept, "problems": problems}


def above(system: ElementTree.Element, address: str) -> list[list[str]]:
    """From the CPU down to this function: what the file says of each step, as far as we say it."""
    names = ("numaid", "busid", "link_speed", "link_width")

    def search(element: ElementTree.Element, path: list[list[str]]) -> list[list[str]] | None:
        here = [*path, [element.get(name, "") for name in names]] if element.tag in {"cpu", "pci"} else path
        if element.get("busid") == address:
            return here
        return next((found for child in element if (found := search(child, here))), None)

    return search(system, []) or []


def places_of_nets(system: ElementTree.Element) -> dict[str, str]:
    """By net, the bus address of the function it hangs below."""
    return {net.get("name", ""): pci.get("busid", "") for pci in system.iter("pci") for net in pci.findall("nic/net")}


def gloo(folder: Path) -> dict[str, object]:
    """Two ranks, once over each of this machine's interfaces: every connection must have that one's address."""
    problems, used, logs = [], {}, []
    for name in sorted(name for _, name in socket.if_nameindex()):
        if (address := address_of(name)) is None:
            continue
        code, said = ranks("gloo", 2, {"GLOO_SOCKET_IFNAME": name})
        logs.append(f"GLOO_SOCKET_IFNAME={name}\n{said}")
        seen = sorted({word for line in said.splitlines() if line.startswith("SOCKETS ") for word in line.split()[1:]})
        used[name] = seen
        problems += [f"{name}: ended with {code}"] if code else []
        problems += [] if seen == [address] else [f"{name} has {address}, gloo's connections {seen}"]
    (folder / "gloo.log").write_text("\n".join(logs))
    return {"addresses of connections": used, "problems": problems}


def address_of(name: str) -> str | None:
    """The IPv4 address of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            answer = fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def ranks(backend: str, count: int, environment: dict[str, str]) -> tuple[int, str]:
    """Run this file as ranks; the worst exit status and what all of them said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count), **environment}
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", backend],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(count)
    ]
    said = [process.communicate(timeout=PATIENCE_SECONDS)[0] for process in running]
    return max(abs(process.returncode) for process in running), "".join(said)


def one_rank(backend: str) -> None:
    import torch
    import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]

    distributed.init_process_group(backend)
    device = "cuda:0" if backend == "nccl" else "cpu"
    tensor = torch.full((1 << 20,), float(distributed.get_rank() + 1), device=device)
    distributed.all_reduce(tensor)
    assert tensor[0].item() == sum(range(1, distributed.get_world_size() + 1))
    if backend == "gloo":
        print("SOCKETS", *sorted(connections(int(os.environ["MASTER_PORT"]))), flush=True)
        distributed.barrier()
    distributed.destroy_process_group()


def connections(but_port: int) -> set[str]:
    """Local addresses of this process's connections, those to the rendezvous left out."""
    own = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            own.add(os.readlink(entry))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, state, *rest = line.split()
            ports = {int(one.rpartition(":")[2], 16) for one in (local, remote)}
            if f"socket:[{rest[5]}]" in own and state == "01" and but_port not in ports:
                raw = bytes.fromhex(local.partition(":")[0])
                found.add(socket.inet_ntoa(raw[-4:][::-1]))
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        one_rank(sys.argv[2])
    elif len(sys.argv) == 2:
        sys.exit(main(Path(sys.argv[1])))
    else:
        sys.exit(__doc__)
