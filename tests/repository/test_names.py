"""A name of a type means one thing: few files declare a type of the same name.

Items of functions and associated types do not count, and neither do tests.
"""

import collections
import re
from pathlib import Path

MAX_FILES = 2
# Each library has one of them.
EVERYWHERE = {"Error", "Options", "Inner", "State", "Result"}
TYPE = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type|union) (\w+)", re.MULTILINE)
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)


def test_a_type_name_has_one_meaning(checkout: Path) -> None:
    declared = collections.defaultdict(set)
    for file in checkout.glob("crates/*/src/**/*.rs"):
        code = TESTS.split(file.read_text())[0]
        for name in TYPE.findall(code):
            declared[name].add(str(file.relative_to(checkout)))
    many = {name: sorted(files) for name, files in declared.items() if len(files) > MAX_FILES}
    assert declared["Error"] and not {n: f for n, f in many.items() if n not in EVERYWHERE}
