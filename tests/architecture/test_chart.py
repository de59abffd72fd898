"""The chart in manifests/helm: generated from the manifests, of the product's version, each value documented."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.apiserver.chart.helming import COMPONENT_VALUES, OVERLAY_VALUES
from tests.apiserver.manifests.installing import MANIFESTS, OVERLAYS
from tests.chart.edits import ChartSourceError, Edit, entry_of, wrapped
from tests.chart.generator import CHART, ROOT, files
from tests.chart.sources import TEMPLATES
from tests.chart.values_page import VALUES, documented
from webhook import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

_GENERATED = {file for file in files() if file.is_relative_to(CHART / "templates")}


def test_chart_is_what_the_manifests_make_of_it() -> None:
    """Nothing is edited in two places: `make docs` writes these files."""
    assert [str(file.relative_to(CHART)) for file, text in files().items() if file.read_text() != text] == []


def test_every_template_is_generated_or_has_no_counterpart_in_the_manifests() -> None:
    by_hand = {"checks.yaml", "hooks/cleanup.yaml", "hooks/doctor.yaml", "monitoring/alerts.yaml",
               "monitoring/dashboard.yaml", "policy.yaml"}  # fmt: skip
    found = set((CHART / "templates").rglob("*.yaml")) - _GENERATED
    assert {str(file.relative_to(CHART / "templates")) for file in found} == by_hand
    assert len(_GENERATED) == len(TEMPLATES)


def test_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def _leaves(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values and path.rpartition(".")[2] not in {"resources", "hookResources", "labels", "nodeSelector"}:  # fmt: skip # noqa: E501
        for key, each in values.items():
            yield from _leaves(each, f"{path}.{key}" if path else key)
    else:
        yield path


def test_every_overlay_and_component_has_its_values() -> None:
    """A new one needs values, and if it has objects a template; then tests/apiserver/chart compares the two."""
    here = "tests/apiserver/chart/helming.py"
    overlays = set(OVERLAYS) ^ OVERLAY_VALUES.keys()
    assert not overlays, f"add to or remove from OVERLAY_VALUES in {here}: {sorted(overlays)}"
    components = {file.parent.name for file in MANIFESTS.glob("components/*/kustomization.yaml")}
    differing = components ^ COMPONENT_VALUES.keys()
    assert not differing, (
        f"the chart has no counterpart of these components, or they are gone: {sorted(differing)}. Add values to "
        f"manifests/helm/values.yaml, templates to tests/chart/sources.py, and both to COMPONENT_VALUES in {here}"
    )


def test_every_value_has_a_comment_and_a_place_in_the_schema() -> None:
    text = VALUES.read_text()
    leaves = list(_leaves(yaml.safe_load(text)))
    assert len(leaves) > 70
    assert {each.path for each in documented(text)} >= set(leaves)
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in leaves:
        node = schema
        for key in path.split("."):
            assert node["additionalProperties"] is False, path
            node = node["properties"][key]
            if "$ref" in node:
                node = schema["definitions"][node["$ref"].rpartition("/")[2]]


def test_schema_has_no_value_that_the_chart_lacks() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"].keys() - {"global"} == yaml.safe_load(VALUES.read_text()).keys()


def test_page_names_values_that_exist() -> None:
    known = {each.path for each in documented(VALUES.read_text())}
    page = (ROOT / "docs" / "install.md").read_text()
    groups = "|".join(yaml.safe_load(VALUES.read_text()))
    named = set(re.findall(rf"(?:`|--set )((?:{groups})(?:\.\w+)*)(?=[:`=])", page))
    assert len(named) > 15
    assert {
        each for each in named if each not in known and not any(path.startswith(f"{each}.") for path in known)
    } == set()


# --- the generator ------------------------------------------------------------------------------


def test_edit_of_a_text_that_is_gone_says_which_manifest_and_where_the_edit_is() -> None:
    for text in ("replicas: 3\n", "replicas: 2\nreplicas: 2\n"):
        with pytest.raises(ChartSourceError, match=r"base/x\.yaml has this text \d times, and tests/chart/sources\.py"):
            Edit("replicas: 2\n", "").applied(text, "base/x.yaml")
    with pytest.raises(ChartSourceError, match="after 'here'"):
        Edit("replicas: 2\n", "", after="here").applied("replicas: 2\n", "base/x.yaml")


def test_edit_behind_a_text_changes_the_first_place_there() -> None:
    made = Edit("a", "b", after="x").applied("a x a a", "file")
    assert made == "a x b a"
    assert wrapped("a\n", "cond", "c\n").applied("a\n", "file") == "{{- if cond }}\na\n{{- else }}\nc\n{{- end }}\n"


def test_patch_of_a_component_becomes_an_item_of_the_list() -> None:
    patch = "# why\n- op: add\n  path: /webhooks/-\n  value:\n    name: x\n    rules:\n    - a: b\n"
    assert entry_of(patch) == "# why\n- name: x\n  rules:\n  - a: b\n"


def test_comment_of_a_value_may_have_several_lines_and_belongs_to_the_key_below_it() -> None:
    text = "# page\n\n# one\n# two\na: 1\nb:\n  # three\n  c: {d: 4}\n  e: 5\n"
    assert [tuple(each) for each in documented(text)] == [("a", 1, "one two"), ("b.c", {"d": 4}, "three")]
