"""A control whose clock is two days off, among others."""

import json
import signal
import subprocess
from pathlib import Path

from conftest import short_folder, wait_for
from controls import controls, replaced

SOURCE = Path(__file__).parent / "clocks" / "shift.c"
CODE = "def handler(event):\n    return event * 2\n"
DAYS = 2 * 24 * 3600


def test_a_control_with_another_clock_leads_only_if_no_other_one_does(
    machine: None, tmp_path: Path
) -> None:
    shift = tmp_path / "shift.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shift, SOURCE], check=True)
    file = tmp_path / "f.py"
    file.write_text(CODE)
    shifted = {"LD_PRELOAD": str(shift), "CLOCK_SHIFT": str(DAYS)}
    names = ["one", "two", "three"]
    with (
        short_folder() as folder,
        controls(folder, names, of_control={"two": shifted}) as cluster,
    ):
        one, two, three = cluster.controls.values()
        assert cluster.leader() == "one"
        one.run("fn", "deploy", "f", file).succeeded()
        call = one.run("fn", "call", "f", "--data", "21", "--async").succeeded().out.split()[0]
        wait_for("the clock to be looked at", lambda: "clock" in cluster.store("two"))
        assert "clock" not in cluster.store("three")

        cluster.signal("one", signal.SIGKILL)
        assert replaced(cluster, "one")[0] == "three"
        # What was acknowledged is not over by a wrong clock.
        wait_for("the call", lambda: three.run("fn", "result", call).out.strip() == "42")

        # Better a wrong clock than no control.
        cluster.signal("three", signal.SIGKILL)
        assert replaced(cluster, "three")[0] == "two"
        assert json.loads(two.run("fn", "call", "f", "--data", "4").succeeded().out) == 8
