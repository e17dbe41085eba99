"""The layers of the package: the imports that a module may have, and the absence of cycles."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import shlo_jit

ROOT = Path(shlo_jit.__file__).parent
BASE = "caches deep environment errors forking log reasons sizes startup suggest traits tuning version".split()
LAYERS = (
    ("base", BASE),
    ("kernels", ["kernels", "options"]),
    *(
        (name, [name])
        for name in "ir ops verify text bytecode reference passes fuse schedule memory codegen lower custom".split()
    ),
    ("runtime", ["runtime"]),
    ("pictures", ["pictures"]),
    ("pipeline", "failed foreign_files failed_programs sources pipeline stages bind_constants specialize".split()),
    ("distributed", ["distributed"]),
    ("aot", ["aot"]),
    ("autotune", ["autotune"]),
    ("api", ["check_options", "api", "shlo_jit"]),
    ("builder", ["builder"]),
    ("frameworks", ["pjrt", "jax", "torch"]),
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
    at_load: bool
    """Whether it runs when the module is loaded: it is not inside a function."""
    for_types: bool
    """Whether only type checkers see it."""

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
def all_imports() -> tuple[Import, ...]:
    """All imports of our own modules."""
    return tuple(found for name, path in modules().items() for found in imports_of(name, ast.parse(path.read_text())))


@cache
def imports() -> tuple[Import, ...]:
    """The imports that run, including those inside functions."""
    return tuple(found for found in all_imports() if not found.for_types)


def imports_of(module: str, node: ast.AST, at_load: bool = True, for_types: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            inside = [f"{child.module}.{alias.name}" for alias in child.names]
            names = list(dict.fromkeys(name if name in modules() else child.module or "" for name in inside))
        else:
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # no expression holds imports
                yield from imports_of(module, child, at_load and not is_function, for_types or is_for_types)
            continue
        ours = [name for name in names if name in modules() and name != module]
        yield from (Import(module, name, child.lineno, at_load, for_types) for name in ours)


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


def in_cycles(given: Iterable[Import]) -> list[str]:
    """The imports that are parts of cycles."""
    given = list(given)
    reached: dict[str, set[str]] = {name: set() for found in given for name in (found.module, found.imported)}
    for found in given:
        reached[found.module].add(found.imported)
    for middle, beyond in reached.items():  # Warshall's algorithm
        for targets in reached.values():
            if middle in targets:
                targets |= beyond
    return [str(found) for found in given if found.module in reached[found.imported]]


def test_no_cycles() -> None:
    """Modules in an import cycle can be neither read nor tested separately."""
    wrong = in_cycles(imports())
    assert not wrong, "\n".join(["in a cycle:", *wrong])


@pytest.mark.parametrize(
    "package", ["kernels", "ops", "verify", "reference", "fuse", "codegen", "lower", "custom", "aot"]
)
def test_no_cycles_of_types(package: str) -> None:
    """A reader of these packages finds every class before those that use it, in annotations as well."""
    inside = [f for f in all_imports() if f.module.split(".")[1:2] == [package] == f.imported.split(".")[1:2]]
    wrong = in_cycles(inside)
    assert inside and not wrong, "\n".join(["in a cycle:", *wrong])


def longest_chain(given: Iterable[Import]) -> list[str]:
    """The longest chain of modules each of which imports the next; there must be no cycles."""
    following: dict[str, list[str]] = {}
    for found in given:
        following.setdefault(found.module, []).append(found.imported)

    @cache
    def chain(module: str) -> tuple[str, ...]:
        return (module, *max(map(chain, following.get(module, [])), key=len, default=()))

    return list(max(map(chain, following), key=len))


@pytest.mark.parametrize(("at_load", "limit"), [(True, 25), (False, 38)], ids=["when loaded", "also inside functions"])
def test_chains_of_imports_are_short(at_load: bool, limit: int) -> None:
    """Each module of a chain is one more that a reader may have to know, and that a change may break."""
    chain = longest_chain(found for found in imports() if found.at_load or not at_load)
    assert 10 < len(chain) <= limit, "\n".join([f"{len(chain)} modules:", *chain])


def test_a_chain_and_a_cycle_are_found() -> None:
    links = [Import("a", "b", 1, True, False), Import("b", "c", 1, True, False), Import("a", "c", 1, True, False)]
    assert in_cycles(links) == []
    assert longest_chain(links) == ["a", "b", "c"]
    assert len(in_cycles([*links, Import("c", "b", 1, False, True)])) == 2


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
