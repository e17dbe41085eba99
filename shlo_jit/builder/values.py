"""Values of a program that is being built, with Python's operators and some of NumPy's methods.

    y = (x @ w + b.reshape((1, 4))).astype("bf16")      z = x[1:, ::2, i]      m = (x > 0).sum(0)

Operators are the functions of this package, and refuse what those refuse: element types are never converted by
themselves. `==` and the other comparisons are element by element; a value has no truth value.
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
    """A tensor (or tuple, or token) of the program. It is made by functions of the builder only."""

    __slots__ = ()
    __array_ufunc__ = None  # so that NumPy's arrays leave operators to this class

    # ------------------------------------------------------------------------ what it is
    @property
    def shape(self) -> tuple[int | None, ...]:
        """The extents; None where one is not known."""
        return shape_of(self._tensor("shape"))

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(np.prod(self._static(), dtype=np.int64))

    @property
    def dtype(self) -> np.dtype:
        """The element type as NumPy has it; ml_dtypes' where NumPy has none."""
        return self.element_type.numpy

    @property
    def element_type(self) -> DType:
        """The element type as StableHLO has it; of quantized tensors that of the numbers they stand for."""
        return element(self._tensor("element_type"))

    def _tensor(self, what: str) -> Value:
        if not isinstance(self.type, TensorType):
            raise wrong("", f"{shape_text(self.type)} has no {what}")
        return self

    def _static(self) -> tuple[int, ...]:
        if None in self.shape:
            raise wrong("", f"the extents of {shape_text(self.type)} have to be known for this")
        return tuple(n for n in self.shape if n is not None)

    def __repr__(self) -> str:
        return f"<value {shape_text(self.type)}>"

    # ------------------------------------------------------------------------ what it is not
    def __bool__(self) -> NoReturn:
        hint = (
            "builder.select, conditional or while_ decide when the program runs; for and, or, not, max, min write "
            "& | ~, builder.max, builder.min"
        )
        raise wrong("", "whether a value of the program is true is not known while it is built", hint=hint)

    def __array_function__(self, function: Any, *_: object) -> NoReturn:
        what = f"numpy.{function.__name__} computes arrays, and this is a value of a program that is built"
        raise wrong("", what, hint="values have methods and operators; see the functions of shlo_jit.builder")

    def _unknown(self, *_: object) -> NoReturn:
        raise wrong("", "a value of the program is not known while it is built")

    __float__ = __int__ = __index__ = __complex__ = _unknown
    if not TYPE_CHECKING:  # to type checkers, what has __array__ is an array
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
        """Of a tensor the part that integers, slices with steps, `...`, None and scalars of the program say, each index
        of an integer taking its dimension away. Integers that are known have to be within; those of the program are
        clamped, as those of `dynamic_slice`. Of a tuple its element."""
        if isinstance(self.type, TupleType):
            return get_tuple_element(self, index)  # type: ignore[arg-type]  which says what is wrong
        return indexing.part(self._tensor("elements"), index if isinstance(index, tuple) else (index,))

    def __setitem__(self, index: object, value: object) -> NoReturn:
        hint = "builder.dynamic_update_slice and scatter return a tensor with other elements"
        raise wrong("", "values of the program do not change", hint=hint)

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
        """The elements in another shape, in row-major order; one of the sizes may be -1."""
        return data.reshape(self, _listed(sizes))

    def transpose(self, *permutation: int | Sequence[int]) -> Value:
        """The dimensions in another order, by default in reverse."""
        return data.transpose(self, _listed(permutation) if permutation else None)

    @property
    def T(self) -> Value:
        """The dimensions in reverse order."""
        return data.transpose(self)

    def broadcast_to(self, shape: Sequence[int]) -> Value:
        """Copies of the tensor in a larger shape, whose last dimensions are its own; extents of 1 stretch."""
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
        """The greatest element along some dimensions, by default of all; NaN where one is."""
        return self._kept(reductions.reduce_max(self, self._axes(axis)), axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The least element along some dimensions, by default of all; NaN where one is."""
        return self._kept(reductions.reduce_min(self, self._axes(axis)), axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """The mean of floats along some dimensions, by default of all elements; of those of less than 32 bits it is
        computed in f32, and converted back."""
        where = self._axes(axis)
        if self.element_type.kind not in "fc":
            raise wrong(
                "", f"the mean of {self.element_type} is none of {self.element_type}", hint="write .astype('f32')"
            )
        count = int(np.prod([self._static()[d] for d in where], dtype=np.int64))
        x = self.astype("f32") if self.element_type.bits < 32 else self
        mean = reductions.reduce_sum(x, where) / float(count)
        return self._kept(mean.astype(self.element_type), axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """Whether all elements of a tensor of pred are true, along some dimensions."""
        return self._kept(reductions.reduce_and(self._truths("all"), self._axes(axis)), axis, keepdims)

    def any(self, axis: Axes = None, keepdims: bool = False) -> Value:
        """Whether an element of a tensor of pred is true, along some dimensions."""
        return self._kept(reductions.reduce_or(self._truths("any"), self._axes(axis)), axis, keepdims)

    def _truths(self, what: str) -> Value:
        if self.element_type.kind != "b":
            raise wrong("", f"{what} is of pred, not of {self.element_type}", hint=f"write (x != 0).{what}()")
        return self

    def _axes(self, axis: Axes) -> tuple[int, ...]:
        return tuple(range(self.ndim)) if axis is None else axes(axis, self.ndim, "axis")

    def _kept(self, reduced: Value, axis: Axes, keepdims: bool) -> Value:
        if not keepdims:
            return reduced
        where = self._axes(axis)
        return data.reshape(reduced, [1 if d in where else n for d, n in enumerate(self._static())])


def _listed(given: tuple[Any, ...]) -> Sequence[int]:
    """Of `f(2, 3)` as of `f((2, 3))`."""
    return given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given


def _shifted_right(lhs: TensorLike, rhs: TensorLike) -> Value:
    x, y = same_elements({"lhs": lhs, "rhs": rhs})
    return (binary.shift_right_logical if x.element_type.kind == "u" else binary.shift_right_arithmetic)(x, y)


scope.bind(Value)
