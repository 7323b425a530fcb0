"""Bursts on the hosts of a lab, and beside each the same burst as `snowmelt simulate` computes it.

A handler reads a part of its image that no host has. What a host does by itself is measured in the
same lab with everything in its cache; the network is what the simulation has to reproduce.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import debian, plots
from common.figures import Section, median, short, spread
from common.lab import Lab
from common.paths import SNOWMELT, scratch
from common.processes import busy_seconds
from common.served import program
from simulated import simulate

HOSTS = (1, 2, 4, 8)
RATES = ("25mbit", "50mbit")
RUNS = 3
MIB = int(os.environ.get("SNOWMELT_BENCH_CALIBRATION_MIB", "16"))
PART = MIB << 20
# Hosts fetch what follows a part that they read, too: so parts are read from the end, the first
# reads are not counted, and the beginning of the file is left to those who read what is before it.
PARTS = 1 + len(HOSTS) * RUNS + 1
# Of the image's files, so that its blocks are the parts of one large file.
LARGE, SMALL = "opt/large", "usr/share/doc/libc6/copyright"
NAME = "burst:v1"
WITHIN = 0.15
CONVERTED_BLOCK = "512KiB"
# What is read before hosts read ahead: a reader counts as sequential when it has read a whole unit
# of a stripe (docs/explanation/decisions/058).
ON_DEMAND = "1MiB"
# A frame of 1,514 bytes carries 1,448 bytes of a block.
PAYLOAD = 1448 / 1514

# The event names a file and a range of it.
SERVE = program("""import hashlib
def answer(event):
    digest, left = hashlib.sha1(), event["size"]
    with open("/" + event["file"], "rb", buffering=0) as file:
        file.seek(event["from"])
        while piece := file.read(min(left, 1 << 20)):
            left -= len(piece)
            digest.update(piece)
    return digest.hexdigest()
""")


@dataclass
class Image:
    """An image in a state folder, and the digest of each part of its large file."""

    state: Path
    parts: list[str]


def make(folder: Path) -> Image:
    """Debian's Python, and a large file that cannot be compressed."""
    root, archives, state = folder / "root", folder / "archives", folder / "made"
    archives.mkdir()
    root.mkdir()
    for archive in debian.download(("python3-minimal", "libpython3-stdlib"), archives):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    digests = []
    (root / LARGE).parent.mkdir(exist_ok=True)
    with (root / LARGE).open("wb") as file:
        for _ in range(PARTS):
            content = os.urandom(PART)
            digests.append(hashlib.sha1(content).hexdigest())
            file.write(content)
    convert = ["image", "convert", f"dir:{root}", NAME, "--block-size", CONVERTED_BLOCK]
    subprocess.run(
        [SNOWMELT, *convert], env=os.environ | {"SNOWMELT_STATE": str(state)}, check=True
    )
    shutil.rmtree(root)
    return Image(state, digests)


@dataclass
class Bursts:
    """A lab in which the image's function is deployed."""

    lab: Lab
    folder: Path
    image: Image
    # The part that was read last.
    part: int = PARTS - 1

    def deploy(self) -> None:
        """Pushes from the registry's own end of its link, which is slow."""
        [shown] = json.loads(self.lab.lab("ls", "-o", "json"))
        [registry] = (it for it in shown["services"] if it["kind"] == "registry")
        name = f"{registry['address']}/{NAME}"
        certificate = Path(registry["log"]).with_name("certificate.pem")
        own = {"SNOWMELT_STATE": self.image.state, "SNOWMELT_IMAGES_CA_FILE": certificate}
        push = [*self.lab.inside("registry"), "env", *(f"{k}={v}" for k, v in own.items())]
        subprocess.run(
            [*push, SNOWMELT, "image", "push", NAME, name], env=self.lab.environment, check=True
        )
        code = self.folder / "code"
        code.mkdir()
        (code / "serve").write_text(SERVE)
        (code / "serve").chmod(0o755)
        words = ["--command", "./serve", "--memory", "128MiB", "--timeout", "10m"]
        self.client("fn", "deploy", "read", code, *words, "--image", name)

    def client(self, *words: object) -> str:
        return self.lab.lab("run", "--", str(SNOWMELT), *map(str, words), timeout=600)

    def burst(
        self, hosts: int, event: dict[str, object], expected: str = ""
    ) -> tuple[float, float]:
        """Seconds of a burst of one function on each host, and the part of the processors' time."""
        events = self.folder / "events"
        events.write_text(f"{json.dumps(event)}\n" * hosts)
        before, begun = busy_seconds(), time.perf_counter()
        out = self.client("fn", "burst", "read", "--events", events, "--hosts", hosts)
        seconds = time.perf_counter() - begun
        busy = (busy_seconds() - before) / seconds / (os.cpu_count() or 1)
        found = [json.loads(line)["result"] for line in out.splitlines()]
        if len(found) != hosts or (expected and set(found) != {expected}):
            raise RuntimeError(f"wrong answers of {hosts} hosts: {found}")
        return seconds, busy

    def read_part(self, hosts: int) -> tuple[float, float]:
        event = {"file": LARGE, "from": self.part * PART, "size": PART}
        return self.burst(hosts, event, self.image.parts[self.part])


@contextmanager
def bursts(rate: str, image: Image) -> Iterator[Bursts]:
    with scratch() as folder:
        lab = Lab(folder, HOSTS[-1], rate, "512MiB", "--registry")
        with lab:
            made = Bursts(lab, folder, image)
            made.deploy()
            yield made


@dataclass
class Row:
    """The bursts of one number of hosts at one rate."""

    hosts: int
    rate: str
    measured: list[float]
    busy: list[float]
    # By itself, with all blocks in the cache: a start that reads nearly nothing, and the part.
    alone: float
    cached: float
    simulated: float = 0.0

    @property
    def deviation(self) -> float:
        return self.simulated / median(self.measured) - 1


def measure(made: Bursts, rate: str, hosts: int) -> Row:
    little: dict[str, object] = {"file": SMALL, "from": 0, "size": 1 << 20}
    # New hosts get their places in the tree, what each start reads, and what follows the next part.
    made.read_part(hosts)
    made.burst(hosts, little)
    cold, cached = [], []
    for _ in range(RUNS):
        made.part -= 1
        cold.append(made.read_part(hosts))
        cached.append(made.read_part(hosts)[0])
    alone = [made.burst(hosts, little)[0] for _ in range(RUNS)]
    measured, busy = [it[0] for it in cold], [it[1] for it in cold]
    return Row(hosts, rate, measured, busy, median(alone), median(cached))


def compute(section: Section, row: Row) -> None:
    """The same burst in simulated time."""
    read_rate = PART / max(row.cached - row.alone, 0.001)
    sizes = ["--image-size", f"{PART}B", "--start-bytes", f"{PART}B"]
    rate = f"{float(row.rate.removesuffix('mbit')) * PAYLOAD:.2f}mbit"
    links = ["--link", rate, "--registry-link", rate, "--block-size", CONVERTED_BLOCK]
    links += ["--on-demand", ON_DEMAND]
    own = ["--read-rate", f"{int(read_rate)}B", "--tail", f"{row.alone * 1000:.0f}ms"]
    found = simulate(section, "--hosts", row.hosts, "--strategy", "stripes", *sizes, *links, *own)
    row.simulated = found["stripes"].last_start


def tell(section: Section, rows: list[Row]) -> None:
    head = ["link", "hosts", "lab, s", "simulated, s", "deviation", "processors busy"]
    head += ["a start alone, s", "the same with the part in the cache, s"]
    section.table(
        head,
        [
            [
                row.rate,
                row.hosts,
                spread(row.measured),
                short(row.simulated),
                f"{row.deviation:+.1%}",
                f"{median(row.busy):.0%}",
                short(row.alone),
                short(row.cached),
            ]
            for row in rows
        ],
    )
    for row in rows:
        section.promise(
            f"simulated: a burst on {row.hosts} hosts with links of {row.rate} against the lab",
            f"within {WITHIN:.0%}",
            f"{row.deviation:+.1%} of {short(median(row.measured))} s",
            abs(row.deviation) <= WITHIN,
        )
    lines = {f"lab, {rate}": _of(rows, rate, lambda row: median(row.measured)) for rate in RATES}
    lines |= {f"simulated, {rate}": _of(rows, rate, lambda row: row.simulated) for rate in RATES}
    section.plot(
        "calibration",
        f"Seconds of a burst in which each host reads {MIB} MiB, in a lab and simulated",
        plots.growth("hosts", "s", lines),
    )


def _of(rows: list[Row], rate: str, value: Callable[[Row], float]) -> dict[int, float]:
    return {row.hosts: value(row) for row in rows if row.rate == rate}


def run() -> Section:
    section = Section("Bursts on a lab beside simulated ones")
    section.say(
        f"One function on each host reads {MIB} MiB of its image that no host has, through trees"
        " of hosts. The links of the hosts and of the registry have the same rate. Beside each"
        " measured time, from the command to the last answer, is what `snowmelt simulate` computes."
        " Its `--tail` is the time of such a burst that reads a file of a few kilobytes, its"
        " `--read-rate` what reading the part from the cache adds to it, both measured in the same"
        " lab. Its links have the rates of the lab's without the headers of frames (1,448 of 1,514"
        " bytes). The parts are in no start profile: a host reads the first"
        f" {ON_DEMAND} on demand, as one unit of a stripe, and ahead of its reader after that"
        f" (`--on-demand`). Nothing is fitted. Medians of {RUNS} bursts; all hosts share"
        f" {os.cpu_count()} processors."
    )
    section.commands += [
        "python bench/run.py calibration",
        f"snowmelt lab up --hosts {HOSTS[-1]} --link {RATES[0]} --registry --memory 512MiB",
        "snowmelt lab run -- snowmelt fn burst read --events events.jsonl --hosts 4",
    ]
    rows = []
    with scratch() as folder:
        image = make(folder)
        for rate in RATES:
            with bursts(rate, image) as made:
                rows += [measure(made, rate, hosts) for hosts in HOSTS]
    for row in rows:
        compute(section, row)
    tell(section, rows)
    return section
