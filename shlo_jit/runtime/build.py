"""Builds an `Executable` from a lowered program, or from the object cache. The pipeline calls this.

key = cache.program_key(text, options)
exe = from_cache(key, target, ...) or build(lower(...), target, key=key, ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shlo_jit.codegen import abi
from shlo_jit.codegen.objects import Compiled, compile_program, read_program
from shlo_jit.codegen.program import Program
from shlo_jit.kernels.target import Target
from shlo_jit.log import stage
from shlo_jit.runtime import background_store, claims, constants, lapack, routines
from shlo_jit.runtime.cache import ObjectCache, default_cache
from shlo_jit.runtime.cpus import thread_count
from shlo_jit.runtime.executable import Executable, Remake
from shlo_jit.runtime.fastcall import call_library
from shlo_jit.runtime.host import Host
from shlo_jit.runtime.instance import Instance
from shlo_jit.runtime.loaded import Loaded
from shlo_jit.text.literals import Literal


def generate(
    program: Program,
    target: Target,
    *,
    key: str | None = None,
    cache: ObjectCache | bool | None = True,
    level: int | None = None,
    verify: bool = True,
    starting: routines.Starting | None = None,
) -> Compiled:
    """Generates code for `program` and prepares its routines, which `starting` has begun with. With a `key` (see
    `cache.program_key`) the result goes into the object cache. Raises InternalError if LLVM rejects the text."""
    store = resolve_cache(cache)
    parts, background = (1, None) if starting is None else (starting.parts, starting.background)
    with stage("optimize and emit"):
        compiled = compile_program(program, target, level, verify, parts, background)
    with stage("routines"):
        if starting is not None:
            starting.finish()
        routines.prepare(program.routines, target, store)
    if store is not None and key is not None:
        background_store.store(key, compiled, store)
    return compiled


def build(
    program: Program,
    target: Target,
    *,
    threads: int | None = None,
    custom_calls: Mapping[str, Any] | None = None,
    host: Host | None = None,
    key: str | None = None,
    cache: ObjectCache | bool | None = True,
    remake: Remake | None = None,
    level: int | None = None,
    verify: bool = True,
    starting: routines.Starting | None = None,
) -> Executable:
    """Generates code for a program, loads it and makes it callable.

    `target` must be this machine's. `threads` as in `thread_count`. Raises InternalError if LLVM rejects the text,
    ExecutionError if a custom call is not registered.
    """
    compiled = generate(program, target, key=key, cache=cache, level=level, verify=verify, starting=starting)
    executable = load(
        compiled,
        target,
        threads=threads,
        custom_calls=custom_calls,
        host=host,
        cache=resolve_cache(cache),
        remake=remake,
    )
    assert executable is not None  # its routines have just been prepared
    return executable


def find(
    key: str, target: Target, cache: ObjectCache | bool | None = True, literals: Sequence[Literal] = ()
) -> Compiled | None:
    """Returns the code stored under `key`, or None. Needs neither the program's text nor any stage of the compiler.
    `literals` are the program's; those that its code does not read release their memory."""
    store = resolve_cache(cache)
    if store is None:
        return None
    background_store.wait_for(key)

    def read(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> Compiled:
        for literal in literals:
            if literal.digest not in header["constants"]:
                literal.release()
        found = constants.find_all(filter(None, header["constants"]), store)
        return read_program(header, blobs, found.get)

    compiled = store.read(key, read)
    if compiled is None and claims.wait_for_others(key, store):
        compiled = store.read(key, read)
    return compiled


def from_cache(
    key: str,
    target: Target,
    *,
    threads: int | None = None,
    custom_calls: Mapping[str, Any] | None = None,
    host: Host | None = None,
    cache: ObjectCache | bool | None = True,
    remake: Remake | None = None,
    literals: Sequence[Literal] = (),
) -> Executable | None:
    """Returns the executable stored under `key`, or None; `literals` as in `find`."""
    store = resolve_cache(cache)
    compiled = find(key, target, store, literals)
    if compiled is None:
        return None
    return load(compiled, target, threads=threads, custom_calls=custom_calls, host=host, cache=store, remake=remake)


def load(
    compiled: Compiled,
    target: Target,
    *,
    threads: int | None = None,
    custom_calls: Mapping[str, Any] | None = None,
    host: Host | None = None,
    cache: ObjectCache | None = None,
    remake: Remake | None = None,
) -> Executable | None:
    """Loads object code. Returns None if a routine that it needs is neither in this process nor in the cache."""
    from shlo_jit.codegen import jit

    libraries = []
    for name in compiled.routines:
        library = routines.load(name, target, cache)
        if library is None:
            return None
        libraries.append(library)
    entries = [abi.ENTRY] if compiled.symbol is None else [abi.ENTRY, abi.SIZES]
    with stage("load"):
        library = jit.load(compiled.objects, entries, libraries, lapack.addresses(compiled.externals))
    functions = call_library(target, cache)
    instance = Instance(Loaded(compiled, library), functions, thread_count(threads), custom_calls, host=host)
    return Executable(instance, target, cache, remake)


def resolve_cache(cache: ObjectCache | bool | None) -> ObjectCache | None:
    """Returns the cache that an option names: a cache itself, the user's (True), or none."""
    if cache is True:
        return default_cache()
    return cache or None
