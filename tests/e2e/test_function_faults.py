"""A misbehaving function affects only its own query: error code, message and hint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Result, Snowmelt

Ask = Callable[..., Result]


@pytest.fixture
def ask(snowmelt: Snowmelt, data: Path, udf_file: Callable[[str], Path]) -> Ask:
    """Runs `f` over 1,500 rows."""

    def run(code: str, select: str = "sum(f(c_custkey)) as s", *arguments: object) -> Result:
        sql = f"select {select} from '{data / 'customer'}'"
        return snowmelt.sql(sql, "--udf", udf_file(code), "--workers", 2, *arguments)

    return run


def body(*lines: str, decorator: str = "@sm.udf", signature: str = "f(x: int) -> int") -> str:
    inside = "".join(f"    {line}\n" for line in lines)
    return f"{decorator}\ndef {signature}:\n{inside}"


@pytest.fixture(autouse=True)
def the_platform_goes_on(snowmelt: Snowmelt, data: Path) -> Any:
    """After each fault the next query is answered."""
    yield
    assert snowmelt.rows(f"select count(*) as n from '{data / 'customer'}'") == [{"n": 1500}]


def test_raises(ask: Ask) -> None:
    code = body("if x == 77:", "    raise ValueError('seventy-seven')", "return x")
    report = ask(code).failed_with("SM-0201", "`f`", "seventy-seven", "x = 77")
    assert report["location"]["file"].endswith("udfs.py")
    assert report["location"]["line"] == 6
    assert "on_error" in report["hint"]


def test_raises_where_errors_become_null(ask: Ask) -> None:
    code = body("return 1 // (x - 77)", decorator='@sm.udf(on_error="null")')
    assert ask(code, "count(f(c_custkey)) as n").succeeded().out.strip() == '{"n":1499}'


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import os; os._exit(7)", "SM-0210"),
        ("import ctypes; ctypes.string_at(0)", "SM-0211"),
        ("hold = [bytearray(8 << 20) for _ in range(10_000)]", "SM-0213"),
    ],
)
def test_an_end_is_reported_when_the_driver_calls_the_function(
    ask: Ask, line: str, code: str
) -> None:
    """Above a LIMIT or an aggregate the driver calls: the reason is that of the instance."""
    ask(body(line, "return x"), "f(sum(c_custkey)) as n").failed_with(code, "`f`")


def test_returns_the_wrong_type(ask: Ask) -> None:
    ask(body("return 'one'")).failed_with("SM-0202", "`f`", "str", "int")


def test_returns_the_wrong_length(ask: Ask) -> None:
    ask(body("return x[:-1]", decorator='@sm.udf(batch="arrow")')).failed_with("SM-0203", "`f`")


def test_has_no_annotations(ask: Ask) -> None:
    ask(body("return x", signature="f(x)")).failed_with("SM-0205", "x")


def test_gets_the_wrong_types(ask: Ask) -> None:
    report = ask(body("return x"), "f(c_name, c_name)").report
    assert report["code"] in ("SM-0102", "SM-0103"), report


def test_cannot_be_imported(ask: Ask) -> None:
    ask("import no_such_module\n" + body("return x")).failed_with("SM-0204", "no_such_module")


def test_has_a_syntax_error(ask: Ask) -> None:
    ask("def f(x: int) -> int\n    return x\n").failed_with("SM-0204", "udfs.py")


def test_needs_a_missing_package(ask: Ask) -> None:
    code = body("return x", decorator='@sm.udf(packages=["snowmelt-no-such-package-e2e==1.0"])')
    ask(code).failed_with("SM-0301", "snowmelt-no-such-package-e2e")


def test_needs_a_missing_version(ask: Ask) -> None:
    ask(body("return x", decorator='@sm.udf(packages=["six==99.0"])')).failed_with("SM-0301", "six")


def test_uses_its_package(ask: Ask) -> None:
    code = "import six\n\n" + body(
        "return len(six.text_type(x))", decorator='@sm.udf(packages=["six==1.17.0"])'
    )
    assert ask(code, "max(f(c_custkey)) as m").succeeded().out.strip() == '{"m":4}'


def test_prints_gigabytes(ask: Ask) -> None:
    code = "import sys\n\n" + body(
        "if x == 1:", "    for _ in range(1024):", "        print('x' * 1048576)", "return 1"
    )
    done = ask(code).succeeded()
    assert done.out.strip() == '{"s":1500}'
    assert len(done.err) < 1 << 20


def test_sleeps_indefinitely(ask: Ask) -> None:
    code = "import time\n\n" + body(
        "while True:", "    time.sleep(1)", decorator='@sm.udf(timeout="2s")'
    )
    done = ask(code)
    done.failed_with("SM-0212", "`f`")
    assert done.code == 124


def test_allocates_without_limit(ask: Ask) -> None:
    code = body(
        "hold = []",
        "while True:",
        "    hold.append(bytearray(8 << 20))",
        decorator='@sm.udf(memory="256MiB")',
    )
    ask(code).failed_with("SM-0213", "256", "peak")


def test_forks_without_limit(ask: Ask) -> None:
    code = "import os, time\n\n" + body(
        "while True:", "    if os.fork() == 0:", "        time.sleep(600)"
    )
    report = ask(code).report
    assert report["code"] in ("SM-0214", "SM-0201"), report
    assert "process" in str(report)


@pytest.mark.parametrize("target", ["os.getppid()", "1", "-1", "0"])
def test_sends_signals_to_its_parent_and_all_processes(ask: Ask, target: str) -> None:
    """Its pid namespace contains no other processes; it may end itself."""
    done = ask("import os\n\n" + body(f"os.kill({target}, 9)", "return 1"))
    if done.code != 0:
        assert done.report["code"] in ("SM-0201", "SM-0210", "SM-0211"), done.report
    else:
        assert done.out.strip() == '{"s":1500}'


def test_ends_its_process(ask: Ask) -> None:
    ask("import os\n\n" + body("os._exit(7)")).failed_with("SM-0210", "7")


def test_crashes(ask: Ask) -> None:
    code = "import ctypes\n\n" + body("ctypes.string_at(0)", "return x")
    ask(code).failed_with("SM-0211", "11")


@pytest.mark.parametrize("place", ["/usr/e2e", "/e2e", "/etc/e2e", "/proc/sys/kernel/hostname"])
def test_writes_to_a_read_only_path(ask: Ask, place: str) -> None:
    report = ask(body(f"open('{place}', 'w').write('x')", "return x")).failed_with("SM-0201", place)
    assert "OSError" in str(report) or "PermissionError" in str(report)


def test_fills_its_scratch(ask: Ask) -> None:
    code = body(
        "with open('/tmp/big', 'wb') as big:",
        "    while True:",
        "        big.write(bytes(1 << 20))",
    )
    ask(code).failed_with("SM-0215", "limit 64 MiB", "No space left")


def test_opens_files_without_limit(ask: Ask) -> None:
    code = body("files = [open('/dev/null') for _ in range(100000)]", "return len(files)")
    ask(code).failed_with("SM-0216", "limit 1024", "close what is done with")


def test_starts_threads_without_limit(ask: Ask) -> None:
    code = "import threading, time\n\n" + body(
        "while True:", "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
    )
    ask(code).failed_with("SM-0214", "start fewer")


def test_sees_only_itself_in_proc(ask: Ask) -> None:
    code = "import os\n\n" + body("return sum(name.isdigit() for name in os.listdir('/proc'))")
    done = ask(code, "max(f(c_custkey)) as n").succeeded()
    assert done.out.strip() in ('{"n":1}', '{"n":2}')


@pytest.mark.parametrize("file", ["/etc/shadow", "/root/.bashrc", "/proc/1/root/etc/shadow"])
def test_reads_files_of_the_host(ask: Ask, file: str) -> None:
    ask(body(f"return len(open('{file}').read())")).failed_with("SM-0201", file)


def test_does_not_see_the_environment_of_the_platform(ask: Ask, snowmelt: Snowmelt) -> None:
    snowmelt.environment = {"AWS_SECRET_ACCESS_KEY": "secret-of-the-client", "E2E_MARK": "here"}
    code = "import os\n\n" + body(
        "text = open('/proc/1/environ').read() + str(dict(os.environ))",
        "return int('secret-of-the-client' in text or 'E2E_MARK' in text)",
    )
    assert ask(code).succeeded().out.strip() == '{"s":0}'


def test_opens_a_socket(ask: Ask) -> None:
    code = "import socket\n\n" + body("socket.create_connection(('1.1.1.1', 53), 5)", "return x")
    report = ask(code).failed_with("SM-0201", "OSError")
    assert "network" in report["hint"]


def test_has_no_rights(ask: Ask) -> None:
    code = body(
        "status = open('/proc/self/status').read()",
        "fields = dict(line.split(':\\t') for line in status.splitlines() if ':\\t' in line)",
        "names = ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']",
        "none = all(int(fields[name], 16) == 0 for name in names)",
        "return int(none and fields['NoNewPrivs'] == '1' and fields['Seccomp'] == '2')",
    )
    assert ask(code, "min(f(c_custkey)) as ok").succeeded().out.strip() == '{"ok":1}'
