"""That the demo fails when something comes out otherwise than it says."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.controlplane import versions
from tests.demo import __main__ as demo
from tests.demo import cluster
from tests.demo.chapters import IN_A_CLUSTER
from tests.demo.scenes import Chapter, Step
from tests.demo.softening import SOFTENING
from tests.demo.telling import STORY, Outcome, StoryError, Storyteller, run_program
from tests.demo.terminal import Terminal
from tests.demo.tour import ALONE, TOUR


@dataclass
class FixedStage:
    """Answers what it was given, one after the other, and asks our webhook `asks` times for each.

    With `asked_for` it is asked for that command only.
    """

    outcomes: list[Outcome]
    asks: int = 0
    logs: str = ""
    asked_for: str = ""
    commands: list[str] = field(default_factory=list)
    _validations: int = field(default=0)
    _log: str = field(default="before\n")

    def run(self, command: str) -> Outcome:
        self.commands.append(command)
        if self.asked_for in ("", command):
            self._validations += self.asks
        self._log += self.logs
        return self.outcomes.pop(0)

    def follow(self, command: str) -> Generator[str]:
        yield from self.run(command).output.splitlines()

    def validations(self) -> int:
        return self._validations

    def log(self) -> str:
        return self._log


def told(stage: FixedStage, *chapters: Chapter) -> str:
    stream = io.StringIO()
    Storyteller(Terminal(stream), stage).tell(chapters)
    return stream.getvalue()


def chapter(*steps: Step, asked: bool | None = None) -> Chapter:
    return Chapter(title="A title.", steps=steps, remark="A remark.", asked=asked)


def outcomes(*texts: str) -> list[Outcome]:
    return [Outcome(text, 0) for text in texts]


def test_chapter_is_told_with_the_output_as_it_came() -> None:
    step = Step(command="kubectl version", says=("v1",), code=1)
    stage = FixedStage([Outcome("v1\n* v2\n", 1)])
    assert told(stage, chapter(step)) == ("\n1. A title.\n   $ kubectl version\n     v1\n     * v2\n   A remark.\n")


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        pytest.param(Step(command="x"), Outcome("", 1), id="another exit code"),
        pytest.param(Step(command="x", code=1), Outcome("", 0), id="success instead of a refusal"),
        pytest.param(Step(command="x", says=("refused",)), Outcome("created", 0), id="text is missing"),
        pytest.param(Step(command="x", never=("Warning",)), Outcome("Warning: y", 0), id="text is not to be there"),
        pytest.param(Step(command="x", matches="a$"), Outcome("ab", 0), id="nothing matches"),
        pytest.param(Step(command="x", new=r"\d+"), Outcome("none", 0), id="nothing that could be new"),
    ],
)
def test_step_that_comes_out_otherwise_fails(step: Step, outcome: Outcome) -> None:
    with pytest.raises(StoryError, match=r"^x: "):
        told(FixedStage([outcome]), chapter(step))


def test_time_that_should_be_new_and_is_not_fails() -> None:
    step = Step(command="x", new=r"\d+")
    told(FixedStage(outcomes("at 1", "at 2")), chapter(step), chapter(step))
    with pytest.raises(StoryError, match="nothing new"):
        told(FixedStage(outcomes("at 1", "at 1")), chapter(step), chapter(step))


@pytest.mark.parametrize(("asked", "asks"), [(True, 0), (False, 1)])
def test_webhook_that_is_asked_otherwise_than_told_fails(asked: bool, asks: int) -> None:  # noqa: FBT001 -- a column
    with pytest.raises(StoryError, match="asked"):
        told(FixedStage(outcomes("x"), asks=asks), chapter(Step(command="x"), asked=asked))


def test_what_was_logged_before_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.demo.telling._LOG_SECONDS", 0.0)
    told(FixedStage(outcomes("x"), logs="now\n"), chapter(Step(command="x", logged="now")))
    with pytest.raises(StoryError, match="log"):
        told(FixedStage(outcomes("x"), logs="now\n"), chapter(Step(command="x", logged="before")))


def test_command_runs_when_a_dry_run_of_it_answers_what_it_waits_for() -> None:
    """The rehearsals are not shown, and that our webhook is asked by them does not count."""
    step = Step(command="x", ripe="6 pods", says=("6 pods",))
    stage = FixedStage(outcomes("5 pods", "6 pods (server dry run)", "6 pods"), asks=1)
    assert told(stage, chapter(step, asked=True)) == "\n1. A title.\n   $ x\n     6 pods\n   A remark.\n"
    assert stage.commands == ["x --dry-run=server", "x --dry-run=server", "x"]
    rehearsed_only = FixedStage(outcomes("6 pods", "6 pods"), asks=1, asked_for="x --dry-run=server")
    with pytest.raises(StoryError, match="not asked"):
        told(rehearsed_only, chapter(step, asked=True))


def test_command_whose_dry_run_never_answers_what_it_waits_for_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.demo.telling._RIPE_SECONDS", 0.0)
    with pytest.raises(StoryError, match=r"x --dry-run=server: .*6 pods; the last answer: 5 pods"):
        told(FixedStage([Outcome("5 pods", 1)]), chapter(Step(command="x", ripe="6 pods")))


def test_step_that_runs_again_is_shown_as_it_came_out_at_last() -> None:
    step = Step(command="x", says=("train-7",), never=("train-6",), again=True)
    text = told(FixedStage(outcomes("train-6 train-7", "train-7")), chapter(step))
    assert ("train-6" in text, text.count("train-7")) == (False, 1)


def test_step_that_never_comes_out_right_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.demo.telling._RIPE_SECONDS", 0.0)
    with pytest.raises(StoryError, match="does not say that it answers: train-6"):
        told(FixedStage(outcomes("train-6")), chapter(Step(command="x", never=("train-6",), again=True)))


def test_program_that_hangs_fails_the_story_with_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.demo.telling.PROGRAM_SECONDS", 0.2)
    os.mkfifo(tmp_path / "never")
    with pytest.raises(StoryError, match=r"^cat never: not within 0.2 s"):
        run_program("cat never", tmp_path, {})


_TIMES = [f"2026-01-31T12:00:{second:02}Z" for second in (0, 0, 1, 1, 9, 9, 9, 9)]


@pytest.mark.parametrize(
    ("jobs", "times", "right"),
    [
        pytest.param("ssssvvvv", _TIMES, True, id="one after the other"),
        pytest.param("vvvvssss", _TIMES, True, id="the other first"),
        pytest.param("ssssvvvv", [_TIMES[0]] * 8, False, id="both at once"),
        pytest.param("sssvsvvv", _TIMES, False, id="interleaved"),
        pytest.param("ssssssss", _TIMES, False, id="one job twice"),
        pytest.param("ssssvvvvs", [*_TIMES, _TIMES[-1]], False, id="one rank twice"),
        pytest.param("ssssvvv", _TIMES[:7], False, id="one rank stayed"),
    ],
)
def test_gangs_of_the_story_leave_one_after_the_other(jobs: str, times: list[str], right: bool) -> None:  # noqa: FBT001
    (step,) = (step for told in SOFTENING for step in told.steps if "EVICTED" in step.until)
    names = {"s": "speech", "v": "vision"}
    rows = [f"{time}   {names[job]}-{rank % 4}-x7k2p" for rank, (job, time) in enumerate(zip(jobs, times, strict=True))]
    output = "\n".join(["TIME                   EVICTED", *rows])
    assert bool(re.search(step.until, output)) is right


def test_command_that_says_nothing_leaves_no_line() -> None:
    assert told(FixedStage(outcomes("")), chapter(Step(command="x"))) == "\n1. A title.\n   $ x\n   A remark.\n"


def test_command_that_goes_on_is_shown_line_by_line_until_what_it_is_for() -> None:
    step = Step(command="x", until="two")
    told_so = told(FixedStage(outcomes("one\none\ntwo of two\nthree")), chapter(step))
    assert told_so == "\n1. A title.\n   $ x\n     one\n     two of two\n   A remark.\n"
    with pytest.raises(StoryError, match="ended before it answered: two"):
        told(FixedStage(outcomes("one")), chapter(step))
    lines = Step(command="x", until=r"^one\ntwo$")
    assert "three" not in told(FixedStage(outcomes("one\ntwo\nthree")), chapter(lines))
    with pytest.raises(StoryError, match="ended before it answered: "):
        told(FixedStage(outcomes("two\none\nthree")), chapter(lines))


def test_programs_that_the_story_does_not_know_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a line\n")
    assert run_program("cat file", tmp_path, {}) == Outcome("a line\n", 0)
    with pytest.raises(StoryError, match="cannot run rm"):
        run_program("rm file", tmp_path, {})


def test_every_file_of_the_story_is_told() -> None:
    whole, tour, alone = (_files(chapters) for chapters in (IN_A_CLUSTER, TOUR, ALONE))
    assert whole | tour | alone == {path.name for path in STORY.iterdir()}
    assert (tour | alone) - whole == {"dump.json", "team-policy.yaml"}


def _files(chapters: Iterable[Chapter]) -> set[str]:
    commands = " ".join(step.command for told in chapters for step in (*told.scene, *told.steps))
    return set(re.findall(r"\S+\.(?:yaml|json)", commands))


def test_files_are_rewritten_for_releases_that_serve_rules_in_another_version(tmp_path: Path) -> None:
    newest = cluster.story_for(versions.DEFAULT, tmp_path / "newest")
    older = cluster.story_for("1.34.4", tmp_path / "older")
    changed = {path.name for path in STORY.iterdir() if (newest / path.name).read_text() != _text(older, path)}
    assert changed == {
        *("all-gpus.yaml", "broken-gpu.yaml", "broken-gpu-evict.yaml", "bad-data.yaml", "firmware.yaml"),
        *("hot-gpus.yaml", "hot-server.yaml"),
    }
    assert "apiVersion: resource.k8s.io/v1alpha3\nkind: DeviceTaintRule" in (older / "broken-gpu.yaml").read_text()


def test_only_the_day_on_which_the_exception_ends_is_written_anew(tmp_path: Path) -> None:
    story = cluster.story_for(versions.DEFAULT, tmp_path / "story")
    changed = {path.name for path in STORY.iterdir() if path.read_text() != _text(story, path)}
    assert changed == {"policy.yaml"}
    texts = (STORY / "policy.yaml").read_text(), (story / "policy.yaml").read_text()
    (before, after), *others = ((a, b) for a, b in zip(*map(str.splitlines, texts), strict=True) if a != b)
    assert others == []
    assert before.strip() == 'expiresAt: "2099-12-31T00:00:00Z"'
    assert re.fullmatch(r' +expiresAt: "20\d\d-\d\d-\d\dT00:00:00Z"', after)


def _text(folder: Path, file: Path) -> str:
    return (folder / file.name).read_text()


def test_output_is_wrapped_between_words_and_without_colours_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = io.StringIO()
    terminal = Terminal(stream)
    terminal.output("* spec.devices.requests[0].exactly.tolerations: Too many\n")
    terminal.failure("why")
    assert stream.getvalue() == (
        "     *\n       spec.devices.requests[0].exactly.tolerations:\n       Too many\n\n   why\n"
    )


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    coloured, plain = _Tty(), _Tty()
    Terminal(coloured).title("x")
    monkeypatch.setenv(variable, value)
    Terminal(plain).title("x")
    assert (coloured.getvalue(), plain.getvalue()) == ("\x1b[1;36mx\x1b[0m\n", "x\n")


def test_refusals_are_red_and_warnings_yellow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = _Tty()
    Terminal(screen).output("Warning: why\nError from server", refused=True)
    Terminal(screen).output("a.yaml:1:1: warning: why\ncreated")
    red, yellow, plain = "\x1b[31m     {}\x1b[0m\n", "\x1b[33m     {}\x1b[0m\n", "     {}\n"
    shown = (
        (yellow, "Warning: why"),
        (red, "Error from server"),
        (yellow, "a.yaml:1:1: warning: why"),
        (plain, "created"),
    )
    assert screen.getvalue() == "".join(style.format(text) for style, text in shown)


def test_unseen_step_is_held_to_the_story_all_the_same() -> None:
    look = Step(command="look", says=("right",), unseen=True)
    assert told(FixedStage(outcomes("right")), chapter(look)) == "\n1. A title.\n   A remark.\n"
    with pytest.raises(StoryError, match=r"^look: .*right; it answered: wrong"):
        told(FixedStage(outcomes("wrong")), chapter(look))


def test_scene_is_set_unseen_and_not_counted() -> None:
    scene = (Step(command="set", says=("done",)),)
    stage = FixedStage(outcomes("done", "x"), asks=1, asked_for="set")
    with pytest.raises(StoryError, match="not asked"):
        told(stage, Chapter(title="A title.", setting="a table", scene=scene, steps=(Step(command="x"),), asked=True))
    assert stage.commands == ["set", "x"]
    with pytest.raises(StoryError, match=r"^set: .*done; it answered: no"):
        told(FixedStage(outcomes("no")), Chapter(title="A title.", setting="a table", scene=scene, steps=()))


@pytest.fixture
def signal_handlers() -> Iterator[None]:
    """Puts back what the demo sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signal_handlers")
def test_failed_demo_exits_with_1_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, *_ = ALONE
    monkeypatch.setattr(demo, "ALONE", (replace(good, steps=(replace(good.steps[0], code=0),)),))
    monkeypatch.setattr(sys, "argv", ["demo", "--files"])
    assert demo.main() == 1
    said = " ".join(capsys.readouterr().out.split())  # the width is that of the terminal
    assert "The demo failed: device-taint-webhook check careless-claim.yaml: ended with 1, the story says 0" in said
