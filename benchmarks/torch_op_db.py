"""Compares operators with PyTorch on the samples of PyTorch's own tests (`op_db`).

    python -m benchmarks.torch_op_db                          all operators, three samples of each element type
    python -m benchmarks.torch_op_db --samples 1 --ops 'add|mul'
    python -m benchmarks.torch_op_db --core                   operators that are in the core of ATen

A sample counts as

- equal: within the tolerances of `torch.testing.assert_close`, or at least as near to the result in f64 as PyTorch's;
  of indices, those of equal elements count as equal, because PyTorch's sort is not stable;
- drawn: a result of random numbers, of the right shape and element type;
- refused: an UnsupportedError, or PyTorch cannot trace the function, because its shapes depend on data;
- wrong, or crashed: any other exception.

Needs `torch` and `expecttest`. Prints what is not equal, and a table: of all samples, and of the operators that are in
the core of ATen by their name (`is_core`).
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch  # type: ignore[import-not-found]
from functorch.compile import aot_function  # type: ignore[import-not-found]
from torch.testing._internal.common_methods_invocations import op_db  # type: ignore[import-not-found]
from torch.utils._pytree import tree_flatten, tree_unflatten  # type: ignore[import-not-found]

from shlo_jit.errors import StableHLOError, UnsupportedError
from shlo_jit.torch.decompositions import decompositions
from shlo_jit.torch.dynamo import compile_graph

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "i64": torch.int64, "bool": torch.bool}
UNTRACEABLE = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException",
               "GuardOnDataDependentSymNode", "DataDependentOutput")  # fmt: skip
RANDOM = re.compile("rand|normal|dropout|bernoulli|multinomial|uniform|exponential|cauchy|geometric|poisson|^empty|"
                    "new_empty|rrelu|fractional_max_pool|svd_lowrank|pca_lowrank|empty_")  # fmt: skip


def samples(op: Any, dtype: torch.dtype, limit: int) -> Iterator[Any]:
    """Some samples, spread over all that an operator has."""
    # `op.sample_inputs` also records which test draws them, which takes a quarter of a second.
    found = list(itertools.islice(op.sample_inputs_func(op, "cpu", dtype, False), 200))
    step = max(1, len(found) // limit) if limit else 1
    return iter(found[::step][: limit or None])


def flat_function(op: Any, sample: Any) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """An operator as a function of the sample's tensors alone, of results that are defined: such as the absolute values
    of eigenvectors, whose signs are not."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = list(leaves)
        for i, x in zip(places, tensors, strict=True):
            given[i] = x
        first, args, named = tree_unflatten(given, spec)
        found = tree_flatten(sample.output_process_fn_grad(op.op(first, *args, **named)))[0]
        return [x for x in found if isinstance(x, torch.Tensor)]

    return function, [leaves[i] for i in places]


def compiled(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a function that is traced by AOTAutograd and compiled."""

    def compiler(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return compile_graph(gm, example_inputs, {"threads": 1}, fallback=False)

    table = decompositions()
    made = aot_function(function, compiler, inference_compiler=compiler, decompositions=table)
    return made(*tensors)


def compare(function: Callable[..., Any], tensors: Sequence[torch.Tensor], found: Any, wanted: Any) -> str:
    """Returns "" for results that count as equal, or a description of the first difference."""
    if len(found) != len(wanted):
        return f"{len(found)} results, expected {len(wanted)}"
    for i, (x, y) in enumerate(zip(found, wanted, strict=True)):
        try:
            torch.testing.assert_close(x, y, equal_nan=True)
        except AssertionError as error:
            is_like = x.shape == y.shape and x.dtype == y.dtype
            if is_like and (_is_nearer(function, tensors, i, x, y) or _is_tied(tensors[0], x, y)):
                continue
            return " ".join(str(error).split())[:200]
    return ""


def _is_nearer(function: Any, tensors: Any, i: int, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether a float result is at least as near to that of f64 as PyTorch's, up to one in the last place."""
    if not x.dtype.is_floating_point:
        return False
    try:
        exact = function(*(t.double() if t.dtype.is_floating_point else t for t in tensors))[i].double()
    except Exception:
        return False
    own, other = ((v.double() - exact).abs().nan_to_num(0, 0, 0) for v in (x, y))
    size = exact.abs().nan_to_num(0, 0, 0)
    is_alike = (x.isfinite() == y.isfinite()) & (x.isnan() == y.isnan())
    is_alike |= x.isfinite() & exact.to(x.dtype).isfinite()  # PyTorch's result has overflowed
    return bool((is_alike & (own <= 2 * other + torch.finfo(x.dtype).eps * (size + size.max()))).all())


def _is_tied(first: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether results are indices of equal elements of the first argument, along some dimension."""
    if x.dtype != torch.int64 or not x.numel() or int(x.min()) < 0:
        return False
    if x.dim() == first.dim() - 1:  # of a reduction that does not keep the dimension
        return any(_is_tied(first, x.unsqueeze(d), y.unsqueeze(d)) for d in range(first.dim()))
    for d in range(first.dim() if x.dim() == first.dim() else 0):
        if int(x.max()) < first.shape[d] and all(n <= m for n, m in zip(x.shape, first.shape, strict=True)):
            own, other = (first.gather(d, v) for v in (x, y))
            if torch.equal(own.nan_to_num(), other.nan_to_num()) and x.sort(d)[0].diff(dim=d).ne(0).all():
                return True
    return False


def outcome(op: Any, sample: Any) -> tuple[str, str]:
    """How a sample counts, and a message."""
    function, tensors = flat_function(op, sample)
    if any(t.layout != torch.strided for t in tensors):
        return "invalid", ""
    copies = [t.clone() for t in tensors]
    try:
        wanted = function(*copies)
    except Exception:
        return "invalid", ""
    try:
        found = compiled(function, [t.clone() for t in tensors])
    except UnsupportedError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:
        causes = [type(e).__name__ for e in (error, error.__cause__, error.__context__) if e is not None]
        message = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if isinstance(error, StableHLOError) or not any(name.startswith(UNTRACEABLE) for name in causes):
            return "crashed", message
        return "refused", message
    if RANDOM.search(op.name):
        same = [x.shape == y.shape and x.dtype == y.dtype for x, y in zip(found, wanted, strict=True)]
        return ("drawn", "") if all(same) else ("wrong", "another shape or element type")
    difference = compare(function, tensors, found, wanted)
    return ("wrong", difference) if difference else ("equal", "")


def core_names() -> set[str]:
    """Names of the operators in the core of ATen."""
    packets = (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten))
    overloads = (getattr(p, o) for p in packets if hasattr(p, "overloads") for o in p.overloads())
    return {o.overloadpacket.__name__.lstrip("_") for o in overloads if torch.Tag.core in o.tags}


def is_core(op: Any, names: set[str]) -> bool:
    """Whether an operator of op_db is in the core, by its name."""
    own = {op.name, op.name.rpartition(".")[2], op.aten_name or ""}
    own |= {name.removesuffix("1d").removesuffix("2d").removesuffix("3d") for name in own}
    synonyms = {
        "conv": "convolution",
        "batch_norm": "native_batch_norm_legit",
        "layer_norm": "native_layer_norm",
        "group_norm": "native_group_norm",
        "max_pool": "max_pool2d_with_indices",
    }
    return bool((own | {synonyms.get(name, name) for name in own}) & names)


def main(arguments: Sequence[str] | None = None) -> Counter[str]:
    """Runs the comparison, and returns how often each outcome occurred."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3, help="samples of an operator and element type; 0: all")
    parser.add_argument("--ops", default="", help="regular expression of names")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--core", action="store_true", help="only operators in the core of ATen")
    parser.add_argument("--start", default="", help="name of the first operator")
    parser.add_argument("--verbose", action="store_true", help="print the counts of each operator to stderr")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    names, total, core = core_names(), Counter[str](), Counter[str]()
    for op in sorted(op_db, key=lambda op: op.full_name):
        if (
            not re.search(given.ops, op.full_name)
            or op.full_name < given.start
            or (given.core and not is_core(op, names))
        ):
            continue
        counts = _run(op, given.dtypes.split(","), given.samples)
        total += counts
        if is_core(op, names):
            core += counts
        if given.verbose:
            print(f"{op.full_name}: {dict(counts)}", file=sys.stderr, flush=True)
        for kind in counts:
            if kind not in ("equal", "drawn", "invalid"):
                total[f"operators {kind}"] += 1
                break
        else:
            total["operators equal"] += 1
    print(_described(total))
    print(f"core of ATen: {_described(core)}")
    return total


def _described(counts: Counter[str]) -> str:
    valid = sum(n for kind, n in counts.items() if " " not in kind and kind != "invalid")
    share = (counts["equal"] + counts["drawn"]) / max(valid, 1)
    return ", ".join(f"{kind}: {n}" for kind, n in sorted(counts.items())) + f" ({share:.2%} equal or drawn)"


def _run(op: Any, dtypes: Sequence[str], limit: int) -> Counter[str]:
    counts = Counter[str]()
    for name in dtypes:
        if DTYPES[name] not in op.supported_dtypes("cpu"):
            continue
        try:
            chosen = list(samples(op, DTYPES[name], limit))
        except Exception as error:
            print(f"no samples of {op.full_name} {name}: {error}", flush=True)
            continue
        for number, sample in enumerate(chosen):
            torch.manual_seed(0)
            kind, message = outcome(op, sample)
            counts[kind] += 1
            if kind in ("refused", "wrong", "crashed"):
                print(f"{kind}: {op.full_name} {name} {number}: {message}", flush=True)
    return counts


if __name__ == "__main__":
    main()
    sys.stdout.flush()
