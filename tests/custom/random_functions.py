"""Random functions of scalars, as Python text: expressions, branches, loops, with early exits of all kinds."""

from __future__ import annotations

from hypothesis import strategies as st

MOST_DEPTH = 2
FLOAT_CALLS = (
    "abs({})",
    "np.floor({})",
    "np.ceil({})",
    "np.trunc({})",
    "math.copysign({}, 1.0 if {} > 0.0 else -1.0)",  # not by the sign of a NaN, which is unspecified
    "min({}, {})",
    "max({}, {})",
)
INT_CALLS = (
    "abs({})",
    "min({}, {})",
    "max({}, {})",
    "({} >> 1)",
    "({} << 2)",
    "({} & {})",
    "({} ^ {})",
    "({} | 5)",
    "(~{})",
)


@st.composite
def functions(draw: st.DrawFn, integers: bool) -> str:
    """Draws `def f(a, b)`, whose values are all floats, or all integers."""
    lines = ["def f(a, b):", "    x = a", "    y = b"]
    lines += block(draw, integers, 1, 0, False)
    lines.append(f"    return {expression(draw, integers, 2)}")
    return "\n".join(lines)


def block(draw: st.DrawFn, integers: bool, indent: int, depth: int, in_loop: bool) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += statement(draw, integers, indent, depth, in_loop)
    return lines


def statement(draw: st.DrawFn, integers: bool, indent: int, depth: int, in_loop: bool) -> list[str]:
    kinds = ["assign"] * 3
    if depth < MOST_DEPTH:
        kinds += ["if", "if", "for", "while"]
    if depth:
        kinds.append("return")
    if in_loop:
        kinds += ["break", "continue"]
    kind = draw(st.sampled_from(kinds))
    pad = "    " * indent

    def inside(loop: bool) -> list[str]:
        return block(draw, integers, indent + 1, depth + 1, loop)

    if kind == "if":
        lines = [f"{pad}if {condition(draw, integers)}:", *inside(in_loop)]
        return [*lines, f"{pad}else:", *inside(in_loop)] if draw(st.booleans()) else lines
    if kind == "for":
        return [f"{pad}for i{depth} in range({draw(st.integers(0, 6))}):", *inside(True)]
    if kind == "while":
        lines = [
            f"{pad}k{depth} = 0",
            f"{pad}while k{depth} < 6 and {condition(draw, integers)}:",
            f"{pad}    k{depth} += 1",
        ]
        return [*lines, *inside(True)]
    if kind in ("return", "break", "continue"):
        end = f"return {expression(draw, integers, 1)}" if kind == "return" else kind
        return [f"{pad}if {condition(draw, integers)}:", f"{pad}    {end}"]
    value = expression(draw, integers, 2)  # integers stay small: overflow is undefined in Numba's own code
    return [f"{pad}{draw(st.sampled_from('xy'))} = {f'({value}) % 1009' if integers else value}"]


def condition(draw: st.DrawFn, integers: bool) -> str:
    sides = f"{expression(draw, integers, 1)} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {leaf(draw, integers)}"
    if draw(st.integers(0, 3)):
        return sides
    return f"({sides} {draw(st.sampled_from(['and', 'or']))} {leaf(draw, integers)} < {leaf(draw, integers)})"


def leaf(draw: st.DrawFn, integers: bool) -> str:
    number = draw(st.integers(-9, 9))
    return draw(st.sampled_from(["x", "y", "a", "b", str(number) if integers else str(number / 2)]))


def expression(draw: st.DrawFn, integers: bool, depth: int) -> str:
    if not depth:
        return leaf(draw, integers)

    def part() -> str:
        return expression(draw, integers, depth - 1)

    kind = draw(st.integers(0, 5))
    if kind == 0:
        call = draw(st.sampled_from(INT_CALLS if integers else FLOAT_CALLS))
        return call.format(*(part() for _ in range(call.count("{}"))))
    if kind == 1:
        return f"({part()} if {condition(draw, integers)} else {part()})"
    signs = ["+", "-", "*", *(["//", "%"] if integers else ["/", "//", "%"])]
    return f"({part()} {draw(st.sampled_from(signs))} {part()})"
