# Run by `python -I -S -c` with a source file on stdin: prints the packages and versions of Python in
# its decorators, and its imports. The source is parsed and never executed; the limits are set before
# it is read.
import ast, json, resource, sys

for limit, most in (
    (resource.RLIMIT_CPU, 20),
    (resource.RLIMIT_AS, 2 << 30),
    (resource.RLIMIT_FSIZE, 0),
    # At 0 a crash would still start the host's core handler.
    (resource.RLIMIT_CORE, 1),
):
    hard = resource.getrlimit(limit)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (most, most))


def fail(message, line, within=None):
    print(json.dumps({"error": message, "line": line, "within": within}))
    sys.exit(0)


_DECORATORS = ("udf", "table", "function", "aggregate")


def called(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def texts(node, constants):
    if isinstance(node, ast.Name):
        node = constants.get(node.id)
    if not isinstance(node, (ast.List, ast.Tuple)):
        return None
    values = [element.value for element in node.elts if isinstance(element, ast.Constant)]
    whole = len(values) == len(node.elts) and all(isinstance(value, str) for value in values)
    return values if whole else None


def text(node, constants):
    if isinstance(node, ast.Name):
        node = constants.get(node.id)
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def groups(tree):
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for node in ast.walk(tree):
        own = []
        for decorator in getattr(node, "decorator_list", ()):
            if not isinstance(decorator, ast.Call) or called(decorator.func) not in _DECORATORS:
                continue
            for keyword in decorator.keywords:
                if keyword.arg == "packages":
                    values = texts(keyword.value, constants)
                    if values is None:
                        why = "packages= is not a plain list of texts"
                        fail(why, keyword.value.lineno, f"{node.name}()")
                    own += values
                elif keyword.arg == "python":
                    version = text(keyword.value, constants)
                    if version is None:
                        why = "python= is not a plain text"
                        fail(why, keyword.value.lineno, f"{node.name}()")
                    own.append(f"python=={version}")
        if own:
            found.append(own)
    return found


def shares(tree):
    """Whether there is a set-up with `shared=True`, or with a value that is not known here."""
    return any(
        isinstance(decorator, ast.Call)
        and called(decorator.func) == "setup"
        and any(
            keyword.arg == "shared"
            and not (isinstance(keyword.value, ast.Constant) and not keyword.value.value)
            for keyword in decorator.keywords
        )
        for node in ast.walk(tree)
        for decorator in getattr(node, "decorator_list", ())
    )


def imports(nodes):
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.append(node.module)
        elif isinstance(node, ast.If) and called(node.test) == "TYPE_CHECKING":
            found += imports(node.orelse)
        else:
            found += imports(ast.iter_child_nodes(node))
    return found


try:
    tree = ast.parse(sys.stdin.buffer.read())
    found = {"groups": groups(tree), "imports": imports([tree]), "shares": shares(tree)}
    print(json.dumps(found))
except SyntaxError as error:
    fail(f"{type(error).__name__}: {error.msg}", error.lineno or 1)
except (RecursionError, MemoryError):
    fail("it is nested too deeply", 1)
except ValueError as error:
    fail(str(error), 1)
