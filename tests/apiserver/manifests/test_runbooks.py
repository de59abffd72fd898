"""Where the links in alerts lead: one line says so, in the component or in an overlay of one's own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.apiserver.manifests.installing import ROOT
from tests.controlplane.assets import Assets

WIKI: Final = "https://wiki.example.com/device-taint-webhook"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what kustomize reads."""
    for name in ("manifests", "certs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def rendered(assets: Assets, folder: Path) -> list[dict[str, Any]]:
    command = [str(assets.program("kubectl")), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return list(yaml.safe_load_all(done.stdout))


def links(documents: list[dict[str, Any]]) -> dict[str, str]:
    """The link of each alert."""
    [rules] = [each for each in documents if each["kind"] == "PrometheusRule"]
    return {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
    }


def assert_led_to_the_wiki(documents: list[dict[str, Any]]) -> None:
    found = links(documents)
    assert found
    assert found == {alert: f"{WIKI}#{alert.lower()}" for alert in found}
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "ConfigMap"}
    assert not [name for name in names if "runbooks" in name], "it is for kustomize only"


def test_one_line_of_the_component_leads_every_alert_elsewhere(assets: Assets, tree: Path) -> None:
    """M14."""
    file = tree / "manifests" / "components" / "monitoring" / "kustomization.yaml"
    text, changed = re.subn(r"base=\S+", f"base={WIKI}", file.read_text())
    assert changed == 1
    file.write_text(text)
    assert_led_to_the_wiki(rendered(assets, tree / "manifests" / "overlays" / "production"))


def test_overlay_of_the_readme_leads_every_alert_elsewhere(assets: Assets, tree: Path) -> None:
    """M14."""
    section = (ROOT / "manifests" / "README.md").read_text().partition("## Where alerts lead")[2]
    overlay = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])
    overlay["resources"] = ["../manifests/overlays/production"]
    (tree / "mine").mkdir()
    (tree / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    assert_led_to_the_wiki(rendered(assets, tree / "mine"))
