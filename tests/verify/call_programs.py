"""A program for every known custom call, generated from its record.

CALLS["lapack_sgeqrf_ffi"].text()      # tensor<2x4x3xf32> -> tensor<2x4x3xf32>, tensor<2x3xf32>
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from shlo_jit.ops.call_record import CallDef, Port
from shlo_jit.ops.lapack_records import LETTERS, OLD_ROUTINES, PERTURBED, ROUTINES, SYNONYMS, lapack_record

SIZES = {"m": 4, "n": 3, "k": 2, "p": 3, "q": 3, "r": 4, "s": 3, "below": 3, "above": 3}
NUMBERS = {
    "batch": 2, "lower": 1, "lwork": 64, "full": 0, "compute": 1, "left": 1, "trans": 0, "unit": 0, "low": 1, "high": 3,
    "lda": 3, "mode": 86, "sort": 78, "right": 86,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call as text; tests modify parts of it."""

    target: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    config: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int | None, ...] = ()
    """Values of constant operands; None for arguments of the function."""
    attributes: str = ""
    more: str = ""
    names: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()))

    def text(self) -> str:
        """Returns the whole program."""
        names = [f"%a{i}" for i in range(len(self.operands))]
        numbers = [*self.numbers, *[None] * len(self.operands)][: len(self.operands)]
        constants = [
            f"  {name} = stablehlo.constant dense<{number}> : {t}"
            for name, t, number in zip(names, self.operands, numbers, strict=True)
            if number is not None
        ]
        free = [(n, t) for n, t, number in zip(names, self.operands, numbers, strict=True) if number is None]
        config = "".join(f"{k} = {v}, " for k, v in self.config).rstrip(", ")
        attributes = ", ".join(x for x in (config and f"mhlo.backend_config = {{{config}}}", self.attributes) if x)
        results = f"({', '.join(self.results)})"
        lines = [f"func.func @main({', '.join(f'{n}: {t}' for n, t in free)}) -> {results} {{", *constants]
        left = f"%r:{len(self.results)} = " if self.results else ""
        lines.append(
            f'  {left}"stablehlo.custom_call"({", ".join(names)}) {{call_target_name = "{self.target}"'
            f"{attributes and ', ' + attributes}}} : ({', '.join(self.operands)}) -> {results}"
        )
        returned = ", ".join(f"%r#{i}" for i in range(len(self.results)))
        lines.append(f"  return {returned} : {', '.join(self.results)}" if self.results else "  return")
        return "\n".join([*lines, "}", self.more])

    def with_type(self, what: str, index: int, t: str) -> Call:
        """Returns the call with another type of an operand or result."""
        types = list(getattr(self, what))
        types[index] = t
        return replace(self, **{what: tuple(types)})


def extents(port: Port, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """Returns the extents of one matrix or vector in memory order."""
    if port.extents is None:
        return None
    found = [eval(word, {"min": min, "max": max}, sizes) for word in port.extents]
    return tuple(reversed(found))


def _type(port: Port, sizes: dict[str, int]) -> str:
    """Returns the type of a port with a batch of 2."""
    word = port.kind.text.removeprefix("0d ").removeprefix("1d ")
    element = {"int": "i32", "tensor": "f32"}.get(word, word)
    own = extents(port, sizes)
    shape = () if own is None else (2, *own)
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def from_record(target: str, record: CallDef, routine: str) -> Call:
    """Returns a call with a batch of two matrices."""
    sizes = {**SIZES, "k": {"trsm": 4, "ormqr": 3}.get(routine, 2)}
    config = []
    for name, wanted in record.options.items():
        value = {"bool": "true", "int": f"{NUMBERS.get(name)} : i32"}.get(wanted) or f"{ord(wanted[0])} : ui8"
        config.append((name, value))
    operands = tuple(_type(p, sizes) for p in record.operands)
    numbers = tuple(sizes.get(p.name, NUMBERS.get(p.name)) if p.is_number else None for p in record.operands)
    if routine == "geev" and "left" in {p.name for p in record.operands}:
        numbers = tuple(86 if p.name == "left" else n for p, n in zip(record.operands, numbers, strict=True))
    results = tuple(_type(p, sizes) for p in record.results)
    names = tuple(p.name for p in record.operands), tuple(p.name for p in record.results)
    return Call(target, operands, results, tuple(config), numbers, names=names)


def _lapack() -> dict[str, Call]:
    found = {}
    back = {real: complex_name for complex_name, real in SYNONYMS.items()}
    for ffi, table in ((True, ROUTINES), (False, OLD_ROUTINES)):
        for routine in table:
            for letter in LETTERS:
                name = back.get(routine, routine) if letter in "cz" else routine
                library = "blas" if routine == "trsm" and not ffi else "lapack"
                target = f"{library}_{letter}{name}{'_ffi' * ffi}" if routine != "gtsv_perturbed" else PERTURBED
                call = from_record(target, lapack_record(letter, routine, ffi), routine)
                found[target if routine != "gtsv_perturbed" else f"{target} {letter}"] = call
    return found


GREATER = """func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}"""
SUM = """func.func private @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32>
}"""
TOP = ("tensor<2x3xf32>", "tensor<2x3xi32>")
_APPROXIMATE = (
    ("aggregate_to_topk", "true"), ("recall_target", "0.9 : f32"), ("reduction_dim", "1 : i64"), ("top_k", "3 : i64"),
)  # fmt: skip
OTHERS = [
    Call("shape_assertion", ("tensor<i1>", "tensor<i32>"), (), attributes='error_message = "no: {0}"'),
    Call(
        "cpu_csr_sparse_dense_ffi", ("tensor<5xf32>", "tensor<4xi32>", "tensor<5xi32>", "tensor<6x2xf32>"),
        ("tensor<3x2xf32>",),
    ),
    Call("AllocateBuffer", (), ("tensor<3xf32>",)),
    Call("Sharding", ("tensor<2x5xf32>",), ("tensor<2x5xf32>",)),
    Call("MoveToHost", ("tensor<2x5xf32>",), ("tensor<2x5xf32>",)),
    Call("dce_sink", ("tensor<2x5xf32>",), ()),
    Call("mhlo.erf", ("tensor<2x5xf32>",), ("tensor<2x5xf32>",)),
    Call("mhlo.topk", ("tensor<2x5xf32>",), TOP, attributes="mhlo.attributes = {k = 3 : i64, largest = true}"),
    Call("mhlo.topk", ("tensor<2x5xf32>",), TOP, attributes="mhlo.attributes = {k = 3 : i64, largest = false}"),
    Call("stablehlo.dynamic_top_k", ("tensor<2x5xf32>", "tensor<i32>"), TOP, numbers=(None, 3)),
    Call(
        "stablehlo.dynamic_rng_bit_generator", ("tensor<2xui64>", "tensor<1xi32>"), ("tensor<2xui64>", "tensor<3xui32>"),
        numbers=(None, 3), attributes="rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>",
    ),
    Call(
        "stablehlo.dynamic_reduce_window",
        ("tensor<2x5xf32>", "tensor<f32>", *["tensor<2xi32>"] * 4, "tensor<2x2xi32>"), ("tensor<2x5xf32>",),
        numbers=(None, None, 1, 1, 1, 1, 0), attributes="called_computations = [@sum]", more=SUM,
    ),
    Call(
        "ApproxTopK", ("tensor<2x5xf32>", "tensor<2x5xi32>", "tensor<f32>", "tensor<i32>"), TOP, _APPROXIMATE,
        attributes="called_computations = [@greater]", more=GREATER,
    ),
]  # fmt: skip

CALLS: dict[str, Call] = {**_lapack(), **{f"{call.target}{i}": call for i, call in enumerate(OTHERS)}}


def other_element(t: str) -> list[str]:
    """Returns types of the same shape with other elements."""
    element = re.sub(r"^tensor<(?:[\d?]+x)*|>$", "", t)
    return [t.replace(element, other) for other in ("i8", "f16", "f64", "f32", "complex<f64>") if other != element]


def other_extents(t: str) -> list[str]:
    """Returns types of the same elements with one extent incremented, one dimension more, or one less."""
    dims = re.findall(r"(\d+)x", t.split("complex", maxsplit=1)[0].split("!", maxsplit=1)[0])
    rest = t.removeprefix("tensor<" + "".join(f"{d}x" for d in dims))
    found = []
    for i, d in enumerate(dims):
        found.append([*dims[:i], str(int(d) + 1), *dims[i + 1 :]])
    if dims:
        found += [dims[1:], [*dims, "2"]]
    return ["tensor<" + "".join(f"{d}x" for d in shape) + rest for shape in found]
