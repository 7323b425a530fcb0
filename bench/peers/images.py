"""The image that all peers run: one static busybox. Also the limits of its containers."""

import hashlib
import io
import json
import platform
import shutil
import tarfile
from pathlib import Path

COMMAND = ["/bin/busybox", "echo", "x"]
# The default limits of a sandbox; one whole core.
MEMORY = 512 << 20
PIDS = 64


def fill(root: Path) -> None:
    """Puts busybox into an empty root."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise RuntimeError("busybox is missing: scripts/setup bench installs busybox-static")
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")


def layer(root: Path) -> bytes:
    """The root as a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(root, arcname=".")
    return buffer.getvalue()


def write_oci_archive(root: Path, name: str, archive: Path) -> None:
    """An image of one layer as `ctr images import` reads it."""
    blobs: list[bytes] = []

    def put(kind: str, content: bytes) -> dict[str, object]:
        blobs.append(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": digest, "size": len(content)}

    def text(value: object) -> bytes:
        return json.dumps(value).encode()

    tar = put("layer.v1.tar", layer(root))
    files = {"type": "layers", "diff_ids": [tar["digest"]]}
    about = {"architecture": _architecture(), "os": "linux", "config": {}, "rootfs": files}
    config = put("config.v1+json", text(about))
    manifest = {"schemaVersion": 2, "config": config, "layers": [tar]}
    top = put("manifest.v1+json", text(manifest))
    top["annotations"] = {"io.containerd.image.name": name}
    members = {
        "oci-layout": text({"imageLayoutVersion": "1.0.0"}),
        "index.json": text({"schemaVersion": 2, "manifests": [top]}),
    }
    members |= {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in blobs}
    with tarfile.open(archive, "w") as out:
        for path, content in members.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
