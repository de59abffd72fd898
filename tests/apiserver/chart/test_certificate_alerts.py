"""Alerts about certificates of cert-manager: they ring for one that is late, by its own duration and renewBefore."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.apiserver.chart.helming import Helm, Json
from tests.tables import table


def shares(helm: Helm, values: Json) -> set[float]:
    """The share of its life below which a certificate is late, as both alerts have it."""
    objects = helm.template({"monitoring": {"enabled": True}, **values})
    [rules] = [each for each in objects if each["kind"] == "PrometheusRule"]
    alerts: dict[str, Any] = {rule["alert"]: rule for group in rules["spec"]["groups"] for rule in group["rules"]}
    found = [
        re.findall(
            r"seconds\{component=\"admission\"\}\)+ < ([0-9.e-]+)",
            alerts[f"DeviceTaintWebhookCertificate{name}"]["expr"],
        )
        for name in ("NotRenewed", "Ends")
    ]
    assert [len(each) for each in found] == [1, 1]
    return {float(share) for each in found for share in each}


@table(
    "duration, renew_before, share",
    {
        "as shipped": ("2160h0m0s", "720h0m0s", 0.2),
        "half of its life": ("48h", "24h", 0.2),
        "a month of a year": ("8760h", "720h", 0.0493),
        "an hour of a day": ("24h", "60m", 0.025),
        "in mixed units": ("1h30m", "5m24s", 0.036),
        "none, which cert-manager refuses": ("0h", "0h", 0.0),
    },
)
def test_certificate_that_is_not_due_for_renewal_rings_no_alert(
    duration: str, renew_before: str, share: float, helm: Helm
) -> None:
    settings = {"duration": duration, "renewBefore": renew_before}
    assert shares(helm, {"certificates": {"provider": "cert-manager", "certManager": settings}}) == {share}


@pytest.mark.parametrize("provider", ["self-managed", "secret"])
def test_other_certificates_are_late_with_a_fifth_of_their_life_left(provider: str, helm: Helm) -> None:
    settings = {"renewBefore": "1h"}
    bundle = {"caBundle": "b3VycwM="} if provider == "secret" else {}
    assert shares(helm, {"certificates": {"provider": provider, "certManager": settings, **bundle}}) == {0.2}
