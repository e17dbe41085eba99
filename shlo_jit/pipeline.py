"""The stages, once, in order: text to Module to Plan to Program to machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shlo_jit.codegen.target import resolve
from shlo_jit.errors import Diagnostic, StableHLOError, VerifyError
from shlo_jit.runtime import build
from shlo_jit.runtime.cache import program_key
from shlo_jit.runtime.cpus import thread_count
from shlo_jit.runtime.executable import Executable


def compile_text(
    text: str,
    name: str,
    entry: str,
    *,
    threads: int | None,
    target: str,
    custom_calls: Mapping[str, Callable[..., Any]] | None,
    cache: bool,
    donate: tuple[int, ...],
) -> Executable:
    """Text to an Executable, from the object cache where it knows the program."""
    machine = resolve(target)
    count = thread_count(threads)
    calls = custom_calls or {}
    options = {"entry": entry, "threads": count, "calls": sorted(calls), "donate": donate}
    key = program_key(text, options, machine)
    if cache:
        found = build.from_cache(key, machine, threads=threads, custom_calls=calls)
        if found is not None:
            return found
    program = lower(text, name, entry, machine, count, calls)
    return build.build(program, machine, threads=threads, custom_calls=calls, key=key, cache=cache)


def lower(text: str, name: str, entry: str, machine, threads: int, calls: Mapping[str, Any]):
    """Text to a Program."""
    from shlo_jit.fuse.group import group_block
    from shlo_jit.ir.verifier import verify_module
    from shlo_jit.lower.program import ProgramLowering
    from shlo_jit.passes import run_passes
    from shlo_jit.runtime.callbacks import find_custom_call
    from shlo_jit.text.parser import parse_module

    module = parse_module(text, name)
    diagnostics = verify_module(module)
    if diagnostics:
        raise VerifyError(diagnostics)
    function = module.function(entry)
    if function is None:
        known = ", ".join("@" + f.attributes["sym_name"] for f in module.functions())
        raise StableHLOError(Diagnostic(f"no function @{entry}; the program has {known or 'none'}", name))
    function = run_passes(module, function)
    plan = group_block(function.block())

    def known_call(target: str) -> bool:
        return find_custom_call(target, calls) is not None

    return ProgramLowering(plan, function.block().arguments, machine, threads, known_call).run()
