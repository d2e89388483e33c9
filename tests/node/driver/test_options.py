"""The daemon's flags."""

from __future__ import annotations

import pytest

from dranet.core.errors import InvalidInput
from dranet.node.server import options
from dranet.node.server.options import Options, parse


def test_reference_arguments_work_unchanged() -> None:
    found = parse(["--v=4", "--hostname-override=Node-1", "--logtostderr", "-stderrthreshold=2"])
    assert (found.v, found.node) == (4, "node-1")
    assert parse(["-stderrthreshold", "2", "--vmodule", "plugin=4", "--alsologtostderr", "--v", "3"]).v == 3


def test_defaults_match_the_reference() -> None:
    found = Options()
    assert (found.bind_address, found.db_path, found.kubelet_root_dir) == (
        ":9177",
        "/var/run/dranet/dranet.db",
        "/var/lib/kubelet",
    )
    assert (found.inventory_min_poll_interval, found.inventory_max_poll_interval, found.inventory_poll_burst) == (
        2,
        60,
        5,
    )
    assert found.move_ib_interfaces is True and found.profile_provider == "cloud"
    assert found.filter == '!("dra.net/type" in attributes) || attributes["dra.net/type"].StringValue  != "veth"'


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--move-ib-interfaces=false"], False),
        (["-move-ib-interfaces", "false"], False),
        (["--move-ib-interfaces"], True),
    ],
)
def test_booleans_are_bare_or_have_a_value(arguments: list[str], value: bool) -> None:
    assert parse(arguments).move_ib_interfaces is value


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2), ("1m", 60), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400)])
def test_durations_have_go_syntax(text: str, seconds: float) -> None:
    assert options.duration(text) == seconds


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--nope=1"], "unknown argument '--nope=1'"),
        (["serve"], "unknown argument 'serve'"),
        (["--v"], "--v needs a value"),
        (["--v=high"], "--v: invalid literal"),
        (["--inventory-max-poll-interval=60"], "is not a duration such as"),
        (["--move-ib-interfaces=maybe"], "is not true or false"),
        (["--feature-gates=Nope=true"], "NAME one of DRAListTypeAttributes"),
        (["--profile-provider=magic"], "'magic' is not one of cloud, webhook, none"),
        (
            ["--taint-effect=Sometimes"],
            "--taint-effect: 'Sometimes': unknown effect 'Sometimes'; use one of NoSchedule",
        ),
        (["--taint-effect=NoSchedule,link-up=None"], "unknown fault 'link-up'; use one of link-down"),
        (["--profile-provider=webhook"], "--webhook-url is needed"),
    ],
)
def test_invalid_flag_is_one_line(arguments: list[str], complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(arguments)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_argument_overrides_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRANET_POD_UID", "from-outside")
    monkeypatch.setenv("DRANET_PORT", "tcp://10.0.0.1:80")  # what Kubernetes says of a service named dranet
    assert parse([]).pod_uid == "from-outside"
    assert parse(["--pod-uid=said"]).pod_uid == "said"
    monkeypatch.setenv("DRANET_INVENTORY_POLL_BURST", "many")
    with pytest.raises(InvalidInput, match=r"^\$DRANET_INVENTORY_POLL_BURST: "):
        parse([])


def test_gate_overrides_its_group() -> None:
    assert parse(["--feature-gates= AllAlpha = true , DRAListTypeAttributes=false"]).feature_gates == {
        "DRAListTypeAttributes": False,
        "PersistentResourceSliceAttributes": True,
    }


def test_taint_effect_per_fault() -> None:
    assert parse(["--taint-effect=NoSchedule,link-down=None"]).taint_effect == "NoSchedule,link-down=None"


def test_feature_gates_are_parsed() -> None:
    assert parse(["--feature-gates=DRAListTypeAttributes=true,PersistentResourceSliceAttributes=false"]).list_attributes


def test_help_names_every_flag() -> None:
    text = options.help_text()
    assert "--cdi-dir" in text and "(default :9177)" in text
