"""Custom calls: Python callables and C functions."""

import ctypes
import threading

import numpy as np
import pytest
from programs import TARGET, callback

import shlo_jit
from shlo_jit.errors import ExecutionError
from shlo_jit.runtime.build import build
from shlo_jit.runtime.callbacks import InPlace, register_custom_call

X, Y = np.arange(4, dtype=np.float32), np.full(4, 2, np.float32)


def compiled(function, **fields):
    return build(callback(**fields), TARGET, cache=False, custom_calls={"f": function})


def test_operands_and_result():
    np.testing.assert_array_equal(compiled(lambda x, y: x * y)(X, Y), X * Y)


def test_operands_are_copies_to_keep():
    kept = []

    def keep(x, y):
        x += 100
        kept.append(x)
        return y

    exe = compiled(keep)
    x = X.copy()
    exe(x, Y)
    exe(x, Y)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(kept[0], X + 100)
    assert not np.shares_memory(*kept)


def test_attributes_where_there_is_room_for_them():
    attributes = {"scale": 3, "name": "n"}
    seen = []

    def some(x, y, scale, other=7):
        seen.append((scale, other))
        return x * scale

    def all_of_them(x, y, **attributes):
        seen.append(attributes)
        return x

    np.testing.assert_array_equal(compiled(some, attributes=attributes)(X, Y), X * 3)
    compiled(all_of_them, attributes=attributes)(X, Y)
    assert seen == [(3, 7), attributes]
    np.testing.assert_array_equal(compiled(lambda x, y: y, attributes=attributes)(X, Y), Y)
    np.testing.assert_array_equal(compiled(np.add, attributes=attributes)(X, Y), X + Y)


@pytest.mark.parametrize("results", [0, 2])
def test_number_of_results(results):
    exe = compiled(lambda x, y: [x, y][:results] or None, results=results)
    got = exe(X, Y)
    assert len(got) == results
    for array, expected in zip(got, [X, Y], strict=False):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x, y: None, TypeError, "'f'.* 0 results.* 1"),
        (lambda x, y: (x, y), TypeError, "'f'.* 2 results.* 1"),
        (lambda x, y: x[:2], ValueError, r"result 0 .*'f': .*float32\[4\].*float32\[2\]"),
        (lambda x, y: x.astype("f8"), TypeError, r"result 0 .*'f': .*float32\[4\].*float64"),
        (lambda x: x, TypeError, "positional argument"),
    ],
)
def test_bad_results(function, error, message):
    exe = compiled(function)
    for _ in range(3):
        with pytest.raises(error, match=message):
            exe(X, Y)


def test_a_target_that_writes_in_place():
    seen = []

    def multiply(operands, results, scale):
        assert not any(x.flags.writeable for x in operands)
        seen.append([x.tobytes() for x in operands])
        np.multiply(*operands, out=results[0])
        results[0][...] *= scale

    exe = compiled(InPlace(multiply), attributes={"scale": 3})
    np.testing.assert_array_equal(exe(X, Y), 3 * X * Y)
    assert seen == [[X.tobytes(), Y.tobytes()]]
    with pytest.raises(TypeError, match="keyword argument 'scale'"):
        compiled(InPlace(lambda operands, results: None), attributes={"scale": 3})(X, Y)
    np.testing.assert_array_equal(exe(Y, Y), 3 * Y * Y)


def test_what_a_target_that_writes_in_place_sees():
    """Dimensions are the program's, whatever the layouts; an operand that the result aliases is the result's memory."""
    text = """func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>) -> tensor<2x3xf32> {
      %0 = stablehlo.custom_call @f(%x, %y) {
        operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>],
        result_layouts = [dense<[0, 1]> : tensor<2xindex>],
        output_operand_aliases = [#stablehlo.output_operand_alias<
          output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]
      } : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0 : tensor<2x3xf32>
    }"""
    seen = []

    def add(operands, results):
        (x, y), (result,) = operands, results
        seen.append((x.shape, x.strides, x.flags.writeable, y.strides, y.flags.writeable, np.shares_memory(x, result)))
        result += y

    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 10, np.float32)
    exe = shlo_jit.compile(text, custom_calls={"f": InPlace(add)})
    np.testing.assert_array_equal(exe(x, y), x + y)  # type: ignore[operator]
    assert seen == [((2, 3), (4, 8), True, (12, 4), False, True)]


def test_scalar_result():
    assert compiled(lambda x, y: 2, shape=())(1.0, 2.0) == 2


class MyError(Exception):
    pass


@pytest.mark.parametrize("error", [MyError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_exception_comes_out_unchanged(error):
    def fail(x, y):
        raise error

    exe = compiled(fail)
    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            exe(X, Y)
        assert caught.value is error
        assert any(entry.name == "fail" for entry in caught.traceback)


def test_a_call_that_fails_is_not_made_again():
    seen = []

    def fail(x, y):
        seen.append(float(x[0]))
        raise MyError

    exe = compiled(fail)
    for k in range(3):
        with pytest.raises(MyError):
            exe(X + k, Y)
    assert seen == [0, 1, 2]


def test_exceptions_in_several_threads():
    def fail(x, y):
        raise MyError(float(x[0]))

    exe, wrong = compiled(fail), []

    def work(k):
        for _ in range(50):
            try:
                exe(np.full(4, k, np.float32), Y)
            except MyError as error:
                if error.args != (float(k),):
                    wrong.append((k, error.args))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_callback_calls_an_executable():
    inner = compiled(lambda x, y: x + y)
    outer = compiled(lambda x, y: inner(x, y) * 2)
    np.testing.assert_array_equal(outer(X, Y), (X + Y) * 2)


def test_callback_calls_its_own_executable():
    box = []

    def down(x, y):
        return x if x[0] > 3 else box[0](x + 1, y)

    box.append(compiled(down))
    np.testing.assert_array_equal(box[0](X, Y), X + 4)


def test_missing():
    with pytest.raises(ExecutionError, match="'f'.*registered"):
        build(callback(), TARGET, cache=False)
    with pytest.raises(TypeError, match="'f'.*callable"):
        compiled("text")


def test_registry():
    register_custom_call("shlo_jit_test", lambda x, y: x - y)
    try:
        np.testing.assert_array_equal(build(callback(target="shlo_jit_test"), TARGET, cache=False)(X, Y), X - Y)
        own = build(callback(target="shlo_jit_test"), TARGET, cache=False, custom_calls={"shlo_jit_test": np.add})
        np.testing.assert_array_equal(own(X, Y), X + Y)
    finally:
        register_custom_call("shlo_jit_test", None)
    with pytest.raises(TypeError, match="got str"):
        register_custom_call("shlo_jit_test", "no")


C_SOURCE = """
define void @twice(ptr %operands, ptr %results) {
  %x = load ptr, ptr %operands
  %r = load ptr, ptr %results
  %v = load <4 x float>, ptr %x, align 4
  %s = fadd <4 x float> %v, %v
  store <4 x float> %s, ptr %r, align 4
  ret void
}
define i32 @fails(ptr %operands, ptr %results) {
  ret i32 7
}
"""


@pytest.fixture(scope="module")
def c_functions():
    from shlo_jit.codegen.jit import load
    from shlo_jit.codegen.optimize import emit_object, optimize

    library = load([emit_object(optimize(C_SOURCE, TARGET), TARGET)], ["twice", "fails"])
    yield library.addresses
    del library


def capsule(address, name):
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    return new(address, name, None)


def test_c_functions(c_functions):
    twice, fails = c_functions["twice"], c_functions["fails"]
    void = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    status = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    for target in (twice, void(twice), capsule(twice, b"twice"), capsule(twice, None)):
        np.testing.assert_array_equal(compiled(target)(X, Y), X * 2)
    for target in (status(fails), capsule(fails, b"fails.status")):
        with pytest.raises(ExecutionError, match="'f'.*status 7"):
            compiled(target)(X, Y)
