"""Documents whose commands run as they are written."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import Snowmelt

from common.paths import CHECKOUT, SNOWMELT

LIMIT_S = 300


def run(document: str, alone: Snowmelt, folder: Path, least_blocks: int) -> tuple[str, str]:
    """What the commands of a document print, in an empty folder."""
    text = (CHECKOUT / "docs" / document).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= least_blocks
    # A shell ends what it has started in the background if a command fails.
    script = "set -eux -o pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    environment = alone.environ()
    environment["PATH"] = f"{SNOWMELT.parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script + "\n".join(blocks)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if done.returncode != 0:
        logs = [log.read_text()[-3000:] for log in sorted(folder.glob("*/snowmelt.log"))]
        pytest.fail("\n".join([done.stdout, done.stderr[-6000:], *logs]))
    return done.stdout, done.stderr


def test_the_commands_from_one_host_to_thousands_run_as_written(
    alone: Snowmelt, tmp_path: Path
) -> None:
    out, err = run("how-to/cluster.md", alone, tmp_path, 6)
    assert out.count('"hello":"Ada"') == 1 + 4 + 6 + 1 + 6 + 5, out
    assert "registry" in out and "simulated" in out + err


# All prices of the file, added up: with a registered function, and on a cluster.
PRICES = 421_537


def test_the_tutorial_runs_as_written(alone: Snowmelt, tmp_path: Path) -> None:
    out, _ = run("tutorial/from-a-file-to-a-cluster.md", alone, tmp_path, 7)
    rows = [line.split("│") for line in out.splitlines() if "│" in line]
    shown = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert shown["br"] == ["12500", "45.5"]
    assert float(shown["us"][0]) == 168_122
    assert "10 rows from Snowmelt\n[2, 4, 6] from functions in sandboxes\n" in out
    assert out.count(f"{PRICES}.0") == 2
    assert "said hello to Ada" in out
    assert (tmp_path / "answers.jsonl").read_text().count('"hello":"all"') == 16
    assert shown["two"][0] == "127.0.0.1:7171"


def test_a_team_uses_one_platform_as_written(alone: Snowmelt, tmp_path: Path) -> None:
    out, err = run("how-to/team.md", alone, tmp_path, 5)
    assert "total\n10100.0\n" in out, out
    # By the command, over HTTP, and with the new key.
    for answer in ('{"score":42}', '{"score": 2}', '{"score":8}'):
        assert out.count(answer) == 1, out
    # A caller runs no query, and a revoked key calls nothing.
    assert "SM-0518" in err and "SM-0515" in err
    assert "notebooks" in out and "score*" in out


def test_two_teams_lose_a_machine_as_written(alone: Snowmelt, tmp_path: Path) -> None:
    out, err = run("tutorial/from-one-machine-to-a-team.md", alone, tmp_path, 6)
    assert "total\n10100.0\n" in out, out
    # Called by the first control, accepted by it, and called by the other one.
    for answer in ('{"score":42}', '{"score":8}', '{"score":20}'):
        assert answer in out, out
    # One team does not see what the other one has, and a caller deploys nothing.
    assert "SM-0518" in err and "there is no" in err, err
    assert out.count("stands by") == 2, out
