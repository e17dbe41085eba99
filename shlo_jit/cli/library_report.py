"""Output of `export` and `inspect` about a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shlo_jit.cli.inspection import values_of
from shlo_jit.cli.report import make_table, size

if TYPE_CHECKING:
    from rich.console import Console

    from shlo_jit.aot.export import Exported
    from shlo_jit.cli.inspection import Inspection


def print_exported(console: Console, exported: Exported, found: Inspection, seconds: float) -> None:
    """Prints the files written, with their contents."""
    rows = make_table("file", "size", "what it is")
    rows.add_row(str(exported.library), _file_size(exported.library), _what(found))
    if exported.header is not None:
        rows.add_row(str(exported.header), _file_size(exported.header), "C header")
    if exported.weights is not None:
        rows.add_row(str(exported.weights), _file_size(exported.weights), "weights, to be kept beside the library")
    console.print(rows, markup=False)
    _print_functions(console, found)
    _print_targets(console, found)
    _print_facts(console, [*_features(found), *_needs(found), ("exported", f"in {seconds:.3g} s{_linked(exported)}")])


def print_inspection(console: Console, found: Inspection) -> None:
    """Prints all facts about a library."""
    metadata = found.file.metadata
    weights = metadata["weights"]
    where = f"in {weights['file']}" if weights["file"] else "in the library"
    constants = f"{weights['constants']} constant{'s' if weights['constants'] != 1 else ''}, {where}"
    facts = [
        ("library", found.file.path),
        ("format", _what(found)),
        ("made by", f"shlo_jit {metadata['shlo_jit']}, version {metadata['interface']} of the interface"),
        ("symbols", f"begin with {metadata['name']}_"),
        ("file", size(found.file.nbytes)),
        ("weights", f"{size(weights['bytes'])}: {constants}" if weights["bytes"] else "none"),
        ("instance", _memory(found.memory)),
    ]
    _print_facts(console, facts, gap=False)
    _print_functions(console, found)
    _print_targets(console, found)
    symbols = ", ".join(found.system_symbols)
    _print_facts(console, [*_features(found), *_needs(found), *([("symbols", symbols)] if symbols else [])])


def _print_facts(console: Console, facts: Sequence[tuple[str, str]], gap: bool = True) -> None:
    if gap:
        console.print()
    rows = make_table()
    rows.add_column(style="dim")
    rows.add_column(overflow="fold")
    for fact in facts:
        rows.add_row(*fact)
    console.print(rows, markup=False)


def _print_functions(console: Console, found: Inspection) -> None:
    console.print()
    rows = make_table("function", "in C", "inputs", "outputs")
    prefix = found.file.metadata["name"]
    functions = found.file.metadata["functions"]
    for function in (*(f for f in functions if f["c_name"]), *found.sized):
        rows.add_row(f"@{function['name']}", f"{prefix}_{function['c_name']}", *_sides(function))
        for n, call in enumerate(function.get("calls", ())):
            inputs, outputs = _sides(functions[function["first"] + n])
            rows.add_row("", "", "; ".join([inputs, *_values(function, call)]), outputs)
    console.print(rows, markup=False)


def _sides(function: Mapping[str, Any]) -> list[str]:
    """Formats inputs and outputs."""
    return [", ".join(map(_port, function[side])) or "none" for side in ("inputs", "outputs")]


def _values(sized: Mapping[str, Any], call: Mapping[str, Any]) -> list[str]:
    """Values of the inputs that select the code for a call: `n = 8`."""
    ports = [sized["inputs"][i] for i in sized["by_value"]]
    return [f"{port[0]} = {numbers}" for port, numbers in zip(ports, values_of(sized, call), strict=True)]


def _print_targets(console: Console, found: Inspection) -> None:
    console.print()
    targets = found.file.metadata["targets"]
    has_several = len(targets) > 1 and any(t.get("weights_bytes") for t in targets)  # not recorded by older versions
    rows = make_table("target", "for", "here", *(["weights"] if has_several else []))
    for target, fit in zip(targets, found.fits, strict=True):
        rows.add_row(target["name"], target["triple"], str(fit), *([_weights(target)] if has_several else []))
    console.print(rows, markup=False)


def _weights(target: Mapping[str, Any]) -> str:
    """Formats the size of the weights that a target's code reads, and of those that only it reads."""
    return f"{size(target['weights_bytes'])} ({size(target['own_weights_bytes'])} for this target alone)"


def _features(found: Inspection) -> list[tuple[str, str]]:
    """Required processor features, a row for each target: they are too many for a column of the table."""
    targets = found.file.metadata["targets"]
    names = ["features" if len(targets) == 1 else f"features of {target['name']}" for target in targets]
    return [
        (name, ", ".join(target["features"]) or "nothing special") for name, target in zip(names, targets, strict=True)
    ]


def _needs(found: Inspection) -> list[tuple[str, str]]:
    """Rows of what the host must provide."""
    metadata = found.file.metadata
    rows = []
    if found.needs is not None:
        rows.append(("needs", _libraries(found)))
    if metadata["custom_calls"]:
        calls = ", ".join(f"{name} as {symbol}" for name, symbol in metadata["custom_calls"].items())
        rows.append(("custom calls", calls))
    if metadata["lapack"]:
        rows.append(("LAPACK", ", ".join(f"{name}_" for name in metadata["lapack"])))
    return rows


def _libraries(found: Inspection) -> str:
    assert found.needs is not None
    count = len(found.system_symbols)
    if not count:
        return "no library"
    functions = f"{count} function{'s' if count > 1 else ''}"
    return f"{', '.join(found.needs.libraries) or 'a C library'} ({functions})"


def _memory(memory: Mapping[int, int]) -> str:
    """Bytes for each number of threads; only once if they are all equal."""
    if len(set(memory.values())) == 1:
        return f"{size(next(iter(memory.values())))} for any number of threads"
    one, *others = memory.items()
    return ", ".join([f"{size(one[1])} for 1 thread", *(f"{size(nbytes)} for {n}" for n, nbytes in others)])


def _port(row: Sequence[Any]) -> str:
    name, shape, dtype, *_ = row  # sized functions have bounds as a further entry
    extents = ", ".join("?" if n is None else str(n) for n in shape)
    return f"{f'{name}: ' if name and not name.isdigit() else ''}{dtype}[{extents}]"


def _what(found: Inspection) -> str:
    return f"{found.file.format}{f' for {found.file.machine}' if found.file.machine else ''}"


def _linked(exported: Exported) -> str:
    return f", linked with {exported.linker}" if exported.linker else ""


def _file_size(path: Path) -> str:
    return size(path.stat().st_size)
