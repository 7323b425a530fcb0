"""`snowmelt up` during a block, with a separate state folder."""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from .paths import SNOWMELT


class Server:
    """Runs while the block does, with these options of `snowmelt up` and variables."""

    def __init__(self, folder: Path, *options: str, **variables: str) -> None:
        self.options = options
        self.environment = os.environ | {
            "SNOWMELT_STATE": str(folder / "state"),
            "SNOWMELT_RUN": str(folder / "run"),
            **variables,
        }

    @property
    def socket(self) -> Path:
        """The socket of its gateway."""
        return Path(self.environment["SNOWMELT_STATE"]) / "snowmelt.sock"

    def run(self, *arguments: str) -> str:
        """Runs a command on the same platform; returns its output."""
        command = [str(SNOWMELT), *arguments]
        done = subprocess.run(
            command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def __enter__(self) -> "Server":
        try:
            self.run("up", *self.options)
        except BaseException:
            # It may be running even if `up` was interrupted.
            subprocess.run([str(SNOWMELT), "down"], env=self.environment, check=False)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run("down")

    def status(self) -> dict[str, Any]:
        """The output of `snowmelt status`."""
        return dict(json.loads(self.run("status", "-o", "json")))
