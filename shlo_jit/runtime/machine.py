"""The host machine, without LLVM if the object cache has LLVM's description of such a processor."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from shlo_jit.codegen import processor
from shlo_jit.codegen.target import Host, ask_llvm, resolve, set_host
from shlo_jit.kernels.target import Target
from shlo_jit.runtime.cache import default_cache, host_key


@functools.cache
def native() -> Target:
    """Returns `codegen.target.resolve("native")`."""
    said = processor.description()
    if said is not None:
        cache, key = default_cache(), host_key(said)
        found = cache.read(key, _read)
        if found is None:
            found = ask_llvm()
            cache.store(key, {"kind": "host", **found._asdict()}, [])
        set_host(found)
    return resolve("native")


def _read(header: Mapping[str, Any], blobs: Sequence[memoryview]) -> Host:
    if header["kind"] != "host" or blobs:
        raise ValueError("not a host")
    triple, cpu, features = header["triple"], header["cpu"], header["features"]
    if not isinstance(triple, str) or not isinstance(cpu, str) or not isinstance(features, dict):
        raise TypeError("not a host")
    return Host(triple, cpu, {str(name): bool(has) for name, has in features.items()})
