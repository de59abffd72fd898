"""No product code is there for tests alone: the product itself uses each of its functions, methods and classes."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "webhook"
# What a library calls by name.
HOOKS = {
    "webhook/config/command_line.py": {"_fill_text", "_split_lines", "add_usage"},
    "webhook/server/listener.py": {"eof_received", "handle_error"},
    "webhook/server/responses.py": {"write_eof"},
}


def names_used(tree: ast.Module) -> set[str]:
    """Names that a module reads, and strings that may name something (verbs are imported by name)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                found.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                found.add(text)
            case _:
                pass
    return found


def names_defined(tree: ast.Module) -> set[str]:
    """Functions, methods and classes, but for those with double underscores."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds) and not node.name.startswith("__")}


def test_the_product_uses_all_of_its_code() -> None:
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    used = set().union(*map(names_used, trees.values()))
    unused = {module: names_defined(tree) - used - HOOKS.get(module, set()) for module, tree in trees.items()}
    assert {module: names for module, names in unused.items() if names} == {}


def test_a_use_elsewhere_counts_and_a_definition_does_not() -> None:
    tree = ast.parse("class A:\n    def used(self): ...\n    def unused(self): ...\nA().used()\n")
    assert names_defined(tree) - names_used(tree) == {"unused"}
