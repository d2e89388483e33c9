"""Pictures of NICs: everything that tools other than the driver show of a link, to be compared after a pod.

Read by `ip -j -d`, `tc -j`, `bridge -j`, the ethtool ioctl and /proc/sys; the link's own attributes are taken raw from
the kernel's message, so that nothing is left out because a tool is old. Nothing here uses code of the driver: a picture
must also show what the driver does not read. `accepted` lists what is not compared, with reasons.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from tests import accepted

Picture = dict[str, Any]
T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_NAMES = {
    1: "address",
    2: "broadcast",
    3: "name",
    4: "mtu",
    5: "peer or lower link",
    10: "master",
    13: "txqlen",
    16: "operstate",
    17: "link mode",
    18: "kind",
    20: "alias",
    21: "number of VFs",
    22: "VFs",
    27: "group",
    30: "promiscuity",
    31: "tx queues",
    32: "rx queues",
    33: "carrier",
    37: "namespace of the peer",
    39: "proto down",
    40: "gso_max_segs",
    41: "gso_max_size",
    43: "xdp",
    50: "min mtu",
    51: "max mtu",
    52: "altnames",
    54: "permanent address",
    56: "parent device",
    57: "parent bus",
    58: "gro_max_size",
    59: "tso_max_size",
    60: "tso_max_segs",
    61: "allmulti",
    63: "gso_ipv4_max_size",
    64: "gro_ipv4_max_size",
}
_RTM_GETLINK, _NLMSG_ERROR, _NLM_F_REQUEST = 18, 2, 1
_AF_SPEC, _ALTNAMES = 26, 52
_IFF_UP = 1
_ETHTOOL = {"coalescing": 0x0E, "rings": 0x10, "pauses": 0x12, "channels": 0x3C, "private flags": 0x27}
_GET_FEATURES, _SIOCETHTOOL = 0x3A, 0x8946


def take(namespace_fd: int, name: str) -> Picture:
    """The whole picture; empty where there is no such link."""
    return take_all(namespace_fd, [name])[name]


def take_all(namespace_fd: int, names: Iterable[str]) -> dict[str, Picture]:
    """Pictures of several links, for which each tool runs once."""
    return _inside(namespace_fd, lambda: _take_all(list(names)))


def node_tables(namespace_fd: int) -> list[str]:
    """The routing rules and groups of nexthops, which belong to no link."""
    rules, objects = _inside(namespace_fd, lambda: _batch("ip", "rule show", "nexthop show"))
    six = _inside(namespace_fd, lambda: json.loads(_tool(["ip", "-6", "-j", "rule", "show"])))
    groups = [{**one, "group": sorted(map(str, one["group"]))} for one in objects if "group" in one]
    return _stable([*rules, *six, *groups], accepted.SHOWN_BY_IP)


def link_names(namespace_fd: int) -> set[str]:
    (shown,) = _inside(namespace_fd, lambda: _batch("ip", "link show"))
    return {one["ifname"] for one in shown}


def differences(before: Picture, after: Picture) -> list[str]:
    """What changed, in words."""
    if not after:
        return ["it is not there"]
    keys = sorted({*before, *after})
    return [
        f"{key}: {before.get(key)!r} is now {after.get(key)!r}" for key in keys if before.get(key) != after.get(key)
    ]


def _inside(namespace_fd: int, work: Callable[[], T]) -> T:
    """In a thread of its own in the namespace; what it starts is there too."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            if _libc.setns(namespace_fd, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _take_all(names: list[str]) -> dict[str, Picture]:
    found = {name: _raw_link(name) for name in names}
    there = [name for name in names if found[name]]
    if there:
        ip, traffic = _ip_tables(), _traffic(there)
        for name in there:
            found[name] |= _of_link(ip, name) | traffic[name] | _ethtool(name) | _sysctls(name)
    return found


def _raw_link(name: str) -> Picture:
    """Every attribute of the link's message."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as opened:
        opened.bind((0, 0))
        text = name.encode(errors="surrogateescape") + b"\0"
        kind = 3 if len(text) <= 16 else 53
        body = bytes(16) + _attribute(29, struct.pack("=I", 1)) + _attribute(kind, text)
        opened.send(struct.pack("=IHHII", 16 + len(body), _RTM_GETLINK, _NLM_F_REQUEST, 1, 0) + body)
        reply = opened.recv(1 << 18)
    if struct.unpack_from("=IH", reply)[1] == _NLMSG_ERROR:
        return {}
    _, hardware, _, flags = struct.unpack_from("=BxHiI", reply, 16)
    raw = dict(_attributes(reply[32:]))
    shown: Picture = {_NAMES.get(k, f"attribute {k}"): v for k, v in raw.items() if k not in accepted.RAW_ATTRIBUTES}
    if _ALTNAMES in raw:
        shown["altnames"] = tuple(sorted(value for _, value in _attributes(raw[_ALTNAMES])))
    layers = _ip_layers(raw.get(_AF_SPEC, b""))
    return {**shown, "flags": hex(flags), "up": bool(flags & _IFF_UP), "link type": hardware, "ip layers": layers}


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3


def _ip_layers(af_spec: bytes) -> tuple[bytes, ...]:
    """Settings, and the token and address generation of IPv6; not its statistics and timers."""
    families = dict(_attributes(af_spec))
    four, six = (dict(_attributes(families.get(family, b""))) for family in (socket.AF_INET, socket.AF_INET6))
    return four.get(1, b""), six.get(2, b""), six.get(7, b""), six.get(8, b"")


def _tool(command: list[str], lines: Iterable[str] = ()) -> str:
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True)
    return done.stdout


def _batch(tool: str, *lines: str) -> list[list[Any]]:
    """One JSON list for each line."""
    output, found, decoder = _tool([tool, "-j", "-d", "-batch", "-"], lines), [], json.JSONDecoder()
    while output := output.lstrip():
        document, end = decoder.raw_decode(output)
        found.append(document)
        output = output[end:]
    assert len(found) == len(lines), f"{tool} answered {len(found)} of {len(lines)} questions"
    return found


def _ip_tables() -> dict[str, list[Any]]:
    questions = {
        "addresses": "address show",
        "routes": "route show table all",
        "neighbours": "neigh show nud all",
        "proxies": "neigh show proxy",
        "nexthops": "nexthop show",
        "tokens": "token list",
        "multicast": "maddr show",
    }
    found = dict(zip(questions, _batch("ip", *questions.values()), strict=True))
    return found | {"fdb": json.loads(_tool(["bridge", "-j", "fdb", "show"]) or "[]")}


def _of_link(shown: dict[str, list[Any]], name: str) -> Picture:
    """What was configured on one link; what the kernel makes by itself follows from it, some of it late."""
    own = {table: [one for one in rows if name in (one.get("dev"), one.get("ifname"))] for table, rows in shown.items()}
    addresses = [one for row in own["addresses"] for one in row["addr_info"] if one["scope"] != "link"]
    routes = [one for one in shown["routes"] if _leaves_by(one, name) and one["protocol"] not in accepted.ROUTES]
    multicast = [one for row in own["multicast"] for one in row["maddr"] if one.get("features") == "static"]
    found = {
        "addresses": addresses,
        "routes": routes,
        "neighbours": [one for one in own["neighbours"] if _is_configured(one)],
        "proxies": own["proxies"],
        "nexthops": own["nexthops"],
        "token": own["tokens"],
        "static multicast": multicast,
        "additional addresses": [one for one in own["fdb"] if not int(one["mac"][:2], 16) & 1],
    }
    return {key: _stable(rows, accepted.SHOWN_BY_IP) for key, rows in found.items()}


def _leaves_by(route: dict[str, Any], name: str) -> bool:
    return name in (route.get("dev"), *(hop.get("dev") for hop in route.get("nexthops", ())))


def _is_configured(entry: dict[str, Any]) -> bool:
    """The kernel adds entries without ARP for multicast and broadcast addresses."""
    made_by_kernel = entry["dst"].startswith(("ff", "22", "23", "255.")) or entry.get("lladdr") == "ff:ff:ff:ff:ff:ff"
    state = set(entry.get("state", ()))
    return "PERMANENT" in state or ("NOARP" in state and not made_by_kernel)


def _stable(rows: Iterable[Any], left_out: Iterable[str]) -> list[str]:
    return sorted(json.dumps(_without(row, set(left_out)), sort_keys=True) for row in rows)


def _without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, keys) for key, one in value.items() if key not in keys}
    return [_without(one, keys) for one in value] if isinstance(value, list) else value


def _traffic(names: list[str]) -> dict[str, Picture]:
    """Disciplines that were configured, their classes, and the filters on all sides."""
    sides = ("ingress", "egress", "")
    questions = ["qdisc show", *(f"filter show dev {name} {side}" for name in names for side in sides)]
    disciplines, *filters = _batch("tc", *questions)
    found: dict[str, Picture] = {}
    for number, name in enumerate(names):
        own = [one for one in disciplines if one["dev"] == name and one["handle"] != "0:"]
        on_sides = filters[number * len(sides) : (number + 1) * len(sides)]
        found[name] = {
            "disciplines": _stable(own, accepted.SHOWN_BY_TC),
            "filters": [_stable(side, accepted.SHOWN_BY_TC) for side in on_sides],
            "classes": sorted(_tool(["tc", "-d", "class", "show", "dev", name]).splitlines()) if own else [],
        }
    return found


def _ethtool(name: str) -> Picture:
    """By ioctl, in the kernel's own form; None for what this driver does not have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        found: Picture = {what: _asked(opened, name, struct.pack("=I252x", n)) for what, n in _ETHTOOL.items()}
        found["features"] = _asked(opened, name, struct.pack("=II248x", _GET_FEATURES, 8))
    return found


def _asked(opened: socket.socket, name: str, question: bytes) -> bytes | None:
    buffer = array.array("B", question)
    where, _ = buffer.buffer_info()
    request = struct.pack("=16sQ16x", name.encode(errors="surrogateescape"), where)
    with contextlib.suppress(OSError):
        fcntl.ioctl(opened, _SIOCETHTOOL, request)
        return buffer.tobytes()
    return None


def _sysctls(name: str) -> Picture:
    """Plain system calls: there are some 140 files a link, and a campaign reads them a million times."""
    found: Picture = {}
    for short in (f"{family}/{part}/{name}" for family in ("ipv4", "ipv6") for part in ("conf", "neigh")):
        try:
            folder = os.open(f"/proc/sys/net/{short}", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # such links have no such part
        try:
            for file in sorted(set(os.listdir(folder)) - set(accepted.SYSCTLS)):
                found[f"{short}/{file}"] = _value(file, folder)
        finally:
            os.close(folder)
    return found


def _value(file: str, folder: int) -> bytes | int | None:
    """What is in it, or the number of the error."""
    try:
        fd = os.open(file, os.O_RDONLY, dir_fd=folder)
    except OSError as error:
        return error.errno
    try:
        return os.read(fd, 4096).strip()
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)
