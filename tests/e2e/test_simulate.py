"""Bursts and traces in simulated time: scenarios of docs/reference/simulate.md, by the command.

The times are computed, so the assertions do not depend on the machine.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

from conftest import Snowmelt

MB = 1_000_000
SLOW = (
    *("--link", "25mbit", "--registry-link", "25mbit"),
    *("--image-size", "244MB", "--start-bytes", "72.8MB"),
)


def _simulated(snowmelt: Snowmelt, *arguments: object) -> dict[str, dict[str, Any]]:
    done = snowmelt.run("simulate", "-o", "json", *arguments).succeeded()
    answer = json.loads(done.out)
    assert answer["simulated"] is True
    assert answer["assumptions"]
    return {outcome["strategy"]: outcome for outcome in answer["outcomes"]}


def test_a_tree_starts_2500_containers_on_1000_hosts_sooner_than_faasnet(
    snowmelt: Snowmelt,
) -> None:
    found = _simulated(snowmelt, "--hosts", 1000, "--containers", 2500)
    tree, registry, pull = found["tree"], found["registry"], found["pull"]
    assert tree["containers"] == 2500
    assert tree["started"]["last"] < 8.3
    assert tree["registry_bytes"] == 758 * MB
    assert registry["registry_bytes"] == 1000 * 758 * MB
    assert pull["started"]["last"] > 13 * tree["started"]["last"]


def test_the_start_profile_reaches_1000_hosts_within_4_s(snowmelt: Snowmelt) -> None:
    burst = ("--hosts", 1000, "--containers", 10000, "--strategy", "tree")
    tree = _simulated(snowmelt, *burst)["tree"]
    assert tree["containers"] == 10000
    assert tree["arrived"]["last"] < 4


def test_a_hundred_thousand_hosts_cost_the_registry_no_more_than_two(snowmelt: Snowmelt) -> None:
    few, many = (
        _simulated(snowmelt, "--hosts", hosts, "--strategy", "tree")["tree"]
        for hosts in (2, 100_000)
    )
    assert few["registry_bytes"] == many["registry_bytes"]
    assert many["received_bytes"] == 100_000 * 758 * MB
    assert many["started"]["last"] < 1.05 * few["started"]["last"]


def test_stripes_keep_64_hosts_near_the_time_of_one_where_a_tree_takes_twice_as_long(
    snowmelt: Snowmelt,
) -> None:
    one = _simulated(snowmelt, *SLOW, "--hosts", 1, "--strategy", "tree")["tree"]
    many = _simulated(snowmelt, *SLOW, "--hosts", 64, "--strategy", "tree,stripes")
    alone = one["started"]["last"]
    assert many["stripes"]["started"]["last"] < 1.3 * alone
    assert 1.9 * alone < many["tree"]["started"]["last"] < 2.1 * alone


def test_all_hosts_that_are_left_start_when_some_fail(snowmelt: Snowmelt) -> None:
    failing = ("--hosts", 300, "--kill", 40, "--strategy", "tree,layers,stripes", "--seed", 11)
    for repair in ("refill", "rotate"):
        found = _simulated(snowmelt, *failing, "--repair", repair)
        assert found == _simulated(snowmelt, *failing, "--repair", repair)
        for outcome in found.values():
            assert (outcome["killed"], outcome["hosts"], outcome["containers"]) == (40, 260, 260)
            assert outcome["moves"] > 0
            # A new root reads what the last one had before it.
            assert 758 * MB <= outcome["registry_bytes"] < 2 * 758 * MB


def test_settings_that_contradict_each_other_are_refused(snowmelt: Snowmelt) -> None:
    refused = snowmelt.run("simulate", "--hosts", 2, "--containers", 100)
    refused.failed_with("SM-0110", "100 containers of a function do not fit 40 places")


GAMING = ("--synthetic", "gaming", "--hosts", 200, "--warm", 4)


def _replayed(snowmelt: Snowmelt, *arguments: object) -> dict[str, dict[str, Any]]:
    done = snowmelt.run("simulate", "-o", "json", *arguments).succeeded()
    answer = json.loads(done.out)
    assert answer["simulated"] is True
    assert answer["assumptions"]
    replays = {replay["strategy"]: replay for replay in answer["replays"]}
    for replay in replays.values():
        assert replay["synthetic"] == answer["synthetic"]
        failed = replay["losses"]["failed"] if "losses" in replay else 0
        assert replay["ran"] + replay["expired"] + replay["refused"] + failed == replay["calls"]
        assert sum(window["arrived"] for window in replay["windows"]) == replay["calls"]
    return replays


def test_a_burst_of_calls_waits_for_one_start_with_trees_and_for_many_with_a_registry(
    snowmelt: Snowmelt,
) -> None:
    slow_registry = ("--registry-link", "1gbit")
    found = _replayed(snowmelt, *GAMING, *slow_registry, "--reclaim", "5m")
    tree, stripes, registry = found["tree"], found["stripes"], found["registry"]
    assert tree["calls"] == stripes["calls"] == registry["calls"] > 10_000
    for trees in (tree, stripes):
        assert trees["wait"]["most"] < 9
        assert trees["registry_bytes"] < 3 * 758 * MB
    assert registry["wait"]["most"] > 3 * stripes["wait"]["most"]
    assert registry["registry_bytes"] > 100 * 758 * MB
    # Hosts are added when the burst comes, and most of them are reclaimed after it.
    hosts = [window["hosts"] for window in stripes["windows"]]
    assert max(hosts[:11]) < 50 < max(hosts[11:13])
    assert stripes["reclaimed"] > 0
    assert stripes["levels"] > 5


def test_an_hour_of_the_iot_application_is_replayed(snowmelt: Snowmelt) -> None:
    hour = ("--synthetic", "iot", "--warm", 30, "--strategy", "stripes")
    stripes = _replayed(snowmelt, *hour)["stripes"]
    assert stripes["calls"] > 500_000
    assert stripes["ran"] == stripes["calls"]
    assert stripes["wait"]["p90"] == 0
    assert 300 < stripes["most_hosts"] <= 1000
    assert stripes["seconds"] > 54 * 60


def test_calls_fail_with_their_host_or_run_again_and_the_platform_goes_on(
    snowmelt: Snowmelt,
) -> None:
    ways = ("--strategy", "tree,stripes", "--seed", 5)
    kills = ("--kill", "40@11.5m,5@21.5m", "--detect", "5s", "--absent", "30s")
    whole = _replayed(snowmelt, *GAMING, *ways)
    synchronous = _replayed(snowmelt, *GAMING, *ways, *kills)
    assert synchronous == _replayed(snowmelt, *GAMING, *ways, *kills)
    asynchronous = _replayed(snowmelt, *GAMING, *ways, *kills, "--async", 1)
    for name, found in synchronous.items():
        losses, again = found["losses"], asynchronous[name]["losses"]
        assert "losses" not in whole[name]
        assert (losses["hosts"], losses["joined"]) == (again["hosts"], again["joined"]) == (45, 45)
        assert losses["failed"] > 0 == losses["run_again"]
        assert again["run_again"] > 0 == again["failed"]
        assert asynchronous[name]["ran"] == asynchronous[name]["calls"]
        # It takes the time until the failure is noticed, and then the call as a whole.
        assert again["response_around"]["most"] > 5 + 2
        assert again["response_otherwise"]["most"] <= again["response_around"]["most"]
        assert found["moves"] > whole[name]["moves"]
        failed = [window["failed"] for window in found["windows"]]
        assert sum(failed) == losses["failed"]
        assert failed[11] > 0 == sum(failed[:11])


def test_failures_that_leave_no_host_are_refused(snowmelt: Snowmelt) -> None:
    trace = ("--synthetic", "gaming", "--hosts", 10)
    refused = snowmelt.run("simulate", *trace, "--kill", "6@5m,4@10m")
    refused.failed_with("SM-0110", "no host is left if 4 fail at 600s")
    joined = ("--kill", "6@5m,4@10m", "--absent", "1m", "--strategy", "tree")
    assert _replayed(snowmelt, *trace, *joined)["tree"]["losses"]["joined"] == 10
    snowmelt.run("simulate", *trace, "--kill", "6").failed_with("SM-0110", "does not say when")


def _azure(folder: Path, *rows: str) -> Path:
    file = folder / "azure.csv"
    file.write_text("\n".join(["app,func,end_timestamp,duration", *rows, ""]))
    return file


def test_a_host_that_was_reclaimed_pays_for_a_start_again(
    snowmelt: Snowmelt, tmp_path: Path
) -> None:
    calls = _azure(tmp_path, "a,f,1,1", "a,f,101,1", "a,f,1901,1")
    kept, reclaimed = (
        _replayed(snowmelt, "--trace", calls, "--strategy", "tree", "--reclaim", after)["tree"]
        for after in ("1h", "15m")
    )
    assert (kept["provisioned"], kept["registry_bytes"]) == (1, 758 * MB)
    assert (reclaimed["provisioned"], reclaimed["registry_bytes"]) == (2, 2 * 758 * MB)
    assert kept["cold_starts"] == reclaimed["cold_starts"] == 3
    idle = ("--keep-idle", "1h", "--reclaim", "1h")
    warm = _replayed(snowmelt, "--trace", calls, "--strategy", "tree", *idle)["tree"]
    assert (warm["cold_starts"], warm["wait"]["p50"]) == (1, 0)


def test_the_trace_of_faasnet_is_read_with_its_starts(snowmelt: Snowmelt, tmp_path: Path) -> None:
    file = tmp_path / "faasnet.csv"
    rows = [f"{1620000000 + 60 * n},f{n % 3},{0.1 * n},python3,{128 << (n % 3)}" for n in range(10)]
    header = "__time__,functionName,latency,runtime,memoryMB"
    file.write_text("\r\n".join([header, *reversed(rows)]))
    done = snowmelt.run("simulate", "--trace", file, "--strategy", "tree").succeeded()
    assert "the trace does not say how long calls take: here 2s" in done.err
    tree = _replayed(snowmelt, "--trace", file, "--strategy", "tree")["tree"]
    assert (tree["origin"], tree["ran"], tree["provisioned"]) == ("faas-net", 10, 3)
    assert tree["recorded"]["most"] == 0.9


def test_a_line_that_is_not_as_expected_is_named(snowmelt: Snowmelt, tmp_path: Path) -> None:
    for row, what in (("a,f,1,-0.5", "`duration` is `-0.5`"), ("a,f,1", "3 fields, expected 4")):
        refused = snowmelt.run("simulate", "--trace", _azure(tmp_path, "a,f,1,1", row))
        refused.failed_with("SM-0106", what)
    refused = snowmelt.run("simulate", "--trace", tmp_path / "absent.csv")
    refused.failed_with("SM-0110", "absent.csv cannot be read")
    layers = ("--strategy", "layers", "--trace", _azure(tmp_path, "a,f,1,1"))
    snowmelt.run("simulate", *layers).failed_with("SM-0110", "single bursts")


def test_ctrl_c_ends_a_replay(snowmelt: Snowmelt) -> None:
    # More than any machine replays before the first line of progress.
    many = ",".join(["tree"] * 200)
    process = snowmelt.start(
        "--progress", "plain", "simulate", "--synthetic", "iot", "--strategy", many
    )
    assert process.stderr is not None
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    ended = snowmelt.finish(process)
    assert ended.code == 130
    ended.failed_with("SM-0113", "Ctrl-C")


def test_ctrl_c_ends_the_reading_of_a_trace_that_has_no_end(
    snowmelt: Snowmelt, tmp_path: Path
) -> None:
    pipe = tmp_path / "calls"
    os.mkfifo(pipe)
    process = snowmelt.start("--progress", "plain", "simulate", "--trace", pipe)
    assert process.stderr is not None
    with pipe.open("w") as calls:
        calls.write("app,func,end_timestamp,duration\na,f,1,1\n")
        calls.flush()
        assert "reading the trace" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        ended = snowmelt.finish(process)
    assert ended.code == 130
