"""Steps of many cards, side by side: what they ask in the same round is one conversation with the kernel.

The kernel's own work dominates (17 ms for a move between namespaces), so what could be saved here is the talking in
between: eight cards cost as many conversations as one. Threads instead would wait for the same lock in the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dranet.driver.parts.base import Answers, AttachError, Step
from dranet.kernel.codec import Message
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.errors import DranetError

T = TypeVar("T")


def together(route: NetlinkSocket, steps: Sequence[Step[T]]) -> list[T]:
    """Run steps to their ends; their results, in order. One that fails lets the others go on, then raises."""
    results: dict[int, T] = {}
    failures: list[Exception] = []
    answers: dict[int, Answers] = {}
    waiting = dict(enumerate(steps))
    while waiting:
        asking: dict[int, Sequence[Message]] = {}
        for number, step in waiting.items():
            try:
                asking[number] = step.send(answers[number]) if answers else next(step)
            except StopIteration as end:
                results[number] = end.value
            except (DranetError, OSError) as error:
                # The others go to the end of their steps all the same. Stopped here they would be halfway, each at
                # another point, and who takes everything back would have to know at which.
                failures.append(error)
        waiting = {number: waiting[number] for number in asking}
        answers = _asked(route, asking)
    if failures:
        raise _all(failures)
    return [results[number] for number in sorted(results)]


def _asked(route: NetlinkSocket, asking: dict[int, Sequence[Message]]) -> dict[int, Answers]:
    outcome = route.batch([message for messages in asking.values() for message in messages])
    answers: dict[int, Answers] = {}
    start = 0
    for number, messages in asking.items():
        answers[number] = outcome[start : start + len(messages)]
        start += len(messages)
    return answers


def _all(failures: Sequence[Exception]) -> Exception:
    first = failures[0]
    if len(failures) == 1 or not isinstance(first, AttachError):
        return first  # of the kernel or the system: its kind decides what the caller does, so it stays as it is
    return type(first)("; ".join(map(str, failures)))
