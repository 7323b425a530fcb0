"""`snowmelt up` for the time of a block, with a state folder of its own."""

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from .paths import SNOWMELT


class Server:
    """Runs while the block does."""

    def __init__(self, folder: Path) -> None:
        self.environment = os.environ | {
            "SNOWMELT_STATE": str(folder / "state"),
            "SNOWMELT_RUN": str(folder / "run"),
        }

    @property
    def socket(self) -> Path:
        """Where its gateway listens."""
        return Path(self.environment["SNOWMELT_STATE"]) / "snowmelt.sock"

    def run(self, *arguments: str) -> str:
        """A command of the same platform; its output."""
        command = [str(SNOWMELT), *arguments]
        done = subprocess.run(
            command, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def __enter__(self) -> "Server":
        try:
            self.run("up")
        except BaseException:
            # Interrupted, it may be up all the same.
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
        """What `snowmelt status` says."""
        return dict(json.loads(self.run("status", "-o", "json")))
