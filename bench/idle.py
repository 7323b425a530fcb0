"""The cost of an idle platform."""

import subprocess
import tempfile
import time
from pathlib import Path

from common.figures import Section
from common.machine_state import MachineState
from common.paths import SNOWMELT, shown, tpch
from common.processes import memory_below
from common.server import Server

LIMIT_MIB = 60


def run() -> Section:
    section = Section("Idle cost")
    lineitem = tpch("1", ["lineitem"]) / "lineitem"
    sql = f"select count(*) from '{shown(lineitem)}'"
    before = MachineState()
    subprocess.run([SNOWMELT, "sql", sql, "--embedded"], check=True, stdout=subprocess.DEVNULL)
    left = before.new_since()
    section.promise(
        "after `snowmelt sql`", "no process", str(left) if left else "nothing left", not left
    )
    with tempfile.TemporaryDirectory(prefix="sm-") as folder, Server(Path(folder)) as server:
        time.sleep(2)
        memory = memory_below(server.status()["pid"])
        said = server.status()["memory_bytes"]
    total = sum(memory.values()) / 2**20
    section.say("Proportional set size of `snowmelt up` and all that it started, after 2 s.")
    section.table(
        ["process", "MiB"], [[name, f"{size / 2**20:.1f}"] for name, size in memory.items()]
    )
    section.say(f"`snowmelt status` says {said / 2**20:.1f} MiB of resident memory.")
    section.commands += [f'snowmelt sql "{sql}" --embedded', "snowmelt up", "snowmelt status"]
    section.promise(
        "`snowmelt up`, idle", f"under {LIMIT_MIB} MiB", f"{total:.1f} MiB", total < LIMIT_MIB
    )
    return section
