"""Values of a program under construction, with Python's operators and some of NumPy's methods.

    y = (x @ w + b.reshape((1, 4))).astype("bf16")      z = x[1:, ::2, i]      m = (x > 0).sum(0)

Operators are the functions of this package, and raise their errors: element types are never converted implicitly. `==`
and the other comparisons are elementwise; a value has no truth value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from shlo_jit.builder import binary, comparisons, contractions, data, division, indexing, reductions, scope, unary
from shlo_jit.builder.arguments import TensorLike, axes, element, extents, same_elements, shape_of
from shlo_jit.builder.errors import wrong
from shlo_jit.builder.scope import Handle
from shlo_jit.builder.shapes import DTypeLike, shape_text
from shlo_jit.builder.tuples import get_tuple_element
from shlo_jit.ir.dtypes import DType
from shlo_jit.ir.types import TensorType, TupleType

if TYPE_CHECKING:
    from types import EllipsisType

    Index: TypeAlias = "int | slice | EllipsisType | Value | None"

Axes = int | Sequence[int] | None


class Value(Handle):
    """A tensor (or tuple, or token) of the program. Only functions of the builder create values."""

    __slots__ = ()
    __array_ufunc__ = None  # so that NumPy arrays leave operators to this class

    # ------------------------------------------------------------------------ properties
    @property
    def shape(self) -> tuple[int | None, ...]:
        """The extents; None for an unknown one."""
        return shape_of(self._tensor("shape"))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self._static(), dtype=np.int64))

    @property
    def dtype(self) -> np.dtype:
        """The element type as a NumPy dtype; that of ml_dtypes if NumPy has none."""
        return self.element_type.numpy

    @property
    def element_type(self) -> DType:
        """The element type in StableHLO; the expressed type of quantized tensors."""
        return element(self._tensor("element_type"))

    def _tensor(self, what: str) -> Value:
        if not isinstance(self.type, TensorType):
            raise wrong("", f"{shape_text(self.type)} has no {what}")
        return self

    def _static(self) -> tuple[int, ...]:
        if None in self.shape:
            raise wrong("", f"expected known extents, got {shape_text(self.type)}")
        return tuple(n for n in self.shape if n is not None)

    def __repr__(self) -> str:
        return f"<value {shape_text(self.type)}>"

    # ------------------------------------------------------------------------ unsupported protocols
    def __bool__(self) -> NoReturn:
        hint = (
            "builder.select, conditional or while_ decide when the program runs; for and, or, not, max, min write "
            "& | ~, builder.max, builder.min"
        )
        raise wrong("", "the truth of a value is unknown while the program is built", hint=hint)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        what = f"numpy.{function.__name__} expects arrays, got a value of a program under construction"
        raise wrong("", what, hint="values have methods and operators; see the functions of shlo_jit.builder")

    def _unknown(self, *_: object) -> NoReturn:
        raise wrong("", "a value of the program is unknown while it is built")

    __float__ = __int__ = __index__ = __complex__ = _unknown
    if not TYPE_CHECKING:  # type checkers treat an object with __array__ as an array
        __array__ = _unknown
    __hash__ = object.__hash__

    # ------------------------------------------------------------------------ arithmetic
    def __add__(self, other: TensorLike) -> Value:
        return binary.add(self, other)

    def __radd__(self, other: TensorLike) -> Value:
        return binary.add(other, self)

    def __sub__(self, other: TensorLike) -> Value:
        return binary.sub(self, other)

    def __rsub__(self, other: TensorLike) -> Value:
        return binary.sub(other, self)

    def __mul__(self, other: TensorLike) -> Value:
        return binary.mul(self, other)

    def __rmul__(self, other: TensorLike) -> Value:
        return binary.mul(other, self)

    def __truediv__(self, other: TensorLike) -> Value:
        return division.true_divide(self, other)

    def __rtruediv__(self, other: TensorLike) -> Value:
        return division.true_divide(other, self)

    def __floordiv__(self, other: TensorLike) -> Value:
        return division.floor_divide(self, other)

    def __rfloordiv__(self, other: TensorLike) -> Value:
        return division.floor_divide(other, self)

    def __mod__(self, other: TensorLike) -> Value:
        return division.modulo(self, other)

    def __rmod__(self, other: TensorLike) -> Value:
        return division.modulo(other, self)

    def __divmod__(self, other: TensorLike) -> tuple[Value, Value]:
        return division.divmod_of(self, other)

    def __rdivmod__(self, other: TensorLike) -> tuple[Value, Value]:
        return division.divmod_of(other, self)

    def __pow__(self, other: TensorLike) -> Value:
        return binary.pow(self, other)

    def __rpow__(self, other: TensorLike) -> Value:
        return binary.pow(other, self)

    def __matmul__(self, other: TensorLike) -> Value:
        return contractions.matmul(self, other)

    def __rmatmul__(self, other: TensorLike) -> Value:
        return contractions.matmul(other, self)

    def __neg__(self) -> Value:
        return unary.neg(self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return unary.abs(self)

    def __round__(self, ndigits: None = None) -> Value:
        if ndigits is not None:
            raise wrong("ndigits", f"values are rounded to integers only, got {ndigits!r}")
        return unary.round_nearest_even(self)

    # ------------------------------------------------------------------------ bits
    def __and__(self, other: TensorLike) -> Value:
        return binary.and_(self, other)

    def __rand__(self, other: TensorLike) -> Value:
        return binary.and_(other, self)

    def __or__(self, other: TensorLike) -> Value:
        return binary.or_(self, other)

    def __ror__(self, other: TensorLike) -> Value:
        return binary.or_(other, self)

    def __xor__(self, other: TensorLike) -> Value:
        return binary.xor(self, other)

    def __rxor__(self, other: TensorLike) -> Value:
        return binary.xor(other, self)

    def __lshift__(self, other: TensorLike) -> Value:
        return binary.shift_left(self, other)

    def __rlshift__(self, other: TensorLike) -> Value:
        return binary.shift_left(other, self)

    def __rshift__(self, other: TensorLike) -> Value:
        return _shifted_right(self, other)

    def __rrshift__(self, other: TensorLike) -> Value:
        return _shifted_right(other, self)

    def __invert__(self) -> Value:
        return unary.not_(self)

    # ------------------------------------------------------------------------ comparisons
    def __eq__(self, other: TensorLike) -> Value:  # type: ignore[override]  as NumPy's
        return comparisons.eq(self, other)

    def __ne__(self, other: TensorLike) -> Value:  # type: ignore[override]  as NumPy's
        return comparisons.ne(self, other)

    def __lt__(self, other: TensorLike) -> Value:
        return comparisons.lt(self, other)

    def __le__(self, other: TensorLike) -> Value:
        return comparisons.le(self, other)

    def __gt__(self, other: TensorLike) -> Value:
        return comparisons.gt(self, other)

    def __ge__(self, other: TensorLike) -> Value:
        return comparisons.ge(self, other)

    # ------------------------------------------------------------------------ parts
    def __getitem__(self, index: Index | tuple[Index, ...]) -> Value:
        """Returns a part of a tensor, or an element of a tuple.

        An index has integers, slices with steps, `...`, None and scalars of the program; each integer index removes its
        dimension. Known integers must be in range; those of the program are clamped, as in `dynamic_slice`.
        """
        if isinstance(self.type, TupleType):
            return get_tuple_element(self, index)  # type: ignore[arg-type]  which says what is wrong
        return indexing.part(self._tensor("elements"), index if isinstance(index, tuple) else (index,))

    def __setitem__(self, index: object, value: object) -> NoReturn:
        hint = "builder.dynamic_update_slice and scatter return a tensor with other elements"
        raise wrong("", "values of the program are immutable", hint=hint)

    def __len__(self) -> int:
        shape = self.shape
        if not shape or shape[0] is None:
            raise wrong("", f"{shape_text(self.type)} has no length")
        return shape[0]

    def __iter__(self) -> Iterator[Value]:
        return (self[i] for i in range(len(self)))

    # ------------------------------------------------------------------------ shapes and dtypes
    def astype(self, dtype: DTypeLike) -> Value:
        """`convert_element_type`."""
        return data.convert_element_type(self, dtype)

    def reshape(self, *sizes: int | Sequence[int]) -> Value:
        """The elements in another shape, in row-major order. One of the sizes may be -1."""
        return data.reshape(self, _listed(sizes))

    def transpose(self, *permutation: int | Sequence[int]) -> Value:
        """Permutes the dimensions, by default in reverse."""
        return data.transpose(self, _listed(permutation) if permutation else None)

    @property
    def T(self) -> Value:
        """The dimensions in reverse order."""
        return data.transpose(self)

    def broadcast_to(self, shape: Sequence[int]) -> Value:
        """Copies of the tensor in a larger shape, whose last dimensions are the tensor's; extents of 1 stretch."""
        sizes = extents(shape, "shape")
        if len(sizes) < self.ndim:
            raise wrong("shape", f"{shape_text(self.type)} has more dimensions than {list(sizes)}")
        return data.broadcast_in_dim(self, sizes, range(len(sizes) - self.ndim, len(sizes)))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------ reductions
    def sum(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The sum along some dimensions, by default of all elements, in the tensor's own element type."""
        return self._kept(reductions.reduce_sum(self, self._axes(axis)), axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The product along some dimensions, by default of all elements."""
        return self._kept(reductions.reduce_prod(self, self._axes(axis)), axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The greatest element along some dimensions, by default of all; NaN if one is NaN."""
        return self._kept(reductions.reduce_max(self, self._axes(axis)), axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The least element along some dimensions, by default of all; NaN if one is NaN."""
        return self._kept(reductions.reduce_min(self, self._axes(axis)), axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The mean of floats along some dimensions, by default of all elements.

        For floats of fewer than 32 bits it is computed in f32, and converted back.
        """
        where = self._axes(axis)
        if self.element_type.kind not in "fc":
            raise wrong(
                "",
                f"the mean of {self.element_type} cannot be represented in {self.element_type}",
                hint="write .astype('f32')",
            )
        count = int(np.prod([self._static()[d] for d in where], dtype=np.int64))
        x = self.astype("f32") if self.element_type.bits < 32 else self
        mean = reductions.reduce_sum(x, where) / float(count)
        return self._kept(mean.astype(self.element_type), axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """Whether all elements of a tensor of pred are true, along some dimensions."""
        return self._kept(reductions.reduce_and(self._truths("all"), self._axes(axis)), axis, keepdims)

    def any(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """Whether any element of a tensor of pred is true, along some dimensions."""
        return self._kept(reductions.reduce_or(self._truths("any"), self._axes(axis)), axis, keepdims)

    def _truths(self, what: str) -> Value:
        if self.element_type.kind != "b":
            raise wrong("", f"{what}: expected pred, got {self.element_type}", hint=f"write (x != 0).{what}()")
        return self

    def _axes(self, axis: Axes) -> tuple[int, ...]:
        return tuple(range(self.ndim)) if axis is None else axes(axis, self.ndim, "axis")

    def _kept(self, reduced: Value, axis: Axes, keepdims: bool) -> Value:
        if not keepdims:
            return reduced
        where = self._axes(axis)
        return data.reshape(reduced, [1 if d in where else n for d, n in enumerate(self._static())])


def _listed(given: tuple[Any, ...]) -> Sequence[int]:
    """Accepts both `f(2, 3)` and `f((2, 3))`."""
    return given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _shifted_right(lhs: TensorLike, rhs: TensorLike) -> Value:
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    return (binary.shift_right_logical if x.element_type.kind == "u" else binary.shift_right_arithmetic)(x, y)


scope.bind(Value)
