"""The chart says what the plain manifest says, takes the reference's values, and asks for no more than it needs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import dranet
from dranet.advise.manifests import known_class_facts, known_classes
from dranet.core.device import FaultKind
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_parse import schema
from dranet.kubernetes.api.resources import PREFERENCE
from dranet.kubernetes.api.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from dranet.kubernetes.api.taints import TaintPolicy
from dranet.web.sources import WATCHED
from tests.deploy.rendering import Manifest, container, manifests, render, the

REFERENCE_VALUES = {
    "image": {"repository": "example.com/dranet", "tag": "v9", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "s"}],
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"e": "f"},
    "affinity": {},
    "rbac": {"create": True},
    "serviceAccount": {"annotations": {"g": "h"}},
    "logVerbosity": 2,
    "metricsPort": 9999,
    "metricsPath": "/healthz",
    "args": {
        "filter": 'attributes["dra.net/virtual"].BoolValue == false',
        "dbPath": "/var/run/dranet/x.db",
        "inventoryMinPollInterval": "3s",
        "inventoryMaxPollInterval": "2m",
        "inventoryPollBurst": 7,
        "moveIBInterfaces": False,
        "railSource": "subnet",
        "uplinkInterfaces": "eth0,bond*",
        "offerInterfaces": "roce0",
        "sharedCards": 'attributes["dra.net/rdma"].BoolValue == false',
        "cloudProviderHint": "webhook",
        "profileProvider": "webhook",
        "webhookURL": "http://127.0.0.1:8080",
        "featureGates": "DRAListTypeAttributes=true",
    },
    "kubeletRootDir": "/data/kubelet",
    "extraVolumes": [{"name": "v", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
    "tolerations": [{"operator": "Exists"}],
    "resources": {"requests": {"cpu": "1"}, "limits": {}},
}


@pytest.fixture(scope="module")
def plain(deploy: Path) -> list[Manifest]:
    return manifests((deploy / "install.yaml").read_text())


def test_plain_manifest_equals_the_chart_with_defaults(helm: str, deploy: Path) -> None:
    done = render(helm, deploy)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (deploy / "install.yaml").read_text(), "run: make install-yaml"


def test_container_settings_and_memlock_are_values(helm: str, deploy: Path) -> None:
    values = {"args": {"enableDeviceMetadata": False, "liftMemlock": True}}
    arguments = container(manifests(render(helm, deploy, values).stdout))["args"]
    assert {"--enable-device-metadata=false", "--lift-memlock=true"} <= set(arguments)


def test_values_of_the_reference_chart_take_effect(helm: str, deploy: Path) -> None:
    done = render(helm, deploy, REFERENCE_VALUES)
    assert done.returncode == 0, done.stderr
    items = manifests(done.stdout)
    spec = container(items)
    assert spec["image"] == "example.com/dranet:v9"
    assert {
        "--v=2",
        "--bind-address=:9999",
        '--filter=attributes["dra.net/virtual"].BoolValue == false',
        "--db-path=/var/run/dranet/x.db",
        "--inventory-min-poll-interval=3s",
        "--inventory-max-poll-interval=2m",
        "--inventory-poll-burst=7",
        "--move-ib-interfaces=false",
        "--rail-source=subnet",
        "--cloud-provider-hint=webhook",
        "--profile-provider=webhook",
        "--webhook-url=http://127.0.0.1:8080",
        "--feature-gates=DRAListTypeAttributes=true",
        "--kubelet-root-dir=/data/kubelet",
    } <= set(spec["args"])
    assert spec["livenessProbe"]["httpGet"]["port"] == 9999
    mounts = {mount["mountPath"] for mount in spec["volumeMounts"]}
    assert {"/data/kubelet/plugins_registry", "/v"} <= mounts
    assert the("ServiceAccount", items)["metadata"]["annotations"] == {"g": "h"}


def test_accepts_an_empty_filter_and_state_file(helm: str, deploy: Path) -> None:
    items = manifests(render(helm, deploy, {"args": {"filter": "", "dbPath": ""}}).stdout)
    assert {"--filter=", "--db-path="} <= set(container(items)["args"])


def test_arguments_have_the_order_of_the_reference(helm: str, deploy: Path) -> None:
    """Its end-to-end suite adds a filter third, appends two arguments and removes those at 4 and 5 again."""
    items = manifests(render(helm, deploy, {"args": {"filter": ""}}).stdout)
    assert container(items)["args"] == ["/dranet", "--v=2", "--filter=", "--hostname-override=$(NODE_NAME)"]
    other = manifests(
        render(helm, deploy, {"kubeletRootDir": "/data/kubelet", "args": {"webhookURL": "http://x"}}).stdout
    )
    assert container(other)["args"] == [
        "/dranet",
        "--v=2",
        "--hostname-override=$(NODE_NAME)",
        "--kubelet-root-dir=/data/kubelet",
        "--webhook-url=http://x",
    ]


def test_ignores_an_empty_webhook_url(helm: str, deploy: Path) -> None:
    done = render(helm, deploy, {"args": {"webhookURL": ""}})
    assert done.returncode == 0, done.stderr
    assert not [argument for argument in container(manifests(done.stdout))["args"] if "webhook" in argument]


def test_accepts_spaces_in_feature_gates(helm: str, deploy: Path) -> None:
    gates = " AllAlpha=true, DRAListTypeAttributes = false "
    done = render(helm, deploy, {"args": {"featureGates": gates}})
    assert done.returncode == 0, done.stderr
    assert "--feature-gates=AllAlpha=true,DRAListTypeAttributes=false" in container(manifests(done.stdout))["args"]


def test_ignores_a_trailing_slash_of_the_kubelet_directory(helm: str, deploy: Path) -> None:
    with_slash = render(helm, deploy, {"kubeletRootDir": "/data/kubelet/"})
    assert with_slash.returncode == 0, with_slash.stderr
    assert with_slash.stdout == render(helm, deploy, {"kubeletRootDir": "/data/kubelet"}).stdout
    assert render(helm, deploy, {"kubeletRootDir": "/var/lib/kubelet/"}).stdout == render(helm, deploy).stdout


def test_options_of_a_provider_become_one_argument_each(helm: str, deploy: Path) -> None:
    options = {"oke": {"rdma-child-ipv4-cidr": "10.222.0.0/15"}}
    done = render(helm, deploy, {"args": {"cloudProviderOptions": options}})
    assert (
        "--cloud-provider-options=oke.rdma-child-ipv4-cidr=10.222.0.0/15" in container(manifests(done.stdout))["args"]
    )


def test_mounts_the_database_of_the_reference_read_only(helm: str, deploy: Path) -> None:
    items = manifests(render(helm, deploy).stdout)
    volumes = the("DaemonSet", items)["spec"]["template"]["spec"]["volumes"]
    [volume] = [v["name"] for v in volumes if v.get("hostPath", {}).get("path") == "/var/run/dranet"]
    [mount] = [m for m in container(items)["volumeMounts"] if m["name"] == volume]
    assert mount["readOnly"] is True
    said = {"name": "DRANET_REFERENCE_DB", "value": f"{mount['mountPath']}/dranet.db"}
    assert said in container(items)["env"]
    without = manifests(render(helm, deploy, {"takeOver": False}).stdout)
    assert said not in container(without)["env"]
    assert mount not in container(without)["volumeMounts"]


def test_restarts_only_an_unresponsive_driver(plain: list[Manifest]) -> None:
    spec = container(plain)
    paths = {probe: spec[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_each_fault_may_have_its_own_taint_effect(helm: str, deploy: Path) -> None:
    effects = ",".join(["NoExecute", *(f"{fault}=None" for fault in FaultKind)])
    items = manifests(render(helm, deploy, {"args": {"taintEffect": effects}}).stdout)
    assert f"--taint-effect={effects}" in container(items)["args"]
    assert TaintPolicy.parse(effects).effect(FaultKind.LINK_DOWN) == "None"


def test_health_policy_is_mounted_and_changes_restart_the_pod(helm: str, deploy: Path) -> None:
    def rendered(policy: str) -> tuple[Manifest, Manifest, Manifest]:
        items = manifests(render(helm, deploy, {"healthPolicy": policy}).stdout)
        (config,) = [item for item in items if item["kind"] == "ConfigMap"]
        (daemon,) = [item for item in items if item["kind"] == "DaemonSet"]
        return config, daemon["spec"]["template"], container(items)

    policy = '[slow-link]\nseverity = "degraded"\n'
    config, template, driver = rendered(policy)
    assert config["data"] == {"health.toml": policy}
    assert "--health-policy=/etc/dranet/health.toml" in driver["args"]
    (volume,) = [v for v in template["spec"]["volumes"] if v["name"] == "health-policy"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert any(m["name"] == "health-policy" and m["mountPath"] == "/etc/dranet" for m in driver["volumeMounts"])
    assert rendered(policy + "seen = 3\n")[1]["metadata"]["annotations"] != template["metadata"]["annotations"]


def test_optional_objects_can_be_disabled(helm: str, deploy: Path) -> None:
    values = {part: {"create": False} for part in ("rbac", "admissionPolicy", "deviceClasses")}
    done = render(helm, deploy, values)
    assert [item["kind"] for item in manifests(done.stdout)] == ["ServiceAccount", "DaemonSet"]


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"images": {}}, "images"),
        ({"image": {"repository": "x", "pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"args": {"dbPath": "/etc/passwd"}}, "dbPath"),
        ({"args": {"dbPath": "/var/run/dranet/../x"}}, "dbPath"),
        ({"args": {"inventoryMinPollInterval": "2 seconds"}}, "inventoryMinPollInterval"),
        ({"args": {"inventoryPollBurst": 0}}, "inventoryPollBurst"),
        ({"args": {"cloudProviderHint": "gce"}}, "cloudProviderHint"),
        ({"args": {"profileProvider": "webhook"}}, "webhookURL"),
        ({"args": {"cloudProviderHint": "webhook", "webhookURL": ""}}, "webhookURL"),
        ({"args": {"taintEffect": "NoScheduling"}}, "taintEffect"),
        ({"args": {"taintEffect": "NoSchedule,link-up=None"}}, "taintEffect"),
        ({"metricsPort": 70000}, "metricsPort"),
        ({"logVerbosity": "4"}, "logVerbosity"),
    ],
)
def test_rejects_wrong_values_by_name(helm: str, deploy: Path, values: Manifest, word: str) -> None:
    done = render(helm, deploy, values)
    assert done.returncode != 0
    assert word in done.stderr


def test_the_container_is_not_privileged_and_has_three_capabilities(plain: list[Manifest]) -> None:
    security = container(plain)["securityContext"]
    assert security["privileged"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "SYS_ADMIN"]}
    pod = the("DaemonSet", plain)["spec"]["template"]["spec"]
    assert "hostPID" not in pod
    assert "hostIPC" not in pod


def test_every_capability_and_every_mount_is_explained_in_the_guide(plain: list[Manifest], deploy: Path) -> None:
    guide = (deploy.parent / "docs" / "tasks" / "install.md").read_text()
    spec = container(plain)
    for capability in spec["securityContext"]["capabilities"]["add"]:
        assert f"`{capability}`" in guide
    for mount in spec["volumeMounts"]:
        assert f"`{mount['mountPath']}`" in guide


def test_role_grants_exactly_what_the_code_requests(plain: list[Manifest]) -> None:
    granted = {
        (group, resource, verb)
        for rule in the("ClusterRole", plain)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    slices = {("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")}
    assert granted == slices | {
        ("", "nodes", "get"),
        ("", "events", "create"),
        ("", "events", "patch"),
        ("", "pods", "get"),
        ("resource.k8s.io", "resourceclaims", "get"),
        ("resource.k8s.io", "resourceclaims", "list"),
        ("resource.k8s.io", "resourceclaims/status", "patch"),
        ("resource.k8s.io", "resourceclaims/driver", "associated-node:patch"),
    }


def test_admission_policy_covers_every_api_version(plain: list[Manifest]) -> None:
    policies = [item for item in plain if item["kind"] == "ValidatingAdmissionPolicy"]
    rules = [rule for item in policies for rule in item["spec"]["matchConstraints"]["resourceRules"]]
    assert [rule["resources"] for rule in rules] == [
        ["resourceslices"],
        ["resourceclaims/status"],
        ["resourceclaims", "resourceclaimtemplates"],
    ]
    assert {tuple(rule["apiVersions"]) for rule in rules} == {PREFERENCE}


def test_mounts_only_network_sysctls_of_proc(plain: list[Manifest]) -> None:
    spec = the("DaemonSet", plain)["spec"]["template"]["spec"]
    paths = {volume["name"]: volume.get("hostPath", {}).get("path", "") for volume in spec["volumes"]}
    of_proc = {name for name, path in paths.items() if path.startswith("/proc")}
    mounts = {mount["name"]: mount["mountPath"] for mount in container(plain)["volumeMounts"]}
    assert {(paths[name], mounts[name]) for name in of_proc} == {("/proc/sys/net", "/host/proc/sys/net")}
    assert {"name": "DRANET_PROC_ROOT", "value": "/host/proc"} in container(plain)["env"]


def test_an_update_starts_the_new_driver_before_the_old_one_stops(plain: list[Manifest]) -> None:
    spec = the("DaemonSet", plain)["spec"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "ports" not in container(plain), "a declared port keeps two pods of the host network off one node"


def test_chart_image_and_package_carry_one_version(deploy: Path, plain: list[Manifest]) -> None:
    chart = yaml.safe_load((deploy / "helm" / "dranet" / "Chart.yaml").read_text())
    assert chart["appVersion"] == dranet.__version__
    assert container(plain)["image"] == f"localhost/dranet:{dranet.__version__}"


def page_of(helm: str, deploy: Path, **values: bool) -> list[Manifest]:
    done = render(helm, deploy, {"page": {"enabled": True, **values}})
    assert done.returncode == 0, done.stderr
    return [item for item in manifests(done.stdout) if item["metadata"]["name"] == "dranet-page"]


def test_page_is_off_by_default(plain: list[Manifest]) -> None:
    assert not [item for item in plain if "page" in item["metadata"]["name"]]


def test_page_has_minimal_permissions(helm: str, deploy: Path) -> None:
    rules = the("ClusterRole", page_of(helm, deploy))["rules"]
    rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    shown = {(resource.plural, verb) for resource in WATCHED for verb in ("list", "watch")}
    asked = {(resource.plural, "create") for resource in (TOKEN_REVIEWS, ACCESS_REVIEWS)}
    assert rights == shown | asked


def test_page_may_query_drivers_only_if_enabled(helm: str, deploy: Path) -> None:
    assert "Role" not in {item["kind"] for item in page_of(helm, deploy)}
    items = page_of(helm, deploy, traffic=True)
    role, binding = the("Role", items), the("RoleBinding", items)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]
    account = the("ServiceAccount", items)["metadata"]
    assert [(who["name"], who["namespace"]) for who in binding["subjects"]] == [(account["name"], account["namespace"])]
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == account["namespace"]


def test_page_requires_tokens_and_has_no_node_access(helm: str, deploy: Path) -> None:
    items = page_of(helm, deploy)
    spec = the("Deployment", items)["spec"]["template"]["spec"]
    [found] = spec["containers"]
    assert found["args"] == [
        "/dranet",
        "serve",
        "--listen=127.0.0.1:9178",
        "--require-token",
        "--driver-namespace=kube-system",
    ]
    assert found["securityContext"]["runAsNonRoot"] and found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "volumes"} & set(spec)
    assert "Service" not in {item["kind"] for item in items}


def test_page_pods_do_not_match_the_driver_selector(helm: str, deploy: Path) -> None:
    items = manifests(render(helm, deploy, {"page": {"enabled": True}}).stdout)
    driver = the("DaemonSet", items)["spec"]["selector"]["matchLabels"]
    page = the("Deployment", items)["spec"]["template"]["metadata"]["labels"]
    assert any(page.get(key) != value for key, value in driver.items())


def expressions(items: list[Manifest]) -> dict[str, str]:
    classes = [item for item in items if item["kind"] == "DeviceClass"]
    return {item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"]["expression"] for item in classes}


def test_plan_and_lint_know_the_classes_of_the_chart(plain: list[Manifest]) -> None:
    installed = expressions(plain)
    known = {name: made["spec"]["selectors"][0]["cel"]["expression"] for name, made in known_classes().items()}
    by_the_chart = {name for name, fact in known_class_facts().items() if "dranet's chart" in fact.installed_by}
    assert installed == {name: known[name] for name in by_the_chart}


def test_classes_may_be_added_and_taken_away(helm: str, deploy: Path) -> None:
    fast = {"selectors": [{"cel": {"expression": "true"}}]}
    values = {"deviceClasses": {"classes": {"fast": fast, "dranet-rdma": None}}}
    assert expressions(manifests(render(helm, deploy, values).stdout)).keys() == {"dranet", "fast"}


def test_enables_nri_only_if_requested_and_unprivileged(helm: str, deploy: Path, plain: list[Manifest]) -> None:
    spec = the("DaemonSet", plain)["spec"]["template"]["spec"]
    assert "initContainers" not in spec
    assert "/" not in {volume.get("hostPath", {}).get("path") for volume in spec["volumes"]}
    items = manifests(render(helm, deploy, {"nri": {"enable": True}}).stdout)
    pod = the("DaemonSet", items)["spec"]["template"]["spec"]
    [init] = pod["initContainers"]
    assert init["args"][:2] == ["/dranet", "enable-nri"], "the image has no entry point"
    assert init["image"] == container(items)["image"]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert not {"hostPID", "hostIPC"} & pod.keys()
    mounted = {mount["name"] for mount in container(items)["volumeMounts"]}
    assert "node-root" not in mounted, "only the init container sees the node's root folder"


def test_a_network_policy_opens_the_metrics_port_and_nothing_else(helm: str, deploy: Path) -> None:
    peers: list[dict[str, Any]] = [{"podSelector": {}}]
    items = manifests(render(helm, deploy, {"networkPolicy": {"create": True, "from": peers}}).stdout)
    spec = the("NetworkPolicy", items)["spec"]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": 9177}], "from": peers}]
    assert spec["policyTypes"] == ["Ingress"]


def test_helm_test_uses_the_driver_account_without_node_access(helm: str, deploy: Path) -> None:
    done = render(helm, deploy, {}, "--show-only", "templates/tests/published.yaml")
    [pod] = manifests(done.stdout)
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "app" not in pod["metadata"]["labels"], "the DaemonSet would take it for its own"


def test_every_object_of_the_chart_can_be_found_by_its_label(plain: list[Manifest]) -> None:
    assert {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in plain} == {"dranet"}


def mounts(items: list[Manifest]) -> dict[str, Manifest]:
    """The container's mounts of host folders, by host path."""
    volumes = the("DaemonSet", items)["spec"]["template"]["spec"]["volumes"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}
    return {paths[mount["name"]]: mount for mount in container(items)["volumeMounts"] if mount["name"] in paths}


def environment(items: list[Manifest]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container(items)["env"]}


def test_recovery_of_hidden_devices_sees_processes_and_writes_sysfs(helm: str, deploy: Path) -> None:
    items = manifests(render(helm, deploy, {"recoverHiddenDevices": True}).stdout)
    assert "SYS_PTRACE" in container(items)["securityContext"]["capabilities"]["add"]
    assert mounts(items)["/proc"] == {"name": "proc", "mountPath": "/host/proc", "readOnly": True}
    assert mounts(items)["/sys"] == {"name": "sys", "mountPath": "/host/sys"}
    assert environment(items)["DRANET_PROC_ROOT"] == "/host/proc"
    assert environment(items)["DRANET_SYSFS"] == "/host/sys"
    without = manifests(render(helm, deploy, {"recoverHiddenDevices": True, "args": {"rebindLostCards": False}}).stdout)
    assert "--rebind-lost-cards=false" in container(without)["args"]
    assert "/proc" in mounts(without) and "/sys" not in mounts(without)


def test_virtual_functions_need_a_writable_sysfs_and_nothing_else(helm: str, deploy: Path) -> None:
    expression = 'attributes["dra.net/ifName"].StringValue == "eth2"'
    items = manifests(render(helm, deploy, {"args": {"sriovVfs": expression}}).stdout)
    assert f"--sriov-vfs={expression}" in container(items)["args"]
    assert mounts(items)["/sys"]["mountPath"] == environment(items)["DRANET_SYSFS"] == "/host/sys"
    assert "/proc" not in mounts(items)
    assert "SYS_PTRACE" not in container(items)["securityContext"]["capabilities"]["add"]


@pytest.mark.parametrize(
    ("values", "argument", "probed"),
    [
        ({"bindAddress": "127.0.0.1"}, "--bind-address=127.0.0.1:9177", "127.0.0.1"),
        ({"bindAddress": "node", "metricsPort": 9200}, "--bind-address=$(HOST_IP):9200", None),
        ({"bindAddress": "[::1]"}, "--bind-address=[::1]:9177", "::1"),
    ],
)
def test_probes_ask_at_the_bind_address(
    helm: str, deploy: Path, values: Manifest, argument: str, probed: str | None
) -> None:
    spec = container(manifests(render(helm, deploy, values).stdout))
    assert argument in spec["args"]
    assert {spec[f"{probe}Probe"]["httpGet"].get("host") for probe in ("startup", "liveness", "readiness")} == {probed}
    assert ("HOST_IP" in {item["name"] for item in spec["env"]}) == ("$(HOST_IP)" in argument)


def test_further_arguments_variables_and_labels_are_values(helm: str, deploy: Path) -> None:
    values = {"extraArgs": ["--v=4"], "extraEnv": [{"name": "A", "value": "b"}], "commonLabels": {"team": "net"}}
    items = manifests(render(helm, deploy, values).stdout)
    assert container(items)["args"][-1] == "--v=4"
    assert environment(items)["A"] == "b"
    assert {item["metadata"]["labels"]["team"] for item in items} == {"net"}


def test_driver_runs_on_linux_nodes_with_any_taint(helm: str, deploy: Path, plain: list[Manifest]) -> None:
    pod = the("DaemonSet", plain)["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    own = manifests(render(helm, deploy, {"nodeSelector": {"rail": "yes"}}).stdout)
    selector = the("DaemonSet", own)["spec"]["template"]["spec"]["nodeSelector"]
    assert selector == {"kubernetes.io/os": "linux", "rail": "yes"}
    assert container(plain)["resources"]["limits"] == {"memory": "512Mi"}


def test_notes_name_the_commands_of_the_release(helm: str, deploy: Path, tmp_path: Path) -> None:
    """`helm template` prints no notes, so this renders them as a value."""
    chart = Path(shutil.copytree(deploy / "helm" / "dranet", tmp_path / "dranet"))
    (chart / "templates" / "NOTES.txt").rename(chart / "NOTES")
    (chart / "templates" / "notes.yaml").write_text('notes: {{ tpl (.Files.Get "NOTES") . | toJson }}')
    command = [helm, "template", "mine", str(chart), "--namespace", "net", "--set", "page.enabled=true"]
    command += ["--set", "nodePools.pools.gb300.logVerbosity=4"]
    done = subprocess.run([*command, "--show-only", "templates/notes.yaml"], capture_output=True, text=True, check=True)
    [found] = manifests(done.stdout)
    assert "kubectl -n net rollout status daemonset/mine-dranet" in found["notes"]
    assert "deployment/mine-dranet-page" in found["notes"]
    assert "rollout status daemonset/mine-dranet-gb300" in found["notes"]
    assert "kubectl label namespace net pod-security.kubernetes.io/enforce=privileged" in found["notes"]


def test_admission_policy_names_every_parameter_of_administrators(helm: str, deploy: Path) -> None:
    def policy(values: dict[str, Any]) -> list[Manifest]:
        items = manifests(render(helm, deploy, values).stdout)
        return [one for one in items if one["metadata"]["name"] == "dranet-claim-parameters"]

    expressions = [one["expression"] for one in policy({})[0]["spec"]["validations"]]
    for path in ("vf", "interface.disableEbpfPrograms"):
        assert any(f"!has(p.{path})" in expression for expression in expressions)
    assert all("entries.all(p," in expression for expression in expressions), "perDevice is checked as well"
    assert list(marked_fields(NetworkConfig)) == ["interface.disableEbpfPrograms", "vf"], "the policy lists them too"
    assert policy({"args": {"trustClaims": True}}) == []


def marked_fields(struct: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    for info in schema(struct).values():
        if info.field.administrator:
            yield f"{path}{info.wire_name}"
        elif isinstance(info.kind, type) and issubclass(info.kind, msgspec.Struct):
            yield from marked_fields(info.kind, f"{path}{info.wire_name}.")
