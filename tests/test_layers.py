"""The layers of the package: the imports that a module may have, and the absence of cycles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import shlo_jit

ROOT = Path(shlo_jit.__file__).parent
BASE = "deep environment errors forking log reasons sizes startup suggest tuning version".split()
LAYERS = (
    ("base", BASE),
    ("kernels", ["kernels", "options"]),
    *(
        (name, [name])
        for name in "ir ops verify text bytecode reference passes fuse schedule memory codegen lower custom".split()
    ),
    ("runtime", ["runtime"]),
    ("pictures", ["pictures"]),
    ("pipeline", ["failed", "foreign_files", "failed_programs", "sources", "pipeline", "stages", "specialize"]),
    ("distributed", ["distributed"]),
    ("aot", ["aot"]),
    ("autotune", ["autotune"]),
    ("api", ["check_options", "api", "shlo_jit"]),
    ("builder", ["builder"]),
    ("frameworks", ["pjrt", "jax"]),
    ("shrinking", ["shrink"]),
    ("command", ["op_table", "cli", "examples", "__main__"]),
)
"""Layers, lowest first, and the modules and packages of each. A module imports those of its own layer and below."""
LEVEL = {part: level for level, (_, parts) in enumerate(LAYERS) for part in parts}


@dataclass(frozen=True)
class Import:
    """`module` imports `imported` in this line."""

    module: str
    imported: str
    line: int

    def __str__(self) -> str:
        path = ROOT.parent.joinpath(*self.module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return f"{file.relative_to(ROOT.parent)}:{self.line} imports {self.imported}"


@cache
def modules() -> dict[str, Path]:
    """Name to file of every module of the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> tuple[Import, ...]:
    """All imports of our own modules, including those inside functions, except those for type checkers."""
    return tuple(found for name, path in modules().items() for found in imports_of(name, ast.parse(path.read_text())))


def imports_of(module: str, node: ast.AST) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            inside = [f"{child.module}.{alias.name}" for alias in child.names]
            names = list(dict.fromkeys(name if name in modules() else child.module or "" for name in inside))
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        else:
            yield from imports_of(module, child)
            continue
        yield from (Import(module, name, child.lineno) for name in names if name in modules() and name != module)


def level(module: str) -> int:
    _, _, inside = module.partition(".")
    return LEVEL[inside.partition(".")[0] or module]


def test_every_module_has_a_layer() -> None:
    assert [name for name in modules() if (name.split(".")[1:] or [name])[0] not in LEVEL] == []


def test_no_import_against_the_layers() -> None:
    against = [found for found in imports() if level(found.imported) > level(found.module)]
    assert not against, "\n".join(["against the layers:", *map(str, against)])


def test_no_module_imports_the_package_itself() -> None:
    """The package consists of its modules, so a module that imports it sees it partially initialized."""
    assert not [str(found) for found in imports() if found.imported == "shlo_jit"]


def test_the_table_of_packages_is_in_their_order() -> None:
    text = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE)
    assert packages == [part for _, parts in LAYERS for part in parts if (ROOT / part).is_dir() and part != "examples"]


def test_no_cycles() -> None:
    """Modules in an import cycle can be neither read nor tested separately."""
    reached: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        reached[found.module].add(found.imported)
    for middle, beyond in reached.items():  # Warshall's algorithm
        for targets in reached.values():
            if middle in targets:
                targets |= beyond
    wrong = [str(found) for found in imports() if found.module in reached[found.imported]]
    assert not wrong, "\n".join(["in a cycle:", *wrong])


@pytest.mark.parametrize(("package", "allowed"), [("kernels", [*BASE, "kernels"]), ("ir", [*BASE, "ir"])])
def test_packages_that_stand_alone(package: str, allowed: list[str]) -> None:
    inside = [found for found in imports() if found.module.split(".")[1:2] == [package]]
    wrong = [str(found) for found in inside if found.imported.split(".")[1] not in allowed]
    assert inside and not wrong, "\n".join([f"{package} imports nothing of:", *wrong])


def test_code_generation_knows_no_lowering() -> None:
    wrong = [
        str(f) for f in imports() if f.module.startswith("shlo_jit.codegen") and f.imported.startswith("shlo_jit.lower")
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_print_whatever_was_imported() -> None:
    """The printer is above `ir` and is passed down to it."""
    made = "Module(Op('builtin.module', [], [], {}, [Region([Block([], [])])]))"
    code = f"from shlo_jit.ir.core import Block, Module, Op, Region; print({made})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["module", "{", "}"]
