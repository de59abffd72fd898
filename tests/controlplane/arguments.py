"""Command lines of the control plane's programs; where they differ from a cluster's, the reason stands here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ETCD_SOCKET = "etcd.sock"
ADMISSION_CONFIGURATION = "admission.json"
WEBHOOK_CLIENT = "webhook-client"
"""The kubeconfig with the certificate that the API server shows webhooks, and that certificate's files in pki."""

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "RequestResponse"}],
}


def admission_configuration(folder: Path) -> dict[str, Any]:
    """Has the API server show every webhook that asks for one the same client certificate."""
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / f"{WEBHOOK_CLIENT}.kubeconfig"),
    }
    plugins = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": config} for name in plugins],
    }


def webhook_client(folder: Path) -> dict[str, Any]:
    """That kubeconfig: users are found by the host that is called, and `*` is every host."""
    files = {
        "client-certificate": str(folder / "pki" / f"{WEBHOOK_CLIENT}.crt"),
        "client-key": str(folder / "pki" / f"{WEBHOOK_CLIENT}.key"),
    }
    return {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": files}]}


def etcd(folder: Path) -> list[str]:
    """etcd on Unix sockets: no ports to find, nothing that another process could reach."""
    # What it tells other members about itself must have a host and a port (etcd 3.6), but there are no others.
    nobody = "http://127.0.0.1:1"
    return [
        "--name=test",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls=unix://{folder / ETCD_SOCKET}",
        f"--listen-peer-urls=unix://{folder / 'peer.sock'}",
        f"--advertise-client-urls={nobody}",
        f"--initial-advertise-peer-urls={nobody}",
        f"--initial-cluster=test={nobody}",
        "--unsafe-no-fsync",  # the data need not survive the test
        "--log-level=warn",
    ]


def api_server(
    folder: Path,
    port: int,
    feature_gates: Mapping[str, bool],
    runtime_config: Mapping[str, bool],
    *,
    audit: bool,
) -> list[str]:
    """kube-apiserver with client certificates and RBAC."""
    pki = folder / "pki"
    flags = [
        f"--etcd-servers=unix://{folder / ETCD_SOCKET}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki / 'tls.crt'}",
        f"--tls-private-key-file={pki / 'tls.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=RBAC",
        f"--admission-control-config-file={folder / ADMISSION_CONFIGURATION}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Nobody reaches this API server through a Service; without, it would wait for its lease at the end.
        "--endpoint-reconciler-type=none",
        # ServiceAccount: pods would wait for accounts and tokens that nobody mounts.
        # TaintNodesByCondition: fake nodes would stay "not ready" until a node lifecycle controller comes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        *_switches("--runtime-config", runtime_config),
        *_switches("--feature-gates", feature_gates),
    ]
    if audit:
        # blocking (the default mode): once a request is answered, its line is there
        flags += [
            f"--audit-log-path={folder / 'audit.log'}",
            "--audit-log-maxsize=10000",  # in MB: at 100 it would begin another file, and what came before be missed
            f"--audit-policy-file={folder / 'audit-policy.yaml'}",
        ]
    return flags


def controller_manager(folder: Path, controllers: Sequence[str], feature_gates: Mapping[str, bool]) -> list[str]:
    """kube-controller-manager; controllers are added to "*"."""
    # node-lifecycle-controller: it would taint and empty fake nodes whenever this machine is busy.
    chosen = ",".join(["*", "-node-lifecycle-controller", *controllers])
    return [
        f"--controllers={chosen}",
        # Every controller under its own account, as in clusters: the resource claim controller's bootstrap role
        # is bound to that account, and admission policy looks at it.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={folder / 'pki/service-account.key'}",
        f"--root-ca-file={folder / 'pki/ca.crt'}",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        *_switches("--feature-gates", feature_gates),
    ]


def scheduler(feature_gates: Mapping[str, bool]) -> list[str]:
    """kube-scheduler with the default profile."""
    return ["--leader-elect=false", *_switches("--feature-gates", feature_gates)]


def component(folder: Path, port: int, kubeconfig: Path) -> list[str]:
    """What controller-manager and scheduler have in common: whom to ask, and where to serve health and metrics."""
    pki = folder / "pki"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # Who asks for /metrics is known by the same CA; there is no front proxy to look up.
        "--authentication-skip-lookup=true",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki / 'tls.crt'}",
        f"--tls-private-key-file={pki / 'tls.key'}",
    ]


def kwok(folder: Path, port: int, kubeconfig: Path) -> list[str]:
    """kwok for the pods of every node; what it does with them stands in kwok/stages.yaml."""
    pki, stages = folder / "pki", Path(__file__).parent / "kwok" / "stages.yaml"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={stages}",
        "--manage-all-nodes=true",
        f"--server-address=127.0.0.1:{port}",
        f"--tls-cert-file={pki / 'tls.crt'}",
        f"--tls-private-key-file={pki / 'tls.key'}",
    ]


def _switches(flag: str, values: Mapping[str, bool]) -> list[str]:
    pairs = [f"{name}={str(on).lower()}" for name, on in values.items()]
    return [f"{flag}={','.join(pairs)}"] if pairs else []
