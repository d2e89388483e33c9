"""The life of a claim on a node: its states, what moves it from one to the next, and what a restart does in each.

Read this first. The state of a claim is what the store says, so a driver that was killed knows it again. The kernel
says where the devices really are; attach, detach and repair compare both and do what is missing, in any state.

Every transition writes the store once. The points before and after that write are the places where the crash tests
kill the driver; each names the state that the next driver finds. The diagram in `docs/architecture.md` is made of this
table, and the store reports a change that is not in it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dranet.node.records.plan import ClaimPlan


class State(enum.Enum):
    """What the store says about a claim in one pod."""

    RELEASED = "Released"
    """No plan. The devices are on the host, in the state in which they were found."""
    PLANNING = "Planning"
    """A provisional plan: what a profile provider, DHCP server or physical function gave must be released."""
    PREPARED = "Prepared"
    """A plan without a network namespace: the devices are on the host."""
    ATTACHING = "Attaching"
    """A plan with a network namespace: devices may be on the host or in the pod, and no container has run."""
    ATTACHED = "Attached"
    """All devices were in the pod, and containers may have run since. Nothing but a detach removes a device."""


def state_of(plan: ClaimPlan | None) -> State:
    """The state that a stored plan stands for; None for a claim without a plan."""
    if plan is None:
        return State.RELEASED
    if plan.netns is None:
        return State.PLANNING if plan.provisional else State.PREPARED
    return State.ATTACHED if plan.attached else State.ATTACHING


class Transition(NamedTuple):
    """One way from a state to another."""

    name: str
    source: State
    target: State
    event: str
    """Who or what causes it."""
    before: tuple[str, ...] = ()
    """The crash points before the store is written: the next driver finds the source."""
    after: tuple[str, ...] = ()
    """The crash points after it: the next driver finds the target."""
    reserves: bool | None = None
    """Only for claims that reserve something (True), or that do not (False)."""

    def points(self) -> Iterator[tuple[str, State]]:
        """Every crash point, with the state that the next driver finds."""
        yield from ((point, self.source) for point in self.before)
        yield from ((point, self.target) for point in self.after)


_S = State
TRANSITIONS: tuple[Transition, ...] = (
    Transition("reserve", _S.RELEASED, _S.PLANNING, "prepare needs a profile, a lease, a VF or a share"),
    Transition("give up", _S.PLANNING, _S.RELEASED, "prepare fails, or is called again"),
    Transition(
        "plan",
        _S.PLANNING,
        _S.PREPARED,
        "prepare has reserved everything",
        before=("prepare.planned",),
        after=("prepare.stored", "prepare.settings_saved", "prepare.set_up"),
        reserves=True,
    ),
    Transition(
        "prepare",
        _S.RELEASED,
        _S.PREPARED,
        "the kubelet calls prepare; the plan is new, or of another boot",
        before=("prepare.planned",),
        after=("prepare.stored", "prepare.settings_saved", "prepare.set_up"),
        reserves=False,
    ),
    Transition("recover", _S.RELEASED, _S.ATTACHED, "the store was lost, and the pod has the devices"),
    Transition(
        "attach",
        _S.PREPARED,
        _S.ATTACHING,
        "the sandbox starts, or runs without its devices when the driver starts",
        before=("attach.begun",),
        after=("attach.stored", "attach.one_moved", "attach.moved"),
    ),
    Transition(
        "open the gate",
        _S.ATTACHING,
        _S.ATTACHED,
        "all devices are in the pod and configured",
        before=("attach.done",),
        after=("attach.gate_written",),
    ),
    Transition("roll back", _S.ATTACHING, _S.PREPARED, "a device cannot be attached, or the sandbox stops"),
    Transition("reboot", _S.ATTACHED, _S.ATTACHING, "the sandbox starts with a plan of another boot"),
    Transition(
        "detach",
        _S.ATTACHED,
        _S.PREPARED,
        "the sandbox stops, is gone when the driver starts, or the claim goes to another pod",
        before=("detach.begun", "detach.gate_removed", "detach.restored"),
        after=("detach.stored",),
    ),
    Transition(
        "unprepare",
        _S.PREPARED,
        _S.RELEASED,
        "the kubelet calls unprepare, and all devices are restored",
        # The kubelet gets its reply before the row is deleted. A row that a crash leaves behind is stale: the next
        # claim that is allocated the device releases it.
        before=("unprepare.begun", "unprepare.detached", "unprepare.released", "unprepare.answered"),
        after=("unprepare.deleted",),
        reserves=False,
    ),
    Transition(
        "unprepare and release",
        _S.PREPARED,
        _S.RELEASED,
        "the kubelet calls unprepare, and something is reserved",
        before=("unprepare.begun", "unprepare.detached"),
        after=("unprepare.deleted", "unprepare.answered"),
        reserves=True,
    ),
)

RESTART: Mapping[State, str] = {
    State.RELEASED: "nothing; the kubelet calls prepare again",
    State.PLANNING: "nothing; the kubelet calls prepare again, which first releases what was reserved",
    State.PREPARED: "attaches the devices if the pod's sandbox runs",
    State.ATTACHING: "finishes the attach if the sandbox runs, otherwise detaches",
    State.ATTACHED: "repairs the pod if the sandbox runs, and removes nothing from it; otherwise detaches",
}

ON_DISK: Mapping[State, str] = {
    State.RELEASED: "nothing",
    State.PLANNING: "a provisional plan",
    State.PREPARED: "the plan, with the host state of every device",
    State.ATTACHING: "the plan, with the network namespace",
    State.ATTACHED: "the same with `attached`, and the readiness gate until a detach begins",
}


def crash_points(tags: Sequence[str] = (), *, reserves: bool = False) -> dict[str, State]:
    """Every crash point in the life of a claim, with the state that the next driver finds; `tags` are those of the
    features, which have points of their own."""
    own = {point: state for t in TRANSITIONS if t.reserves in (None, reserves) for point, state in t.points()}
    attaching = {f"attach.{tag}": State.ATTACHING for tag in tags}
    detaching = {f"detach.{tag}": State.ATTACHED for tag in tags}
    return own | attaching | detaching


_ALLOWED = frozenset((transition.source, transition.target) for transition in TRANSITIONS)


def is_allowed(old: ClaimPlan | None, new: ClaimPlan | None) -> bool:
    """Whether the table has a transition between the states of these plans."""
    states = state_of(old), state_of(new)
    return states[0] is states[1] or states in _ALLOWED
