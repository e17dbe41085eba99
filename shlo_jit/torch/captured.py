"""Compiled graphs in PyTorch's own cache of captured graphs, so that a later process does not capture a model again.

PyTorch keeps what AOTAutograd makes of a graph of Dynamo, but only for compilers whose results it can store. Ours are
the text of the program and the description of its arguments and results; machine code is in the object cache. Graphs
with symbolic sizes, and graphs that PyTorch runs, are not stored; neither are those with a backward pass, which PyTorch
compiles and stores at the first backward pass, when the settings of `stored_graphs` no longer hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch  # type: ignore[import-not-found]
from torch._functorch import config as functorch_config  # type: ignore[import-not-found]

from shlo_jit.runtime.cache import fingerprint

if TYPE_CHECKING:
    from shlo_jit.torch.calls import Storable

try:  # PyTorch 2.9 stores results of Inductor only
    from torch._functorch._aot_autograd.aot_autograd_result import (  # type: ignore[import-not-found]
        BundledOutputCodeLoadable as _Storable,
    )
    from torch._functorch._aot_autograd.autograd_cache import (  # type: ignore[import-not-found]
        BypassAOTAutogradCache,
    )
    from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler  # type: ignore[import-not-found]
    from torch._inductor import codecache as inductor_cache  # type: ignore[import-not-found]
    from torch._inductor import config as inductor_config  # type: ignore[import-not-found]
    from torch._inductor.custom_graph_pass import CustomGraphPass  # type: ignore[import-not-found]
    from torch._inductor.output_code import OutputCode  # type: ignore[import-not-found]
except ImportError:
    if TYPE_CHECKING:
        raise  # so that the names above have one type each: nothing that needs them is called without `_Storable`
    _Storable = None
    CustomGraphPass = OutputCode = object

Compiler = Callable[..., Callable[..., Any]]


class CompiledGraph(OutputCode):  # type: ignore[misc,valid-type]
    """A compiled graph in the form that PyTorch stores. It takes the list of its arguments, which it empties."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._boxed_call = True  # PyTorch's wrappers copy the attributes of the object only
        self._run: Callable[..., Any] | None = run
        self._stored: Storable | None = getattr(run, "storable", None)

    def __call__(self, inputs: Any) -> Any:
        assert self._run is not None
        return self._run(inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {"_boxed_call": True, "_run": None, "_stored": self._stored}

    def prepare_for_serialization(self) -> None:
        """Called before the graph is stored. Raises BypassAOTAutogradCache for one that cannot be."""
        if self._stored is None:
            raise BypassAOTAutogradCache("shlo_jit stores graphs of static shapes that it compiles")

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """Called after the graph was read from the cache."""
        assert self._stored is not None
        function = self._stored.function()

        def run(inputs: list[Any]) -> Any:
            found = function(inputs)
            inputs.clear()
            return found

        self._run = run

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Called for every result of a compiler; this one has no code of Triton."""


class _Identity(CustomGraphPass):  # type: ignore[misc,valid-type]
    """Part of the key of stored graphs, which separates those of shlo_jit from those of Inductor. PyTorch has no other
    place for it than a pass of Inductor, which never runs."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, graph: torch.fx.Graph) -> None:
        raise NotImplementedError

    def uuid(self) -> str:
        return self._key


@contextlib.contextmanager
def stored_graphs(options: Mapping[str, Any]) -> Iterator[Callable[[Compiler], Compiler]]:
    """Settings under which AOTAutograd looks up graphs and stores them; yields the function that prepares a compiler
    of graphs for it. Nothing is stored if this version of PyTorch cannot, with options that have no text to identify
    them, or with `cache=False`."""
    plain = all(isinstance(x, str | int | float | None) for x in options.values())
    if _Storable is None or not plain or not options.get("cache", True):
        yield lambda compiler: compiler
        return
    identity = _Identity(f"shlo_jit {fingerprint().hex()} {sorted(options.items())}")
    with (
        functorch_config.patch(bundled_autograd_cache=True),
        inductor_config.patch(post_grad_custom_post_pass=identity),
        _without_devices_of_inductor(),
    ):
        yield _prepared


@contextlib.contextmanager
def _without_devices_of_inductor() -> Iterator[None]:
    """Keys of graphs without what Inductor generates code with. PyTorch imports its generators for all devices to ask
    them for passes of theirs, and reads the files of Triton, which takes longer than the rest of the key."""
    unused = [
        (inductor_cache, "custom_backend_passes", {}),
        (inductor_cache, "custom_backend_codegen_configs", {}),
        (inductor_cache, "init_backend_registration", dict),
        (inductor_config, "_cache_config_serializer", None),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(inductor_cache.CacheBase, "get_system", staticmethod(dict)))
        for module, name, value in unused:
            if name in vars(module):  # versions of PyTorch differ
                stack.enter_context(_replaced(vars(module), name, value))
        yield


@contextlib.contextmanager
def _replaced(names: dict[str, Any], name: str, value: Any) -> Iterator[None]:
    """Replaces a name of a module, also of one that accepts settings only."""
    before = names[name]
    names[name] = value
    try:
        yield
    finally:
        names[name] = before


def _prepared(compiler: Compiler) -> Compiler:
    return SerializableAOTDispatchCompiler(OutputCode, lambda graph, inputs: CompiledGraph(compiler(graph, inputs)))
