"""What kustomize makes of each way to install: safe to run, narrow in its rights, and in agreement with itself."""

from __future__ import annotations

import copy
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.apiserver.accounts import rights_of
from tests.apiserver.manifests.installing import (
    OWN_NAMESPACE,
    REGISTRATIONS,
    ROOT,
    WAYS,
    Json,
    environment_of,
    installation,
    ports_of,
    rendered,
)
from tests.controlplane.assets import Assets
from webhook.config.serve import parse_serve
from webhook.config.workers import parse_evict

FAIL_CLOSED: Final = {"high-availability", "production"}
WITH_PATCHES: Final = {"patches", "patch-controller"}
MODES: Final = {
    "evict-observe": "observe",
    "evict-delegated": "delegated",
    "evict-replacement": "replacement",
    "production": "delegated",
}
_COMPONENTS: Final = {"admission", "certificates", "eviction", "monitoring", "patches"}
_WRITES: Final = {"create", "update", "patch", "delete", "deletecollection"}
_LET_OUT: Final = {
    *(("TCP", port) for port in (443, 6443, 8443)),
    *((protocol, port) for protocol in ("TCP", "UDP") for port in (53, 5353, 8053)),
}
"""The API server, and DNS: some providers give pods a name for it."""
_WORKLOADS: Final = {
    "serve": "device-taint-webhook",
    "evict": "device-taint-webhook-evict",
    "patch": "device-taint-patch",
}


@pytest.fixture(scope="module")
def render(assets: Assets) -> Callable[[str], list[Json]]:
    found: dict[str, list[Json]] = {}

    def each(way: str) -> list[Json]:
        if way not in found:
            found[way] = installation(assets, way)
        return found[way]

    return each


every_way = pytest.mark.parametrize("way", WAYS)


def _of_kind(documents: list[Json], *kinds: str) -> list[Json]:
    return [document for document in documents if document["kind"] in kinds]


def _workloads(documents: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Each Deployment with its only container."""
    for deployment in _of_kind(documents, "Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        yield deployment, container


def _selects(selector: Json, labels: Json) -> bool:
    return selector.items() <= labels.items()


# --- workloads ------------------------------------------------------------------------------------


@every_way
def test_workloads_are_those_that_the_name_says(render: Callable[[str], list[Json]], way: str) -> None:
    wanted = {"serve", *(["evict"] if way in MODES else []), *(["patch"] if way == "patch-controller" else [])}
    assert {container["name"] for _, container in _workloads(render(way))} == wanted


@every_way
def test_pods_have_no_privilege_and_write_nowhere(render: Callable[[str], list[Json]], way: str) -> None:
    for deployment, container in _workloads(render(way)):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
        assert all("hostPath" not in volume for volume in pod.get("volumes", []))
    (namespace,) = _of_kind(render(way), "Namespace")
    prefix = "pod-security.kubernetes.io/"
    labels = namespace["metadata"]["labels"].items()
    assert {key.removeprefix(prefix): text for key, text in labels if key.startswith(prefix)} == {
        "enforce": "restricted",
        "enforce-version": "v1.33",
        "audit": "restricted",
        "audit-version": "latest",
        "warn": "restricted",
        "warn-version": "latest",
    }, "L9"


@every_way
def test_pods_keep_out_of_meshes(render: Callable[[str], list[Json]], way: str) -> None:
    """A sidecar before `serve` would end TLS in its stead, and start later than the API server calls. L10: ambient."""
    for deployment, _ in _workloads(render(way)):
        metadata = deployment["spec"]["template"]["metadata"]
        assert metadata["labels"]["sidecar.istio.io/inject"] == "false"
        assert metadata["labels"]["istio.io/dataplane-mode"] == "none"
        assert metadata["annotations"]["linkerd.io/inject"] == "disabled"


@every_way
def test_pods_stay_up_and_are_replaced_before_they_go(render: Callable[[str], list[Json]], way: str) -> None:
    for deployment, container in _workloads(render(way)):
        spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
        assert spec["replicas"] == (3 if way in FAIL_CLOSED and container["name"] == "serve" else 2)
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        assert pod["priorityClassName"] == "system-cluster-critical"
        spread = {each["topologyKey"]: each["whenUnsatisfiable"] for each in pod["topologySpreadConstraints"]}
        on_nodes = "DoNotSchedule" if way in FAIL_CLOSED and container["name"] == "serve" else "ScheduleAnyway"
        assert spread == {"kubernetes.io/hostname": on_nodes, "topology.kubernetes.io/zone": "ScheduleAnyway"}
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}, "M12"
    budgets = {each["metadata"]["name"]: each["spec"] for each in _of_kind(render(way), "PodDisruptionBudget")}
    assert set(budgets) == {deployment["metadata"]["name"] for deployment, _ in _workloads(render(way))}, "L8"
    assert {(each["maxUnavailable"], each["unhealthyPodEvictionPolicy"]) for each in budgets.values()} == {
        (1, "AlwaysAllow")
    }
    (quota,) = _of_kind(render(way), "ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == ["system-cluster-critical"]


@every_way
def test_serve_takes_its_flags_and_outlives_its_shutdown(render: Callable[[str], list[Json]], way: str) -> None:
    ((deployment, container),) = [found for found in _workloads(render(way)) if found[1]["name"] == "serve"]
    pod = deployment["spec"]["template"]["spec"]
    verb, *flags = container["args"]
    settings = parse_serve("x", flags, environment_of(deployment, container))
    assert verb == "serve"
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == ports_of(settings)
    listener = settings.listener
    longest = settings.shutdown_delay_seconds + listener.drain_seconds + listener.close_seconds
    assert settings.shutdown_delay_seconds >= 5
    assert longest < pod["terminationGracePeriodSeconds"]


@every_way
def test_client_certificates_are_asked_for_where_the_name_says_so(
    render: Callable[[str], list[Json]], way: str
) -> None:
    ((deployment, container),) = [found for found in _workloads(render(way)) if found[1]["name"] == "serve"]
    settings = parse_serve("x", container["args"][1:], environment_of(deployment, container))
    assert bool(settings.client_names) == (way == "client-certificates")
    mounts = {each["mountPath"] for each in container.get("volumeMounts", ())}
    assert all(str(file.parent) in mounts for file in [settings.certificates.client_ca_file] if file is not None)


@every_way
def test_evict_runs_in_the_mode_that_the_name_says(render: Callable[[str], list[Json]], way: str) -> None:
    found = [(deployment, each) for deployment, each in _workloads(render(way)) if each["name"] == "evict"]
    assert len(found) == (way in MODES)
    for deployment, container in found:
        verb, *flags = container["args"]
        settings = parse_evict("x", flags, environment_of(deployment, container))
        assert (verb, settings.worker.mode) == ("evict", MODES[way])
        assert settings.lease == (OWN_NAMESPACE, deployment["metadata"]["name"])
        assert settings.health_address is not None
        assert settings.metrics_address is not None
        assert {each["name"]: each["containerPort"] for each in container["ports"]} == {
            "probes": settings.health_address.port,
            "metrics": settings.metrics_address.port,
        }


@every_way
def test_labels_are_the_recommended_ones_and_a_release_adds_the_version(
    render: Callable[[str], list[Json]], way: str
) -> None:
    """What release/installation.py adds: tests/release/test_installations.py."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for _, container in _workloads(render(way)):
        assert container["image"] == project["name"]
    for document in render(way):
        labels = dict(document["metadata"]["labels"])
        assert labels.pop("app.kubernetes.io/component") in _COMPONENTS
        assert {key: text for key, text in labels.items() if key.startswith("app.kubernetes.io/")} == {
            "app.kubernetes.io/name": project["name"],
            "app.kubernetes.io/instance": project["name"],
            "app.kubernetes.io/part-of": project["name"],
            "app.kubernetes.io/managed-by": "kustomize",
        }, document["kind"]


@every_way
def test_everything_lives_in_our_namespace(render: Callable[[str], list[Json]], way: str) -> None:
    cluster_scoped = {
        *("CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema"),
        *("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        *("ValidatingWebhookConfiguration",),
    }
    for document in render(way):
        namespace = None if document["kind"] in cluster_scoped else OWN_NAMESPACE
        assert document["metadata"].get("namespace") == namespace, document["kind"]


# --- who finds whom -------------------------------------------------------------------------------


@every_way
def test_selectors_find_the_pods_they_mean(render: Callable[[str], list[Json]], way: str) -> None:
    documents = render(way)
    pods = {
        deployment["metadata"]["name"]: deployment["spec"]["template"]["metadata"]["labels"]
        for deployment, _ in _workloads(documents)
    }

    def selected(selector: Json) -> set[str]:
        return {name for name, labels in pods.items() if _selects(selector, labels)}

    for deployment, _ in _workloads(documents):
        name = deployment["metadata"]["name"]
        assert selected(deployment["spec"]["selector"]["matchLabels"]) == {name}
        for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert selected(spread["labelSelector"]["matchLabels"]) == {name}
    everybody = {"device-taint-webhook-metrics"}
    for document in _of_kind(documents, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        name, spec = document["metadata"]["name"], document["spec"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        labels = selector.get("matchLabels", selector)
        assert selected(labels) == (set(pods) if name in everybody else {name}), document["kind"]


@every_way
def test_what_is_called_is_open_and_nothing_else(render: Callable[[str], list[Json]], way: str) -> None:
    documents = render(way)
    opened: dict[str, set[int]] = {}
    for document in _of_kind(documents, "NetworkPolicy"):
        ports = {port["port"] for rule in document["spec"]["ingress"] for port in rule["ports"]}
        opened[document["metadata"]["name"]] = ports
        if "Egress" in document["spec"]["policyTypes"]:
            let_out = {
                (each["protocol"], each["port"]) for rule in document["spec"]["egress"] for each in rule["ports"]
            }
            assert let_out == _LET_OUT, "M20"
    monitored = way in {"monitoring", "production"}
    assert opened == {
        "device-taint-webhook": {9443, 8081},
        **({"device-taint-webhook-evict": {8081}} if way in MODES else {}),
        **({"device-taint-webhook-patch": {8081}} if way == "patch-controller" else {}),
        **({"device-taint-webhook-metrics": {8080}} if monitored else {}),
    }
    (service,) = [each for each in _of_kind(documents, "Service") if each["metadata"]["name"] == "device-taint-webhook"]
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "webhook")
    for configuration in _of_kind(documents, "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        for entry in configuration["webhooks"]:
            called = entry["clientConfig"]["service"]
            assert (called["namespace"], called["name"], called["port"]) == (OWN_NAMESPACE, "device-taint-webhook", 443)


# --- rights ---------------------------------------------------------------------------------------


@every_way
def test_accounts_are_one_a_workload_and_each_has_rights(render: Callable[[str], list[Json]], way: str) -> None:
    documents = render(way)
    used = {
        container["name"]: deployment["spec"]["template"]["spec"]["serviceAccountName"]
        for deployment, container in _workloads(documents)
    }
    assert used == {name: _WORKLOADS[name] for name in used}
    accounts = {account["metadata"]["name"]: account for account in _of_kind(documents, "ServiceAccount")}
    assert set(accounts) == set(used.values())
    assert {account["automountServiceAccountToken"] for account in accounts.values()} == {False}
    for account in accounts:
        assert rights_of(documents, account)


@every_way
def test_rights_are_narrow(render: Callable[[str], list[Json]], way: str) -> None:
    """No wildcard; Secrets and ConfigMaps by name and only ours; nothing that would make more rights."""
    for account in _WORKLOADS.values():
        for where, group, resource, verb, name in rights_of(render(way), account):
            assert "*" not in (group, resource, verb)
            assert group != "rbac.authorization.k8s.io"
            assert verb not in {"escalate", "bind", "impersonate", "deletecollection"}
            assert resource not in {"pods/exec", "pods/ephemeralcontainers", "serviceaccounts/token", "nodes"}
            if resource in {"secrets", "configmaps"}:
                assert (where, name.startswith("device-taint-webhook-")) == (OWN_NAMESPACE, True), (
                    resource,
                    name,
                    verb,
                )


@every_way
def test_serve_never_touches_a_pod_and_evict_only_in_modes_that_act(
    render: Callable[[str], list[Json]], way: str
) -> None:
    def on_pods(account: str) -> set[tuple[str, str]]:
        rights = rights_of(render(way), account)
        return {(each.resource, each.verb) for each in rights if each.resource.partition("/")[0] == "pods"}

    assert on_pods("device-taint-webhook") == set()
    written = {(resource, verb) for resource, verb in on_pods("device-taint-webhook-evict") if verb in _WRITES}
    acting = {("pods/eviction", "create"), ("pods", "delete"), ("pods/status", "patch")}
    assert written == (acting if MODES.get(way, "observe") != "observe" else set())


# --- registrations --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["base", *WAYS])
def test_nothing_unrelated_waits_for_us_on_any_way_to_install(
    render: Callable[[str], list[Json]], assets: Assets, way: str
) -> None:
    """No wildcard, no subresource, and of the core group one ConfigMap, by namespace and name."""
    configurations = _of_kind(rendered(assets, "base") if way == "base" else render(way), *REGISTRATIONS)
    entries = [entry for configuration in configurations for entry in configuration["webhooks"]]
    assert len(entries) >= 9
    for entry in entries:
        for rule in entry["rules"]:
            values = [value for key in ("apiGroups", "apiVersions", "resources", "operations") for value in rule[key]]
            assert not [value for value in values if "*" in value or "/" in value]
            if rule["apiGroups"] == ["devicetaint.io"]:
                assert rule["resources"] == ["resourceslicepatches"]
            elif rule["apiGroups"] != ["resource.k8s.io"]:
                assert entry["name"] == "policy.validate.devicetaint.io"
                assert (rule["apiGroups"], rule["resources"]) == ([""], ["configmaps"])
                (ours,) = entry["namespaceSelector"]["matchExpressions"]
                assert (ours["operator"], ours["values"]) == ("In", [OWN_NAMESPACE])
                assert (
                    'object.metadata.name == "device-taint-webhook-policy"' in entry["matchConditions"][1]["expression"]
                )


@every_way
def test_what_fails_closed(render: Callable[[str], list[Json]], way: str) -> None:
    closed = {
        entry["name"].removesuffix(".devicetaint.io")
        for configuration in _of_kind(render(way), "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
        for entry in configuration["webhooks"]
        if entry["failurePolicy"] == "Fail"
    }
    more = {"claims.validate", "templates.validate"} if way in FAIL_CLOSED else set()
    patches = {"patches.validate"} if way in WITH_PATCHES else set()
    assert closed == {"rules.validate", *more, *patches}


@every_way
def test_patches_are_registered_only_where_they_are_defined(render: Callable[[str], list[Json]], way: str) -> None:
    definitions = _of_kind(render(way), "CustomResourceDefinition")
    entries = [
        entry["name"]
        for configuration in _of_kind(render(way), *REGISTRATIONS)
        for entry in configuration["webhooks"]
        if any("devicetaint.io" in rule["apiGroups"] for rule in entry["rules"])
    ]
    expected = ["patches.mutate.devicetaint.io", "patches.validate.devicetaint.io"]
    assert len(definitions) == (way in WITH_PATCHES)
    assert sorted(entries) == (expected if way in WITH_PATCHES else [])


@every_way
def test_nothing_shipped_may_write_patches(render: Callable[[str], list[Json]], way: str) -> None:
    for role in _of_kind(render(way), "Role", "ClusterRole"):
        for rule in role.get("rules") or ():
            resources, verbs = set(rule.get("resources", ())), set(rule["verbs"])
            assert "*" not in resources | verbs, role["metadata"]["name"]
            assert not ("resourceslicepatches" in resources and verbs & _WRITES), role["metadata"]["name"]


# --- one file -------------------------------------------------------------------------------------


def test_the_file_that_make_renders_is_the_overlay_with_the_image_asked_for(
    render: Callable[[str], list[Json]], assets: Assets, tmp_path: Path
) -> None:
    file, image = tmp_path / "install.yaml", "registry.example.com:5000/taints/webhook:1.2.3"
    done = subprocess.run(
        ["make", "install.yaml", f"INSTALL={file}", f"IMAGE={image}"],
        cwd=ROOT,
        env={**os.environ, "KUBECTL": str(assets.program("kubectl"))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done
    expected = copy.deepcopy(render("self-managed"))
    for _, container in _workloads(expected):
        container["image"] = image
    assert list(yaml.safe_load_all(file.read_text())) == expected
    assert [path.name for path in tmp_path.iterdir()] == ["install.yaml"]
