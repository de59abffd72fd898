"""PodGroups, in the shapes of all versions."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, PodGroup, decode_pod_group


def read(spec: Any, **metadata: Any) -> tuple[PodGroup, list[str]]:
    errors: list[Any] = []
    manifest = {"kind": "PodGroup", "metadata": {"name": "crew", "namespace": "ml", **metadata}, "spec": spec}
    return decode_pod_group(Reader.of(manifest, errors)), [str(error) for error in errors]


@pytest.mark.parametrize(
    ("mode", "read_as"),
    [
        pytest.param({"all": {}}, "all", id="all"),
        pytest.param({"single": {}}, "single", id="single"),
        pytest.param("PodGroup", "all", id="all in v1alpha2"),
        pytest.param("Pod", "single", id="single in v1alpha2"),
        pytest.param("Other", "", id="a newer one"),
        pytest.param({"other": {}}, "", id="a newer one of the union"),
        pytest.param({"all": None, "single": {}}, "single", id="null is none"),
        pytest.param({}, "", id="empty"),
        pytest.param(None, "", id="null"),
    ],
)
def test_disruption_mode_is_read_in_both_shapes(mode: Any, read_as: str) -> None:
    group, errors = read({"disruptionMode": mode})
    assert (group, errors) == (PodGroup(ObjectMeta("crew", namespace="ml"), read_as), [])


def test_pod_group_without_a_spec_says_nothing_and_has_an_owner() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    group, errors = read(None, ownerReferences=[owner])
    assert (group.disruption_mode, group.owner, errors) == ("", Owner("Job", "train", "u"), [])


@pytest.mark.parametrize("mode", [7, {"all": 7}])
def test_disruption_mode_of_a_wrong_type_is_an_error(mode: Any) -> None:
    group, errors = read({"disruptionMode": mode})
    assert (group.disruption_mode, len(errors)) == ("", 1)
    assert "spec.disruptionMode" in errors[0]
