"""The C header of a library."""

from __future__ import annotations

from collections.abc import Sequence

from shlo_jit.aot import sized_header
from shlo_jit.aot.c_names import c_comment, c_declaration, c_identifier, c_type, port_names
from shlo_jit.aot.entry_points import alignment
from shlo_jit.aot.image import Function, Image
from shlo_jit.aot.imports import custom_call_symbols
from shlo_jit.aot.interface import OPTIONS_WORDS
from shlo_jit.aot.weights_code import weights_file_name
from shlo_jit.codegen.library_format import INTERFACE_VERSION, TYPES, LibraryStatus
from shlo_jit.codegen.program import Callback, Port
from shlo_jit.version import __version__

_COMMON = """\
#ifndef SHLO_JIT_INTERFACE
#define SHLO_JIT_INTERFACE {version}

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t shlo_f16;  /* the bits of an IEEE half */
typedef uint16_t shlo_bf16; /* the upper half of a float's bits */
typedef struct {{ float real, imag; }} shlo_complex64;
typedef struct {{ double real, imag; }} shlo_complex128;

/* What functions return. */
enum shlo_status {{
{statuses}
}};

/* Element types. Those of less than 8 bits take a byte each. */
enum shlo_type {{
{types}
}};

/* Options of an instance. A field of 0 means the default. */
typedef struct {{
  uint32_t bytes;           /* sizeof(shlo_options) */
  int32_t threads;          /* maximum threads of a call; 0: one for each processor of this process */
  const char *weights_path; /* path of the file of weights; NULL: beside the library */
  const void *weights;      /* contents of that file, at a multiple of 64; NULL: the file is read */
  uint64_t weights_bytes;
  void *memory;             /* memory for the instance, at a multiple of 64; NULL: from the system */
  uint64_t memory_bytes;    /* at least memory_bytes(threads) */
}} shlo_options;

/* An input or output of a function: a dense array in row-major order. */
typedef struct {{
  const char *name;      /* empty if it has none */
  const char *type_name; /* such as "f32" */
  int32_t type;          /* enum shlo_type */
  int32_t rank;
  const int64_t *shape;
  uint64_t bytes;
  uint64_t alignment; /* the pointer is a multiple of this */
}} shlo_port;

typedef struct {{
  const char *name;
  int32_t input_count, output_count;
  const shlo_port *inputs, *outputs;
  /* The function itself. The third and fourth argument are NULL. */
  int32_t (*run)(const void *const *inputs, void *const *outputs, const int64_t *, void *, void *instance);
}} shlo_function;

typedef int32_t (*shlo_callback)(void *context, int64_t number, void *const *operands, void *const *results);

/* Description of a library, for hosts that load it at run time. */
typedef struct {{
  uint32_t interface_version; /* {version} */
  uint32_t function_count;
  const char *name;
  const shlo_function *functions;
  const char *metadata; /* JSON */
  uint64_t metadata_bytes;
  int32_t (*create)(void **instance, const shlo_options *options);
  void (*destroy)(void *instance);
  uint64_t (*memory_bytes)(int32_t threads);
  int32_t (*set_threads)(void *instance, int32_t threads);
  int32_t (*call)(void *instance, int32_t function, const void *const *inputs, void *const *outputs);
  const char *(*status_text)(int32_t status);
  int32_t (*failed_call)(void *instance);
  int32_t (*set_callback)(void *instance, shlo_callback callback, void *context);
  int32_t (*set_pause)(void *instance, int32_t (*pause)(void));
  int32_t (*set_symbol)(const char *symbol, void *function);
}} shlo_library;

#endif /* SHLO_JIT_INTERFACE */
"""

_OWN = """\
typedef struct {name}_instance {name}_instance;

/* Create an instance: working memory, constants and threads. `options` may be NULL. */
int32_t {name}_create({name}_instance **instance, const shlo_options *options);

/* Destroy an instance that no call is using; NULL is ignored. */
void {name}_destroy({name}_instance *instance);

/* Bytes of `shlo_options.memory` for an instance that may use so many threads; 0 if the number is not valid. */
uint64_t {name}_memory_bytes(int32_t threads);

/* Set the maximum number of threads of a call, at least 1. */
int32_t {name}_set_threads({name}_instance *instance, int32_t threads);

/* Text of a status. */
const char *{name}_status_text(int32_t status);

"""

_REST = """\
/* Call a function by its number in the table `functions` of the library, with arrays of pointers. */
int32_t {name}_call({name}_instance *instance, int32_t function, const void *const *inputs, void *const *outputs);

/* Names, types and shapes of all functions' inputs and outputs. */
const shlo_library *{name}_library(void);

/* Set a function that long calls check now and then, on the thread of the call: if pause() returns 0 the call goes on,
   else the call returns that value. NULL: no checks. */
int32_t {name}_set_pause({name}_instance *instance, int32_t (*pause)(void));

"""


def header(image: Image) -> str:
    """Returns the text of the header."""
    guard = f"SHLO_JIT_LIBRARY_{image.name}"
    parts = [
        f"/* {image.name}: {_count(_functions(image), 'function')}, compiled by shlo_jit {__version__} for "
        f"{', '.join(v.target.name for v in image.variants)}.\n\n{_words(image)} */",
        f"#ifndef {guard}\n#define {guard}\n",
        _COMMON.format(
            version=INTERFACE_VERSION,
            statuses=_enumeration("SHLO_", [(s.name, int(s)) for s in LibraryStatus], [s.text for s in LibraryStatus]),
            types=_enumeration("SHLO_", [(c_identifier(t).strip("_").upper(), i) for i, t in enumerate(TYPES)]),
        ),
        *([sized_header.COMMON] if image.sized else []),
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _OWN.format(name=image.name),
        *(_declaration(image.name, function) for function in image.functions if function.c_name),
        *(sized_header.declarations(image, sized) for sized in image.sized),
        _REST.format(name=image.name),
        *([sized_header.describe(image)] if image.sized else []),
        *_imports(image),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n",
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _functions(image: Image) -> int:
    """Number of functions that C calls by name."""
    return sum(bool(f.c_name) for f in image.functions) + len(image.sized)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _words(image: Image) -> str:
    lines = [
        "Functions return 0 (SHLO_OK) or another status. Calls of one instance wait for each other; those of different",
        "instances do not. Arrays are dense and in row-major order. Outputs may not overlap with anything else.",
    ]
    if image.weights_in_file:
        lines += [f"The constants are in {weights_file_name(image.name)}, which belongs beside the library."]
    return "\n".join("   " + line for line in lines)


def _enumeration(prefix: str, values: Sequence[tuple[str, int]], notes: Sequence[str] = ()) -> str:
    lines = [f"  {prefix}{name} = {value}" + ("," if i < len(values) - 1 else "") for i, (name, value) in
             enumerate(values)]  # fmt: skip
    if not notes:
        return "\n".join(lines)
    width = max(map(len, lines)) + 1
    return "\n".join(f"{line:{width}}/* {note} */" for line, note in zip(lines, notes, strict=True))


def _shape(port: Port) -> str:
    return f"{port.dtype.name}[{', '.join(map(str, port.shape))}]"


def _declaration(name: str, function: Function) -> str:
    inputs, outputs = port_names(function.inputs, function.outputs)
    written = {*function.overwritten, *function.aliases.values()}
    rows = []
    parameters = [f"{name}_instance *instance"]
    for i, (port, parameter) in enumerate(zip(function.inputs, inputs, strict=True)):
        const = "" if i in written else "const "
        parameters.append(f"{const}{c_type(port.dtype)} *{parameter}")
        extra = " (is overwritten)" if i in written else ""
        rows.append((parameter, f"{_shape(port)}{extra}"))
    for i, (port, parameter) in enumerate(zip(function.outputs, outputs, strict=True)):
        parameters.append(f"{c_type(port.dtype)} *{parameter}")
        extra = f" (the same pointer as {inputs[function.aliases[i]]})" if i in function.aliases else ""
        multiple = alignment(port, True)
        if not extra and multiple > port.dtype.part.itemsize:
            extra = f" (at a multiple of {multiple} bytes)"
        rows.append((parameter, f"{_shape(port)}, output{extra}"))
    width = max((len(parameter) for parameter, _ in rows), default=0)
    comment = "".join(f"\n     {parameter:{width}}  {words}" for parameter, words in rows)
    lines = c_declaration(f"int32_t {name}_{function.c_name}", parameters)
    return f"/* @{c_comment(function.name)}{comment} */\n{lines}"


def _imports(image: Image) -> list[str]:
    name = image.name
    parts = []
    if image.custom_calls:
        symbols = custom_call_symbols(image)
        lines = [
            "/* Custom calls: functions that the program needs and you define. They get arrays of pointers to dense",
            "   arrays, and return 0 if all went well. */",
        ]
        for target, symbol in symbols.items():
            shapes = dict.fromkeys(_call_shape(c) for c in image.callbacks if c.target == target)
            lines.append(f"/* {c_comment(target)}: {' or '.join(shapes)} */")
            lines.append(f"int32_t {symbol}(void **operands, void **results);")
        parts.append("\n".join(lines))
    if image.lapack:
        lines = ["/* LAPACK and BLAS, with 32-bit integers, as Fortran passes arguments; link with -llapack -lblas."]
        parts.append("\n".join([*lines, "   " + ", ".join(f"{n}_" for n in image.lapack) + " */"]))
    if image.custom_calls or image.lapack:
        parts.append(
            "/* If these functions are not linked: set their addresses before create. */\n"
            f"int32_t {name}_set_symbol(const char *symbol, void *function);"
        )
    if image.callbacks:
        parts.append(
            "/* Route all custom calls of an instance to one function, which gets their numbers in the program. */\n"
            f"int32_t {name}_set_callback({name}_instance *instance, shlo_callback callback, void *context);\n\n"
            "/* The number of the custom call that failed last; -1 if none did. */\n"
            f"int32_t {name}_failed_call({name}_instance *instance);"
        )
    return parts


def _call_shape(callback: Callback) -> str:
    operands, results = (", ".join(_shape(p) for p in ports) for ports in (callback.operands, callback.results))
    return f"({operands}) -> ({results})"


assert len(OPTIONS_WORDS) == 7  # fields of shlo_options above
