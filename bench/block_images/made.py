"""Three images like the paper's (FaaSNet 5.1): Python; Python with scientific packages; the same
twice as large. From Debian packages and wheels, one layer each; created once and kept."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from common import debian
from common.paths import DATA

# Including the packages of a distribution's base image.
DEBIAN = ["python3", "python3-distutils", "bash", "coreutils", "ca-certificates", "curl", "git"]
DEBIAN += ["apt", "perl", "procps", "util-linux", "locales", "tzdata", "libgomp1"]
SCIENCE = ["numpy==2.2.6", "pandas==2.2.3", "scipy==1.15.3", "scikit-learn==1.6.1"]
SCIENCE += ["matplotlib==3.10.3"]
# The third image of the paper has PyStan, which has this size.
MORE = ["pyarrow==20.0.0", "polars==1.30.0", "duckdb==1.3.0", "xgboost-cpu==3.0.2"]
PLACE = "usr/lib/python3/dist-packages"

# As docs/reference/runtimes.md has it: what its imports need is touched before it can be called.
SERVE = """#!/usr/bin/python3
import json, os, socket, struct
{imports}
listener = socket.socket(fileno=int(os.environ["SNOWMELT_CHANNEL_FD"]))
while True:
    connected, _ = listener.accept()
    stream = connected.makefile("rwb")
    while header := stream.read(8):
        length, kind = struct.unpack("<IB3x", header)
        stream.read(length)
        text = b"{{}}" if kind == 1 else b"\\"ready\\""
        stream.write(struct.pack("<IB3x", len(text), 2 if kind == 1 else 4) + text)
        stream.flush()
"""


@dataclass(frozen=True)
class Made:
    """An image in an OCI layout, and a handler that needs it."""

    name: str
    title: str
    imports: tuple[str, ...]

    @property
    def layout(self) -> str:
        """The name for `skopeo`."""
        return f"oci:{folder() / 'layout'}:{self.name}"

    @property
    def root(self) -> Path:
        """Its file system, unpacked."""
        return folder() / "unpacked" / self.name

    @property
    def python(self) -> str:
        """The packages of the handler, for a Python that only starts and exits."""
        return "import " + ", ".join(("json", *self.imports))

    def write(self, code: Path) -> None:
        code.mkdir()
        imports = "\n".join(f"import {module}" for module in self.imports)
        (code / "serve").write_text(SERVE.format(imports=imports))
        (code / "serve").chmod(0o755)


IMAGES = [
    Made("python", "Python", ()),
    Made("science", "with scientific packages", ("numpy", "pandas", "sklearn.linear_model")),
    Made(
        "more",
        "with more of them",
        ("numpy", "pandas", "sklearn.linear_model", "pyarrow", "xgboost"),
    ),
]


def folder() -> Path:
    return DATA / "bench" / "block-images"


def make() -> None:
    """Creates the images if they do not exist."""
    # Change the name when the images are built differently.
    done = folder() / "done-2"
    if done.exists():
        return
    shutil.rmtree(folder(), ignore_errors=True)
    bundle, archives = folder() / "bundle", folder() / "archives"
    archives.mkdir(parents=True)
    layout = folder() / "layout"
    _run("umoci", "init", "--layout", layout)
    _run("umoci", "new", "--image", f"{layout}:start")
    _run("umoci", "unpack", "--image", f"{layout}:start", bundle)
    root = bundle / "rootfs"
    for archive in debian.download(DEBIAN, archives):
        _run("dpkg-deb", "-x", archive, root)
    _layer(layout, bundle, "start", "python")
    for before, name, wheels in (("python", "science", SCIENCE), ("science", "more", MORE)):
        quiet = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.11"]
        needed = [*wheels, *(_NEEDED if name == "science" else [])]
        _run("python3", "-m", "pip", "install", *quiet, "--target", root / PLACE, *needed)
        _layer(layout, bundle, before, name)
    done.touch()


# Dependencies of the wheels, without optional ones.
_NEEDED = ["python-dateutil==2.9.0.post0", "pytz==2025.2", "tzdata==2025.2", "six==1.17.0"]
_NEEDED += ["joblib==1.5.1", "threadpoolctl==3.6.0", "packaging==25.0", "pyparsing==3.2.3"]
_NEEDED += ["cycler==0.12.1", "kiwisolver==1.4.8", "contourpy==1.3.2", "fonttools==4.58.1"]
_NEEDED += ["pillow==11.2.1"]


def _layer(layout: Path, bundle: Path, before: str, name: str) -> None:
    """The files added since the last layer as a new layer, and all files as a folder."""
    _whole_seconds(bundle / "rootfs")
    _run("umoci", "repack", "--image", f"{layout}:{name}", "--refresh-bundle", bundle)
    unpacked = folder() / "unpacked" / name
    unpacked.parent.mkdir(exist_ok=True)
    _run("cp", "-a", bundle / "rootfs", unpacked)


def _whole_seconds(root: Path) -> None:
    """A layer has times in whole seconds, which some tools round and others truncate. Python
    recompiles a file if its truncated time differs from the one at its compilation."""
    for folder, _, files in os.walk(root):
        for path in (Path(folder) / name for name in files):
            if not path.is_symlink():
                at = int(path.stat().st_mtime)
                os.utime(path, (at, at))


def _run(*command: object) -> str:
    words = [str(word) for word in command]
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
