"""Values that are taken away with null, or given twice: nothing is rendered that means something else."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.apiserver.chart.helming import EVERYTHING, Helm, Json
from tests.apiserver.chart.test_values import SAMPLES, merged
from tests.tables import table


class _Loader(yaml.SafeLoader):
    """Refuses a mapping that has a key twice, as kustomize does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 -- as there
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        assert len(set(keys)) == len(keys), f"twice: {sorted({str(key) for key in keys if keys.count(key) > 1})}"
        return super().construct_mapping(node, deep=deep)


def _nulls(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [each for key, below in value.items() for each in _nulls(below, f"{path}.{key}")]
    if isinstance(value, list):
        return [each for below in value for each in _nulls(below, f"{path}[]")]
    return [path] if value is None else []


@pytest.mark.parametrize("path", SAMPLES)
def test_value_without_a_default_is_refused_or_leaves_no_empty_field(helm: Helm, path: str) -> None:
    needed = SAMPLES[path][1] if isinstance(SAMPLES[path], tuple) else EVERYTHING
    code, out, err = helm.try_template(merged(needed, path, None))
    if code:
        assert any(said in err for said in ("missing property", " needs ", "evict.allowDelete: false")), err
    else:
        assert [each for each in _nulls(list(yaml.safe_load_all(out))) if not each.endswith(".resources")] == []


@table(
    "path, says",
    {
        "networkPolicy.apiServerPorts": ("networkPolicy.apiServerPorts", "missing property 'apiServerPorts'"),
        "failurePolicy.rules": ("failurePolicy.rules", "missing property 'rules'"),
        "exemptNamespaces": ("exemptNamespaces", "missing property 'exemptNamespaces'"),
    },
)
def test_default_that_opens_or_shuts_something_cannot_be_taken_away(helm: Helm, path: str, says: str) -> None:
    code, out, err = helm.try_template(merged({}, path, None))
    assert (code, out, says in err) == (1, "", True), err


@table(
    "values, says",
    {
        "a label of ours": (
            {"podLabels": {"sidecar.istio.io/inject": "true"}},
            "/podLabels/sidecar.istio.io~1",
        ),
        "a common label of ours": ({"commonLabels": {"istio.io/dataplane-mode": "x"}}, "/istio.io~1dataplane-mode'"),
        "an annotation of ours": (
            {"podAnnotations": {"linkerd.io/inject": "x"}},
            "/podAnnotations/linkerd.io~1",
        ),
        "a label twice": (
            {"podLabels": {"team": "a"}, "commonLabels": {"team": "a"}},
            "podLabels has team, which",
        ),
    },
)
def test_key_that_pods_have_already_is_refused(helm: Helm, values: Json, says: str) -> None:
    code, out, err = helm.try_template(values)
    assert (code, out, says in err) == (1, "", True), err


def test_no_key_is_rendered_twice(helm: Helm) -> None:
    more = {"commonLabels": {"team": "a"}, "podLabels": {"tier": "b"}, "podAnnotations": {"note": "c"}}
    code, out, err = helm.try_template({**EVERYTHING, "openReports": {"enabled": True}, **more})
    assert code == 0, err
    assert len(list(yaml.load_all(out, _Loader))) > 20
