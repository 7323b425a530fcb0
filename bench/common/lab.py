"""`snowmelt lab` during a block: hosts of a cluster on this machine, with shaped links."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from .paths import BENCH, CHECKOUT, SNOWMELT


class Lab:
    """A lab that runs during the block; its control is the platform of the clients."""

    def __init__(self, folder: Path, hosts: int, link: str, memory: str) -> None:
        self.up = ["up", "--hosts", str(hosts), "--link", link, "--memory", memory]
        packages = [str(CHECKOUT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = os.environ | {
            "SNOWMELT_STATE": str(folder / "state"),
            "SNOWMELT_RUN": str(folder / "run"),
            "SNOWMELT_BIN": str(SNOWMELT),
            "SNOWMELT_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(packages),
        }

    def lab(self, *arguments: str, timeout: float = 300) -> str:
        """Runs a `snowmelt lab` command; returns its output."""
        command = [str(SNOWMELT), "lab", *arguments]
        environment = self.environment
        done = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=timeout
        )
        return done.stdout

    def application(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """The output of a program of `bench/applications`, run as a client of the lab."""
        program = BENCH / "applications" / f"{name}.py"
        said = self.lab("run", "--", sys.executable, str(program), *arguments)
        return [json.loads(line) for line in said.splitlines()]

    def __enter__(self) -> "Lab":
        self.lab(*self.up)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lab("down")
