"""What the documents promise is there."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.architecture import doc_lines
from webhook.commands.explain import command as explain
from webhook.commands.shared.codes import codes
from webhook.commands.shared.main import main_of
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


GENERATED = frozenset({"cli.md", "policy-reference.md"})


def _words(*pages: Path) -> int:
    return sum(len(page.read_text().split()) for page in pages)


def test_pages_stay_short() -> None:
    """What one does not read does not help. Decisions and generated pages do not count."""
    written = [page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "adr" and page.name not in GENERATED]
    assert _words(*written, ROOT / "certs" / "README.md", ROOT / "manifests" / "README.md") <= 28_000
    assert _words(ROOT / "README.md") <= 700
    assert _words(ROOT / "CONTRIBUTING.md") <= 900
    latest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert len(latest.splitlines()) <= 40


def test_no_page_tells_of_a_feature_that_is_gone() -> None:
    pages = [*PAGES, *ROOT.glob("*/README.md"), *ROOT.glob("manifests/*/README.md")]
    found = [
        (page.name, name)
        for page in pages
        if page.name != "CHANGELOG.md" and "Status: superseded" not in page.read_text()
        for name in GONE.findall(page.read_text())
    ]
    assert found == []


CODES = (ROOT / "webhook" / "commands" / "explain" / "codes.md").read_text()


def test_every_heading_of_the_page_of_codes_is_a_code_with_a_title_in_order() -> None:
    _, *headings = re.findall(r"^#+ .+$", CODES, re.MULTILINE)
    assert headings == [f"### {code}: {each.title}" for code, each in codes().items()]
    assert sorted(codes()) == list(codes())
    assert len({each.title for each in codes().values()}) == len(codes())
    assert [code for code, each in codes().items() if not re.fullmatch(r"[A-Za-z].*\w", each.title)] == []


def test_every_code_has_a_text_that_stands_by_itself_and_says_what_to_do() -> None:
    """`explain` and SARIF print it: no link leads anywhere there, and nothing is said twice."""
    unfit = [
        code
        for code, each in codes().items()
        if each.text.count("*Do:*") != 1
        or not each.text.endswith(".")
        or re.search(r"\]\(|^[#|>]", each.text, re.MULTILINE)
    ]
    assert unfit == []


def test_every_code_that_the_program_prints_can_be_explained() -> None:
    printed = {code for file in ROOT.glob("webhook/**/*.py") for code in re.findall(r'"(DT\d{3})"', file.read_text())}
    assert printed == set(codes())


def test_pages_that_name_a_code_name_one_that_there_is() -> None:
    named = {code for page in PAGES if page.name != "CHANGELOG.md" for code in re.findall(r"DT\d{3}", page.read_text())}
    assert named - set(codes()) == set()


def test_the_page_of_messages_tells_how_to_read_about_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "admission.md").read_text()
    assert "(../webhook/commands/explain/codes.md)" in page
    (code,) = re.findall(r"^device-taint-webhook explain (\S+)$", page, re.MULTILINE)
    assert main_of(explain, [code]) == 0
    assert capsys.readouterr().out == f"{code}: {codes()[code].title}\n\n{codes()[code].text}\n"


def test_suites_that_the_readme_runs_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: the command works as it is pasted."""
    monkeypatch.chdir(ROOT)
    named = re.findall(r"^device-taint-webhook test (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named
    assert [main_of(suite, [name]) for name in named] == [0] * len(named)
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
    pages = {*PAGES, *ROOT.glob("manifests/**/*.md"), *ROOT.glob("tests/**/*.md")}
    broken = [
        f"{page.relative_to(ROOT)}: {link}#{anchor}"
        for page in sorted(pages)
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text())
        if not _leads_somewhere(page.parent / link if link else page, anchor)
    ]
    assert broken == []


def _leads_somewhere(target: Path, anchor: str) -> bool:
    return target.exists() and (not anchor or anchor in _anchors(target.read_text()))


def _anchors(page: str) -> set[str]:
    """GitHub's, of headings: those that are there twice are numbered."""
    without_code = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
    times: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+)$", without_code, re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{times[slug]}" if times[slug] else slug)
        times[slug] += 1
    return found


def test_anchors_are_those_of_github() -> None:
    page = "# `a` b: c_d!\n```\n# code\n```\n## Twice\n### [Twice](x.md)\n- ```\n  # code\n  ```\n#no\n## 1. A-b"
    assert _anchors(page) == {"a-b-c_d", "twice", "twice-1", "1-a-b"}


def test_each_complaint_names_tests_that_there_are() -> None:
    rows = re.findall(
        r"^\|(?!what was|---)(.+)\|$", (ROOT / "docs" / "development" / "complaints.md").read_text(), re.MULTILINE
    )
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
_NAMES_THE_IMAGE = re.compile(r"IMAGE=\S|images:|install\.md#image\)")


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
