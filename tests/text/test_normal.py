"""The normal forms of two texts are equal only if they differ in nothing but comments, locations and lines."""

import pytest

from shlo_jit.text.normal_form import normal

PLAIN = """module @m {
  func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32>
    %1 = "stablehlo.reduce"(%0, %0) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %3 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
    return %0 : tensor<4xf32>
  }
}
"""
LOCATED = """#loc = loc(unknown)
#loc1 = loc("f.py":1:2)
#loc2 = loc(callsite("g"(#loc1) at #loc))
module @m {
  func.func @main(%arg0: tensor<4xf32> loc("f.py":1:2), %arg1: tensor<4xf32> loc(#loc1)) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32> loc(#loc2)
    %1 = "stablehlo.reduce"(%0, %0) ({
    ^bb0(%a: tensor<f32> loc("a(b\\"":3:4), %b: tensor<f32> loc(unknown)):
      %3 = stablehlo.add %a, %b : tensor<f32> loc(fused<"x">["f":1:1, callsite("a" at "b"("c"))])
      stablehlo.return %3 : tensor<f32> loc(#loc)
    }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32> loc(#loc)
    return %0 : tensor<4xf32> loc(#loc1)
  } loc(#loc)
} loc(#loc)
#loc3 = loc("late")
"""
STRINGS = """func.func @main() {
  stablehlo.custom_call @f() {backend_config = "a // b loc(c)", has = "x" } : () -> ()
  return
}"""


@pytest.mark.parametrize(
    "text",
    [
        LOCATED,
        "// first\n" + PLAIN + "// last",
        PLAIN.replace("{\n", "{  // a comment with \"quotes\n    // and 'more' loc(\n"),
        PLAIN.replace("\n", "\n\n\t "),
        "\n\n" + PLAIN.rstrip(),
    ],
    ids=["locations", "ends", "comments", "lines", "blank"],
)
def test_the_same_program(text):
    assert normal(text) == normal(PLAIN)


def test_names_of_arguments_count():
    named = LOCATED.replace('%arg0: tensor<4xf32> loc("f.py":1:2)', '%arg0: tensor<4xf32> loc("x")')
    other = named.replace('loc("x"), %arg1', 'loc("y"), %arg1')
    assert named != LOCATED
    assert len({normal(text) for text in (LOCATED, named, other)}) == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// b", "// c"),
        ("loc(c)", "loc(d)"),
        (" loc(c)", ""),
        ("a // b", "a  // b"),
    ],
)
def test_strings_count(old, new):
    assert normal(STRINGS.replace(old, new)) != normal(STRINGS)


@pytest.mark.parametrize(
    "line",
    [
        '  %x = stablehlo.add %a, %a {k = loc("p")} : tensor<4xf32>',
        '  %x = stablehlo.add %a, %a {k = [unit, loc("p")]} : tensor<4xf32>',
        "  %x = stablehlo.add %a, %a {k = #loc1} : tensor<4xf32>",
        '  %x = stablehlo.add %a, %a loc("p") : tensor<4xf32>',
        '  %x = stablehlo.add %a, %a loc("p")\n  : tensor<4xf32>',
        '  loc("p") %x = stablehlo.add %a, %a : tensor<4xf32>',
        '  %x = stablehlo.add %a, %a : tensor<4xf32> loc("p"',
    ],
)
def test_what_is_no_location_of_an_op_stays(line):
    text = f'#loc1 = loc("p")\nfunc.func @main(%a: tensor<4xf32>) {{\n{line}\n  return\n}}'
    assert normal(text) != normal(text.replace('"p"', '"q"'))
