"""The commands of docs/cluster.md run as they are written."""

import re
import subprocess
from pathlib import Path

from conftest import Snowmelt

from common.paths import CHECKOUT, SNOWMELT

LIMIT_S = 300


def test_the_commands_from_one_host_to_thousands_run_as_written(
    alone: Snowmelt, tmp_path: Path
) -> None:
    text = (CHECKOUT / "docs" / "cluster.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    # A shell ends what it has started in the background if a command fails.
    script = "set -eux -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    environment = alone.environ()
    environment["PATH"] = f"{SNOWMELT.parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script + "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    assert done.stdout.count('"hello":"Ada"') == 1 + 4 + 6 + 1 + 6 + 5, done.stdout
    assert "registry" in done.stdout and "simulated" in done.stdout + done.stderr
