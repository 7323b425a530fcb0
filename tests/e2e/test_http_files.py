"""Files on a server of HTTPS, read in sandboxes: by the operator's list, with its authorities."""

import functools
import ssl
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import Snowmelt

RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORKBOOK = {
    "_rels/.rels": (
        f'<Relationships><Relationship Id="r1" Type="{RELATIONS}/officeDocument"'
        ' Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        f'<workbook xmlns:r="{RELATIONS}"><sheets><sheet name="May" sheetId="1" r:id="r1"/>'
        "</sheets></workbook>"
    ),
    "xl/_rels/workbook.xml.rels": (
        f'<Relationships><Relationship Id="r1" Type="{RELATIONS}/worksheet"'
        ' Target="worksheets/sheet1.xml"/></Relationships>'
    ),
    "xl/worksheets/sheet1.xml": (
        '<worksheet><sheetData><row><c t="str"><v>name</v></c><c t="str"><v>n</v></c></row>'
        '<row><c t="str"><v>a</v></c><c><v>1.5</v></c></row>'
        '<row><c t="inlineStr"><is><t>b</t></is></c><c><v>2</v></c></row></sheetData></worksheet>'
    ),
}


class Quiet(SimpleHTTPRequestHandler):
    """Knows no ranges, and tells when a file was written."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:
        """Writes nothing."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and with the `key` and `certificate` of 127.0.0.1."""
    folder = tmp_path_factory.mktemp("authority")

    def certify(name: str, key: str, file: str, *more: str) -> None:
        new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        files = ("-keyout", str(folder / key), "-out", str(folder / file))
        subprocess.run(
            [*new, "-subj", f"/CN={name}", *files, *more], check=True, capture_output=True
        )

    certify("authority", "authority.key", "authority.pem")
    by = ("-CA", str(folder / "authority.pem"), "-CAkey", str(folder / "authority.key"))
    no_authority = ("-addext", "basicConstraints=critical,CA:FALSE")
    certify(
        "files", "key", "certificate", *by, *no_authority, "-addext", "subjectAltName=IP:127.0.0.1"
    )
    return folder


@pytest.fixture
def server(authority: Path, tmp_path: Path) -> Iterator[str]:
    """The host and port of a server of a workbook and a CSV file."""
    folder = tmp_path / "files"
    folder.mkdir()
    with zipfile.ZipFile(folder / "x.xlsx", "w", zipfile.ZIP_DEFLATED) as workbook:
        for name, text in WORKBOOK.items():
            workbook.writestr(name, text)
    (folder / "x.csv").write_text("n,s\n1,x\n2,y\n")
    handler = functools.partial(Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "certificate", authority / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_of_a_listed_server_are_tables(
    snowmelt: Snowmelt, authority: Path, server: str
) -> None:
    sql = (
        f"select name, n, s from read_xlsx('https://{server}/x.xlsx', sheet => 'may') a"
        f" join 'https://{server}/x.csv' b using (n)"
    )
    refused = snowmelt.sql(sql)
    assert (refused.code, refused.report["code"]) == (2, "SM-0120")
    snowmelt.environment = {"SNOWMELT_HTTP_SOURCES": server}
    unknown = snowmelt.sql(sql)
    assert unknown.report["code"] == "SM-0108"
    assert "certificate" in unknown.report["message"]
    snowmelt.environment["SSL_CERT_FILE"] = str(authority / "authority.pem")
    assert snowmelt.rows(sql, "--workers", 2) == [{"name": "b", "n": 2, "s": "y"}]
    shown = snowmelt.run("config", "show", "--origin").succeeded().out
    assert f'http_sources = ["{server}"]' in shown
