"""Keeps LLVM's value numbering away from what it compiles wrongly, and from what ends the process.

Lowering writes the same index arithmetic and loads once for each vector, and NewGVN, the only value numbering that
llvmlite offers, removes what is repeated. Three of its faults (LLVM 20 to 22) are avoided here:

- An operation on a phi becomes a phi of the results for the inputs, also if the operation depends on an inner loop: its
  last result is then taken for all iterations of that loop. This is disabled, and the code of the benchmarks keeps its
  size.
- All values begin in one class, which they leave as they are numbered, and some return to it. If the last value leaves
  after another has returned, an assertion about the empty class ends the process. A value in a block that nothing
  reaches stays in the class, so each function gets such a block.
- An assertion says that no value is numbered a hundred times. In functions of hundreds of branches some are.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from shlo_jit.kernels.routine import FINAL

MAX_BLOCKS = 256
"""Blocks of a function up to which a module is numbered. NewGVN ended the process at 803; the largest function of the
benchmark cases has 184."""

_LAST_RETURN = re.compile(r"^  (ret [^\n]*)\n\}", re.MULTILINE)
_UNREACHED = r"""  br i1 false, label %shlo.never, label %shlo.last
shlo.never:
  %shlo.unused = add i64 0, 0
  br label %shlo.last
shlo.last:
  \1
}"""
_LABEL_OR_END = re.compile(r"^(?:[\w.$-]+:|\})", re.MULTILINE)


def suits(text: str) -> bool:
    """Whether value numbering helps the module `text` and ends well."""
    if FINAL in text:
        return False
    blocks = 0
    for found in _LABEL_OR_END.finditer(text):
        blocks = 0 if found.group() == "}" else blocks + 1
        if blocks > MAX_BLOCKS:
            return False
    return True


def add_pass(passes: llvm.ModulePassManager) -> None:
    """Adds value numbering. The option is one of the process, but no pipeline of LLVM's own contains NewGVN."""
    llvm.set_option("", "-enable-phi-of-ops=false")
    passes.add_new_gvn_pass()


def guarded(text: str) -> str:
    """Gives each function of `text` a block that nothing reaches: a pass that simplifies branches would drop it, so
    value numbering runs before those."""
    return _LAST_RETURN.sub(_UNREACHED, text)
