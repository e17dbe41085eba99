"""The text of LLVM functions: instructions, basic blocks and calls, and the symbols of the module around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shlo_jit.kernels import size_registers
from shlo_jit.kernels.llvm_values import Index, V, const
from shlo_jit.kernels.names import GlobalNames, LocalNames
from shlo_jit.kernels.target import Target
from shlo_jit.sizes import NotSymbolic


class ModuleSymbols:
    """What an LLVM module defines and declares."""

    def __init__(self, target: Target | None = None) -> None:
        self.target = target
        self.functions: dict[str, str] = {}
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.names = GlobalNames()

    def declare(self, name: str, ret: str, types: Sequence[str], attributes: str = "") -> None:
        if name not in self.declarations:
            self.names.declare(name)
            passed = ", ".join(self.passed(t, name) for t in types)
            self.declarations[name] = f"declare {self.returned(ret, name)} @{name}({passed}) {attributes}".rstrip()

    def passed(self, type: str, function: str = "") -> str:
        """Returns the type of an argument, with the attributes that the target's C functions rely on. `function`: the
        callee."""
        return f"{type} signext" if self._is_extended(type, function) else type

    def returned(self, type: str, function: str = "") -> str:
        """Returns the same for a function's result."""
        return f"signext {type}" if self._is_extended(type, function) else type

    def _is_extended(self, type: str, function: str) -> bool:
        """Whether the value's sign fills a register: RISC-V's calling convention requires that of an int."""
        if type != "i32" or self.target is None:
            return False
        return self.target.arch == "riscv64" and not function.startswith("llvm.")

    def define_global(self, name: str, text: str) -> None:
        """Defines a global such as `@name = internal constant ...`; `text` is the part after the `=`."""
        self.names.define(name)
        self._define(self.globals, name, f"@{name} = {text}")

    def define_function(self, name: str, text: str) -> None:
        """Defines a function by the text that a Builder has written."""
        self._define(self.functions, name, text)

    def _define(self, symbols: dict[str, str], name: str, text: str) -> None:
        """Defines a symbol. A second definition must have the same text. An empty text reserves the place."""
        other = self.globals if symbols is self.functions else self.functions
        same = symbols.get(name) in (None, "", text)
        assert same and name not in other, f"@{name} has two definitions"
        symbols[name] = text

    def text(self, header: str = "") -> str:
        declared = [d for n, d in self.declarations.items() if n not in self.functions]
        return "\n".join([header, *self.globals.values(), *declared, *self.functions.values(), ""])


class FunctionText:
    """The text of one function. `done()` (or `ret`) finishes it and adds it to the module."""

    def __init__(
        self,
        module: ModuleSymbols,
        name: str,
        params: Sequence[tuple[str, str]],
        ret: str,
        linkage: str,
        attributes: str,
        noalias: bool,
    ):
        module.names.define(name)
        self.module = module
        self.name = name
        self.return_type = ret
        self.params = [V(t.split()[0] if t[0] != "<" else t, f"%{n}") for t, n in params]
        extra = " noalias" if noalias else ""
        passed = module.passed
        ps = ", ".join(f"{passed(t)}{extra if t == 'ptr' else ''} %{n}" for t, n in params)
        self._head = f"define {linkage} {module.returned(ret)} @{name}({ps}) {attributes} {{"
        self._lines: list[str] = []
        self._fields: dict[str, tuple[V, V]] = {}
        self._wide: dict[str, V] = {}
        self._entry: list[str] = []
        """Lines at the head of the entry block, mainly allocas: inside a loop they would grow the stack."""
        self.dims = next((p for p in self.params if p.text == "%dims"), None)
        """Address of the sizes that are known only at the call; set it at the function's entry."""
        self._masks: dict[int, V] = {}
        self._hidden: dict[str, V] = {}
        """Masks that `_all_lanes` has made, by their lanes."""
        self._names = LocalNames(["entry", *(n for _, n in params)])
        self._block = "entry"
        self._finished = False
        self.flushes_bf16 = False
        """Whether bf16 numbers are rounded by an instruction that takes subnormal numbers for zero."""

    def _name(self, hint: str = "v") -> str:
        return f"%{self._names.new(hint)}"

    def emit(self, type: str, text: str) -> V:
        """Appends `%new = text`; the value has `type`."""
        name = self._name()
        self._lines.append(f"  {name} = {text}")
        return V(type, name)

    def line(self, text: str) -> None:
        """Appends an instruction without a result."""
        self._lines.append("  " + text)

    def comment(self, text: str) -> None:
        self._lines.append("  ; " + text)

    def ret(self, value: V | None = None) -> None:
        """Returns and finishes the function."""
        self.line("ret void" if value is None else f"ret {value.type} {value.text}")
        self.done()

    def ret_early(self, value: V | None = None) -> None:
        """Returns from within an `if_`; the rest of the block is unreachable."""
        self.line("ret void" if value is None else f"ret {value.type} {value.text}")
        self.start(self.label("unreachable"))

    def done(self) -> None:
        """Adds the function to the module (its last block must end in a terminator)."""
        assert not self._finished
        self._finished = True
        sizes = size_registers.used([*self._entry, *self._lines])
        if sizes:
            self._define(sizes)
        text = "\n".join([self._head, "entry:", *self._entry, *self._lines, "}"])
        self.module.define_function(self.name, text)

    def _define(self, sizes: list[str]) -> None:
        """Computes sizes at the function's entry, after the definition of `dims`. Raises NotSymbolic without `dims`."""
        if self.dims is None:
            raise NotSymbolic("size-in-routine", f"{sizes[0]} in {self.name}")
        for size in sizes:
            self._names.claim(size)
        found = next((i + 1 for i, line in enumerate(self._entry) if line.startswith(f"  {self.dims.text} =")), 0)
        self._entry[found:found] = size_registers.definitions(sizes, self.dims.text)

    def _coerce(self, a: Index, like: Index = 0) -> V:
        if isinstance(a, V):
            return a
        return const(like.type if isinstance(like, V) else "i64", a)

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Moves the code written inside the `with` (no branches) to the entry of the function. Its values can be used
        anywhere in the function."""
        lines, self._lines = self._lines, self._entry
        yield
        self._lines = lines

    def hidden(self, constant: V, register: str) -> V:
        """A constant that LLVM does not know, in a register of a kind: `r` for integers, `x` for vectors on x86."""
        if constant.text not in self._hidden:
            with self.at_entry():
                self._hidden[constant.text] = self.emit(constant.type, hidden(constant, register))
        return self._hidden[constant.text]

    def label(self, hint: str) -> str:
        return self._names.new(hint)

    def start(self, label: str) -> None:
        """Begins a basic block."""
        self._lines.append(f"{label}:")
        self._block = label

    def branch(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch_if(self, condition: V, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    @property
    def block(self) -> str:
        """Label of the block being written."""
        return self._block

    def position(self) -> int:
        """Returns the position of the next instruction, for `fill_phi`."""
        return len(self._lines)

    def phi(self, type: str, incoming: Sequence[tuple[V, str]]) -> V:
        return self.emit(type, f"phi {type} " + ", ".join(f"[ {v.text}, %{l} ]" for v, l in incoming))

    def call(self, ret: str, name: str, args: Sequence[V], attributes: str = "", declare: bool = True) -> V:
        """Calls a function by name; declares it in the module unless it is (or will be) defined there."""
        if declare and name not in self.module.declarations:
            types = [re.sub(r" align \d+", "", a.type) for a in args]
            self.module.declare(name, ret, types)
        text = f"call {self.module.returned(ret, name)} @{name}({self._arguments(args, name)}){attributes}"
        if ret == "void":
            self.line(text)
            return V("void", "")
        return self.emit(ret, text)

    def _arguments(self, args: Sequence[V], function: str = "") -> str:
        passed = self.module.passed
        return ", ".join(f"{passed(a.type, function)} {a.text}" for a in args)

    def call_pointer(self, ret: str, function: V, args: Sequence[V]) -> V:
        text = f"call {self.module.returned(ret)} {function.text}({self._arguments(args)})"
        if ret == "void":
            self.line(text)
            return V("void", "")
        return self.emit(ret, text)


def hidden(constant: V, register: str) -> str:
    """Text of an instruction whose result is a constant, which LLVM does not see."""
    return f'call {constant.type} asm "", "={register},0"({constant.type} {constant.text}) nounwind memory(none)'
