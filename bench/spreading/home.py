"""A platform's folder in which images and their start profiles are made, before they are pushed."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.paths import SNOWMELT


class Home:
    """A platform that runs only in `with running()`."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "home"
        self.environment = {
            "SNOWMELT_STATE": str(self.state),
            "SNOWMELT_RUN": str(folder / "run-of-home"),
            # Reads of raw files are not recorded.
            "SNOWMELT_IMAGES_RAW": "0",
        }

    def __call__(self, *words: object) -> str:
        """Runs a command; returns its output."""
        done = subprocess.run(
            [str(SNOWMELT), *map(str, words)],
            env=os.environ | self.environment,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout

    @contextmanager
    def running(self) -> Iterator[None]:
        self("up")
        try:
            yield
        finally:
            self("down")

    @property
    def key(self) -> str:
        """Platforms that trust it use the profiles."""
        return self("image", "key").strip()

    @contextmanager
    def without_profiles(self) -> Iterator[None]:
        """What is pushed meanwhile has no start profile."""
        starts = self.state / "starts"
        aside = starts.rename(starts.with_name("starts-aside"))
        try:
            yield
        finally:
            aside.rename(starts)
