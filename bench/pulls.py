"""Block images compared with complete images, from a registry behind a link: time until a handler
in an image answers, and bytes over the link (FaaSNet 5.4, Figures 15 and 20)."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from block_images import made
from block_images.link import ADDRESS, Link, link
from block_images.made import IMAGES, Made
from common import plots
from common.figures import Section, median, short, spread
from common.paths import SNOWMELT, scratch
from peers import containerd
from rebuilds import rebuilds

RATES = ["1gbit", "100mbit"]
TIMES = 3
BLOCKS = ["64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB"]
LOCAL_TIMES = 5
RAW, RAW_WITHIN_S = "10GiB", 240
MIB = 1 << 20
# Bars: fraction of a pull's bytes, by image; of containerd's time; of an unpacked folder's time.
MAX_BYTES = {"python": 0.2, "science": 0.4}
MAX_TIME, MAX_LOCAL, MAX_RESIDENT_MIB = 0.2, 1.1, 30

SNOWMELT_FIRST, PROFILED = "snowmelt, first start", "snowmelt, with the profile of an earlier start"
CONTAINERD, UNPACKED = "containerd: pull and run", "skopeo, umoci, and a start in the folder"


@dataclass
class Start:
    """One start: seconds until the handler has answered, and bytes over the link."""

    seconds: float
    bytes: int


class Platform:
    """A separate platform on the near end of the link."""

    def __init__(self, near: Link, folder: Path, raw: str = "0") -> None:
        """By default without raw files, which would be written during the measurement."""
        self.near = near
        self.environment = {
            "SNOWMELT_STATE": str(folder / "state"),
            "SNOWMELT_RUN": str(folder / "run"),
            "SNOWMELT_IMAGES_RAW": raw,
        }

    def run(self, *words: object) -> str:
        return self.near.run(SNOWMELT, *words, env=self.environment)

    def deploy(self, image: Made, where: list[str], idle: str = "1m") -> None:
        """Deploys a function in the image. Its handler is ready and stays so for `idle`."""
        with scratch() as folder:
            image.write(folder / "code")
            words = ["--command", "./serve", "--memory", "1GiB", "--timeout", "10m"]
            words += ["--idle", idle, *where]
            self.run("fn", "deploy", image.name, folder / "code", *words)

    def call(self, image: Made) -> float:
        """The seconds of a call."""
        begun = time.perf_counter()
        if json.loads(self.run("fn", "call", image.name)) != "ready":
            raise RuntimeError(f"{image.name} gave another answer")
        return time.perf_counter() - begun

    def resident_mib(self) -> float:
        """The memory of the daemon that serves the blocks."""
        found = 0
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                line = (process / "cmdline").read_bytes()
                its = (process / "environ").read_bytes()
                text = (process / "status").read_text()
            except OSError:
                continue
            if b"internal\0images" in line and self.environment["SNOWMELT_RUN"].encode() in its:
                found += int(text.split("VmRSS:")[1].split()[0])
        return found / 1024


@contextmanager
def platform(near: Link, folder: Path, raw: str = "0") -> Iterator[Platform]:
    started = Platform(near, folder, raw)
    started.run("up")
    try:
        yield started
    finally:
        started.run("down")


def reference(image: Made, kind: str) -> str:
    return f"{ADDRESS}/{image.name}:{kind}"


def fill_registry(near: Link, section: Section, home: Path) -> dict[str, float]:
    """Pushes all images in original form and as block images; the seconds of each conversion."""
    took = {}
    with platform(near, home) as platform_:
        for image in IMAGES:
            target = f"docker://{reference(image, 'whole')}"
            copy = ["skopeo", "copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false"]
            near.run(*copy, image.layout, target)
            begun = time.perf_counter()
            platform_.run("image", "convert", image.layout, f"{image.name}:blocks")
            took[image.name] = time.perf_counter() - begun
            platform_.run("image", "push", f"{image.name}:blocks", reference(image, "blocks"))
    section.commands += [
        f"skopeo copy oci:LAYOUT:{IMAGES[0].name} docker://{reference(IMAGES[0], 'whole')}",
        f"snowmelt image convert oci:LAYOUT:{IMAGES[0].name} {IMAGES[0].name}:blocks",
        f"snowmelt image push {IMAGES[0].name}:blocks {reference(IMAGES[0], 'blocks')}",
    ]
    return took


def measured(near: Link, work: Callable[[], object]) -> Start:
    drop_caches()
    before, begun = near.sent(), time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    return Start(seconds, near.sent() - before)


def drop_caches() -> None:
    """Drops the page cache, so that files are read from the disk again."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("1")


def first_start(near: Link, image: Made, starts: Path | None, tag: str = "blocks") -> Start:
    """On a host without the image; with `starts`, it has the start profiles of another host."""
    with scratch() as folder:
        if starts is not None:
            # Profiles are trusted if they are signed with the same key.
            shutil.copytree(starts, folder / "state/starts")
            shutil.copy(starts.parent / "profile-key", folder / "state/profile-key")
        with platform(near, folder) as fresh:

            def start() -> None:
                fresh.deploy(image, ["--image", reference(image, tag)])
                fresh.call(image)

            return measured(near, start)


def profiled(near: Link, image: Made, folder: Path) -> Path:
    """The start profiles that a start writes."""
    with platform(near, folder) as one:
        one.deploy(image, ["--image", reference(image, "blocks")])
        one.call(image)
    return folder / "state/starts"


def pulled(near: Link, image: Made) -> Start:
    """containerd, on an image that it does not have."""
    name = f"bench-{image.name}"
    with containerd.running() as daemon:
        source = reference(image, "whole")

        def start() -> None:
            near.run(*daemon.ctr("images", "pull", "--plain-http", source))
            words = ["run", "--rm", source, name, "python3", "-c", image.python]
            near.run(*daemon.ctr(*words))

        return measured(near, start)


def unpacked(near: Link, image: Made) -> Start:
    """The image as an unpacked folder, and a start in it."""
    with scratch() as folder, platform(near, folder) as fresh:

        def start() -> None:
            copy = ["skopeo", "copy", "--quiet", "--insecure-policy", "--src-tls-verify=false"]
            layout = f"{folder / 'layout'}:{image.name}"
            near.run(*copy, f"docker://{reference(image, 'whole')}", f"oci:{layout}")
            near.run("umoci", "unpack", "--image", layout, folder / "bundle")
            fresh.deploy(image, ["--root", str(folder / "bundle/rootfs")])
            fresh.call(image)

        return measured(near, start)


def starts(near: Link, section: Section) -> None:
    section.say(
        "A host that has nothing of an image; the registry is behind a link. From the request"
        " (the deployment, or the pull) until the handler has answered, whose imports are made"
        f" then. {TIMES} hosts each, one where it is unpacked (at the first rate). *MiB* is what"
        " went over the link. *containerd* runs `python3 -c` with the same imports."
    )
    lines, seconds = [], dict[tuple[str, str, str], float]()
    amounts = dict[tuple[str, str, str], float]()
    with scratch() as folder:
        profiles = {image.name: profiled(near, image, folder / image.name) for image in IMAGES}
        kinds: dict[str, Callable[[Made], Start]] = {
            SNOWMELT_FIRST: lambda image: first_start(near, image, None),
            PROFILED: lambda image: first_start(near, image, profiles[image.name]),
            UNPACKED: lambda image: unpacked(near, image),
            CONTAINERD: lambda image: pulled(near, image),
        }
        for rate in RATES:
            near.shape(rate)
            for image in IMAGES:
                for kind, run in kinds.items():
                    if kind == UNPACKED and rate != RATES[0]:
                        continue
                    all_ = [run(image) for _ in range(1 if kind == UNPACKED else TIMES)]
                    key = (rate, image.name, kind)
                    seconds[key] = median([start.seconds for start in all_])
                    amounts[key] = median([start.bytes / MIB for start in all_])
                    took = spread([start.seconds for start in all_])
                    lines.append([rate, image.title, kind, took, short(amounts[key])])
    near.unshape()
    section.table(["link", "image", "", "s", "MiB"], lines)
    for rate in RATES:
        bars = {
            kind: [seconds[rate, image.name, kind] for image in IMAGES]
            for kind in (PROFILED, SNOWMELT_FIRST, UNPACKED, CONTAINERD)
            if (rate, IMAGES[0].name, kind) in seconds
        }
        section.plot(
            f"images-{rate}",
            f"Seconds until a handler in an image has answered, link of {rate}",
            plots.bars("s", [image.title for image in IMAGES], bars),
        )
        for image in IMAGES:
            ratio = seconds[rate, image.name, PROFILED] / seconds[rate, image.name, CONTAINERD]
            section.promise(
                f"start in the image *{image.title}* at {rate} against containerd's pull and run",
                f"at most {MAX_TIME:.3g} times",
                f"{ratio:.3g} times",
                ratio <= MAX_TIME,
            )
    for name, most in MAX_BYTES.items():
        title = next(image.title for image in IMAGES if image.name == name)
        share = amounts[RATES[0], name, PROFILED] / amounts[RATES[0], name, CONTAINERD]
        section.promise(
            f"bytes of a start in the image *{title}* against a pull",
            f"at most {most * 100:.0f} %",
            f"{share * 100:.3g} %",
            share <= most,
        )


def blocks(near: Link, section: Section, home: Path) -> None:
    """The paper's Figure 20."""
    image = IMAGES[1]
    near.unshape()
    lines = []
    with platform(near, home) as platform_:
        for size in BLOCKS:
            name = f"{image.name}:{size.lower()}"
            platform_.run("image", "convert", image.layout, name, "--block-size", size)
            platform_.run("image", "push", name, reference(image, size.lower()))
    near.shape(RATES[0])
    for size in BLOCKS:
        all_ = [first_start(near, image, None, size.lower()) for _ in range(TIMES)]
        amount = median([start.bytes / MIB for start in all_])
        lines.append([size, spread([start.seconds for start in all_]), amount])
    near.unshape()
    least = min(line[2] for line in lines)
    section.say(
        f"Sizes of blocks, image *{image.title}*, link of {RATES[0]}, first starts: the smaller"
        " the blocks, the less is fetched that nobody reads. *Amplification* is against the least."
    )
    shown = [[size, took, short(amount), f"{amount / least:.2f}"] for size, took, amount in lines]
    section.plot(
        "images-blocks",
        f"MiB over the link in a first start in the image {image.title}, by the size of blocks",
        plots.bars("MiB", BLOCKS, {SNOWMELT_FIRST: [line[2] for line in lines]}),
    )
    section.table(["block", "s", "MiB", "amplification"], shown)
    section.commands.append(f"snowmelt image convert oci:LAYOUT:{image.name} x --block-size 64KiB")


def local(near: Link, section: Section, home: Path) -> None:
    """With all blocks present: a new sandbox in the image, on raw files, and in a folder."""
    with platform(near, home) as warm:
        lazy = {image.name: new_sandboxes(warm, image, "block image") for image in IMAGES}
        resident = warm.resident_mib()
    make_raw(near, home)
    with platform(near, home, RAW) as warm:
        raw = {image.name: new_sandboxes(warm, image, "raw files") for image in IMAGES}
    lines = []
    for image in IMAGES:
        pairs = (lazy[image.name], raw[image.name])
        ratios = [median(ours) / median(folder) for ours, folder in pairs]
        lines.append([image.title, *(spread(ms) for pair in pairs for ms in pair)])
        for what, ratio in zip(("", " as raw files"), ratios, strict=True):
            section.promise(
                f"start in the image *{image.title}*, all of it here{what}, against a folder",
                f"at most {MAX_LOCAL} times",
                f"{ratio:.3g} times",
                ratio <= MAX_LOCAL,
            )
    section.say(
        "All blocks are here and were read before: milliseconds of `snowmelt fn call`, a new"
        " sandbox each, by turns with one in an unpacked folder. The same once the image is"
        " mounted on raw files."
    )
    titles = ["image", "block image, ms", "unpacked folder, ms", "raw files, ms"]
    section.table([*titles, "unpacked folder beside that, ms"], lines)
    section.promise(
        f"memory of the daemon that serves {len(IMAGES)} images",
        f"at most {MAX_RESIDENT_MIB} MiB each",
        f"{resident / len(IMAGES):.3g} MiB",
        resident / len(IMAGES) <= MAX_RESIDENT_MIB,
    )


def new_sandboxes(warm: Platform, image: Made, kind: str) -> tuple[list[float], list[float]]:
    """Milliseconds of calls in the image and in a folder, by turns."""
    locations = {
        kind: ["--image", f"{image.name}:blocks"],
        "folder": ["--root", str(image.root)],
    }
    took = {name: list[float]() for name in locations}
    for _ in range(LOCAL_TIMES + 1):
        for name, where in locations.items():
            warm.deploy(image, where, idle="0s")
            warm.call(image)
            took[name].append(warm.call(image) * 1000)
    ours, folder = (times[1:] for times in took.values())
    return ours, folder


def make_raw(near: Link, home: Path) -> None:
    """Waits until a platform has written out all images."""
    deadline = time.monotonic() + RAW_WITHIN_S
    with platform(near, home, RAW) as writing:
        for image in IMAGES:
            writing.deploy(image, ["--image", f"{image.name}:blocks"])
        shown = [
            json.loads(writing.run("image", "inspect", f"{image.name}:blocks", "-o", "json"))
            for image in IMAGES
        ]
        # A blob of several images has one file.
        blobs = {blob["digest"] for one in shown for blob in one["blobs"]}
        while len(list((home / "state/raw").glob("*.raw"))) < len(blobs):
            if time.monotonic() > deadline:
                raise RuntimeError("the images have no raw files")
            time.sleep(0.5)


def conversion(near: Link, section: Section, took: dict[str, float]) -> None:
    lines = []
    with scratch() as folder:
        for image in IMAGES:
            begun = time.perf_counter()
            layout = image.layout.removeprefix("oci:")
            near.run("umoci", "unpack", "--image", layout, folder / image.name)
            lines.append([image.title, short(took[image.name]), short(time.perf_counter() - begun)])
    section.say(
        "Seconds to convert each image (layers of the one before are here already), and to"
        " unpack it with umoci; one sample."
    )
    section.table(["image", "convert", "unpack"], lines)


def run() -> Section:
    section = Section("Block images")
    made.make()
    with scratch() as folder, link(folder) as near:
        home = folder / "home"
        took = fill_registry(near, section, home)
        starts(near, section)
        local(near, section, home)
        blocks(near, section, home)
        conversion(near, section, took)
        near.unshape()
        images = (f"{IMAGES[1].name}:blocks", reference(IMAGES[1], "rebuilt"))
        rebuilds(Platform(near, home).run, section, IMAGES[1], images)
    return section
