"""What goes into an archive has no credentials, and keeps what is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import make_claim, make_meta
from webhook.commands.bundle.redaction import Pseudonyms, clean, clean_text

MARK = "MARKED7secret7MARKED"
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{MARK}\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {MARK}",
        f"sent header bearer {MARK} to the server",
        f"password={MARK}",
        f'{{"token": "{MARK}", "user": "x"}}',
        f'{{\\"apiKey\\": \\"{MARK}\\"}}',
        f"client-key-data: {MARK}",
        f"DB_PASSWORD: '{MARK}'",
        f"eyJhbGciOiJSUzI1NiJ9.{MARK}.{MARK}",
        KEY,
        KEY.partition("\n-----END")[0],
        f"https://user:{MARK}@proxy.example.com:3128",
        f"confirm with v1.1780000000.1.2.3.4.{MARK}",
        f'{{"username":"mila","nonce":"{MARK}","mac":"{MARK}"}}',
        f"LS0tLS1CRUdJTi{MARK}",
        f"ghp_{MARK}",
    ],
)
def test_what_looks_like_a_credential_is_taken_out_of_texts(text: str) -> None:
    cleaned = clean_text(f"before {text} after")
    assert MARK not in cleaned
    assert cleaned.startswith("before")


@pytest.mark.parametrize(
    "text",
    [
        "evicted pod ml/train-0: DeviceTaintRule firmware",
        "level=info msg=started machine=node-1 replicas=2",
        '{"time":"2026-06-01T12:00:00Z","msg":"decided","rules":"no-long-waits","uid":"ab-12"}',
        'device_taint_webhook_reviews_total{resource="resourceclaims"} 12',
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert clean_text(text) == text


def test_credentials_of_the_caller_are_known_by_heart() -> None:
    assert clean_text(f"echo {MARK}", (MARK,)) == "echo [redacted]"


def test_pods_keep_their_shape_and_lose_values() -> None:
    container = {
        "name": "serve",
        "image": "webhook:1",
        "args": ["serve", f"--token={MARK}", "--password", MARK, "--port=9443"],
        "env": [
            {"name": "SOME_VALUE", "value": MARK},
            {"name": "DEVICE_TAINT_WEBHOOK_CERT_DIR", "value": "/tls"},
            {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "pw"}}},
        ],
    }
    annotations = {
        "example.com/anything": MARK,
        "kubectl.kubernetes.io/last-applied-configuration": MARK,
        "devicetaint.io/confirm-impact": MARK,
        "devicetaint.io/requested-by": MARK,
        "devicetaint.io/data": MARK,
        "devicetaint.io/evict": "true",
    }
    meta = {**make_meta("web"), "annotations": annotations, "managedFields": [{"manager": MARK}]}
    volumes = [{"name": "tls", "secret": {"secretName": "device-taint-webhook-tls"}}]
    cleaned = clean({"metadata": meta, "spec": {"containers": [container], "volumes": volumes}})
    assert MARK not in json.dumps(cleaned)
    assert cleaned["metadata"]["annotations"]["devicetaint.io/evict"] == "true"
    assert cleaned["spec"]["volumes"] == volumes
    shown = cleaned["spec"]["containers"][0]
    assert (shown["image"], shown["args"][0], shown["args"][-1]) == ("webhook:1", "serve", "--port=9443")
    assert shown["env"][1:] == container["env"][1:]


def test_configurations_keep_a_digest_of_the_bundle_and_no_unusual_path() -> None:
    entry = {"name": "rules.validate.devicetaint.io", "clientConfig": {"url": f"https://x/{MARK}", "caBundle": MARK}}
    service = {"clientConfig": {"service": {"name": "w", "namespace": "n", "path": f"/validate/{MARK}"}}}
    usual = {"clientConfig": {"service": {"name": "w", "namespace": "n", "path": "/validate"}}}
    cleaned: Any = clean({"webhooks": [entry, service, usual]})
    assert MARK not in json.dumps(cleaned)
    assert cleaned["webhooks"][0]["clientConfig"]["caBundle"].startswith("sha256:")
    assert cleaned["webhooks"][2] == usual


def test_config_maps_and_drivers_parameters_are_dropped_and_the_policy_is_kept() -> None:
    policy = {"metadata": {"name": "device-taint-webhook-policy"}, "data": {"policy.yaml": "mode: warn", "x": MARK}}
    assert clean(policy)["data"] == {"policy.yaml": "mode: warn", "x": "[redacted]"}
    assert MARK not in json.dumps(clean({"metadata": {"name": "other"}, "data": {"policy.yaml": MARK}}))
    claim = make_claim()
    claim["spec"]["devices"]["config"] = [{"opaque": {"driver": "d", "parameters": {"key": MARK}}}]
    cleaned = clean(claim)
    assert MARK not in json.dumps(cleaned)
    assert cleaned["spec"]["devices"]["requests"] == claim["spec"]["devices"]["requests"]


def test_pseudonyms_are_the_same_throughout_and_leave_parts_of_words() -> None:
    names = [("pod", "web"), ("pod", "web-0"), ("namespace", "ml"), ("namespace", "default")]
    given = Pseudonyms(names, ())
    assert given.text("pod ml/web-0 beside ml/web, html and cobweb in default") == (
        "pod namespace-1/pod-2 beside namespace-1/pod-1, html and cobweb in default"
    )
    assert Pseudonyms([]).text("as it is") == "as it is"
