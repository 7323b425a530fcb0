"""`make demo` beside other platforms, and its check for remaining processes and folders."""

import subprocess
import sys

from conftest import Snowmelt

from common.paths import CHECKOUT, DATA, SNOWMELT

# Own processes are identified by descent, and orphans are adopted: so each script is a process.
ORPHAN = """
import os, signal, time
from pathlib import Path
from platform_run import demo_platform
with demo_platform(Path("/bin/sh")) as platform:
    assert platform.run(["-c", "sleep 300 & exit 0"]) == 0
    while not (left := platform.left()) or not left[0].endswith(" sleep 300"):
        time.sleep(0.01)
    assert len(left) == 1, left
    (platform.folder / "run" / "1-1").mkdir(parents=True)
    assert platform.left() == [*left, f"folder {platform.folder}/run/1-1"]
    os.kill(int(left[0].split()[1]), signal.SIGKILL)
    (platform.folder / "run" / "1-1").rmdir()
    assert not platform.remaining_within(30)
"""

KEPT = """
import sys
from pathlib import Path
from platform_run import demo_platform
with demo_platform(Path(sys.argv[1])) as platform:
    with platform.kept():
        left = platform.left()
        assert any("internal spawner" in line for line in left), left
        assert any(line.startswith("control group ") for line in left), left
        assert any(line.startswith("folder ") for line in left), left
    assert platform.remaining_within(30) == []
"""


def _run(script: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=CHECKOUT / "demo",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_demo_checks_only_its_own_processes(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    try:
        demo = subprocess.run(
            [sys.executable, CHECKOUT / "demo/run.py", "0.01"],
            env=alone.environ() | {"SNOWMELT_DATA": str(DATA)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert demo.returncode == 0, demo.stdout + demo.stderr
        assert demo.stdout.count("the same answer as DuckDB's") == 3
        assert "nothing is left behind" in demo.stdout
        table = [line for line in demo.stdout.splitlines() if line.startswith("country ")][-1]
        assert all(float(seconds) > 0 for seconds in table.split()[1:]), table
    finally:
        # It still runs: the demo neither used it nor ended it.
        alone.run("down").succeeded()


def test_orphans_and_run_folders_are_detected_and_those_of_others_ignored() -> None:
    with subprocess.Popen(["sleep", "300"]) as other:
        try:
            _run(ORPHAN)
        finally:
            other.kill()


def test_running_platforms_are_detected_and_ended_ones_are_not() -> None:
    _run(KEPT, SNOWMELT)
