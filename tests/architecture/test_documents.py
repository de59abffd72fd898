"""What the documents promise is there."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from webhook.admission.cluster_lint import CLUSTER_LINTS
from webhook.admission.lint import LINTS
from webhook.policy.lint import POLICY_LINTS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("certs/*.md"), *ROOT.glob("manifests/*.md")])


def test_every_warning_code_has_its_entry_and_title() -> None:
    page = (ROOT / "docs" / "admission.md").read_text()
    assert dict(re.findall(r"^### (DT\d{3}): (.+)$", page, re.MULTILINE)) == {**LINTS, **CLUSTER_LINTS, **POLICY_LINTS}


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_each_complaint_names_tests_that_there_are() -> None:
    rows = re.findall(r"^\|(?! what was|---)(.+)\|$", (ROOT / "docs" / "complaints.md").read_text(), re.MULTILINE)
    named = [re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row) for row in rows]
    assert len(rows) >= 11
    assert all(named)
    missing = [
        f"{file}::{name}"
        for file, name in itertools.chain.from_iterable(named)
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`(?:[A-Z]+=\S+ )*make ([a-z-]+)`", page.read_text())}
    assert named <= targets
