"""The image-resize case of the SOCK paper: a JPEG from S3, resized by Pillow, written back to S3.

A function has no network, so the driver reads the image from S3, sends its bytes as the event and
writes the result's bytes. The times of S3 are reported separately; the paper also excludes them.
"""

import base64
import io
import json
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import matplotlib
from PIL import Image

from common import plots, s3
from common.figures import Section, median, short, spread
from common.paths import scratch
from common.server import Server
from common.unix_http import Connection

ROUNDS = 7
BUCKET = "images"
# A photograph in the public domain, included in matplotlib.
PHOTOGRAPH = Path(matplotlib.get_data_path()) / "sample_data/grace_hopper.jpg"
PILLOW = f"pillow=={version('pillow')}"

HANDLER = """import base64
import io
import time

from PIL import Image


def handler(event):
    begun = time.perf_counter_ns()
    image = Image.open(io.BytesIO(base64.b64decode(event["image"])))
    image.thumbnail(({size}, {size}))
    smaller = io.BytesIO()
    image.save(smaller, "JPEG", quality=85)
    answer = base64.b64encode(smaller.getvalue()).decode()
    return {{"image": answer, "compute_us": (time.perf_counter_ns() - begun) // 1000}}
"""

# Two handlers with the same packages: the name, and the longer side of their result.
HANDLERS = {"thumbnail": 128, "preview": 256}
CASES = ["cold", "cold+", "warm"]


@dataclass
class Times:
    """Milliseconds of each round."""

    platform: list[float] = field(default_factory=list)
    compute: list[float] = field(default_factory=list)
    s3_read: list[float] = field(default_factory=list)
    s3_write: list[float] = field(default_factory=list)


class Photographs:
    """The bucket, and one resize from and to it."""

    def __init__(self, store: s3.Store) -> None:
        self.files = store.files()
        with self.files.open_output_stream(f"{BUCKET}/photograph.jpg") as out:
            out.write(PHOTOGRAPH.read_bytes())

    def resize(self, connection: Connection, handler: str, times: Times) -> None:
        begun = time.perf_counter()
        with self.files.open_input_stream(f"{BUCKET}/photograph.jpg") as file:
            event = {"image": base64.b64encode(file.read()).decode()}
        request = json.dumps({"event": event})
        asked = time.perf_counter()
        path = f"/v1/functions/{handler}/invocations"
        connection.request("POST", path, request, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        answered = time.perf_counter()
        if answer.status != 200:
            raise RuntimeError(f"{handler}: {answer.status} {content.decode()}")
        result = json.loads(content)["result"]
        smaller = base64.b64decode(result["image"])
        with self.files.open_output_stream(f"{BUCKET}/{handler}.jpg") as out:
            out.write(smaller)
        written = time.perf_counter()
        compute = result["compute_us"] / 1000
        times.compute.append(compute)
        times.platform.append((answered - asked) * 1000 - compute)
        times.s3_read.append((asked - begun) * 1000)
        times.s3_write.append((written - answered) * 1000)

    def check(self, handler: str) -> None:
        """Checks that the bucket contains the resized photograph."""
        with self.files.open_input_stream(f"{BUCKET}/{handler}.jpg") as file:
            image = Image.open(io.BytesIO(file.read()))
            image.load()
        if (image.format, max(image.size)) != ("JPEG", HANDLERS[handler]):
            raise RuntimeError(f"{handler} made a {image.format} of {image.size}")


def deploy(folder: Path, server: Server, section: Section) -> None:
    for name, size in HANDLERS.items():
        file = folder / f"{name}.py"
        file.write_text(HANDLER.format(size=size))
        words = ["--package", PILLOW, "--memory", "1GiB"]
        server.run("fn", "deploy", name, str(file), *words)
        section.commands.append(f"snowmelt fn deploy {name} {name}.py {' '.join(words)}")


def one_round(photographs: Photographs, server: Server, times: dict[str, Times]) -> None:
    """A new platform: no zygote, no instance, packages unpacked."""
    first, second = HANDLERS
    connection = Connection(server.socket)
    photographs.resize(connection, first, times["cold"])
    photographs.resize(connection, second, times["cold+"])
    photographs.resize(connection, second, times["warm"])
    connection.close()


def measure(section: Section) -> dict[str, Times]:
    times = {case: Times() for case in CASES}
    with scratch() as folder, s3.running(BUCKET) as store:
        photographs = Photographs(store)
        with Server(folder) as server:
            deploy(folder, server, section)
        for _ in range(ROUNDS):
            with Server(folder) as server:
                one_round(photographs, server, times)
        for handler in HANDLERS:
            photographs.check(handler)
    return times


def run() -> Section:
    section = Section("Resizing an image")
    with Image.open(PHOTOGRAPH) as image:
        size = f"{image.width} by {image.height} pixels, {PHOTOGRAPH.stat().st_size // 1024} KiB"
    section.say(
        f"A JPEG ({size}) is read from S3, made smaller by a handler with Pillow, and written to"
        " S3 (SeaweedFS on the loopback). A function has no network today, so the driver does the"
        " reading and writing, and the image travels in the event and the answer, in base64; the"
        " paper's function speaks to S3 itself, and its figures leave the time of S3 out. *cold*:"
        " the platform has just started and Pillow is unpacked, nothing else. *cold+*: another"
        " handler with Pillow has run since. *warm*: the same handler again. Platform is all of the"
        f" request over HTTP but what the handler says that it needed. {ROUNDS} platforms, one"
        " after the other."
    )
    times = measure(section)
    # Before each round, so that all caches but the packages are empty.
    section.commands += ["snowmelt down", "snowmelt up"]
    rows = [
        [case, *map(spread, (t.platform, t.compute, t.s3_read, t.s3_write))]
        for case, t in times.items()
    ]
    section.table(["", "platform, ms", "compute, ms", "S3 read, ms", "S3 write, ms"], rows)
    medians = {case: (median(t.platform), median(t.compute)) for case, t in times.items()}
    parts = {
        part: [medians[case][number] for case in CASES]
        for number, part in enumerate(("platform", "compute"))
    }
    section.plot(
        "resize",
        "Platform and compute time of a resize, cold, cold with another handler warm, and warm",
        plots.stacked("ms (median)", CASES, parts),
    )
    cold, again = medians["cold"][0], medians["cold+"][0]
    section.say(
        "The SOCK paper's platform time for the same case (figure 7; its machines, not ours):"
        " 365 ms cold, 2.8 times less than AWS Lambda and 5.3 times less than OpenWhisk then, and"
        f" 120 ms cold+, a third. Here: {short(cold)} ms and {short(again)} ms, {cold / again:.1f}"
        " times less."
    )
    return section
