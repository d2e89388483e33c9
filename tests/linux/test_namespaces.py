"""Namespaces: entering on a thread only, identity, and paths that are not namespaces."""

from __future__ import annotations

import os
import queue
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dranet.linux import links, namespaces, virtual_links
from dranet.linux.namespaces import Namespace, NamespaceError, NamespaceGone
from dranet.linux.netlink import NetlinkSocket
from tests.linux.conftest import MakeNamespace, MakeRoute


def inode_here() -> int:
    return os.stat("/proc/thread-self/ns/net").st_ino


def test_a_function_runs_inside_and_the_caller_stays_outside(netns: Namespace) -> None:
    before = inode_here()
    assert netns.run(inode_here) == netns.identity().inode
    assert inode_here() == before


def test_an_exception_inside_reaches_the_caller(netns: Namespace) -> None:
    def fail() -> None:
        raise ValueError("from inside")

    with pytest.raises(ValueError, match="from inside"):
        netns.run(fail)


def test_no_thread_stays_behind(netns: Namespace) -> None:
    before = set(threading.enumerate())  # of which some may end meanwhile
    netns.run(inode_here)
    assert set(threading.enumerate()) <= before


def test_a_new_namespace_is_empty_and_another_one_than_ours(netns: Namespace, route: NetlinkSocket) -> None:
    assert [link.name for link in links.list_links(route)] == ["lo"]
    with Namespace.current() as current:
        assert current.identity() != netns.identity()


def test_two_paths_to_one_namespace_have_one_identity(netns: Namespace) -> None:
    assert namespaces.identity_of(netns.path) == netns.identity()
    assert namespaces.identity_of(f"/proc/{os.getpid()}/fd/{netns.fd}") == netns.identity()


def test_a_file_that_is_not_a_namespace_is_recognised(tmp_path: Path) -> None:
    leftover = tmp_path / "cni-1234"
    leftover.touch()
    assert not namespaces.exists(str(leftover))
    assert not namespaces.exists(str(tmp_path / "never-there"))
    assert not namespaces.exists("/proc/self/ns/mnt")
    assert namespaces.exists("/proc/self/ns/net")
    with pytest.raises(NamespaceError, match=r"cni-1234 is not a network namespace; was it deleted\?"):
        Namespace.open(str(leftover))


def test_a_path_that_does_not_exist_says_so() -> None:
    with pytest.raises(NamespaceError, match=r"cannot open the network namespace /nowhere/x: No such file"):
        Namespace.open("/nowhere/x")


def test_entering_something_that_is_no_namespace_is_refused(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(NamespaceError, match="setns"):
            namespaces.run_inside(fd, inode_here)
    finally:
        os.close(fd)


def test_run_in_place_returns_after_success_and_after_failure(make_namespace: MakeNamespace) -> None:
    there, here = make_namespace(), inode_here()
    assert namespaces.run_in_place(there.fd, inode_here) == there.identity().inode
    assert inode_here() == here
    with pytest.raises(ZeroDivisionError):
        namespaces.run_in_place(there.fd, lambda: 1 // 0)
    assert inode_here() == here


def test_a_thread_that_could_not_return_uses_another_thread(
    make_namespace: MakeNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here, real = make_namespace(), threading.get_ident(), namespaces._libc.setns

    def refuse_return(fd: int, kind: int) -> int:
        return -1 if os.fstat(fd).st_ino == inode_here() else int(real(fd, kind))

    monkeypatch.setattr(namespaces._libc, "setns", refuse_return)
    inode, worker = namespaces.run_in_place(there.fd, lambda: (inode_here(), threading.get_ident()))
    assert inode == there.identity().inode
    assert worker != here


def test_a_thread_that_cannot_return_aborts_the_process(
    make_namespace: MakeNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class End(BaseException):
        pass

    def abort() -> None:
        raise End

    def all_in_a_thread() -> None:
        own, real = os.stat("/proc/thread-self/ns/net").st_ino, namespaces._libc.setns

        def lost(fd: int, kind: int) -> int:
            leaving = inode_here() == own
            return int(real(fd, kind)) if leaving else -1

        monkeypatch.setattr(namespaces._libc, "setns", lost)
        monkeypatch.setattr(os, "abort", abort)
        with pytest.raises(End):
            namespaces.run_in_place(there.fd, inode_here)

    there = make_namespace()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(all_in_a_thread).result()


def test_namespaces_that_share_a_pair_of_links_know_each_other_by_number(
    make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    here, there, stranger = make_namespace(), make_namespace(), make_namespace()
    route = make_route(here)
    route.request(virtual_links.create_veth("v0", "v1", peer_namespace_fd=there.fd))
    link = links.get_link(route, "v0")
    assert link is not None
    assert link.parent_netnsid == links.get_nsid(route, there.fd)
    assert links.get_nsid(route, stranger.fd) is None


def test_closing_twice_is_harmless(netns: Namespace) -> None:
    second = Namespace.open(netns.path)
    second.close()
    second.close()


def test_running_out_of_descriptors_does_not_mean_that_a_namespace_is_gone(netns: Namespace) -> None:
    path = f"/proc/{os.getpid()}/fd/{netns.fd}"
    _, most = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))  # the next descriptor would have this number
    try:
        with pytest.raises(NamespaceError, match="Too many open files") as caught:
            namespaces.exists(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not isinstance(caught.value, NamespaceGone)


def test_a_missing_namespace_is_distinguished_from_other_errors(tmp_path: Path) -> None:
    (tmp_path / "leftover").touch()
    for path in (tmp_path / "never", tmp_path / "leftover", "/proc/999999999/ns/net"):
        with pytest.raises(NamespaceGone):
            Namespace.open(str(path))


def test_the_number_of_a_namespace_is_translated_for_another_one(
    make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    here, there, far = make_namespace(), make_namespace(), make_namespace()
    route, other = make_route(here), make_route(there)
    route.request(virtual_links.create_veth("v", "v", peer_namespace_fd=far.fd))
    before = links.get_link(route, "v")
    assert before is not None and before.parent_netnsid is not None
    route.request(links.change(before.index, namespace_fd=there.fd))
    after = links.get_link(other, "v")
    known = links.get_nsid(route, there.fd)
    assert after is not None and known is not None
    assert links.translate_nsid(route, before.parent_netnsid, known) == after.parent_netnsid


def test_namespaces_that_processes_live_in_or_hold_are_found(netns: Namespace) -> None:
    found = found_identities()
    assert netns.identity() in found
    with Namespace.current() as current:
        assert current.identity() in found
    assert len(found) == len(set(found))


def found_identities() -> list[namespaces.NamespaceIdentity]:
    found = []
    for namespace in namespaces.find_namespaces():
        with namespace:
            found.append(namespace.identity())
    return found


def test_a_namespace_of_a_thread_is_found() -> None:
    """Not of the thread that leads its process, and nothing holds it open."""
    inside, leave = queue.SimpleQueue[namespaces.NamespaceIdentity](), threading.Event()

    def stay() -> None:
        status = os.stat("/proc/thread-self/ns/net")
        inside.put(namespaces.NamespaceIdentity(status.st_dev, status.st_ino))
        leave.wait()

    with Namespace.create() as namespace:
        thread = threading.Thread(target=namespace.run, args=(stay,))
        thread.start()
        identity = inside.get()
    try:
        assert identity in found_identities()
    finally:
        leave.set()
        thread.join()


def test_a_descriptor_that_closes_meanwhile_skips_one_entry(tmp_path: Path, netns: Namespace) -> None:
    """The folder of a process whose first descriptor is gone when it is read."""
    folder = tmp_path / "4711" / "fd"
    folder.mkdir(parents=True)
    (folder / "3").mkdir()  # not a link, so that it cannot be read as one
    (folder / "4").symlink_to(f"net:[{netns.identity().inode}]")
    assert list(namespaces._paths_of_processes(str(tmp_path)))[-1] == str(folder / "4")


def test_a_namespace_gets_a_number_once(make_namespace: MakeNamespace, make_route: MakeRoute) -> None:
    route, other = make_route(make_namespace()), make_namespace()
    assert links.get_nsid(route, other.fd) is None
    given = links.ensure_nsid(route, other.fd)
    assert links.get_nsid(route, other.fd) == given == links.ensure_nsid(route, other.fd)
