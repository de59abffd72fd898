"""What the documents promise is there."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.architecture import doc_lines
from webhook.commands.shared.codes import codes
from webhook.commands.test import command as suite

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("certs/*.md"), *ROOT.glob("manifests/*.md")])


GONE = re.compile(
    r"supplement|taint-webhook bundle|alertmanager|cloudevents|MutatingAdmissionPolic|--notify-|--open-reports"
    r"|--sync-admission-policies|components/(?:notifications|admission-policies)|export-vap --defaults"
    r"|confirmation code|--key-file|--key-secret|webhook-key\b|callers\.md|unauthenticated-callers|secondPerson"
    r"|confirmFor",
    re.IGNORECASE,
)
"""Names of features that have left; the changelog and superseded decisions alone tell of them."""


def test_no_page_tells_of_a_feature_that_is_gone() -> None:
    pages = [*PAGES, *ROOT.glob("*/README.md"), *ROOT.glob("manifests/*/README.md")]
    found = [
        (page.name, name)
        for page in pages
        if page.name != "CHANGELOG.md" and "Status: superseded" not in page.read_text()
        for name in GONE.findall(page.read_text())
    ]
    assert found == []


def test_every_warning_code_has_its_entry_and_title() -> None:
    page = (ROOT / "docs" / "admission.md").read_text()
    entries = dict(re.findall(r"^### (DT\d{3}): (.+)$", page, re.MULTILINE))
    assert entries == {code: each.title for code, each in codes().items()}


def test_every_code_that_the_program_prints_can_be_explained() -> None:
    printed = {code for file in ROOT.glob("webhook/**/*.py") for code in re.findall(r'"(DT\d{3})"', file.read_text())}
    assert printed == set(codes())


def test_page_says_of_each_code_what_explain_prints() -> None:
    """B3: the package has the text (webhook/commands/explain/codes.md), the page is a copy."""
    page = (ROOT / "docs" / "admission.md").read_text()
    sections = re.findall(r"^### (DT\d{3}): ([^\n]+)\n\n(.+?)\n(?=\n##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert [tuple(code) for code in codes().values()] == sections


def test_suites_that_the_readme_runs_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: the command works as it is pasted."""
    monkeypatch.chdir(ROOT)
    named = re.findall(r"^device-taint-webhook test (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named
    assert [suite.run([name]) for name in named] == [0] * len(named)
    assert " 0 failed" in capsys.readouterr().out


def test_lines_of_pages_are_not_too_long() -> None:
    """`make docs` wraps them."""
    assert [page.name for page in doc_lines.pages() if doc_lines.wrapped(page.read_text()) != page.read_text()] == []


def test_long_lines_are_wrapped_to_the_end_of_their_paragraph() -> None:
    word = "twelve-chars"
    long = " ".join([word] * 12)
    for first, rest in (("", ""), ("- ", "  "), ("  1. ", "     ")):
        lines = doc_lines.wrapped(f"short\n{first}{long}\n{rest}the end\n\n- next").split("\n")
        assert lines[0] == "short"
        assert lines[1].startswith(f"{first}{word}")
        assert lines[2] == f"{rest}{' '.join([word] * (12 - lines[1].count(word)))} the end"
        assert lines[3:] == ["", "- next"]
        assert max(map(len, lines)) <= doc_lines.LENGTH
    for kept in (f"# {long}", f"| {long} |", f"```\n{long}\n```", long[:120], "x" * 121):
        assert doc_lines.wrapped(kept) == kept
    assert doc_lines.wrapped(f"{long}\n- {word}").endswith(f"\n- {word}")


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


_INSTALLS = re.compile(r"kubectl apply [^`\n]*(?:-k [^`\n]*\S|-f install\.yaml)")
_NAMES_THE_IMAGE = re.compile(
    r"IMAGE=\S|images:|edit set image|#the-image\)|install\.md\)|names the image|and the image:"
)


def test_h3_every_command_that_installs_comes_after_the_image_that_it_installs() -> None:
    """In its section: there is no public image, and without one every pod is in ImagePullBackOff."""
    installing, unsaid = 0, []
    for page in PAGES:
        for section in re.split(r"^(?=#+ )", page.read_text(), flags=re.MULTILINE):
            for found in _INSTALLS.finditer(section):
                installing += 1
                line_end = section.index("\n", found.end())
                if not _NAMES_THE_IMAGE.search(section[:line_end]):
                    unsaid.append(f"{page.relative_to(ROOT)}: {found[0]}")
    assert unsaid == []
    assert installing >= 5


def test_h3_make_renders_with_an_image_wherever_a_page_has_the_command() -> None:
    commands = [
        line
        for page in PAGES
        for line in re.findall(r"^(?: {4})?(make install\.yaml.*)$", page.read_text(), re.MULTILINE)
    ]
    assert commands
    assert [line for line in commands if "IMAGE=" not in line] == []
