"""`docs/reference/openapi.json` is a valid OpenAPI document, and complete."""

import json
from pathlib import Path
from typing import Any

from openapi_spec_validator import validate


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [reference for value in node.values() for reference in _references(value)]
    if isinstance(node, list):
        return [reference for value in node for reference in _references(value)]
    return []


def test_the_document_is_valid(checkout: Path) -> None:
    document = json.loads((checkout / "docs/reference/openapi.json").read_text())
    validate(document)
    schemas = document["components"]["schemas"]
    missing = {name.rsplit("/", 1)[1] for name in _references(document)} - set(schemas)
    assert not missing
    described = [name for name, schema in schemas.items() if schema.get("description")]
    assert len(described) > len(schemas) * 3 // 4
