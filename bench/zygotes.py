"""A Python handler with numpy and pandas: from its zygote, and from nothing."""

import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version

from common.figures import Section, median, percentile, short, spread
from common.places import DATA, HELPER, shown

COUNT, COLD = 300, 15
IMPORTS = "import numpy, pandas"


def cold() -> list[float]:
    """Milliseconds of a Python that imports both and ends; its files are in the page cache."""
    samples = []
    # The first rounds, which are not counted, must be able to leave byte code for the others:
    # compiling pandas anew each time would flatter the zygote tenfold.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(COLD + 2):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", IMPORTS], check=True, cwd=folder, env=environment)
            samples.append((time.perf_counter() - begun) * 1000)
    return samples[2:]


def run() -> Section:
    section = Section("A Python handler with numpy and pandas")
    packages = [f"{name}=={version(name)}" for name in ("numpy", "pandas")]
    state = DATA / "bench/zygotes"
    state.mkdir(parents=True, exist_ok=True)
    command = [HELPER.name, "zygote", "--count", str(COUNT), "--state", shown(state)]
    command += [word for package in packages for word in ("--package", package)]
    section.commands += [" ".join(command), f"python3 -c '{IMPORTS}'"]
    section.say(
        "From the request to the answer of a fresh instance: fork from the zygote, a sandbox of"
        " its own, the handler's code loaded, one call that uses both packages, its answer as"
        " JSON. Beside it a Python process that only imports both, files in the page cache."
    )
    done = subprocess.run([HELPER, *command[1:]], check=True, stdout=subprocess.PIPE, text=True)
    row = json.loads(done.stdout)
    forked, from_nothing = [value / 1000 for value in row["first_byte_us"]], cold()
    fork = ["from the zygote", spread(forked), short(percentile(forked, 99))]
    nothing = ["cold python3", spread(from_nothing), short(max(from_nothing)), ""]
    head = ["", "ms to the answer", "p99", "CPU ms each"]
    section.table(head, [[*fork, f"{row['cpu_ms_each']:.1f}"], nothing])
    ratio = median(from_nothing) / median(forked)
    section.promise(
        "handler from its zygote against cold Python",
        "20 times faster",
        f"{ratio:.0f} times",
        ratio >= 20,
    )
    return section
