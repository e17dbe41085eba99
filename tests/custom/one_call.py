"""Programs with one custom call, `@f`."""

from __future__ import annotations


def call(operands: list[str], results: list[str], attributes: str = "") -> str:
    """Returns a function that passes its arguments to the call. Types as in `tensor<...>`."""
    arguments = ", ".join(f"%x{i}: tensor<{t}>" for i, t in enumerate(operands))
    types = [", ".join(f"tensor<{t}>" for t in side) for side in (operands, results)]
    names = ", ".join(f"%x{i}" for i in range(len(operands)))
    returned = ", ".join(f"%0#{i}" for i in range(len(results))) if len(results) > 1 else "%0"
    count = f":{len(results)}" if len(results) > 1 else ""
    return f"""func.func @main({arguments}) -> ({types[1]}) {{
  %0{count} = stablehlo.custom_call @f({names}) {attributes} : ({types[0]}) -> ({types[1]})
  return {returned} : {types[1]}
}}"""


def chain(n: int = 1000) -> str:
    """Returns ops before and after the call."""
    t = f"tensor<{n}xf32>"
    return f"""func.func @main(%x: {t}, %y: {t}) -> {t} {{
  %0 = stablehlo.add %x, %y : {t}
  %1 = stablehlo.custom_call @f(%0, %y) : ({t}, {t}) -> {t}
  %2 = stablehlo.multiply %1, %x : {t}
  return %2 : {t}
}}"""
