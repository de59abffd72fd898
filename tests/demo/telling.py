"""Telling chapters on a stage, and holding each step to what the story says of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from tests.controlplane.processes import NotReadyError, wait_until
from tests.controlplane.webhook_process import ROOT
from tests.demo.scenes import Chapter, Step
from tests.demo.terminal import Terminal

STORY = ROOT / "tests" / "demo" / "story"
_LOG_SECONDS = 300.0
_RIPE_SECONDS, _RIPE_PAUSE_SECONDS = 300.0, 0.2
PROGRAM_SECONDS = 900.0
"""A program that has not ended by then hangs: the slowest, a drain, takes less than a minute on an idle machine."""
_PROGRAMS = {"cat", "grep", "sed"}
_FAR, _SOON_DAYS = "2099-12-31", 3
"""The story's exception ends in some days, whenever it is told; its file has a day that never comes."""


class StoryError(Exception):
    """Something came out otherwise than the story says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command wrote, in the order in which a terminal shows it, and its code."""

    output: str
    code: int


class Stage(Protocol):
    """Where commands run."""

    def run(self, command: str) -> Outcome:
        """Runs a command of the story in the folder of its files."""

    def follow(self, command: str) -> Generator[str]:
        """Runs one that does not end by itself: its lines, as they come, for as long as somebody wants them."""

    def validations(self) -> int:
        """How often our validating webhook has been asked so far."""

    def log(self) -> str:
        """What our server has logged so far."""


class Storyteller:
    """Tells chapters one after the other."""

    def __init__(self, terminal: Terminal, stage: Stage) -> None:
        self._terminal = terminal
        self._stage = stage
        self._found: dict[str, set[str]] = {}
        self._kept = ""
        self._uncounted = 0

    def tell(self, chapters: Iterable[Chapter], between: Callable[[], None] = lambda: None) -> None:
        """All of them; `between` is called after each.

        Raises: StoryError at the first thing that does not come out as told.
        """
        for number, chapter in enumerate(chapters, start=1):
            self._terminal.chapter(number, chapter.title)
            self.act(chapter)
            between()

    def act(self, chapter: Chapter) -> None:
        """One chapter, without its title. Raises: StoryError."""
        if chapter.scene:
            with self._terminal.task(chapter.setting):
                for step in chapter.scene:
                    self._step(replace(step, unseen=True))
        asked = self._asked()
        for step in chapter.steps:
            self._step(step)
        if chapter.remark:
            self._terminal.say(chapter.remark)
        if chapter.asked is not None and (self._asked() > asked) is not chapter.asked:
            raise StoryError(f"our validating webhook was {'not ' if chapter.asked else ''}asked: {chapter.title}")

    def _step(self, step: Step) -> None:
        if step.next_second:
            now = _second()
            wait_until(lambda: _second() > now, "a new second", seconds=60)
        command = step.command.replace("{kept}", self._kept)
        if step.ripe:
            self._await_ripe(command, step.ripe)
        if not step.unseen:
            self._terminal.command(command)
        log = len(self._stage.log()) if step.logged else 0
        outcome = self._followed(command, step.until) if step.until else self._run(command, step)
        if outcome.output and not step.unseen and not step.until:
            self._terminal.output(outcome.output, refused=outcome.code != 0)
        for problem in self._problems(step, outcome):
            raise StoryError(f"{step.command}: {problem}" + (f"; it answered: {outcome.output}" if step.unseen else ""))
        if step.keeps:
            found = re.search(step.keeps, outcome.output)
            if found is None:
                raise StoryError(f"{step.command}: nothing matches {step.keeps}")
            self._kept = found[1]
        if step.logged:
            self._await_log(step.logged, log)

    def _run(self, command: str, step: Step) -> Outcome:
        outcome = self._stage.run(command)
        end = time.monotonic() + _RIPE_SECONDS
        while step.again and any(self._problems(step, outcome)) and time.monotonic() < end:
            time.sleep(_RIPE_PAUSE_SECONDS)
            outcome = self._stage.run(command)
        return outcome

    def _followed(self, command: str, until: str) -> Outcome:
        lines: list[str] = []
        with contextlib.closing(self._stage.follow(command)) as following:
            for line in following:
                if line not in lines[-1:]:
                    self._terminal.output(line)
                lines.append(line)
                output = "\n".join(lines)
                if re.search(until, output):
                    return Outcome(output, 0)
        raise StoryError(f"{command}: ended before it answered: {until}")

    def _problems(self, step: Step, outcome: Outcome) -> Iterable[str]:
        if outcome.code != step.code:
            yield f"ended with {outcome.code}, the story says {step.code}"
        for text in step.says:
            if text not in outcome.output:
                yield f"the story says that it answers: {text}"
        for text in step.never:
            if text in outcome.output:
                yield f"the story does not say that it answers: {text}"
        if step.matches and not re.search(step.matches, outcome.output):
            yield f"nothing in its answer matches {step.matches}"
        if step.new:
            match = re.search(step.new, outcome.output)
            known = self._found.setdefault(step.new, set())
            if match is None or match[0] in known:
                yield f"nothing new matches {step.new}; before: {', '.join(sorted(known)) or 'nothing'}"
            else:
                known.add(match[0])

    def _asked(self) -> int:
        """How often our validating webhook has been asked by what is shown."""
        return self._stage.validations() - self._uncounted

    def _await_ripe(self, command: str, text: str) -> None:
        before = self._stage.validations()
        rehearsal, last = f"{command} --dry-run=server", Outcome("", 0)

        def ripe() -> bool:
            nonlocal last
            last = self._stage.run(rehearsal)
            return text in last.output

        try:
            wait_until(ripe, text, seconds=_RIPE_SECONDS, every=_RIPE_PAUSE_SECONDS)
        except NotReadyError as e:
            raise StoryError(f"{rehearsal}: {e}; the last answer: {last.output}") from None
        self._uncounted += self._stage.validations() - before

    def _await_log(self, text: str, start: int) -> None:
        try:
            wait_until(lambda: text in self._stage.log()[start:], f"in our server's log: {text}", seconds=_LOG_SECONDS)
        except NotReadyError as e:
            raise StoryError(str(e)) from None


def run_program(command: str, folder: Path, environment: dict[str, str]) -> Outcome:
    """Our command line, as this checkout has it, or a program that every system has.

    Raises: StoryError for any other program, and for one that hangs.
    """
    program, *arguments = shlex.split(command)
    if program == "device-taint-webhook":
        found = [sys.executable, "-m", "webhook"]
    elif program in _PROGRAMS and (there := shutil.which(program, path=os.defpath)):
        found = [there]
    else:
        raise StoryError(f"the story cannot run {program}")
    with hang_reported(command):
        done = subprocess.run(
            [*found, *arguments],
            cwd=folder,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
    return Outcome(done.stdout, done.returncode)


@contextlib.contextmanager
def hang_reported(command: str) -> Generator[None]:
    """Turns a program that hangs into a StoryError with what it has written."""
    try:
        yield
    except subprocess.TimeoutExpired as e:
        written = b"".join(each if isinstance(each, bytes) else (each or "").encode() for each in (e.output, e.stderr))
        raise StoryError(f"{command}: not within {e.timeout:g} s: {written.decode(errors='replace')}") from None


def copy_story(folder: Path) -> Path:
    """A copy of the story's files that may be edited, with its exception ending soon."""
    folder.mkdir()
    soon = datetime.now(UTC) + timedelta(days=_SOON_DAYS)  # noqa: TID251 -- the exception ends by the clock on the wall
    for file in STORY.iterdir():
        (folder / file.name).write_text(file.read_text().replace(_FAR, f"{soon:%Y-%m-%d}"))
    return folder


def _second() -> int:
    return int(time.time())  # noqa: TID251 -- the clock on the wall is what is waited for
