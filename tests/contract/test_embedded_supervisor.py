"""The supervisor: order, deaths, and nothing left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.supervised import DIES, IGNORES_STOP, SERVES, part
from tests.rig.eventually import eventually
from towline.embedded.children import Child, Command
from towline.embedded.directory import ProcessRecord
from towline.embedded.parts import PartFailedError, Stage, Step
from towline.embedded.supervisor import RestartPolicy, Supervisor

_QUICK = RestartPolicy(first_seconds=0.05, most_seconds=0.1)


class Run:
    """A supervisor at work in the background of a test."""

    def __init__(self, directory: Path, stages: Sequence[Stage]) -> None:
        self.said: list[str] = []
        self.stop = asyncio.Event()
        self.up = asyncio.Event()
        self._supervisor = Supervisor(stages, directory=directory, say=self.said.append, restarts=_QUICK)

    async def until_stopped(self) -> None:
        await self._supervisor.run(self.stop, self.up.set)


def _journal(directory: Path) -> list[str]:
    journal = directory / "journal"
    return journal.read_text().splitlines() if journal.exists() else []


def _processes_in(directory: Path) -> list[str]:
    """The command lines of live processes whose working directory is under `directory`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(directory):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # It has ended meanwhile.
            continue
    return [line for line in found if line]


async def test_starts_in_order_and_stops_in_reverse(tmp_path: Path) -> None:
    run = Run(tmp_path, [(part("first", tmp_path),), (part("second", tmp_path),)])
    running = asyncio.create_task(run.until_stopped())
    await run.up.wait()
    assert _journal(tmp_path) == ["started first", "started second"]
    run.stop.set()
    await running
    assert _journal(tmp_path)[2:] == ["stopped second", "stopped first"]
    assert _processes_in(tmp_path) == []


async def test_a_part_that_dies_at_start_is_named_with_its_last_words_and_all_is_stopped(tmp_path: Path) -> None:
    stages = [(part("first", tmp_path),), (part("broken", tmp_path, DIES),), (part("never", tmp_path),)]
    run = Run(tmp_path, stages)
    with pytest.raises(PartFailedError, match=r"(?s)broken ended with exit code 3.*no more bytes on the shelf"):
        await run.until_stopped()
    assert _journal(tmp_path) == ["started first", "stopped first"]
    assert _processes_in(tmp_path) == []
    assert not run.up.is_set()


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    absent = part("absent", tmp_path)
    argv = (str(tmp_path / "absent"),)
    missing = type(absent)(
        name="absent",
        prepare=lambda: Command(name="absent", argv=argv, cwd=tmp_path),
        is_ready=absent.is_ready,
    )
    with pytest.raises(PartFailedError, match=r"(?s)absent ended with exit code 127.*No such file"):
        await Run(tmp_path, [(missing,)]).until_stopped()


async def test_a_part_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    never_ready = SERVES.replace(".ready", ".busy")
    with pytest.raises(PartFailedError, match=r"slow is not ready after 0\.5 s"):
        await Run(tmp_path, [(part("slow", tmp_path, never_ready, ready_seconds=0.5),)]).until_stopped()
    assert _processes_in(tmp_path) == []


async def test_a_step_that_fails_is_named_and_all_is_stopped(tmp_path: Path) -> None:
    async def fail() -> None:
        raise OSError("the shelf is gone")

    run = Run(tmp_path, [(part("first", tmp_path),), (Step(name="migrations", run=fail),)])
    with pytest.raises(PartFailedError, match="migrations failed: the shelf is gone"):
        await run.until_stopped()
    assert _processes_in(tmp_path) == []


async def test_a_part_that_dies_later_is_started_again_and_said(tmp_path: Path) -> None:
    run = Run(tmp_path, [(part("first", tmp_path),)])
    running = asyncio.create_task(run.until_stopped())
    await run.up.wait()
    for lives in (2, 3):
        [pid] = [int(p.name) for p in Path("/proc").glob("[0-9]*") if _runs_in(p, tmp_path)]
        os.kill(pid, signal.SIGKILL)

        def is_up_again(lives: int = lives) -> None:
            assert run.said.count("first is up again") == lives - 1

        await eventually(is_up_again, timeout=20)
    assert _journal(tmp_path) == ["started first"] * 3
    assert any("was ended by signal 9" in line for line in run.said)
    run.stop.set()
    await running


def _runs_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").readlink() == directory and (process / "cmdline").read_bytes() != b""
    except OSError:
        return False


async def test_a_part_that_ignores_the_stop_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    with_grandchild = f"import subprocess; subprocess.Popen(('sleep', '600'))\n{IGNORES_STOP}"
    run = Run(tmp_path, [(part("deaf", tmp_path, with_grandchild, grace_seconds=0.3),)])
    running = asyncio.create_task(run.until_stopped())
    await run.up.wait()
    assert len(_processes_in(tmp_path)) == 2
    run.stop.set()
    await running
    assert _processes_in(tmp_path) == []


async def test_a_stop_during_the_start_stops_what_is_there(tmp_path: Path) -> None:
    never_ready = part("slow", tmp_path, SERVES.replace(".ready", ".busy"))
    run = Run(tmp_path, [(part("first", tmp_path),), (never_ready,)])
    running = asyncio.create_task(run.until_stopped())
    await eventually(lambda: _has_started(tmp_path, "slow"), timeout=20)
    run.stop.set()
    await running
    assert _processes_in(tmp_path) == []
    assert not run.up.is_set()


def _has_started(directory: Path, name: str) -> None:
    assert f"started {name}" in _journal(directory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_outlives_the_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    def all_are_gone() -> None:
        assert _processes_in(tmp_path) == []

    for _ in range(2):  # The second stack finds the data of the first, however that ended.
        supervisor = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.contract.supervised", str(tmp_path), stdout=subprocess.PIPE
        )
        assert supervisor.stdout
        while await supervisor.stdout.readline() != b"READY\n":
            assert not supervisor.stdout.at_eof()
        running = _processes_in(tmp_path)
        assert any("bin/postgres" in line for line in running)
        assert any("start-dev" in line for line in running)
        supervisor.send_signal(number)
        await supervisor.wait()
        await eventually(all_are_gone, timeout=10)


async def test_a_stop_goes_on_when_nobody_listens_any_more(tmp_path: Path) -> None:
    def say(line: str) -> None:
        raise BrokenPipeError

    stop = asyncio.Event()
    supervisor = Supervisor([(part("first", tmp_path),)], directory=tmp_path, say=say)
    await supervisor.run(stop, stop.set)
    assert _journal(tmp_path) == ["started first", "stopped first"]


def test_the_record_ends_what_is_provably_ours_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "processes.json"
    with (
        subprocess.Popen(("sleep", "60"), start_new_session=True) as ours,
        subprocess.Popen(("sleep", "60"), start_new_session=True) as other,
    ):
        record = ProcessRecord(path)
        record.add("ours", ours.pid)
        record.add("other", other.pid)
        noted = json.loads(path.read_text())
        noted["other"]["identity"]["started_ticks"] -= 1  # As if the pid belonged to another process by now.
        path.write_text(json.dumps(noted))
        assert ProcessRecord(path).end_leftovers() == ("ours",)
        assert ours.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
    assert not path.exists()


def test_a_child_writes_to_a_log_that_stays_within_bounds(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "talker.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (11 * 1024 * 1024))
    argv = (sys.executable, "-I", "-S", "-c", "print('new words')")
    child = Child.start(Command(name="talker", argv=argv, cwd=tmp_path), log)
    child.stop_and_wait()
    assert log.stat().st_size < 1024
    assert log.with_suffix(".log.1").stat().st_size == 11 * 1024 * 1024
