"""Names and types of the C interface."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from shlo_jit.ir.types import DType

KEYWORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue contract_assert "
    "decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if "
    "inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct "
    "switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned "
    "using virtual void volatile wchar_t while xor xor_eq".split()
)
"""Keywords of C and C++, up to C23 and C++26."""
_NOT_OURS = re.compile(
    r"__.*|_[A-Z].*|(shlo|SHLO)_.*"  # reserved by C, and by our header
    r"|u?int\w*_t|U?INT\w*_(MAX|MIN|C)|(size|ptrdiff)_t|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_(MAX|MIN)"
    r"|NULL|EOF|I|assert|errno|offsetof|stderr|stdin|stdout|linux|unix|i386|far|near|min|max|interface"
)
"""Types and macros of headers and compilers that may be defined although only our header is included."""

_MATHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma "
    "fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan "
    "nearbyint nextafter pow remainder remquo rint round scalbn sin sincos sinh sqrt tan tanh tgamma trunc".split()
)
C_FUNCTIONS = frozenset(
    [m + suffix for m in _MATHS for suffix in ("", "f", "l")]
    + (
        "main abort abs atexit atof atoi atol bcmp bsearch calloc clock close div dladdr dlopen dlsym dup exit fclose "
        "fflush fgets fopen fork fprintf fputc fputs fread free fseek ftell fwrite getauxval getenv getpid labs lseek "
        "madvise malloc memchr memcmp memcpy memmove memset mmap mprotect munmap open perror printf putchar puts qsort "
        "raise rand read realloc remove rename scanf select signal sleep snprintf sprintf srand sscanf stat strcat "
        "strchr strcmp strcpy strlen strncmp strncpy strstr strtod strtol strtoul syscall sysconf system time unlink "
        "vprintf wait write clock_gettime sched_getaffinity sched_setaffinity sched_yield aligned_alloc posix_memalign "
        "getrusage _fltused VirtualAlloc VirtualFree".split()
    )
)
"""Functions of the C library and the system that libraries call, or that compilers and linkers know."""
_C_FAMILIES = re.compile(r"pthread_\w+|shlo_(pool_\w+|parallel)")

_C_TYPES = {
    "i1": "bool",
    "f32": "float",
    "f64": "double",
    "f16": "shlo_f16",
    "bf16": "shlo_bf16",
    "complex<f32>": "shlo_complex64",
    "complex<f64>": "shlo_complex128",
}


def is_taken(symbol: str) -> bool:
    """Whether the C library, or a part that every library of ours contains, defines a function of that name."""
    return symbol in C_FUNCTIONS or _C_FAMILIES.fullmatch(symbol) is not None


def c_word(text: str) -> str:
    """Replaces characters that cannot occur in an identifier of C and C++ by underscores."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text) or "_"


def c_identifier(text: str) -> str:
    """Converts a text to an identifier of C and C++."""
    name = c_word(text)
    if name[0].isdigit():
        name = "_" + name
    return name + "_" if name in KEYWORDS else name


def c_prefix(text: str) -> str:
    """Converts a text to the prefix of a library's symbols, which an underscore follows."""
    name = c_identifier(text)
    return "shlo_" if name == "shlo" else name  # shlo_library, shlo_options are types of the header


def c_parameter(text: str) -> str:
    """Converts a text to the name of a parameter in a header."""
    name = c_identifier(text)
    return name + "_" if _NOT_OURS.fullmatch(name) else name


def c_function(text: str) -> str:
    """Converts a text to the name of a function of the host."""
    name = c_parameter(text)
    return name + "_" if is_taken(name) else name


def c_comment(text: str) -> str:
    """Converts a text to a part of a comment that neither ends the comment nor continues on another line."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")


def unique(name: str, taken: set[str]) -> str:
    """Appends underscores to a name until it is unique, and adds it to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def c_type(dtype: DType) -> str:
    """C type of an element."""
    if dtype.name in _C_TYPES:
        return _C_TYPES[dtype.name]
    if dtype.is_float:
        return "uint8_t"
    unsigned = "u" if dtype.kind == "u" else ""
    return f"{unsigned}int{max(8, dtype.bits)}_t"


class Named(Protocol):
    """An input or output with a name."""

    @property
    def name(self) -> str: ...


def port_names(inputs: Sequence[Named], outputs: Sequence[Named]) -> tuple[list[str], list[str]]:
    """Names of the parameters for inputs and outputs."""
    taken = {"instance"}
    single = "output" if len(outputs) == 1 else ""
    return (
        [unique(_port_name(p, f"input{i}"), taken) for i, p in enumerate(inputs)],
        [unique(_port_name(p, single or f"output{i}"), taken) for i, p in enumerate(outputs)],
    )


def _port_name(port: Named, otherwise: str) -> str:
    """Name of a parameter. A name that is only a value's number is replaced by `otherwise`."""
    return c_parameter(port.name) if port.name and not port.name.isdigit() else otherwise


def c_declaration(head: str, parameters: Sequence[str]) -> str:
    """Declaration of a function, on one line or on several."""
    line = f"{head}({', '.join(parameters)});"
    if len(line) > 100:
        pad = ",\n    "
        line = f"{head}(\n    {pad.join(parameters)});"
    return line + "\n"
