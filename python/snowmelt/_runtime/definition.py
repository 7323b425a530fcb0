"""The functions that SQL defines: the code of a `CREATE FUNCTION`.

The code is the body of the function, if it has a `return` of its own, or else a module that
defines a function of its name. Lines keep the numbers that they have in the statement, and texts in
the code stay as they are: the function is put around its body in the syntax tree, not in the text.

Invariant: the types are those that the SQL declares, whatever annotations the code has.
"""

from __future__ import annotations

import ast
import keyword
from typing import Any

from .._elements import UnsupportedAnnotation
from .._signature import Signature, of_wire
from .._udf import Udf
from . import code, failure
from .failure import Failed

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def execute(given: dict[str, Any]) -> dict[str, Any]:
    """The function, by its name. Raises `Failed`, and what the code raises."""
    file, name = given["file"], given["signature"]["name"]
    failure.own(file, given["text"])
    signature = _signature(given["signature"])
    tree = ast.parse(given["text"], file)
    statements = tree.body
    if given["indented"]:
        statements = statements[0].body
    if any(_returns(statement) for statement in statements):
        tree.body = [_function(signature, statements)]
    elif not any(_defines(statement, name) for statement in statements):
        raise Failed(
            "load",
            f"{file} neither returns a value nor defines a function `{name}`",
            function=name,
            hint=f"write the body of the function, or `def {name}(...):` with its body",
        )
    names = code.run(file, compile(tree, file, "exec", dont_inherit=True))
    return {name: Udf(_plain(names.get(name), name, file), signature)}


def _signature(wire: dict[str, Any]) -> Signature:
    name = wire["name"]
    try:
        signature = of_wire(wire)
    except UnsupportedAnnotation as error:
        raise Failed("signature", str(error), function=name) from None
    for argument, _ in signature.arguments:
        if not argument.isidentifier() or keyword.iskeyword(argument):
            reason = f"{argument!r} is not a name in Python"
            raise Failed("signature", reason, function=name, hint="give the argument another name")
    return signature


def _defines(statement: ast.stmt, name: str) -> bool:
    """Whether a statement of the module defines the function."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return statement.name == name
    if isinstance(statement, ast.Assign):
        return any(isinstance(to, ast.Name) and to.id == name for to in statement.targets)
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return any((alias.asname or alias.name) == name for alias in statement.names)
    inner = [*getattr(statement, "body", []), *getattr(statement, "orelse", [])]
    return any(_defines(each, name) for each in inner)


def _function(signature: Signature, body: list[ast.stmt]) -> ast.stmt:
    """The function with this body."""
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    arguments = [ast.arg(arg=argument) for argument, _ in signature.arguments]
    made.name, made.args.args, made.body = signature.name, arguments, body
    for node in (made, *arguments):
        ast.copy_location(node, body[0])
    return made


def _returns(node: ast.AST) -> bool:
    """Whether there is a `return` that belongs to no function inside of the code."""
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, _SCOPES):
        return False
    return any(_returns(child) for child in ast.iter_child_nodes(node))


def _plain(found: Any, name: str, file: str) -> Any:
    if isinstance(found, Udf):
        reason = f"`{name}` in {file} has @sm.udf, whose types and options the SQL declares"
        raise Failed("load", reason, function=name, hint="omit the decorator")
    if not callable(found):
        raise Failed("load", f"`{name}` in {file} is not a function", function=name)
    return found
