"""Checks that need a whole module: symbols, functions, and calls against their callees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shlo_jit.ir.attributes import SymbolRef
from shlo_jit.ir.core import Module, Op, function_type, is_declaration, walk
from shlo_jit.ir.types import Type
from shlo_jit.ops import Violation
from shlo_jit.ops.families import FAMILY_OF
from shlo_jit.ops.kinds import has_valid_quantization
from shlo_jit.ops.type_algebra import compatible, compatible_lists, type_list, type_text, types_text
from shlo_jit.suggest import did_you_mean
from shlo_jit.verify.check_op import return_line

Finding = tuple[Op, Violation]
MOST_HINTS, MOST_NAMES = 20, 1000
"""Limits of hints, since a hint compares a name with all others: findings that get one, and names that are compared."""
CALLEES = {"func.call": "callee", "stablehlo.composite": "decomposition"}
"""Ops that call a function -> the attribute that names it."""
_COLLECTIVES = {name for name, family in FAMILY_OF.items() if family == "collective"}
NAMES_SYMBOLS = frozenset({*CALLEES, "stablehlo.custom_call", *_COLLECTIVES})
"""Ops that may refer to a function or mesh."""


def symbol(op: Op, attribute: str) -> str | None:
    """Returns the last part of the symbol that an attribute names."""
    attr = op.attributes.get(attribute)
    return attr.path[-1] if isinstance(attr, SymbolRef) else attr if isinstance(attr, str) else None


def check_symbols(module: Module, users: Iterable[tuple[str, Op]]) -> Iterator[Finding]:
    """Yields findings on functions and on `users`: ops that name symbols, each with its enclosing function."""
    table: dict[str, Op] = {}
    yield from _unique_symbols(module, table)
    calls: dict[str, list[tuple[str, Op]]] = {}
    for func in module.functions():
        yield from _function(func)
        calls.setdefault(symbol(func, "sym_name") or "", [])
    names = list(table)[:MOST_NAMES]
    hints = MOST_HINTS
    for caller, op in users:
        try:
            callee = _user(op, table, names if hints > 0 else [])
        except Violation as violation:
            hints -= violation.label == "symbol"
            yield op, violation
            continue
        if callee is not None:
            calls.setdefault(caller, []).append((callee, op))
    yield from _recursion(calls)


def _unique_symbols(module: Module, table: dict[str, Op]) -> Iterator[Finding]:
    """Fills `table`, and yields symbols of a module whose name is already taken."""
    todo = [module.op]
    while todo:
        own: set[str] = set()
        for op in todo.pop().block().ops:
            name = symbol(op, "sym_name")
            if op.name == "builtin.module":
                todo.append(op)
            if name is None:
                continue
            if name in own:
                yield op, Violation("symbol", f"redefinition of symbol named '{name}'")
            own.add(name)
            table.setdefault(name, op)


def _function(func: Op) -> Iterator[Finding]:
    """Checks that a function's block arguments and returned values match its type."""
    if is_declaration(func) or len(func.regions[0].blocks) != 1:
        return  # several blocks are reported as an invalid region
    try:
        stated = function_type(func)
    except (AssertionError, KeyError):
        return  # reported as a missing attribute
    block = func.block()
    for a in block.arguments:
        # arguments that an op uses are reported at the op
        if not has_valid_quantization(a.type) and not any(a in op.operands for op in walk(block)):
            message = f"the quantization parameters of '{type_text(a.type)}' do not fit"
            yield func, Violation("type", message, found=type_text(a.type))
    given = [a.type for a in block.arguments]
    if not compatible_lists(given, stated.inputs):
        both = f"{types_text(given)} vs {types_text(stated.inputs)}"
        message = f"type of entry block arguments must match the function's inputs: {both}"
        yield func, _mismatch("type", message, given, stated.inputs)
    last = block.ops[-1] if block.ops else func
    if last.name not in ("func.return", "stablehlo.return"):  # jax writes the second
        name = symbol(func, "sym_name")
        ends = f", and its last op is {last.name}" if last is not func else ", and has no ops"
        hint = f"add the line {return_line('return', last, stated.results)}"
        yield last, Violation("terminator", f"function @{name} must end with a return{ends}", hint=hint)
        return
    returned = [v.type for v in last.operands]
    if len(returned) != len(stated.results):
        name = symbol(func, "sym_name")
        message = f"has {len(returned)} operands, but enclosing function (@{name}) returns {len(stated.results)}"
        mismatch = _mismatch("type", message, returned, stated.results)
        mismatch.hint = f"write the types of the results after the arguments: {_arrow(name, returned)}"
        yield last, mismatch
        return
    for i, (a, b) in enumerate(zip(returned, stated.results, strict=True)):
        if a != b:
            message = f"type of return operand {i} ('{type_text(a)}') doesn't match function result type"
            yield last, _mismatch("type", f"{message} ('{type_text(b)}')", [a], [b])


def _arrow(name: str | None, types: Sequence[Type]) -> str:
    """Returns the head of a function with these result types."""
    texts = ", ".join(map(type_text, types))
    return f"func.func @{name}(...) -> {texts if len(types) == 1 else f'({texts})'} {{"


def _mismatch(label: str, message: str, found: Sequence[Type], expected: Sequence[Type]) -> Violation:
    """Returns the error for types that differ from those of the function."""
    return Violation(label, message, found=type_list(found), expected=type_list(expected))


def _user(op: Op, table: dict[str, Op], names: list[str]) -> str | None:
    """Checks an op that names a symbol. Returns the function that it calls. Hints are chosen from `names`."""
    if op.name in _COLLECTIVES:
        from shlo_jit.ops.collective import mesh_symbol

        mesh = mesh_symbol(op)
        if mesh is not None and mesh not in table:
            hint = did_you_mean(mesh, names)
            raise Violation("symbol", f"replica_groups: mesh symbol '{mesh}' not found", hint=hint)
    if op.name == "stablehlo.custom_call":
        return _called(op, table)
    attribute = CALLEES.get(op.name)
    name = symbol(op, attribute) if attribute else None
    if name is None:
        return None
    callee = table.get(name)
    if callee is None or callee.name != "func.func":
        functions = [known for known in names if table[known].name == "func.func"]
        label = "C2" if op.name == "stablehlo.composite" else "symbol"
        raise Violation(label, f"'{name}' does not reference a valid function", hint=did_you_mean(name, functions),
                        found=f"@{name}", expected="a function of this module")  # fmt: skip
    try:
        stated = function_type(callee)
    except (AssertionError, KeyError):
        return name  # reported at the function
    for what, values, wanted in (("operand", op.operands, stated.inputs), ("result", op.results, stated.results)):
        given = tuple([v.type for v in values])
        if given != wanted:
            check = _check_decomposition if op.name == "stablehlo.composite" else _check_call
            check(what, given, wanted)
    return name


def _called(op: Op, table: dict[str, Op]) -> str | None:
    """Checks that the function used by a known custom call exists and has the right type. Returns its name."""
    from shlo_jit.ops.known_calls import called_function

    found = called_function(op)
    if found is None:
        return None
    name, wanted = found
    callee = table.get(name)
    if callee is None or callee.name != "func.func" or is_declaration(callee):
        message = f"called_computations: '{name}' does not reference a function with a body"
        raise Violation("target", message, found=f"@{name}", expected="a function of this module")
    if function_type(callee) != wanted:
        both = f"'{type_text(function_type(callee))}', but should be '{type_text(wanted)}'"
        raise _mismatch("target", f"called_computations: '{name}' is {both}", [function_type(callee)], [wanted])
    return name


def _check_decomposition(what: str, given: Sequence[Type], wanted: Sequence[Type]) -> None:
    """Checks that a composite has the types of its decomposition."""
    label = "C3" if what == "operand" else "C4"
    if len(given) != len(wanted):
        raise _mismatch(label, f"has {len(given)} {what}(s), but decomposition has {len(wanted)}", given, wanted)
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not compatible(a, b):
            message = f"{what} at index {i} has type '{type_text(a)}', but decomposition has type '{type_text(b)}'"
            raise _mismatch(label, message, [a], [b])


def _check_call(what: str, given: Sequence[Type], wanted: Sequence[Type]) -> None:
    """Checks that a call has the types of its function."""
    if len(given) != len(wanted):
        message = f"incorrect number of {what}s for callee: the call has {len(given)}, the function {len(wanted)}"
        raise _mismatch("type", message, given, wanted)
    for i, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if not compatible(a, b):
            wrong = f"{what} type mismatch: expected {what} type '{type_text(b)}', but provided '{type_text(a)}'"
            raise _mismatch("type", f"{wrong} for {what} number {i}", [a], [b])


def _recursion(calls: dict[str, list[tuple[str, Op]]]) -> Iterator[Finding]:
    """Yields a finding for each call that closes a cycle."""
    done: set[str] = set()
    for root, own in calls.items():
        if root in done:
            continue
        path: list[str] = [root]
        on_path = {root}
        stack: list[Iterator[tuple[str, Op]]] = [iter(own)]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                finished = path.pop()
                on_path.remove(finished)
                done.add(finished)
                continue
            name, op = step
            if name in on_path:
                chain = " -> ".join(f"@{f}" for f in [*path[path.index(name) :], name])
                yield op, Violation("recursion", f"recursive calls are not supported: {chain}")
            elif name not in done:
                path.append(name)
                on_path.add(name)
                stack.append(iter(calls.get(name, [])))
