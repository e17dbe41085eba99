"""Parts of the C header about functions that take sizes."""

from __future__ import annotations

import textwrap

from shlo_jit.aot.c_names import c_comment, c_declaration, c_type, port_names
from shlo_jit.aot.entry_points import result_alignment
from shlo_jit.aot.image import SIZED, Image
from shlo_jit.aot.sized import Sized, SizedPort
from shlo_jit.aot.sized_words import calls_text, shape_names, size_names

COMMON = """\
#ifndef SHLO_JIT_SIZED
#define SHLO_JIT_SIZED

/* A function that takes sizes: the unknown dimensions of its inputs, in order. */
typedef struct {
  const char *name;
  int32_t input_count, output_count;
  const shlo_port *inputs, *outputs; /* an unknown dimension is -1 in `shape`, and `bytes` is 0 */
  /* The function itself. The fourth argument is NULL. */
  int32_t (*run)(const void *const *inputs, void *const *outputs, const int64_t *sizes, void *, void *instance);
  /* Writes the shape of each output, `rank` numbers, to the array that its pointer in `shapes` points to. A pointer may
     be NULL. Of the inputs, only those whose values select the code are read. */
  int32_t (*shapes)(const void *const *inputs, const int64_t *sizes, int64_t *const *shapes);
  int32_t first, count; /* functions of the library with the code: functions[first] and those after it */
} shlo_sized;

#endif /* SHLO_JIT_SIZED */
"""
_DESCRIBE = """\
/* The functions that take sizes; an entry without a name (NULL) follows the last. */
const shlo_sized *{name}_{symbol}(void);
"""
WIDTH = 110
"""Maximum length of lines of comments."""


def describe(image: Image) -> str:
    """Declaration of the function that describes the sized functions."""
    return _DESCRIBE.format(name=image.name, symbol=SIZED)


def declarations(image: Image, sized: Sized) -> str:
    """Declarations of the two C functions of a sized function."""
    name = f"{image.name}_{sized.c_name}"
    return f"{_comment(image, sized)}\n{_function(image, name, sized)}\n{_shapes(image, sized)}"


def _comment(image: Image, sized: Sized) -> str:
    inputs, outputs = port_names(sized.inputs, sized.outputs)
    sizes = dict(zip(sized.unknown, size_names(sized), strict=True))
    rows = []
    for i, (port, name) in enumerate(zip(sized.inputs, inputs, strict=True)):
        extents = [sizes.get((i, d), n) for d, n in enumerate(port.shape)]
        extra = " (is overwritten)" if i in _written(sized) else ""
        rows.append((name, f"{port.dtype.name}[{', '.join(map(str, extents))}]{extra}"))
    for i, (port, name) in enumerate(zip(sized.outputs, outputs, strict=True)):
        extents = ["?" if n is None else n for n in port.shape]
        extra = _place(image, sized, i, inputs)
        rows.append((name, f"{port.dtype.name}[{', '.join(map(str, extents))}], output{extra}"))
    width = max((len(name) for name, _ in rows), default=0)
    lines = "".join(f"\n     {name:{width}}  {words}" for name, words in rows)
    known = textwrap.fill(f"There is code for {calls_text(sized)}. For others the status is SHLO_UNKNOWN_SHAPES.",
                          WIDTH, initial_indent="   ", subsequent_indent="   ")  # fmt: skip
    return f"/* @{c_comment(sized.name)}{lines}\n{known} */"


def _place(image: Image, sized: Sized, output: int, inputs: list[str]) -> str:
    """Requirements on an output's memory that the caller must meet."""
    if output in sized.aliases:
        return f" (the same pointer as {inputs[sized.aliases[output]]})"
    multiple = result_alignment(image, sized, output)
    return f" (at a multiple of {multiple} bytes)" if multiple > sized.outputs[output].dtype.part.itemsize else ""


def _written(sized: Sized) -> set[int]:
    return {*sized.overwritten, *sized.aliases.values()}


def _function(image: Image, name: str, sized: Sized) -> str:
    inputs, outputs = port_names(sized.inputs, sized.outputs)
    sizes = list(zip(sized.unknown, size_names(sized), strict=True))
    parameters = [f"{image.name}_instance *instance"]
    for i, (port, parameter) in enumerate(zip(sized.inputs, inputs, strict=True)):
        parameters.append(f"{_pointer(port, i not in _written(sized))}{parameter}")
        parameters += [f"int64_t {size}" for (argument, _), size in sizes if argument == i]
    parameters += [f"{_pointer(p, False)}{parameter}" for p, parameter in zip(sized.outputs, outputs, strict=True)]
    return c_declaration(f"int32_t {name}", parameters)


def _shapes(image: Image, sized: Sized) -> str:
    inputs, _ = port_names(sized.inputs, sized.outputs)
    sizes = list(zip(sized.unknown, size_names(sized), strict=True))
    parameters = []
    for i, (port, parameter) in enumerate(zip(sized.inputs, inputs, strict=True)):
        parameters += [f"{_pointer(port, True)}{parameter}"] if i in sized.by_value else []
        parameters += [f"int64_t {size}" for (argument, _), size in sizes if argument == i]
    parameters += [f"int64_t {name}[{rank}]" for name, rank in shape_names(sized)]
    text = "/* Writes the shapes of outputs for these sizes. A pointer to a shape may be NULL. */"
    return f"{text}\n{c_declaration(f'int32_t {image.name}_{sized.shapes_name}', parameters)}"


def _pointer(port: SizedPort, is_const: bool) -> str:
    return f"{'const ' if is_const else ''}{c_type(port.dtype)} *"
