"""runc and crun, with the bundles of `runc spec` and the limits of our sandboxes."""

import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import images, remains

GROUP = "snowmelt-bench-oci"
UNIFIED = Path("/sys/fs/cgroup/unified")


@dataclass(frozen=True)
class Bundles:
    """One bundle for each concurrent container; all share one root."""

    folder: Path

    def command(self, runtime: str) -> list[str]:
        """The command that runs a no-op container, for `snowmelt-bench-lean peer`."""
        words = [runtime, "--root", f"{self.folder}/{runtime}", "run"]
        return [*words, "--bundle", f"{self.folder}/bundle-{{lane}}", "{id}"]


def on_one_hierarchy(command: list[str]) -> list[str]:
    """Hides the half of a hybrid cgroup file system that crun refuses, for this command only."""
    if not UNIFIED.is_mount():
        return command
    script = f"umount {UNIFIED} && exec {shlex.join(command)}"
    return ["unshare", "--mount", "sh", "-c", script]


def _config(folder: Path, lane: int) -> str:
    subprocess.run(["runc", "spec", "--bundle", str(folder)], check=True)
    config = json.loads((folder / "config.json").read_text())
    config["process"] |= {"terminal": False, "args": images.COMMAND}
    config["root"] = {"path": str(folder.parent / "root"), "readonly": True}
    # The swap limit is the sum of memory and swap: equal values mean no swap.
    memory = {"limit": images.MEMORY, "swap": images.MEMORY}
    cpu = {"quota": 100_000, "period": 100_000}
    resources = {"memory": memory, "cpu": cpu, "pids": {"limit": images.PIDS}}
    config["linux"]["resources"] |= resources
    config["linux"]["cgroupsPath"] = f"/{GROUP}/{lane}"
    return json.dumps(config)


@contextmanager
def bundles(lanes: int) -> Iterator[Bundles]:
    """Bundles for that many concurrent containers."""
    folder = Path(tempfile.mkdtemp(prefix="sm-oci-"))
    with remains.cleaned(folder, GROUP):
        images.fill(folder / "root")
        for lane in range(lanes):
            bundle = folder / f"bundle-{lane}"
            bundle.mkdir()
            (bundle / "config.json").write_text(_config(bundle, lane))
        yield Bundles(folder)
