"""Debian's containerd with separate folders, used by its command line, `ctr run`."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from . import images, remains

IMAGE = "docker.io/library/snowmelt-bench:1"
NAMESPACE = "snowmelt-bench-ctr"

CONFIGURATION = """version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{folder}/socket"
"""


@dataclass(frozen=True)
class Containerd:
    """A running daemon with one image."""

    folder: Path

    def ctr(self, *arguments: str) -> list[str]:
        return ["ctr", "-a", f"{self.folder}/socket", "-n", NAMESPACE, *arguments]

    def command(self) -> list[str]:
        """The command that runs a no-op container, for `snowmelt-bench-lean peer`."""
        limits = ["--memory-limit", str(images.MEMORY), "--cpus", "1", "--read-only", "--seccomp"]
        fifos = ["--fifo-dir", f"{self.folder}/fifo"]
        return self.ctr("run", "--rm", *limits, *fifos, IMAGE, "{id}", *images.COMMAND)

    def is_up(self) -> bool:
        done = subprocess.run(self.ctr("version"), check=False, capture_output=True)
        return done.returncode == 0

    def end_containers(self) -> None:
        """Removes containers of an interrupted benchmark: their shims would outlive the daemon."""
        listed = subprocess.run(
            self.ctr("containers", "ls", "-q"), check=False, capture_output=True, text=True
        )
        for name in listed.stdout.split():
            for words in (["tasks", "rm", "-f", name], ["containers", "rm", name]):
                subprocess.run(self.ctr(*words), check=False, capture_output=True)


def _wait(containerd: Containerd, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not containerd.is_up():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"containerd did not come up:\n{log.read_text()[-3000:]}")
        time.sleep(0.1)


def _import_image(containerd: Containerd) -> None:
    folder = containerd.folder
    images.fill(folder / "image")
    images.write_oci_archive(folder / "image", IMAGE, folder / "image.tar")
    subprocess.run(
        containerd.ctr("images", "import", f"{folder}/image.tar"),
        check=True,
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def running(
    inside: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Containerd]:
    """A daemon that runs during the block. `inside` runs its command in another network."""
    folder = Path(tempfile.mkdtemp(prefix="sm-ctr-"))
    containerd, log = Containerd(folder), folder / "log"
    (folder / "config.toml").write_text(CONFIGURATION.format(folder=folder))
    with remains.cleaned(folder, NAMESPACE):
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [*inside, "containerd", "--config", f"{folder}/config.toml"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            _wait(containerd, daemon, log)
            _import_image(containerd)
            yield containerd
        finally:
            with suppress(OSError):
                containerd.end_containers()
            remains.end(daemon)
