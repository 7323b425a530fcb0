"""The packages of `make dist`, installed on a bare Debian, run the README's first query."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import debian
import pytest
from conftest import short_folder

from common.paths import CHECKOUT, DATA

# The query of the README, with the data of the demo.
README = (CHECKOUT / "README.md").read_text()
FIRST_QUERY = re.search(r'^snowmelt sql "(select [^"]*)"$', README, re.MULTILINE)
AT = "root/data/tpch/sf1"

# A function of SQL that needs no more than the platform has.
FUNCTION = """
import snowmelt as sm

@sm.udf
def double(x: int) -> int:
    return 2 * x

print(sm.sql("select double(21)", udfs=[double]).rows())
"""


@pytest.fixture(scope="module")
def dist(machine: None) -> Iterator[Path]:
    with short_folder() as folder:
        environment = os.environ | {"SNOWMELT_DIST": str(folder)}
        subprocess.run([CHECKOUT / "scripts/dist"], check=True, env=environment)
        yield folder


@pytest.fixture(scope="module")
def wheels() -> Path:
    """The wheels of the dependencies; the bare Debian cannot reach an index."""
    folder = DATA / f"wheels-{sys.version_info[0]}.{sys.version_info[1]}"
    for name in ("pyarrow", "uv"):
        version = metadata.version(name)
        if not list(folder.glob(f"{name}-{version}-*")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
            subprocess.run([*command, "-d", str(folder), f"{name}=={version}"], check=True)
    return folder


@pytest.fixture
def bare(data: Path) -> Iterator[debian.Machine]:
    with short_folder() as folder:
        folder.chmod(0o755)
        yield debian.copy_of(debian.bare(), folder, AT, data)


def _found(bare: debian.Machine, program: str) -> dict[str, str]:
    """What doctor found, by the names of its checks; its exit code is that of the worst one."""
    shown = bare.run("sh", "-c", f"{program} doctor -o json || true")
    return {check["name"]: check["found"] for check in json.loads(shown)}


def _flags(shown: str) -> list[str]:
    return sorted(json.loads(line)["l_returnflag"] for line in shown.splitlines())


def test_the_wheel_contains_the_command(dist: Path, wheels: Path, bare: debian.Machine) -> None:
    (wheel,) = dist.glob("*.whl")
    assert re.fullmatch(r"snowmelt-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    for path in [wheel, *wheels.glob("*.whl")]:
        shutil.copy(path, bare.root / "opt")
    bare.run("python3", "-m", "venv", "/opt/venv")
    bare.run("/opt/venv/bin/pip", "install", "--no-index", "--find-links", "/opt", "snowmelt")
    assert FIRST_QUERY
    shown = bare.run("/opt/venv/bin/snowmelt", "sql", FIRST_QUERY[1], "-o", "json")
    assert _flags(shown) == ["A", "N", "R"]
    # The SDK finds the command in its own environment, which is not on the PATH.
    script = f"import snowmelt as sm; print(len(sm.sql({FIRST_QUERY[1]!r}).rows()))"
    assert bare.run("/opt/venv/bin/python", "-c", script).strip() == "3"
    assert "42" in bare.run("/opt/venv/bin/python", "-c", FUNCTION)
    assert _found(bare, "/opt/venv/bin/snowmelt")["uv"].endswith("/opt/venv/bin/uv")


def test_the_debian_package_contains_command_unit_group_and_pages(
    dist: Path, bare: debian.Machine
) -> None:
    (package,) = dist.glob("*.deb")
    shutil.copy(package, bare.root / "opt/snowmelt.deb")
    bare.run("dpkg", "-i", "/opt/snowmelt.deb")
    assert FIRST_QUERY
    assert _flags(bare.run("snowmelt", "sql", FIRST_QUERY[1], "-o", "json")) == ["A", "N", "R"]
    assert bare.run("getent", "group", "snowmelt")
    unit = (bare.root / "lib/systemd/system/snowmelt.service").read_text()
    program = re.search(r"^ExecStart=(\S+) (.*)$", unit, re.MULTILINE)
    assert program and "--foreground" in bare.run(program[1], *program[2].split(), "--help")
    files = bare.run("dpkg", "-L", "snowmelt").splitlines()
    assert "/usr/share/man/man1/snowmelt-fn-deploy.1.gz" in files
    bare.run("bash", "-n", "/usr/share/bash-completion/completions/snowmelt")
    # Without an index, and without anything from the machine that built the package.
    assert "42" in bare.run("python3", "-c", FUNCTION)
    assert _found(bare, "snowmelt")["uv"].endswith("/usr/libexec/snowmelt/uv")
    of_the_service(bare, unit)
    bare.run("dpkg", "--purge", "snowmelt")
    for left in ["var/lib/snowmelt", "usr/lib/snowmelt", "usr/libexec/snowmelt"]:
        assert not (bare.root / left).exists(), left


SECRET = """
import snowmelt as sm

@sm.udf
def secret(x: int) -> str:
    return sm.secret("KEY")
"""

# A server of root, the upgrade of the package, and the service that gives up root.
UPGRADE = """
set -e
trap "snowmelt down" EXIT
mkdir /etc/snowmelt
(umask 077 && mkdir -p /etc/snowmelt/secrets/default)
(umask 077 && echo kept >/etc/snowmelt/secrets/default/key)
SNOWMELT_USER=root snowmelt up
snowmelt udf add /opt/secret.py --secret KEY=file:key
snowmelt sql -o json "select secret(1) s"
test "$(stat -c %U /var/lib/snowmelt/code)" = root
snowmelt down
dpkg -i /opt/snowmelt.deb
env "$@" snowmelt up
snowmelt sql -o json "select secret(1) s"
snowmelt doctor -o json || true
stat -c "%U %a" /proc/$(snowmelt status -o json | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p')
find /var/lib/snowmelt ! -user snowmelt
find /etc/snowmelt/secrets ! -user root
snowmelt down
# Root goes on with what the server left.
snowmelt sql -o json "select secret(2) s" --udf /opt/secret.py --udf-secret KEY=file:key
"""


def of_the_service(bare: debian.Machine, unit: str) -> None:
    """The server with the settings of its unit, after a version whose server was root."""
    (bare.root / "opt/secret.py").write_text(SECRET)
    settings = re.findall(r"^Environment=(SNOWMELT_\S+)$", unit, re.MULTILINE)
    assert settings == ["SNOWMELT_USER=snowmelt", "SNOWMELT_GROUP=snowmelt"]
    shown = bare.run("sh", "-c", UPGRADE, "sh", *settings).splitlines()
    assert [line for line in shown if "kept" in line] == ['{"s":"kept"}'] * 3, shown
    text = "\n".join(shown)
    rows = {row["name"]: row["status"] for row in json.loads(re.findall(r"(?s)\[.*?\n\]", text)[0])}
    assert rows["user of the server"] == rows["state folder"] == "ok", rows
    assert any(line.startswith("snowmelt ") for line in shown), shown
    assert not [line for line in shown if line.startswith("/")], shown


def test_the_tarball_contains_a_stripped_program(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    (program,) = tmp_path.glob("*/bin/snowmelt")
    (engine,) = tmp_path.glob("*/libexec/snowmelt/snowmelt-query")
    # Limits that a wrong profile or feature would exceed: with DataFusion the first program would
    # have more than 90 MB. One that is not incremental is larger by 4 MB, and those of continuous
    # integration are not optimised.
    is_optimised = os.environ.get("SNOWMELT_OPTIMISE") != "0"
    limits = (60_000_000, 116_000_000) if is_optimised else (70_000_000, 150_000_000)
    for path, most in zip((program, engine), limits, strict=True):
        shown = subprocess.check_output([path, "--version"], text=True)
        assert shown.startswith(f"{path.name} ")
        assert ".symtab" not in subprocess.check_output(["readelf", "-SW", path], text=True)
        assert path.stat().st_size <= most, path


def test_the_image_runs_the_platform(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*-image.tar")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    index = json.loads((tmp_path / "index.json").read_text())
    assert [entry["mediaType"] for entry in index["manifests"]]
    shown = subprocess.check_output(
        [
            shutil.which("snowmelt") or "snowmelt",
            "image",
            "inspect",
            f"oci:{tmp_path}",
            "-o",
            "json",
        ],
        text=True,
    )
    assert "/usr/bin/snowmelt" in shown
