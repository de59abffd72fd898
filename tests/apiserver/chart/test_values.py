"""Values: each one changes what is rendered, wrong ones are refused with their path, and the examples render."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.chart.helming import CHART, EVERYTHING, Helm, Json
from tests.apiserver.manifests.installing import MANIFESTS
from tests.chart.values_page import VALUES, documented
from webhook import __version__
from webhook.api.field import Path
from webhook.commands.doctor.probe import COLLECTIONS
from webhook.config.serve import parse_serve
from webhook.config.workers import parse_evict
from webhook.policy.document import load

EXAMPLES: Final = sorted((CHART / "examples").glob("*.yaml"))
_RESOURCES: Final = {"limits": {"memory": "1Gi"}}
_VARIABLE: Final = [{"name": "EXTRA", "value": "1"}]
_CERT_MANAGER: Final = {"certificates": {"provider": "cert-manager"}}
_SECRET: Final = {"certificates": {"provider": "secret", "caBundle": "b3VycwM="}}
POLICY: Final[Json] = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}
SAMPLES: Final[dict[str, Any]] = {
    "image.registry": "registry.example.com",
    "image.repository": "other/name",
    "image.tag": "v9",
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "credentials"}],
    "commonLabels": {"team": "platform"},
    "namespace.create": True,
    "exemptNamespaces": ["kube-system", "other"],
    "lifted": True,
    "certificates.provider": "cert-manager",
    "certificates.secretName": ("mine", _SECRET),
    "certificates.caBundle": ("Y2E=", _SECRET),
    "certificates.certManager.issuerRef": ({"kind": "ClusterIssuer", "name": "corporate"}, _CERT_MANAGER),
    "certificates.certManager.duration": ("48h", _CERT_MANAGER),
    "certificates.certManager.renewBefore": ("12h", _CERT_MANAGER),
    "certificates.certManager.caDuration": ("96h", _CERT_MANAGER),
    "clientCertificates.enabled": True,
    "clientCertificates.configMapName": ("mine", {"clientCertificates": {"enabled": True}}),
    "clientCertificates.names": (["a", "b"], {"clientCertificates": {"enabled": True}}),
    "highAvailability": True,
    "failurePolicy.rules": "Ignore",
    "failurePolicy.claims": "Fail",
    "failurePolicy.templates": "Fail",
    "failurePolicy.patches": ("Ignore", {"patches": {"enabled": True}}),
    "policy.document": POLICY,
    "defaultTolerations": True,
    "watchPods": True,
    "hostNetwork": True,
    "ports.webhook": 10250,
    "ports.probes": 18081,
    "ports.metrics": 18080,
    "proxy.httpProxy": "http://proxy:1",
    "proxy.httpsProxy": "http://proxy:2",
    "proxy.noProxy": ".svc",
    "logging.format": "text",
    "logging.verbose": True,
    "serve.replicas": 5,
    "evict.enabled": True,
    "evict.mode": ("delegated", {"evict": {"enabled": True}}),
    "evict.allowDelete": (False, {"evict": {"enabled": True, "mode": "delegated"}}),
    "openReports.enabled": True,
    "openReports.schedule": ("0 * * * *", {"openReports": {"enabled": True}}),
    "openReports.kubectlImage": ("other/kubectl:v1", {"openReports": {"enabled": True}}),
    "patches.enabled": True,
    "patches.keepDefinition": (False, {"patches": {"enabled": True}}),
    "patches.sliceAttributes": (True, {"patches": {"enabled": True}, "patch": {"enabled": True}}),
    "patch.enabled": (True, {"patches": {"enabled": True}}),
    "monitoring.enabled": True,
    "monitoring.labels": ({"release": "stack"}, {"monitoring": {"enabled": True}}),
    "monitoring.serviceMonitor.enabled": (False, {"monitoring": {"enabled": True}}),
    "monitoring.serviceMonitor.interval": ("15s", {"monitoring": {"enabled": True}}),
    "monitoring.prometheusRule.enabled": (False, {"monitoring": {"enabled": True}}),
    "monitoring.prometheusRule.runbookUrl": ("https://wiki.example.com/a", {"monitoring": {"enabled": True}}),
    "monitoring.dashboard.enabled": (False, {"monitoring": {"enabled": True}}),
    "monitoring.dashboard.labels": ({"dashboards": "yes"}, {"monitoring": {"enabled": True}}),
    "monitoring.dashboard.annotations": ({"grafana_folder": "x"}, {"monitoring": {"enabled": True}}),
    "networkPolicy.enabled": False,
    "networkPolicy.apiServerPorts": [16443],
    "networkPolicy.dnsPorts": [],
    "networkPolicy.extraEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
    "disruptionBudget.enabled": False,
    "disruptionBudget.maxUnavailable": "50%",
    "quota.enabled": False,
    "priorityClassName": "other",
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "cleanup.enabled": False,
    "doctor.enabled": False,
    "doctor.failOnWarnings": True,
    "doctor.wait": 7,
    "hookResources": _RESOURCES,
    **{f"{verb}.resources": (_RESOURCES, EVERYTHING) for verb in ("serve", "evict", "patch")},
    **{f"{verb}.extraArgs": (["--log-format=text"], EVERYTHING) for verb in ("serve", "evict", "patch")},
    **{f"{verb}.extraEnv": (_VARIABLE, EVERYTHING) for verb in ("serve", "evict", "patch")},
    **{f"{verb}.replicas": (4, EVERYTHING) for verb in ("evict", "patch")},
}
"""Another value than the default for each, alone or with the values that it needs to have an effect."""
_SHOWN_ELSEWHERE: Final = {
    *("certificates.provider", "clientCertificates.enabled", "defaultTolerations", "evict.allowDelete"),
    *("evict.enabled", "evict.mode", "highAvailability", "hostNetwork", "lifted", "monitoring.enabled"),
    *("namespace.create", "openReports.enabled", "patch.enabled", "patches.enabled", "patches.sliceAttributes"),
    "watchPods",
    *(f"{verb}.{name}" for verb in ("evict", "patch") for name in ("resources", "extraArgs", "extraEnv")),
}
"""What a component or an overlay stands for, whose objects test_parity.py compares; and what `serve` has, too."""


def merged(values: Json, path: str, value: Any) -> Json:
    """The values with one more."""
    key, _, rest = path.partition(".")
    return {**values, key: merged(values.get(key, {}), rest, value) if rest else value}


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> Callable[[Json], tuple[int, str, str]]:
    """What values render; most samples begin with the same ones, which are rendered once."""
    found: dict[str, tuple[int, str, str]] = {}

    def each(values: Json) -> tuple[int, str, str]:
        key = json.dumps(values)
        if key not in found:
            found[key] = helm.try_template(values)
        return found[key]

    return each


def test_every_documented_value_has_a_sample() -> None:
    assert {each.path for each in documented(VALUES.read_text())} == SAMPLES.keys()


@pytest.mark.parametrize(
    "path", [pytest.param(each, marks=pytest.mark.whole if each in _SHOWN_ELSEWHERE else ()) for each in SAMPLES]
)
def test_value_changes_what_is_rendered_and_the_result_is_yaml(
    helm: Helm, rendered: Callable[[Json], tuple[int, str, str]], path: str
) -> None:
    sample = SAMPLES[path]
    value, needed = sample if isinstance(sample, tuple) else (sample, {})
    before = rendered(needed)
    after = helm.try_template(merged(needed, path, value))
    assert (before[0], after[0]) == (0, 0), (before, after)
    assert before[1] != after[1]
    assert all(isinstance(each["metadata"]["name"], str) for each in yaml.load_all(after[1], yaml.CSafeLoader) if each)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"evict": {"mod": "observe"}}, "at '/evict': additional properties 'mod' not allowed"),
        ({"evict": {"mode": "kill"}}, "at '/evict/mode': value must be one of 'observe'"),
        ({"replicas": 3}, "additional properties 'replicas' not allowed"),
        ({"serve": {"replicas": 0}}, "at '/serve/replicas': minimum: got 0, want 1"),
        ({"ports": {"webhook": "9443"}}, "at '/ports/webhook': got string"),
        ({"image": {"digest": "0.1.0"}}, "at '/image/digest': '0.1.0' does not match pattern"),
        ({"image": {"tag": 1.0}}, "at '/image/tag': got number, want string"),
        ({"certificates": {"provider": "vault"}}, "at '/certificates/provider': value must be one of"),
        ({"certificates": {"certManager": {"issuerRef": {"name": "a"}}}}, "/issuerRef': properties 'kind' required"),
        ({"failurePolicy": {"slices": "Fail"}}, "at '/failurePolicy': additional properties 'slices' not allowed"),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "at '/commonLabels/app.kubernetes.io~1name': false schema"),
        ({"highAvailability": "yes"}, "at '/highAvailability': got string, want boolean"),
        ({"patch": {"enabled": True}}, "patch.enabled needs patches.enabled: without the kind"),
        ({"patches": {"enabled": True, "sliceAttributes": True}}, "patches.sliceAttributes needs patch.enabled"),
        (
            {"evict": {"enabled": True, "mode": "replacement", "allowDelete": False}},
            "evict.allowDelete: false does not go with evict.mode: replacement",
        ),
        ({"evict": {"mode": "delegated"}}, "evict.mode: delegated needs evict.enabled"),
        ({"certificates": {"provider": "secret"}}, "certificates.provider: secret needs certificates.caBundle"),
        ({"highAvailability": True, "serve": {"replicas": 1}}, "highAvailability needs serve.replicas of at least 2"),
        ({"certificates": {"caBundle": "Y2E="}}, "certificates.caBundle is for certificates.provider: secret only"),
        ({"ports": {"webhook": 8080}}, "ports: webhook (8080), probes (8081) and metrics (8080) must differ"),
    ],
)
def test_wrong_value_is_refused_with_its_path(helm: Helm, values: Json, message: str) -> None:
    code, out, err = helm.try_template(values)
    assert (code, out) == (1, "")
    assert message in err


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_example_passes_lint_and_renders_what_the_programs_accept(helm: Helm, example: Any) -> None:
    code, out, err = helm.run("lint", CHART, "--strict", f"--values={example}")
    assert code == 0, (out, err)
    documents = helm.template(yaml.safe_load(example.read_text()))
    for document in (each for each in documents if each["kind"] == "Deployment"):
        (container,) = document["spec"]["template"]["spec"]["containers"]
        environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        verb, *arguments = container["args"]
        if verb == "serve":
            _ = parse_serve("x", arguments, environment)
        elif verb == "evict":
            _ = parse_evict("x", arguments, environment)
        assert container["image"] == f"registry.example.com/platform/device-taint-webhook:{__version__}"


def test_policy_of_the_example_is_one_that_the_webhook_loads(helm: Helm) -> None:
    example = yaml.safe_load((CHART / "examples" / "production.yaml").read_text())
    (config_map,) = [each for each in helm.template(example) if each["metadata"]["name"].endswith("-policy")
                     and each["kind"] == "ConfigMap"]  # fmt: skip
    written = yaml.safe_load(config_map["data"]["policy.yaml"])
    assert written == example["policy"]["document"]
    assert load(written, Path.root()).errors == ()
    as_text = helm.template({**example, "policy": {"document": f"# why\n{yaml.safe_dump(written)}"}})
    (config_map,) = [each for each in as_text if each["kind"] == "ConfigMap" and "policy.yaml" in each["data"]]
    assert config_map["data"]["policy.yaml"].startswith("# why\napiVersion: ")


@pytest.mark.parametrize("patched", [True, False])
def test_doctor_may_create_what_it_probes(helm: Helm, *, patched: bool) -> None:
    (role,) = [
        each
        for each in helm.template({"patches": {"enabled": patched}})
        if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", "device-taint-webhook-doctor")
    ]
    created = {name for rule in role["rules"] if rule["verbs"] == ["create"] for name in rule["resources"]}
    probed = {each.name for sort, each in COLLECTIONS.items() if patched or sort != "patches"}
    assert created == {*probed, "subjectaccessreviews"}


SHIPPED: Final = sorted(MANIFESTS.glob("policies/*/policy.yaml"))
MISTAKES: Final[dict[str, tuple[Json, str, str]]] = {
    "misspelt field": ({"rulez": []}, ".rulez: is no field", "additional properties 'rulez' not allowed"),
    "no kind": ({"kind": None}, ".kind: must be of type string, not null", "/kind': got null, want string"),
    "word": ({"mode": "loose"}, ".mode: must be one of enforce, warn, off, not loose", "/mode': value must be one of"),
    "type": ({"rules": "none"}, ".rules: must be of type array, not string", "/rules': got string, want null or array"),
    "entry": ({"rules": [3]}, ".rules[0]: must be of type object, not number", "/rules/0': got number, want object"),
    "missing": ({"rules": [{"name": "a"}]}, ".rules[0].action: is required", "/rules/0': missing property 'action'"),
    "deep": (
        {"rules": [{"name": "a", "action": "deny", "match": {"tolerations": {"seconds": {"atMost": 1.5}}}}]},
        ".rules[0].match.tolerations.seconds.atMost: must be of type integer, not number",
        "/rules/0/match/tolerations/seconds/atMost': got number, want integer",
    ),
    "pattern": (
        {"impact": {"window": "soon"}},
        '.impact.window: "soon" has the wrong form',
        "/impact/window': 'soon' does",
    ),
    "too long": ({"trustedControllers": ["é" * 254]}, "has 254 characters", "maxLength: got 254, want 253"),
    "too many": ({"trustedControllers": ["a"] * 17}, "has 17 entries", "maxItems: got 17, want 16"),
    "too few": ({"eviction": []}, ".eviction: has 0 entries", "/eviction': minItems: got 0, want 1"),
    "range": ({"impact": {"limits": [{"pods": -1}]}}, ".impact.limits[0].pods: -1 is out", "/pods': minimum: got -1"),
    "name": (
        {"rules": [{"name": "a", "action": "deny", "match": {"namespaces": {"labels": {"-": "x"}}}}]},
        '.labels.-: "-" has the wrong form',
        "'-' does not match pattern",
    ),
}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(each, marks=() if each in {"misspelt field", "word", "deep"} else pytest.mark.whole)
        for each in MISTAKES
    ],
)
def test_policy_with_mistakes_is_refused_with_their_paths(helm: Helm, mistake: str) -> None:
    """M7: at the first install there is no webhook to refuse it."""
    change, *messages = MISTAKES[mistake]
    document = POLICY | change
    for given, message in zip((yaml.safe_dump(document), document), messages, strict=True):
        code, out, err = helm.try_template({"policy": {"document": given}})
        assert (code, out) == (1, "")
        assert message in err


@pytest.mark.parametrize("text", ["- a\n", "just words", "a: [\n", "{}", "# nothing\n"])
def test_policy_that_is_no_document_is_refused(helm: Helm, text: str) -> None:
    assert helm.try_template({"policy": {"document": text}})[0] == 1


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        yaml.safe_load(SHIPPED[0].read_text()),
        pytest.param("", marks=pytest.mark.whole),
        pytest.param(POLICY | {"mode": False, "rules": None}, marks=pytest.mark.whole),
        pytest.param(POLICY | {"trustedControllers": ["é" * 253]}, marks=pytest.mark.whole),
        *(pytest.param(yaml.safe_load(file.read_text()), marks=pytest.mark.whole) for file in SHIPPED[1:]),
    ],
)
def test_right_policy_is_taken_in_both_forms(helm: Helm, document: Any) -> None:
    text = yaml.safe_dump(document) if document else ""
    for given in (document, text, f"---\n# a licence\n---\n{text}"):
        _ = helm.template({"policy": {"document": given}})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ["There is no public image.", "The chart has no policy", "helm test taints"]),
        ({"lifted": True}, ["API servers do not call the webhook"]),
        ({"evict": {"enabled": True, "mode": "replacement"}}, ["The in-tree controller must be switched off"]),
        ({"hostNetwork": True}, ["pod-security.kubernetes.io/enforce=privileged"]),
        ({"monitoring": {"enabled": True}}, ["serviceMonitorSelector"]),
        ({"doctor": {"enabled": False}}, ["device-taint-webhook doctor -n platform-dra --wait"]),
    ],
)
def test_notes_say_what_is_left_to_do(helm: Helm, values: Json, said: list[str]) -> None:
    options = ("install", "taints", CHART, "--namespace=platform-dra", "--dry-run=client", "--values=-")
    code, out, err = helm.run(*options, stdin=yaml.safe_dump(values))
    assert code == 0, err
    notes = out.partition("\nNOTES:\n")[2]
    assert [text for text in said if text not in notes] == []


def test_notes_say_nothing_about_what_is_set(helm: Helm) -> None:
    values = {
        "image": {"registry": "registry.example.com"},
        "policy": {"document": POLICY},
    }
    options = ("install", "taints", CHART, "--dry-run=client", "--values=-")
    code, out, err = helm.run(*options, stdin=yaml.safe_dump(values))
    assert code == 0, err
    notes = out.partition("\nNOTES:\n")[2]
    assert not any(text in notes for text in ("public image", "no policy", "evict", "monitoring"))
