"""Modules of at most 400 lines, functions of at most 40, tests included."""

import ast
from pathlib import Path

from tests.architecture.files import ROOT, tracked

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 40
MIGRATIONS = ROOT / "migrations" / "versions"


def modules() -> list[Path]:
    """Ours; a migration is a list of tables, and is written once."""
    return [path for path in tracked("*.py") if MIGRATIONS not in path.parents]


def functions_longer_than(lines: int, source: str) -> list[tuple[str, int]]:
    """Name and length of each longer function."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [(name, length) for name, length in lengths if length > lines]


def test_the_tree_is_looked_at() -> None:
    assert ROOT / "towline" / "errors.py" in modules()


def test_no_module_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > MODULE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{name}": length
        for path in modules()
        for name, length in functions_longer_than(FUNCTION_LINES_MAX, path.read_text("utf-8"))
    }
    assert found == {}


def test_a_long_function_is_found() -> None:
    source = "class A:\n    async def long(self):\n" + "        pass\n" * 3
    assert functions_longer_than(3, source) == [("long", 4)]
    assert functions_longer_than(4, source) == []
