"""Small random clusters and pods for them: the questions that the real scheduler and ours are both asked.

Everything follows from a number, so a difference can be asked again. Every filter and score of the default profile has
its say: amounts of all kinds, taints, labels, ports, spreading, liking and disliking pods, claims, priorities.
"""

from __future__ import annotations

import random
from typing import Any

from tests.cluster.objects import HOST, ROOT, Object, node, node_slice, pod, resource, use_claims

APPS = ("web", "train", "store")
ZONES, TYPES, POOLS = ("a", "b", "c"), ("cpu", "gpu", "big"), ("blue", "green")
ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
NAMESPACES = {
    "default": {"team": "one"},
    "other": {"team": "two", "resource.kubernetes.io/admin-access": "true"},
}
TAINTS = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "reserved", "value": "db", "effect": "NoSchedule"},
    {"key": "flaky", "effect": "NoExecute"},
    {"key": "soft", "effect": "PreferNoSchedule"},
    {"key": "softer", "value": "x", "effect": "PreferNoSchedule"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
)
TOLERATIONS = (
    {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "flaky", "operator": "Exists", "effect": "NoExecute"},
    {"key": "soft", "operator": "Exists", "effect": "PreferNoSchedule"},
    {"key": "softer", "value": "x"},
    {"operator": "Exists"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"},
)
IMAGES = {"registry.local/big:1": 900 * 2**20, "registry.local/small": 60 * 2**20, "registry.local/mid:2": 300 * 2**20}
PRIORITIES = {f"level-{n}": n * 100 for n in (1, 2, 3, 4)}
PLUGIN, BACKED = "example.com/gpu", "example.com/nic"


def fixed_objects() -> list[Object]:
    """What all worlds have in common."""
    priorities = [
        {**_object("scheduling.k8s.io/v1", "PriorityClass", name), "value": value} for name, value in PRIORITIES.items()
    ]
    modest = {**_object("scheduling.k8s.io/v1", "PriorityClass", "modest"), "value": 300, "preemptionPolicy": "Never"}
    runtime = {
        **_object("node.k8s.io/v1", "RuntimeClass", "heavy"),
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        "scheduling": {"nodeSelector": {TYPE: "big"}, "tolerations": [{"key": "flaky", "operator": "Exists"}]},
    }
    classes = [
        _class("nics", 'device.driver == "dra.net"'),
        _class("gpus", 'device.driver == "gpu.nvidia.com"'),
        _class("far", 'device.driver == "far.example"'),
        _class("anything", "true"),
        _class("backed", 'device.driver == "dra.net"', extendedResourceName=BACKED),
    ]
    names = [
        {**_object("v1", "Namespace", name), "metadata": {"name": name, "labels": labels}}
        for name, labels in NAMESPACES.items()
    ]
    return [*priorities, modest, runtime, *classes, *names]


def random_world(seed: int, number: int) -> tuple[list[Object], list[Object]]:
    """Objects of a cluster, and pods to give to it one after the other."""
    chance = random.Random(f"{seed}/{number}")
    nodes = [_node(f"w{number}-{i}", chance) for i in range(chance.randint(2, 7))]
    slices = [found for node in nodes for found in _slices(node["metadata"]["name"], chance)]
    claims: list[Object] = []
    pods = [_pod(f"p{number}-{i}", nodes, claims, chance) for i in range(chance.randint(4, 10))]
    services = [_service(app) for app in APPS if chance.random() < 0.3]
    return [*nodes, *slices, *claims, *services], pods


def _object(version: str, kind: str, name: str, namespace: str | None = None) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _class(name: str, expression: str, **more: Any) -> Object:
    spec = {"selectors": [{"cel": {"expression": expression}}], **more}
    return resource("DeviceClass", name, spec)


def _service(app: str) -> Object:
    spec = {"selector": {"app": app}, "clusterIP": "None", "ports": [{"port": 80}]}
    return {**_object("v1", "Service", app, "default"), "spec": spec}


def _node(name: str, chance: random.Random) -> Object:
    labels = {TYPE: chance.choice(TYPES)}
    if chance.random() < 0.9:
        labels[ZONE] = chance.choice(ZONES)
    if chance.random() < 0.5:
        labels["pool"] = chance.choice(POOLS)
    if chance.random() < 0.4:
        labels["rank"] = str(chance.randint(0, 9))
    amounts = {
        "cpu": chance.choice(("2", "4", "7500m", "16")),
        "memory": chance.choice(("4Gi", "8000Mi", "32Gi")),
        "pods": chance.choice(("2", "4", "110")),
        "ephemeral-storage": chance.choice(("10Gi", "100Gi")),
        "hugepages-2Mi": chance.choice(("0", "512Mi")),
    }
    if chance.random() < 0.4:
        amounts[PLUGIN] = chance.choice(("0", "1", "4"))
    if chance.random() < 0.2:
        amounts[BACKED] = chance.choice(("0", "2"))
    images = [{"names": [_full(image)], "sizeBytes": size} for image, size in IMAGES.items() if chance.random() < 0.4]
    made = node(name, amounts, labels, chance.sample(TAINTS, chance.choice((0, 0, 0, 1, 1, 2))))
    made["spec"]["unschedulable"] = chance.random() < 0.08
    made["status"]["images"] = images
    return made


def _full(image: str) -> str:
    return image if ":" in image else f"{image}:latest"


def _slices(node: str, chance: random.Random) -> list[Object]:
    roots = [f"pci{chance.randint(0, 9)}:{i}" for i in range(2)]
    found = []
    for driver, count in (("dra.net", chance.randint(0, 4)), ("gpu.nvidia.com", chance.randint(0, 4))):
        devices = [
            {
                "name": f"{driver.partition('.')[0]}-{i}",
                "attributes": {ROOT: {"string": chance.choice(roots)}, "fast": {"bool": chance.random() < 0.5}},
                **({"taints": [{"key": "down", "effect": "NoSchedule"}]} if chance.random() < 0.1 else {}),
            }
            for i in range(count)
        ]
        found.append(node_slice(f"{node}-{driver}", node, driver, devices))
    return [one for one in found if one["spec"]["devices"]]


def _pod(name: str, nodes: list[Object], claims: list[Object], chance: random.Random) -> Object:
    namespace = chance.choices(list(NAMESPACES), (6, 1))[0]
    spec: Object = {"containers": [_container("main", chance)]}
    labels = {"app": chance.choice(APPS)} | ({"track": chance.choice(("x", "y"))} if chance.random() < 0.4 else {})
    for likelihood, add in _PARTS:
        if chance.random() < likelihood:
            add(spec, nodes, chance)
    if chance.random() < 0.35:
        _add_claims(name, namespace, spec, claims, chance)
    return pod(name, spec, namespace, labels=labels)


def _container(name: str, chance: random.Random) -> Object:
    requests: Object = {}
    limits: Object = {}
    if chance.random() < 0.6:
        requests["cpu"] = chance.choice(("100m", "500m", "1", "1500m", "3"))
    if chance.random() < 0.6:
        requests["memory"] = chance.choice(("64Mi", "1Gi", "3G", "6Gi"))
    if chance.random() < 0.15:
        requests["ephemeral-storage"] = chance.choice(("1Gi", "20Gi"))
    if chance.random() < 0.12:
        limits["cpu"] = "4"
    if chance.random() < 0.08:
        limits |= {"hugepages-2Mi": chance.choice(("128Mi", "384Mi")), "memory": "8Gi"}
    if chance.random() < 0.1:
        limits[chance.choice((PLUGIN, BACKED))] = chance.choice(("1", "2"))
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    return {"name": name, "image": chance.choice((*IMAGES, "registry.local/none")), "resources": resources}


def _add_init(spec: Object, _: list[Object], chance: random.Random) -> None:
    found = [_container(f"init{i}", chance) for i in range(chance.randint(1, 3))]
    for one in found:
        if chance.random() < 0.4:
            one["restartPolicy"] = "Always"
    spec["initContainers"] = found


def _add_second(spec: Object, _: list[Object], chance: random.Random) -> None:
    spec["containers"].append(_container("second", chance))


def _add_pod_level(spec: Object, _: list[Object], chance: random.Random) -> None:
    """Enough for every container; what is less is refused by the API server."""
    for one in (*spec["containers"], *spec.get("initContainers", ())):
        one["resources"] = {"requests": {"cpu": "100m"}} if chance.random() < 0.5 else {}
    whole: Object = {"requests": {"cpu": chance.choice(("2", "3")), "memory": chance.choice(("2Gi", "5Gi"))}}
    if chance.random() < 0.5:
        whole = {"limits": {"cpu": "3", "memory": "3Gi"}}
    spec["resources"] = whole


def _add_tolerations(spec: Object, _: list[Object], chance: random.Random) -> None:
    spec["tolerations"] = chance.sample(TOLERATIONS, chance.randint(1, 2))


def _add_selector(spec: Object, nodes: list[Object], chance: random.Random) -> None:
    labels = chance.choice(nodes)["metadata"]["labels"]
    key = chance.choice(sorted(labels))
    spec["nodeSelector"] = {key: labels[key] if chance.random() < 0.9 else "elsewhere"}


def _expression(nodes: list[Object], chance: random.Random) -> Object:
    key = chance.choice((ZONE, TYPE, "pool", "rank", HOST))
    operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist") if key != "rank" else ("Gt", "Lt", "Exists"))
    found: Object = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        values = [node["metadata"]["labels"].get(key, "none") for node in nodes]
        found["values"] = sorted(set(chance.sample(values, min(len(values), chance.randint(1, 2)))))
    elif operator in ("Gt", "Lt"):
        found["values"] = [str(chance.randint(0, 9))]
    return found


def _term(nodes: list[Object], chance: random.Random) -> Object:
    if chance.random() < 0.12:
        named = chance.choice(nodes)["metadata"]["name"] if chance.random() < 0.9 else "nowhere"
        return {
            "matchFields": [
                {"key": "metadata.name", "operator": chance.choice(("In", "In", "NotIn")), "values": [named]}
            ]
        }
    return {"matchExpressions": [_expression(nodes, chance) for _ in range(chance.choice((1, 1, 2)))]}


def _affinity(spec: Object, kind: str) -> Object:
    found: Object = spec.setdefault("affinity", {}).setdefault(kind, {})
    return found


def _add_node_affinity(spec: Object, nodes: list[Object], chance: random.Random) -> None:
    terms = [_term(nodes, chance) for _ in range(chance.choice((1, 1, 2)))]
    if chance.random() < 0.04:
        fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("one", "two")]
        terms = [{"matchFields": fields}]
    _affinity(spec, "nodeAffinity")["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}


def _add_preferred_nodes(spec: Object, nodes: list[Object], chance: random.Random) -> None:
    preferred = [
        {"weight": chance.choice((1, 10, 50, 100)), "preference": _term(nodes, chance)}
        for _ in range(chance.choice((1, 2)))
    ]
    _affinity(spec, "nodeAffinity")["preferredDuringSchedulingIgnoredDuringExecution"] = preferred


def _pod_selector(chance: random.Random) -> Object:
    kind = chance.random()
    if kind < 0.7:
        return {"matchLabels": {"app": chance.choice(APPS)}}
    if kind < 0.8:
        return {"matchExpressions": [{"key": "track", "operator": chance.choice(("Exists", "DoesNotExist"))}]}
    if kind < 0.9:
        return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [chance.choice(APPS)]}]}
    return {}


def _pod_term(chance: random.Random) -> Object:
    found: Object = {"labelSelector": _pod_selector(chance), "topologyKey": chance.choice((ZONE, HOST, "pool"))}
    kind = chance.random()
    if kind < 0.1:
        found["namespaces"] = ["other"]
    elif kind < 0.2:
        found["namespaceSelector"] = chance.choice(({}, {"matchLabels": {"team": "two"}}))
    elif kind < 0.3:
        found[chance.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["track"]
    return found


def _add_pod_affinity(spec: Object, _: list[Object], chance: random.Random) -> None:
    kind = chance.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
    terms = [_pod_term(chance) for _ in range(chance.choice((1, 1, 2)))]
    _affinity(spec, kind)["requiredDuringSchedulingIgnoredDuringExecution"] = terms


def _add_preferred_pods(spec: Object, _: list[Object], chance: random.Random) -> None:
    kind = chance.choice(("podAffinity", "podAntiAffinity"))
    terms = [
        {"weight": chance.choice((1, 20, 100)), "podAffinityTerm": _pod_term(chance)}
        for _ in range(chance.choice((1, 2)))
    ]
    _affinity(spec, kind)["preferredDuringSchedulingIgnoredDuringExecution"] = terms


def _add_spread(spec: Object, _: list[Object], chance: random.Random) -> None:
    keys = chance.sample((ZONE, HOST, "pool"), chance.choice((1, 1, 2)))
    spec["topologySpreadConstraints"] = [_constraint(key, chance) for key in keys]


def _constraint(key: str, chance: random.Random) -> Object:
    action = chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
    found: Object = {
        "maxSkew": chance.choice((1, 1, 2)),
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": _pod_selector(chance),
    }
    if action == "DoNotSchedule" and chance.random() < 0.15:
        found["minDomains"] = chance.randint(2, 4)
    if chance.random() < 0.2:
        found["nodeTaintsPolicy"] = "Honor"
    if chance.random() < 0.2:
        found["nodeAffinityPolicy"] = "Ignore"
    if chance.random() < 0.15 and found["labelSelector"]:
        found["matchLabelKeys"] = ["track"]
    return found


def _add_ports(spec: Object, _: list[Object], chance: random.Random) -> None:
    port: Object = {"containerPort": chance.choice((80, 443)), "hostPort": chance.choice((7000, 7001))}
    if chance.random() < 0.3:
        port["hostIP"] = chance.choice(("127.0.0.1", "10.0.0.1"))
    if chance.random() < 0.2:
        port["protocol"] = "UDP"
    if chance.random() < 0.15:
        spec["hostNetwork"] = True
        port = {"containerPort": 7000}
    spec["containers"][0]["ports"] = [port]


def _add_priority(spec: Object, _: list[Object], chance: random.Random) -> None:
    spec["priorityClassName"] = chance.choice((*PRIORITIES, "modest"))


def _add_runtime(spec: Object, _: list[Object], chance: random.Random) -> None:
    spec["runtimeClassName"] = "heavy"
    spec.get("nodeSelector", {}).pop(TYPE, None)


_PARTS = (
    (0.2, _add_second), (0.25, _add_init), (0.06, _add_pod_level), (0.45, _add_tolerations), (0.2, _add_selector),
    (0.25, _add_node_affinity), (0.25, _add_preferred_nodes), (0.2, _add_pod_affinity), (0.2, _add_preferred_pods),
    (0.3, _add_spread), (0.15, _add_ports), (0.4, _add_priority), (0.06, _add_runtime),
)  # fmt: skip


def _add_claims(user: str, namespace: str, spec: Object, claims: list[Object], chance: random.Random) -> None:
    earlier = [one["metadata"]["name"] for one in claims if one["metadata"]["namespace"] == namespace]
    names = []
    for i in range(chance.choice((1, 1, 2))):
        if earlier and chance.random() < 0.25:
            names.append(chance.choice(earlier))
            continue
        claims.append(resource("ResourceClaim", f"c-{user}-{i}", _claim(chance), namespace=namespace))
        names.append(f"c-{user}-{i}")
    use_claims(spec, sorted(set(names)))


def _claim(chance: random.Random) -> Object:
    requests = [_request(name, chance) for name in chance.choice((["a"], ["a"], ["a", "b"]))]
    found: Object = {"requests": requests}
    if chance.random() < 0.4:
        found["constraints"] = [{"requests": [one["name"] for one in requests], "matchAttribute": ROOT}]
    return {"devices": found}


def _request(name: str, chance: random.Random) -> Object:
    if chance.random() < 0.25:
        return {"name": name, "firstAvailable": [{"name": f"s{i}", **_exactly(chance)} for i in range(2)]}
    return {"name": name, "exactly": _exactly(chance)}


def _exactly(chance: random.Random) -> Object:
    found: Object = {"deviceClassName": chance.choices(("nics", "gpus", "missing"), (5, 5, 0.4))[0]}
    if chance.random() < 0.3:
        driver = "dra.net" if found["deviceClassName"] == "nics" else "gpu.nvidia.com"
        found["selectors"] = [{"cel": {"expression": f'device.attributes["{driver}"].fast'}}]
    return found | ({"allocationMode": "All"} if chance.random() < 0.05 else {"count": chance.choice((1, 1, 1, 2, 3))})
