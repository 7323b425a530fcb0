"""Whole images on the hosts of a lab: pulled and unpacked, by containerd, or with layers that
Dragonfly's peers send each other."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from common.paths import BENCH, DATA
from common.processes import busy_seconds
from peers import containerd

from .handler import READ, Range, write_ranges
from .lab import CONTROL, REGISTRY, ImageLab
from .recorded import SCIENCE
from .traffic import Traffic

WHOLE = "science:whole"
READS = f"{READ}read()"
# Programs of `bench/peers/dragonfly`, of this folder or built once.
BUILT = os.environ.get("SNOWMELT_BENCH_DRAGONFLY")
SUPERNODE_PORT, FILES_PORT, UP_WITHIN_S = 8002, 8001, 30


@dataclass
class Pulls:
    """All hosts pull an image at the same time, and a process in it reads the ranges."""

    # Seconds of each host, in ascending order.
    answered: list[float]
    registry: int
    busy: float


def push_whole(made: ImageLab) -> None:
    """The original image, at the registry's own end of its link."""
    target = f"docker://{made.registry}/{WHOLE}"
    quiet = ["--quiet", "--insecure-policy", "--dest-tls-verify=false"]
    made.at_registry("skopeo", "copy", *quiet, SCIENCE.layout, target)


def _together(made: ImageLab, one: Callable[[str], None]) -> Pulls:
    begun, busy = time.perf_counter(), busy_seconds()

    def timed(host: str) -> float:
        one(host)
        return time.perf_counter() - begun

    with Traffic(made.lab) as traffic, ThreadPoolExecutor(len(made.hosts)) as pool:
        answered = sorted(pool.map(timed, made.hosts))
    busy = (busy_seconds() - busy) / answered[-1] / (os.cpu_count() or 1)
    return Pulls(answered, traffic.sent(REGISTRY), busy)


def by_containerd(made: ImageLab, ranges: Sequence[Range], folder: Path) -> Pulls:
    """A daemon on each host; `ctr images pull`, and `ctr run`."""
    write_ranges(folder / "ranges", ranges)
    source = f"{made.registry}/{WHOLE}"
    mount = f"type=bind,src={folder / 'ranges'},dst=/app/ranges,options=rbind:ro"
    with ExitStack() as stack:
        daemons = {
            host: stack.enter_context(
                containerd.running(made.lab.inside(host), made.lab.environment)
            )
            for host in made.hosts
        }

        def one(host: str) -> None:
            ctr = daemons[host].ctr
            pull = ["images", "pull", "--tlscacert", str(made.certificate), source]
            _run(made, host, ctr(*pull))
            run = ["run", "--rm", "--mount", mount, source, f"bench-{host}"]
            _run(made, host, ctr(*run, "python3", "-c", READS))

        return _together(made, one)


def by_dragonfly(made: ImageLab, ranges: Sequence[Range], folder: Path) -> Pulls:
    """`dfget` for each layer, `umoci unpack`, and the reads in the folder. The supernode, which
    reads from the registry and tells hosts which of them has what, is on control's host."""
    programs = _built()
    named = layers()
    addresses = {it["name"]: it["address"].rpartition(":")[0] for it in made.lab.states()}
    with _supernode(made, programs, addresses[CONTROL], folder / "supernode"):

        def one(host: str) -> None:
            home = folder / host
            layout = home / "layout"
            shutil.copytree(_layout(), layout, ignore=shutil.ignore_patterns(*named))
            for layer in named:
                url = f"https://{made.registry}/v2/science/blobs/sha256:{layer}"
                own = ["--home", str(home / "dfget"), "--ip", addresses[host], "--insecure"]
                # Only from the supernode and from peers.
                at = ["--node", f"{addresses[CONTROL]}:{SUPERNODE_PORT}", "--notbs"]
                output = ["--output", str(layout / "blobs/sha256" / layer)]
                _run(made, host, [str(programs / "dfget"), "--url", url, *own, *at, *output])
            image = f"{layout}:{SCIENCE.name}"
            _run(made, host, ["umoci", "unpack", "--image", image, str(home / "bundle")])
            root = home / "bundle/rootfs"
            (root / "app").mkdir()
            write_ranges(root / "app/ranges", ranges)
            _run(made, host, ["chroot", str(root), "/usr/bin/python3", "-c", READS])

        return _together(made, one)


def _run(made: ImageLab, host: str, command: Sequence[str]) -> None:
    words = [*made.lab.inside(host), *command]
    done = subprocess.run(
        words, env=made.lab.environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{host}: {' '.join(command)}: {done.stdout[-1000:]}{done.stderr}")


def _layout() -> Path:
    return Path(SCIENCE.layout.removeprefix("oci:").rpartition(":")[0])


def layers() -> dict[str, int]:
    """The digests of the layers of the image, and how many bytes a registry sends of each."""
    named = json.loads((_layout() / "index.json").read_text())["manifests"]
    ref = "org.opencontainers.image.ref.name"
    [digest] = (it["digest"] for it in named if it["annotations"][ref] == SCIENCE.name)
    manifest = json.loads((_layout() / "blobs/sha256" / digest.split(":")[1]).read_text())
    return {layer["digest"].split(":")[1]: layer["size"] for layer in manifest["layers"]}


def _built() -> Path:
    """The folder of Dragonfly's programs, built by the Go tools the first time."""
    if BUILT:
        return Path(BUILT)
    folder = DATA / "bench" / "dragonfly"
    folder.mkdir(parents=True, exist_ok=True)
    build = ["go", "build", "-o", f"{folder}/", "./files", "tool"]
    subprocess.run(build, cwd=BENCH / "peers/dragonfly", check=True)
    return folder


@contextmanager
def _supernode(made: ImageLab, programs: Path, address: str, home: Path) -> Iterator[None]:
    (home / "repo").mkdir(parents=True)
    supernode = [str(programs / "supernode"), "--home-dir", str(home)]
    supernode += ["--advertise-ip", address, "--port", str(SUPERNODE_PORT)]
    supernode += ["--download-port", str(FILES_PORT)]
    files = [str(programs / "files"), f"{address}:{FILES_PORT}", str(home / "repo")]
    servers = []
    try:
        for command in (supernode, files):
            with (home / f"{Path(command[0]).name}.log").open("wb") as log:
                servers.append(
                    subprocess.Popen(
                        [*made.lab.inside(CONTROL), *command],
                        env=made.lab.environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )
        for port in (SUPERNODE_PORT, FILES_PORT):
            _wait(made, address, port)
        yield
    finally:
        for server in servers:
            server.kill()
            server.wait()


def _wait(made: ImageLab, address: str, port: int) -> None:
    probe = f"import socket; socket.create_connection(('{address}', {port}), 1)"
    deadline = time.monotonic() + UP_WITHIN_S
    while True:
        with suppress(RuntimeError):
            return _run(made, CONTROL, ["python3", "-c", probe])
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing answers at {address}:{port}")
        time.sleep(0.2)
