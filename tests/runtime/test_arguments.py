"""Valid arguments of an executable, and its errors for invalid ones."""

import sys
import types
import warnings

import ml_dtypes
import numpy as np
import pytest
from programs import TARGET, binary, callback, copies

import shlo_jit
from shlo_jit.runtime.build import build
from shlo_jit.runtime.executable import Remake


@pytest.fixture(scope="module")
def add():
    return build(binary(4), TARGET, cache=False)


@pytest.fixture(scope="module")
def identity():
    made = {}

    def make(shape, dtype):
        if (shape, dtype) not in made:
            made[shape, dtype] = build(copies(shape, dtype), TARGET, cache=False)
        return made[shape, dtype]

    return make


X = np.arange(4, dtype=np.float32)


def test_signature(add):
    assert [(p.name, p.shape, p.dtype) for p in add.inputs] == [("x", (4,), np.float32), ("y", (4,), np.float32)]
    assert [(p.name, p.shape, p.dtype) for p in add.outputs] == [("z", (4,), np.float32)]
    assert add.memory == (0, 0, 16)
    assert callable(add)
    assert repr(add) == "<Executable (float32[4], float32[4]) -> (float32[4])>"


@pytest.mark.parametrize("results", [0, 1, 2, 5])
def test_number_of_results(results):
    exe = build(copies((3,), "i32", results), TARGET, cache=False)
    x = np.array([1, 2, 3], np.int32)
    got = exe(x)
    if results == 1:
        assert type(got) is np.ndarray
        got = (got,)
    assert type(got) is tuple
    assert len(got) == results
    for array in got:
        np.testing.assert_array_equal(array, x)
        assert array.flags.owndata


@pytest.mark.parametrize("view", ["strided", "reversed", "broadcast", "readonly", "swapped", "unaligned", "subclass"])
def test_arrays_of_every_make(add, view):
    base = {
        "strided": np.arange(8, dtype=np.float32)[::2],
        "reversed": X[::-1],
        "broadcast": np.broadcast_to(np.float32(3), (4,)),
        "readonly": X.copy(),
        "swapped": X.astype(">f4"),
        "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32),
        "subclass": X.view(type("Sub", (np.ndarray,), {})),
    }[view]
    if view == "readonly":
        base.flags.writeable = False
    before = np.array(base)
    got = add(base, base)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, np.asarray(base) * 2)
    np.testing.assert_array_equal(base, before)


def test_fortran_order(identity):
    x = np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4))
    np.testing.assert_array_equal(identity((3, 4), "f64")(x), x)


@pytest.mark.parametrize("dtype", ["bf16", "f8E4M3FN", "f8E5M2", "i4", "ui2", "f4E2M1FN", "i1", "complex<f32>", "ui64"])
def test_dtypes(identity, dtype):
    exe = identity((2, 3), dtype)
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(exe.inputs[0].dtype)
    got = exe(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(exe(x[::-1][:, ::-1]), x[::-1][:, ::-1])


def test_empty_array(identity):
    assert identity((0, 3), "f32")(np.empty((0, 3), np.float32)).shape == (0, 3)


class WithDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class WithArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class WithBoth(WithDlpack, WithArray):
    def __dlpack__(self, **keywords):
        raise BufferError("no such dtype")


@pytest.mark.parametrize("wrapper", [WithDlpack, WithArray, WithBoth])
def test_foreign_arrays(add, wrapper):
    np.testing.assert_array_equal(add(wrapper(X), X), X * 2)


def test_jax_array(identity):
    jnp = pytest.importorskip("jax.numpy")
    np.testing.assert_array_equal(identity((3,), "bf16")(jnp.ones(3, jnp.bfloat16)), np.ones(3))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("f32", 0.1, np.float32(0.1)),
        ("f32", 3, 3.0),
        ("f32", True, 1.0),
        ("f64", float("inf"), np.inf),
        ("f16", 65504, 65504),
        ("bf16", 1.5, 1.5),
        ("i8", -128, -128),
        ("ui8", 255, 255),
        ("i32", 2.0, 2),
        ("i64", 2**63 - 1, 2**63 - 1),
        ("ui64", 2**64 - 1, 2**64 - 1),
        ("i64", -(2**63), -(2**63)),
        ("i4", 7, 7),
        ("i1", True, True),
        ("i1", 0, False),
        ("complex<f32>", 1 + 2j, 1 + 2j),
        ("complex<f64>", 2, 2),
    ],
)
def test_numbers(identity, dtype, value, expected):
    exe = identity((), dtype)
    got = exe(value)
    assert got.shape == ()
    assert got.dtype == exe.inputs[0].dtype
    assert got == expected


def test_nan(identity):
    assert np.isnan(identity((), "f32")(float("nan")))


@pytest.mark.parametrize(
    ("dtype", "value", "error", "message"),
    [
        ("i8", 300, ValueError, r"argument 0 \(x\): 300.*int8"),
        ("ui8", -1, ValueError, r"argument 0 \(x\): -1.*uint8"),
        ("i4", 8, ValueError, r"argument 0 \(x\): 8.*int4"),
        ("i64", 2**63, ValueError, r"argument 0 \(x\): 9223372036854775808"),
        ("i1", 2, ValueError, r"argument 0 \(x\): 2.*bool"),
        ("i32", 2.5, TypeError, r"argument 0 \(x\): .*int32\[\].*2.5"),
        ("i32", float("nan"), TypeError, r"argument 0 \(x\): .*int32\[\].*nan"),
        ("f32", 1e300, ValueError, r"argument 0 \(x\): 1e\+300.*float32"),
        ("f64", 10**400, ValueError, r"argument 0 \(x\): 1000.*.*float64"),
        ("f16", 70000, ValueError, r"argument 0 \(x\): 70000.*float16"),
        ("f8E4M3FN", 1e4, ValueError, r"argument 0 \(x\): 10000.0.*float8_e4m3fn"),
        ("f32", 1j, TypeError, r"argument 0 \(x\): .*float32\[\].*1j"),
        ("f32", np.float64(1), TypeError, r"argument 0 \(x\): .*float32\[\].*float64\[\]"),
        ("f32", "1", TypeError, r"argument 0 \(x\): .*float32\[\].*str"),
        ("f32", None, TypeError, r"argument 0 \(x\): .*float32\[\].*NoneType"),
        ("f32", np.ones(1, np.float32), ValueError, r"argument 0 \(x\): .*float32\[\].*float32\[1\]"),
    ],
)
def test_bad_numbers(identity, dtype, value, error, message):
    with pytest.raises(error, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        identity((), dtype)(value)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((), TypeError, r"2 arguments .*got 0"),
        ((X,), TypeError, r"2 arguments .*got 1"),
        ((X, X, X), TypeError, r"2 arguments .*got 3"),
        ((X, X[:3]), ValueError, r"argument 1 \(y\): .*float32\[4\].*float32\[3\]"),
        ((X, X.reshape(2, 2)), ValueError, r"argument 1 \(y\): .*float32\[4\].*float32\[2,2\]"),
        ((X.astype("f8"), X), TypeError, r"argument 0 \(x\): .*float32\[4\].*float64\[4\]"),
        ((X.astype(">f8"), X), TypeError, r"argument 0 \(x\): .*float32\[4\].*byte-swapped float64\[4\]"),
        ((X.astype("i4"), X), TypeError, r"argument 0 \(x\): .*float32\[4\].*int32\[4\]"),
        ((X.astype(ml_dtypes.bfloat16), X), TypeError, r"argument 0 \(x\): .*float32\[4\].*bfloat16\[4\]"),
        (([1, 2, 3, 4], X), TypeError, r"argument 0 \(x\): .*float32\[4\].*list"),
        ((1.0, X), ValueError, r"argument 0 \(x\): .*float32\[4\].*1.0"),
        ((X, np.array(["a"] * 4)), TypeError, r"argument 1 \(y\): .*float32\[4\].*str32\[4\]"),
        ((X, np.array([None] * 4)), TypeError, r"argument 1 \(y\): .*float32\[4\].*object\[4\]"),
    ],
)
def test_bad_arguments(add, args, error, message):
    with pytest.raises(error, match=message):
        add(*args)


def test_keywords_that_are_no_names_are_refused(add):
    with pytest.raises(TypeError, match="no argument"):
        add(x=X, out=X)


def test_equal_dtype_that_is_another_object(add):
    dtype = np.dtype("f4", metadata={"a": 1})
    x = X.astype(dtype)
    assert x.dtype is not X.dtype
    np.testing.assert_array_equal(add(x, X), X * 2)


def donating(n, argument=0):
    """Returns z = x + y in the memory of x or y."""
    program = binary(n)
    program.output_aliases = {0: argument}
    return build(program, TARGET, cache=False)


def test_donation_takes_the_memory_over():
    x, y = X.copy(), X.copy()
    z = donating(4)(x, y)
    assert np.shares_memory(x, z)
    np.testing.assert_array_equal(z, X * 2)
    np.testing.assert_array_equal(y, X)


def test_donation_copies_what_it_must_not_write():
    frozen = X.copy()
    frozen.flags.writeable = False
    base = np.zeros(8, np.float32)
    for x in (frozen, base[::2], base[:4], WithArray(X)):
        before = np.array(x.array if isinstance(x, WithArray) else x)
        z = donating(4)(x, X)
        np.testing.assert_array_equal(z, before + X)
        np.testing.assert_array_equal(x.array if isinstance(x, WithArray) else x, before)


def test_donated_and_passed_twice():
    x = X.copy()
    z = donating(4)(x, x)
    np.testing.assert_array_equal(z, X * 2)
    np.testing.assert_array_equal(x, X)


LOOP = """
func.func @main(%a: tensor<17xf32>, %b: tensor<17xf32>) -> tensor<9xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %c = %b) : tensor<i32>, tensor<17xf32>
  cond {
    %n = stablehlo.constant dense<300> : tensor<i32>
    %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %d = stablehlo.add %c, %a : tensor<17xf32>
    stablehlo.return %j, %d : tensor<i32>, tensor<17xf32>
  }
  %o = stablehlo.slice %r#1 [0:9] : (tensor<17xf32>) -> tensor<9xf32>
  return %o : tensor<9xf32>
}
"""


@pytest.mark.parametrize("cached", [False, True])
def test_donation_of_intermediate_memory(cached):
    """The state of the loop is in the donated argument, and no result is: memory that must not be overwritten is copied
    too."""
    if cached:
        shlo_jit.compile(LOOP, donate=[1])
    exe = shlo_jit.compile(LOOP, donate=[1], cache=cached)
    assert exe._front.program.overwritten == (1,)
    ones = np.ones(17, np.float32)
    frozen = ones.copy()
    frozen.flags.writeable = False
    both = np.ones(34, np.float32)
    for a, b in ((ones, frozen), (ones, ones), (both[:17], both[17:])):
        assert exe(a, b).tolist() == [301] * 9
        assert (a == 1).all() and (b == 1).all()
    assert exe(ones, np.ones(17, np.float32)).tolist() == [301] * 9


def test_result_donated_again():
    n = 1 << 16
    exe = donating(n)
    ones = np.ones(n, np.float32)
    x = np.zeros(n, np.float32)
    for _ in range(5):
        x = exe(x, ones)
    np.testing.assert_array_equal(x, np.full(n, 5))


def test_a_donated_array_is_returned_itself():
    """Machine code does this without Python in between, and keeps no reference."""
    n = 1 << 12
    exe = donating(n)
    assert isinstance(exe.__call__, types.BuiltinFunctionType)
    ones, x = np.ones(n, np.float32), np.zeros(n, np.float32)
    before = sys.getrefcount(x)
    for _ in range(100):
        assert exe(x, ones) is x
    assert sys.getrefcount(x) == before
    np.testing.assert_array_equal(x, np.full(n, 100))


@pytest.mark.parametrize("name", ["i1", "i8", "ui16", "i32", "i64", "f16", "f32", "f64", "complex<f32>"])
def test_scalars_of_numpy(name, monkeypatch):
    """Machine code reads their value where it lies."""
    text = "func.func @main(%x: tensor<T>, %y: tensor<2xT>) -> tensor<T> { return %x : tensor<T> }".replace("T", name)
    exe = shlo_jit.compile(text, cache=False)
    dtype = exe._front.program.inputs[0].dtype.numpy
    x, pair = dtype.type(1), np.array([0, 1], dtype)
    with monkeypatch.context() as patched:
        patched.setattr("shlo_jit.runtime.front.convert", pytest.fail)
        for value in (x, pair[1], np.array(x)):
            assert exe(value, pair) == 1
    assert exe(True if name == "i1" else 1, pair) == 1
    with pytest.raises(TypeError, match="argument 0"):
        exe(np.uint32(1), pair)
    with pytest.raises(ValueError, match="argument 1"):
        exe(x, x)


def test_donated_memory_that_another_argument_sees():
    n = 1 << 12
    x = np.arange(n, dtype=np.float32)
    for argument, given in ((0, (x, x[:])), (1, (x[:], x))):
        z = donating(n, argument)(*given)
        assert z is not x
        np.testing.assert_array_equal(z, 2 * x)
        np.testing.assert_array_equal(x, np.arange(n))


def test_the_slow_path_is_equivalent(monkeypatch, add):
    monkeypatch.setattr("shlo_jit.runtime.layout.as_expected", lambda: False)
    slow = build(binary(4), TARGET, cache=False)
    assert type(slow.__call__) is not type(add.__call__)
    np.testing.assert_array_equal(slow(X, X), add(X, X))
    with pytest.raises(ValueError, match="argument 1"):
        slow(X, X[:3])


def test_unknown_stage(add):
    with pytest.raises(ValueError, match="texts"):
        add.text("llvm")
    exe = build(
        callback(),
        TARGET,
        cache=False,
        custom_calls={"f": lambda x, y: x},
        remake=Remake({"llvm": lambda: "text"}, pytest.fail, pytest.fail),
    )
    assert exe.text("llvm") == "text"
    with pytest.raises(ValueError, match="stage 'x'.*llvm"):
        exe.text("x")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            np.ma.masked_array(X, [0, 0, 1, 0]),
            r"expected float32\[4\], got a masked array .*; use its .filled\(value\)",
        ),
        (X.astype(object), r"expected float32\[4\], got object\[4\]; convert it to an array of numbers"),
        (X.astype("S1"), r"expected float32\[4\], got bytes8\[4\]; convert it to an array of numbers"),
        (np.zeros(4, [("a", "f4")]), r"expected float32\[4\], got void32\[4\]; convert it to an array of numbers"),
        (X.astype(">f8"), r"expected float32\[4\], got byte-swapped float64\[4\]; cast it with .astype"),
        (X > 1, r"expected float32\[4\], got bool\[4\]; cast it with .astype"),
        (X.astype(ml_dtypes.bfloat16), r"expected float32\[4\], got bfloat16\[4\]; cast it with .astype"),
        (list(X), r"expected float32\[4\], got list; use numpy.asarray"),
        (memoryview(X), r"expected float32\[4\], got memoryview; use numpy.asarray"),
        (range(4), r"expected float32\[4\], got range; use numpy.asarray"),
        ({1: 2}, r"expected float32\[4\], got dict; pass it as keywords"),
    ],
)
def test_what_is_no_array_of_numbers(add, value, message):
    with pytest.raises(TypeError, match=rf"^argument 1 \(y\): {message}"):
        add(X, value)


def test_masked_arrays_without_masked_elements_and_matrices(add, identity):
    np.testing.assert_array_equal(add(np.ma.masked_array(X, [0, 0, 0, 0]), np.ma.masked_array(X)), X + X)
    with warnings.catch_warnings(action="ignore"):  # a class that numpy advises against
        matrix = np.matrix([[1, 2], [3, 4]], np.float32)
    got = identity((2, 2), "f32")(matrix)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, np.asarray(matrix))


def test_truth_values_are_numbers(identity):
    for dtype in ("i1", "i8", "ui64", "f32", "complex<f32>"):
        assert identity((), dtype)(True) == 1


def test_arrays_of_libraries_that_fail(add):
    class Remote:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("it is on another device; call .cpu()")

    with pytest.raises(TypeError, match=r"argument 0 \(x\): .*Remote.*device"):
        add(Remote(), X)


def test_numbers_that_python_does_not_write(identity):
    with pytest.raises(ValueError, match=r"argument 0 \(x\): .*33220 bits.*int32"):
        identity((), "i32")(10**10000)
    with pytest.raises(ValueError, match=r"int32\[2\].*33220 bits"):
        identity((2,), "i32")(10**10000)
