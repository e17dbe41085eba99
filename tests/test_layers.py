"""The order of the packages: each imports only those before it, imports inside functions counted, and no two files import
each other. Imports for type checkers do not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import shlo_jit

ROOT = Path(shlo_jit.__file__).parent
LAYERS = [
    *("version", "startup", "tuning", "errors", "log", "environment", "forking", "deep"),
    *("kernels", "options", "ir", "ops", "verify", "text", "sources", "reference", "passes", "fuse", "schedule"),
    *("memory", "codegen", "lower", "stages", "runtime", "pipeline", "check_options", "api", "__init__"),
    *("examples", "op_table", "cli_report", "cli", "__main__"),
]
HELD = ["kernels", "codegen", "runtime", "pipeline", "check_options", "api", "__init__", "cli", "__main__"]


def modules() -> dict[str, Path]:
    """Name (`runtime.cache`, `__init__`) -> file."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports when it runs."""
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (_own(a.name, "") for a in node.names if a.name.split(".")[0] == "shlo_jit")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "shlo_jit":
            yield from (_own(str(node.module), a.name) for a in node.names)


def _own(module: str, name: str) -> str:
    inside = module.removeprefix("shlo_jit").lstrip(".")
    full = f"{inside}.{name}".strip(".")
    return full if full in MODULES else inside or "__init__"


GRAPH = {name: sorted(set(imports(path)) - {name}) for name, path in MODULES.items()}


def layer(module: str) -> int:
    return LAYERS.index(module.split(".", maxsplit=1)[0])


def test_every_module_has_a_layer() -> None:
    assert {name.split(".")[0] for name in MODULES} == set(LAYERS)


@pytest.mark.parametrize("package", HELD)
def test_imports_go_one_way(package: str) -> None:
    against = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        for other in others
        if name.split(".")[0] == package and layer(other) > layer(name)
    ]
    assert not against


def test_nobody_imports_the_package_itself() -> None:
    assert not [name for name, others in GRAPH.items() if "__init__" in others]


@pytest.mark.parametrize("package", HELD)
def test_no_files_import_each_other(package: str) -> None:
    """Follow the imports of each file until they come back to it."""
    for start in (name for name in GRAPH if name.split(".")[0] == package):
        seen: set[str] = set()
        todo = list(GRAPH[start])
        while todo:
            name = todo.pop()
            assert name != start, f"{start} imports itself by way of others"
            if name not in seen:
                seen.add(name)
                todo += GRAPH[name]
