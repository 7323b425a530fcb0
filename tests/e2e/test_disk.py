"""A full disk: a typed error, no partial files, and normal operation once there is space."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Snowmelt


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("form", ["csv", "json", "arrow", "parquet"])
def test_an_answer_that_does_not_fit(
    snowmelt: Snowmelt, data: Path, small_disk: Path, form: str
) -> None:
    sql = f"select * from '{data / 'lineitem'}'"
    done = snowmelt.run("sql", sql, "-o", form, "-O", small_disk / "answer")
    assert done.report["code"] in ("SM-0506", "SM-0114"), done.report
    assert list(small_disk.iterdir()) == []


def test_packages_that_do_not_fit(
    alone: Snowmelt, data: Path, small_disk: Path, udf_file: Callable[[str], Path]
) -> None:
    alone.environment = {"SNOWMELT_STATE": str(small_disk)}
    file = udf_file("@sm.udf\ndef f(x: int) -> int:\n    return x\n")
    sql = f"select sum(f(c_custkey)) as s from '{data / 'customer'}'"
    done = alone.sql(sql, "--udf", file)
    assert done.code == 3, done
    assert done.report["code"] in ("SM-0506", "SM-0302", "SM-0505"), done.report
    for path in sorted(small_disk.rglob("*"), reverse=True):
        path.unlink() if path.is_file() or path.is_symlink() else path.rmdir()
    assert alone.rows("select 1 as one") == [{"one": 1}]
