"""A cold machine: chapters without a control plane come first, and say what goes on meanwhile."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import assets
from tests.controlplane.processes import wait_until
from tests.controlplane.test_processes import _alive
from tests.controlplane.webhook_process import ROOT
from tests.demo import __main__ as demo
from tests.demo import building, cluster, terminal
from tests.demo.building import BackgroundBuild, BuildNews
from tests.demo.scenes import Chapter, Step
from tests.demo.telling import Outcome, Storyteller
from tests.demo.terminal import Terminal
from tests.demo.test_telling import _Tty
from tests.demo.tour import ALONE

FAKE_BUILD = """\
import json, pathlib, sys, time
folder, end = pathlib.Path(sys.argv[1]), sys.argv[2]
def say(**line): print(json.dumps(line), flush=True)
step = 0
while True:
    step += 1
    say(progress=f"kubernetes-1.37.0: step {step}")
    while not (folder / f"step-{step}").exists():
        if (folder / "end").exists():
            if end == "built":
                sys.exit(0)
            if end != "unavailable":
                sys.exit(end)
            say(unavailable="go build ended with 1:\\nno route to the module proxy")
            sys.exit(1)
        time.sleep(0.02)
"""


class FakeBuilds:
    """Builds that go on by a step, or end, when a test says so."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = monkeypatch
        self._step = 1

    def end_with(self, end: str) -> None:
        """How a build ends: built, unavailable, or with these last words."""
        self._patch.setattr(building, "COMMAND", (sys.executable, "-c", FAKE_BUILD, str(self.folder), end))

    def go_on(self, build: BackgroundBuild | None = None) -> None:
        """One more step; waits until it is known, if a build is given."""
        (self.folder / f"step-{self._step}").touch()
        self._step += 1
        if build is not None:
            wait_until(lambda: build.state.endswith(f"step {self._step}"), "the next step")

    def end(self) -> None:
        (self.folder / "end").touch()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBuilds:
    made = FakeBuilds(tmp_path, monkeypatch)
    made.end_with("built")
    return made


class _Watched(io.StringIO):
    """Tells what is written to it."""

    def __init__(self, written: Callable[[str], None]) -> None:
        super().__init__()
        self._written = written

    def write(self, text: str) -> int:
        count = super().write(text)
        self._written(text)
        return count


# --- the order ----------------------------------------------------------------------------------


class EmptyStage:
    """Answers every command with its own name."""

    def __init__(self, before: Callable[[str], None] = lambda _: None) -> None:
        self._before = before

    def run(self, command: str) -> Outcome:
        self._before(command)
        return Outcome(f"done: {command}\n", 0)

    def validations(self) -> int:
        return 0

    def log(self) -> str:
        return ""

    def calls(self) -> tuple[int, int]:
        return 7, 0


def chapters(*names: str) -> tuple[Chapter, ...]:
    return tuple(Chapter(title=f"About {name}.", steps=(Step(command=name),)) for name in names)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, fake: FakeBuilds) -> Callable[..., tuple[int, str]]:
    """Plays the demo with stages that do nothing; `during` is called with each command, `written` with each text."""

    def play(
        during: Callable[[str], None] = lambda _: None, written: Callable[[str], None] = lambda _: None
    ) -> tuple[int, str]:
        stream = _Watched(written)

        @contextlib.contextmanager
        def stage(*_: Any) -> Iterator[EmptyStage]:
            yield EmptyStage(during)

        def tell(stage: Any, told: Terminal, **_: Any) -> None:
            Storyteller(told, stage).tell(chapters("three"))

        monkeypatch.setattr(demo, "files", stage)
        monkeypatch.setattr(demo, "ALONE", chapters("one", "two"))
        monkeypatch.setattr(cluster, "started", stage)
        monkeypatch.setattr(cluster, "tell", tell)
        monkeypatch.setattr(assets, "unbuilt", lambda **_: ["kubernetes-1.37.0"])
        monkeypatch.setattr(assets, "find", lambda **_: assets.Assets(fake.folder, "1.37.0"))
        monkeypatch.setattr(demo, "_stopping", lambda: None)
        monkeypatch.setattr(terminal, "_STATUS_SECONDS", 0.0)
        return demo.play(Terminal(stream), whole=False, keep=False), stream.getvalue()

    return play


def _marks(text: str, *marks: str) -> list[int]:
    """Where each mark stands; it must be there once."""
    flat = " ".join(text.split())
    assert [mark for mark in marks if flat.count(mark) != 1] == [], text
    return [flat.index(mark) for mark in marks]


def test_chapters_without_a_cluster_come_first_then_the_wait_then_the_cluster(
    played: Callable[..., tuple[int, str]], fake: FakeBuilds
) -> None:
    def written(text: str) -> None:
        if "Waiting" in text:
            fake.go_on()
        elif "step 2" in text:
            fake.end()

    code, text = played(written=written)
    assert code == 0
    places = _marks(
        text,
        "A control plane is being built, once, in 15 to 30 minutes.",
        "1. About one. $ one done: one",
        "2. About two. $ two done: two",
        "What comes next needs the real control plane. Waiting for its build; Ctrl-C ends both.",
        "kubernetes-1.37.0: step 2",
        "device-taint-webhook at work, on a real control plane",
        "1. About three. $ three done: three",
        "the API server called our webhook 7 times; 0 calls failed.",
    )
    assert places == sorted(places)


def test_progress_stands_between_chapters_where_it_has_changed(
    played: Callable[..., tuple[int, str]], fake: FakeBuilds, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[BackgroundBuild] = []
    enter = BackgroundBuild.__enter__

    def entered(build: BackgroundBuild) -> BackgroundBuild:
        builds.append(build)
        return enter(build)

    monkeypatch.setattr(BackgroundBuild, "__enter__", entered)

    def during(command: str) -> None:
        if command == "one":
            wait_until(lambda: builds[0].state != "", "the first step")
        elif command == "two":
            fake.end()
            wait_until(lambda: builds[0].ended, "the end of the build")

    code, text = played(during)
    places = _marks(
        text,
        "done: one (in the background: kubernetes-1.37.0: step 1)",
        "done: two (in the background: the control plane is built)",
        "1. About three.",
    )
    assert (code, places) == (0, sorted(places))
    assert "Waiting" not in text


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("unavailable", "No control plane: go build ended with 1: no route to the module proxy"),
        ("out of memory", "No control plane: the build ended with 1:"),
    ],
)
def test_build_that_fails_is_shown_and_the_demo_ends_without_a_cluster(
    end: str, says: str, played: Callable[..., tuple[int, str]], fake: FakeBuilds
) -> None:
    fake.end_with(end)
    code, text = played(lambda command: fake.end() if command == "two" else None)
    places = _marks(text, "2. About two.", says, "without a control plane.")
    assert (code, places) == (0, sorted(places))
    assert "About three" not in text
    assert (end == "out of memory") is ("out of memory" in text)


def test_leaving_ends_the_build(fake: FakeBuilds) -> None:
    with BackgroundBuild() as build:
        wait_until(lambda: build.state != "", "the first step")
        fake.go_on(build)
    assert build.ended


def test_nothing_new_is_not_said_again(fake: FakeBuilds) -> None:
    stream = io.StringIO()
    with BackgroundBuild() as build:
        news = BuildNews(build, Terminal(stream))
        wait_until(lambda: build.state != "", "the first step")
        news.tell()
        news.tell()
        fake.go_on(build)
        news.tell()
    assert stream.getvalue().count("step 1)") == stream.getvalue().count("step 2)") == 1


def test_status_is_one_line_on_a_terminal_and_an_occasional_one_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    screen, pipe = _Tty(), io.StringIO()
    for stream in (screen, pipe):
        with Terminal(stream).status() as show:
            for text in ("", "one", "one", "two, which is far too long"):
                show(text)
    assert screen.getvalue() == "\r\033[K   one\r\033[K   two, which is fa\n"
    assert pipe.getvalue() == "   one\n"


# --- the whole, with a fake Go ------------------------------------------------------------------

FAKE_GO = """\
#!/bin/sh
echo "go: downloading k8s.io/kubernetes v1.37.0" >&2
echo $$ > "$FAKE/pid"
if [ -e "$FAKE/fails" ]; then echo "dial tcp: no route to the module proxy" >&2; exit 1; fi
nice > "$FAKE/nice"
sleep 3600
"""


@pytest.fixture
def cold(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a control plane, where Go is as slow as FAKE_GO."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(FAKE_GO)
    (programs / "go").chmod(0o755)
    left_out = {"KEEP", "COLUMNS", "KUBECONFIG", "KUBEBUILDER_ASSETS", "ENVTEST_K8S_VERSION"}
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "DEVICE_TAINT_WEBHOOK_CACHE": str(tmp_path / "cache"),
        "FAKE": str(tmp_path),
    }


@pytest.mark.slow
def test_ctrl_c_while_chapters_are_told_ends_the_build_with_all_its_processes(
    cold: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "output"
    with (
        output.open("w") as stdout,
        subprocess.Popen(
            [sys.executable, "-m", "tests.demo"], cwd=ROOT, env=cold, stdout=stdout, stderr=subprocess.STDOUT
        ) as played,
    ):
        try:
            wait_until(lambda: "2. " in output.read_text() and (tmp_path / "nice").exists(), "the second chapter")
        finally:
            played.send_signal(signal.SIGINT)
        assert played.wait(timeout=120) == 130
    assert (tmp_path / "nice").read_text().strip() == "19"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _alive(pid), "the end of Go")
    assert [path.name for path in (tmp_path / "cache").rglob("*.tmp-*")] == []


@pytest.mark.slow
def test_build_that_fails_leaves_the_demo_without_a_cluster_and_its_words(cold: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    done = subprocess.run(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        env=cold,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", done.stdout, re.MULTILINE)]
    assert numbers == list(range(1, len(ALONE) + 1))
    # a build at the lowest priority may fail only when all chapters are told
    told_between = "the build has failed; why follows below" in done.stdout
    assert told_between is not ("Waiting for its build" in done.stdout)
    assert "dial tcp: no route to the module proxy" in done.stdout
