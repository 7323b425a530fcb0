"""What a function has besides its code and packages: files and secrets.

Invariant: it stays with the function where it is declared; an instance that unpickles the function
has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _files, _secrets

if TYPE_CHECKING:
    from ._client import Client


class Given:
    """Files by name, and references to secrets by name."""

    def __init__(self, files: Any = (), secrets: Any = None) -> None:
        self.files = _files.declared(files)
        self.secrets = _secrets.declared(secrets or {})

    def with_more(self, files: Any, secrets: Any) -> Given:
        """The same and more, which goes before what has the same name."""
        more, all_of = Given(files, secrets), Given()
        all_of.files = {**self.files, **more.files}
        all_of.secrets = {**self.secrets, **more.secrets}
        return all_of

    def to_wire(self, platform: Client) -> dict[str, Any]:
        """The fields of the wire `UdfSource`, once the files are sent. Raises `Error`."""
        fields = {"files": _files.send(platform, self.files), "secrets": self.secrets}
        return {name: value for name, value in fields.items() if value}
