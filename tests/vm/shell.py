"""Joins this terminal (or a pipe) to the shell in the guest, byte by byte, until the shell ends."""

import contextlib
import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Iterator


def relay(guest: socket.socket) -> None:
    with _raw_terminal():
        sources: list[int | socket.socket] = [sys.stdin.fileno(), guest]
        while True:
            ready, _, _ = select.select(sources, [], [])
            if guest in ready:
                piece = guest.recv(65536)
                end = piece.find(b'{"shell_ended"')
                os.write(sys.stdout.fileno(), piece if end < 0 else piece[:end])
                if not piece or end >= 0:
                    return
            if sys.stdin.fileno() in ready:
                typed = os.read(sys.stdin.fileno(), 65536)
                guest.sendall(typed or b"\x04")
                if not typed:
                    sources = [guest]


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
