"""Images of a function that scores a model: built, built again with another model, pushed and
pulled (CAGE 5.4, figure 8), by Snowmelt and by Docker.
"""

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import engine_paper
from block_images.link import ADDRESS, Link, serve
from common import debian, plots
from common.figures import Section, median, spread
from common.paths import SNOWMELT, scratch
from common.server import Server
from engine_calls import seconds
from peers import docker, remains

PYTHON = ["python3-minimal", "libpython3-stdlib", "libstdc++6", "zlib1g"]
# As in the paper's figure 7: scikit-learn, and Arrow for batches.
WHEELS = ["numpy==2.2.6", "scikit-learn==1.6.1", "pyarrow==20.0.0"]
MODEL_MIB = 16
# Of what is repeated: another model, and its push and pull.
TIMES = 3
BUILD, AGAIN = "build", "build, another model"
PUSH, PUSH_AGAIN = "push", "push, another model"
PULL, PULL_AGAIN = "pull", "pull, another model"
STEPS = (BUILD, AGAIN, PUSH, PUSH_AGAIN, PULL, PULL_AGAIN)
IMAGE, PACKAGE, DOCKER = "snowmelt, image", "snowmelt, code package", "Docker"
# The code of a function has its model in it, in text: a package has no other files.
CODE = "MODEL = {model!r}\n\n\ndef handler(event):\n    return len(MODEL)\n"
# Stages of the paper's Dockerfile: packages, which another model leaves as they are, and what is
# above them. With one file, the wheels would be sent to the daemon for each model.
PACKAGES = """FROM base
COPY wheels /usr/local/lib/python3/dist-packages
"""
DOCKERFILE = """FROM packages
WORKDIR /workdir/
COPY code /workdir
COPY model /workdir/model
CMD ["python3", "-u", "/workdir/main.py"]
"""

Taken = dict[str, list[float]]


def write_model(folder: Path) -> None:
    """Another model than before."""
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(os.urandom(MODEL_MIB << 20))


def write_code(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text('print("the service of the function")\n')


@contextmanager
def registry(near: Link, folder: Path) -> Iterator[None]:
    folder.mkdir()
    process = serve(near, folder)
    try:
        yield
    finally:
        remains.end(process)


def environment(home: Path) -> dict[str, str]:
    return {"SNOWMELT_STATE": str(home / "state"), "SNOWMELT_RUN": str(home / "run")}


def pushed_and_pulled(near: Link, home: Path, name: str, versions: list[str]) -> Taken:
    """The first version and the next ones, to the registry and to a host that has nothing."""
    taken: Taken = defaultdict(list)
    with scratch() as other:
        for number, version in enumerate(versions):
            target = f"{ADDRESS}/{name}:{version}"
            push = partial(
                near.run,
                *(SNOWMELT, "image", "push", f"{name}:{version}", target),
                env=environment(home),
            )
            taken[PUSH_AGAIN if number else PUSH].append(seconds(push))
        for number, version in enumerate(versions):
            target = f"{ADDRESS}/{name}:{version}"
            pull = partial(near.run, SNOWMELT, "image", "pull", target, env=environment(other))
            taken[PULL_AGAIN if number else PULL].append(seconds(pull))
    return taken


def image(near: Link, folder: Path) -> Taken:
    """An image with an interpreter, packages, code and model."""
    home, code, model = folder / "image", folder / "code", folder / "model"
    write_code(code)
    taken: Taken = defaultdict(list)
    versions = [f"v{number}" for number in range(TIMES + 1)]
    for number, version in enumerate(versions):
        write_model(model)
        command = [str(SNOWMELT), "image", "build", f"score:{version}"]
        command += ["--debian", ",".join(PYTHON), *(f"--python={wheel}" for wheel in WHEELS)]
        command += ["--code", str(code), "--model", str(model)]
        build = partial(
            subprocess.run,
            command,
            env=os.environ | environment(home),
            check=True,
            stdout=subprocess.PIPE,
        )
        taken[AGAIN if number else BUILD].append(seconds(build))
    return taken | pushed_and_pulled(near, home, "score", versions)


def package(near: Link, folder: Path) -> Taken:
    """A code package: the code of a function with its wheels."""
    home, code = folder / "package", folder / "score.py"
    taken: Taken = defaultdict(list)
    versions = [f"v{number}" for number in range(TIMES + 1)]
    packages = [word for wheel in WHEELS for word in ("--package", wheel)]
    with Server(home) as server:
        for number, version in enumerate(versions):
            # Code has at most 16 MiB.
            code.write_text(CODE.format(model=os.urandom(1 << 20).hex()))
            pack = partial(server.run, "fn", "pack", str(code), f"package:{version}", *packages)
            taken[AGAIN if number else BUILD].append(seconds(pack))
    return taken | pushed_and_pulled(near, home, "package", versions)


class Docker:
    """Docker's commands, for the images in a folder."""

    def __init__(self, daemon: docker.Docker, folder: Path) -> None:
        self.daemon, self.folder = daemon, folder
        self.model = folder / "context/model"

    def run(self, *words: object) -> None:
        asked = ["docker", "-H", f"unix://{self.daemon.api}", *map(str, words)]
        # The builder that the daemon has itself.
        legacy = os.environ | {"DOCKER_BUILDKIT": "0"}
        done = subprocess.run(asked, env=legacy, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{asked}: {done.stderr}")

    def write(self) -> None:
        for name, text in (("packages", PACKAGES), ("context", DOCKERFILE)):
            (self.folder / name).mkdir()
            (self.folder / name / "Dockerfile").write_text(text)
        write_code(self.folder / "context/code")

    def packages(self) -> None:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        target = ["--target", str(self.folder / "packages/wheels")]
        subprocess.run([*install, *target, *WHEELS], check=True, stdout=subprocess.PIPE)
        self.run("build", "--tag", "packages", self.folder / "packages")

    def build(self, version: str) -> None:
        self.run("build", "--tag", version, self.folder / "context")

    def build_all(self, version: str) -> None:
        self.packages()
        self.build(version)


def by_docker(daemon: docker.Docker, folder: Path) -> Taken:
    """The paper's Dockerfile, with a base of Debian packages that is there already."""
    peer = Docker(daemon, folder / "docker")
    peer.folder.mkdir()
    peer.write()
    base(daemon, peer.folder)
    taken: Taken = defaultdict(list)
    first, *others = versions = [f"{ADDRESS}/score:docker{number}" for number in range(TIMES + 1)]
    write_model(peer.model)
    taken[BUILD].append(seconds(partial(peer.build_all, first)))
    for version in others:
        write_model(peer.model)
        taken[AGAIN].append(seconds(partial(peer.build, version)))
    for number, version in enumerate(versions):
        taken[PUSH_AGAIN if number else PUSH].append(seconds(partial(peer.run, "push", version)))
    # Another host would have nothing: no image is left here.
    peer.run("rmi", "--force", *versions, "packages", "base")
    for number, version in enumerate(versions):
        taken[PULL_AGAIN if number else PULL].append(seconds(partial(peer.run, "pull", version)))
    return taken


def base(daemon: docker.Docker, folder: Path) -> None:
    """The image `base`, from the same Debian packages."""
    archives, root = folder / "archives", folder / "root"
    archives.mkdir()
    for archive in debian.download(PYTHON, archives):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE)
    command = ["docker", "-H", f"unix://{daemon.api}", "import", "-", "base"]
    subprocess.run(command, stdin=tar.stdout, check=True, stdout=subprocess.PIPE)
    tar.wait()
    shutil.rmtree(root)


def table(section: Section, ways: dict[str, Taken]) -> None:
    rows = [[way, *(spread(taken[step]) for step in STEPS)] for way, taken in ways.items()]
    for row, taken in zip(rows, ways.values(), strict=True):
        row.append(f"{median(taken[AGAIN]) / median(taken[BUILD]):.3f}")
    disks = [f"{relative:.3f} ({disk})" for disk, relative in engine_paper.INCREMENTAL.items()]
    rows.append(["the paper's Docker", *("" for _ in STEPS), ", ".join(disks)])
    section.say(
        "Images of a function that scores a model, as the paper's Dockerfile (its figure 7) makes"
        f" them, with {', '.join(WHEELS)}: seconds. *Build* is"
        " from nothing, downloads of packages included, one sample; *another model* is the same"
        f" with {MODEL_MIB} MiB of other content, {TIMES} samples, and its push and pull after the"
        " first image's. The registry is on the loopback, without a limit. The image has Debian's"
        " Python below; Docker's base has it from the start, and pip installs its packages. A code"
        " package has no interpreter, and its model is 2 MiB of text in its code. A function of"
        " ours needs no pull: it reads the blocks that it needs. The paper's times for pushes and"
        " pulls are in a picture."
    )
    section.table(["", *(f"{step}, s" for step in STEPS), "another model, of build"], rows)


def run(section: Section) -> None:
    with scratch() as folder, docker.running() as daemon:
        near = Link(docker.NAMESPACE)
        with registry(near, folder / "registry"):
            ways = {
                IMAGE: image(near, folder),
                PACKAGE: package(near, folder),
                DOCKER: by_docker(daemon, folder),
            }
    table(section, ways)
    bars = {way: [median(taken[step]) for step in STEPS] for way, taken in ways.items()}
    section.plot(
        "udfs-figure-8",
        "Figure 8: seconds of images of a function, from nothing and with another model",
        plots.bars("s", [step.replace(", ", ",\n") for step in STEPS], bars),
    )
    found = median(ways[IMAGE][AGAIN]) / median(ways[DOCKER][AGAIN])
    section.promise(
        "An image built again with another model, against Docker",
        "1 time",
        f"{found:.2f}",
        found <= 1,
    )
