"""Scopes of value names during parsing: definitions and uses of `%x`.

    operands ::= (`%name` (`,` `%name`)*)?

Values are looked up in one dict per function; at its end, a region removes the names that it defined.
"""

from __future__ import annotations

from shlo_jit.errors import ParseError, Source, diagnose
from shlo_jit.ir.core import Value
from shlo_jit.ir.types import Type
from shlo_jit.text.lexer import Cursor


class ValueCursor(Cursor):
    """A cursor with the values visible at its position."""

    __slots__ = ("defined", "forward", "in_blocks", "scope")

    def __init__(self, source: Source):
        super().__init__(source)
        self.scope: dict[str, Value] = {}
        self.defined: list[str] = []
        """Names of the scope in the order of their definitions."""
        self.forward: dict[str, tuple[Value, int]] = {}
        """Values used before their definition, with the token index of the first use."""
        self.in_blocks = False
        """Whether values may be used before their definition, as in regions with several blocks."""

    # ---- definitions

    def define(self, key: str, value: Value, at: int) -> Value:
        """Binds `key` to `value` until the end of the region. Returns the value that is actually bound: earlier uses
        of the name may already have created one."""
        if key in self.scope or self.forward:
            value = self._define_slowly(key, value, at)
        self.scope[key] = value
        self.defined.append(key)
        return value

    def _define_slowly(self, key: str, value: Value, at: int) -> Value:
        """Rejects a second definition, and completes a value that was used before its definition."""
        if key in self.scope:
            hint = f"give one of the two values another name: {self._unused(key)}"
            self.error(f"redefinition of SSA value '{key}'", at, hint=hint, code="syntax.redefined_value")
        if key not in self.forward:
            return value
        early, used_at = self.forward.pop(key)
        if early.type is not value.type and early.type != value.type:
            self.error(f"'{key}' is used with a type different from its definition", used_at)
        early.owner, early.index = value.owner, value.index
        return early

    # ---- uses

    def operand_names(self, closer: str) -> list[int]:
        """operands ::= (`%name` (`,` `%name`)*)? closer: returns the token indices of the names"""
        tokens = self.tokens
        i = self.i
        found: list[int] = []
        if tokens[i] == closer:
            self.i = i + 1
            return found
        while True:
            if tokens[i][:1] != "%":
                self.i = i
                self.fail("SSA operand" if found else f"'{closer}' or SSA operand")
            found.append(i)
            i += 1
            if tokens[i] == closer:
                self.i = i + 1
                return found
            if tokens[i] != ",":
                self.i = i
                self.fail(f"'{closer}' or ','")
            i += 1

    def operands(self, least: int = 0) -> list[int]:
        """operands ::= (`%name` (`,` `%name`)*)?: returns the token indices. Leaves a comma before anything else."""
        tokens = self.tokens
        i = self.i
        found: list[int] = []
        if tokens[i][:1] == "%":
            found.append(i)
            i += 1
            while tokens[i] == "," and tokens[i + 1][:1] == "%":
                found.append(i + 1)
                i += 2
        self.i = i
        if len(found) < least:
            if not found:
                self.fail("SSA operand")
            self.expect(",")
            self.fail("SSA operand")
        return found

    def operand(self) -> int:
        """Consumes `%name` and returns its token index."""
        if self.tokens[self.i][:1] != "%":
            self.fail("SSA operand")
        self.i += 1
        return self.i - 1

    def resolve(self, keys: list[int], types: tuple[Type, ...] | list[Type]) -> list[Value]:
        """Returns the values named by the tokens `keys`, which must have these types."""
        if len(keys) != len(types):
            at = keys[0] if keys else self.i - 1
            self.error(
                f"number of operands and types do not match: got {len(keys)} operands and {len(types)} types", at
            )
        tokens = self.tokens
        scope = self.scope
        values: list[Value] = []
        for key, type in zip(keys, types, strict=True):
            value = scope.get(tokens[key])
            if value is None:
                value = self._undefined(key, type)
            if value.type is not type and value.type != type:
                self._wrong_type(key, value.type, type)
            values.append(value)
        return values

    def value(self, key: int) -> Value:
        """Returns the value named by the token `key`, of any type."""
        return self.scope.get(self.tokens[key]) or self._undefined(key, None)

    def _undefined(self, key: int, type: Type | None) -> Value:
        """Resolves a name that is not defined so far: `%x#0` for `%x`, a value of a later block, or an error."""
        token = self.tokens[key]
        base, _, number = token.partition("#")
        if number == "0" and base in self.scope and f"{base}#1" not in self.scope:
            return self.scope[base]
        if self.in_blocks and type is not None and not number:
            if token not in self.forward:
                self.forward[token] = (Value(type, None, 0, token[1:]), key)
            return self.forward[token][0]
        if number and base in self.scope:
            self.error(f"'{base}' has no result number {number}", key, code="syntax.undefined_value")
        from shlo_jit.suggest import did_you_mean

        near = did_you_mean(token, self.scope)
        shown = ", ".join([*self.scope][:8]) + (", ..." if len(self.scope) > 8 else "")
        hint = near or (f"values that are defined here: {shown}" if shown else "define it above, in the same function")
        self.error(f"use of undeclared SSA value name '{token}'", key, hint=hint, code="syntax.undefined_value")

    def _unused(self, key: str) -> str:
        """Returns an unused name similar to `key`."""
        numbers = map(str, range(1, len(self.scope) + 2))
        return next(name for n in numbers if (name := f"{key}_{n}") not in self.scope)

    def _wrong_type(self, key: int, has: Type, wanted: Type) -> None:
        from shlo_jit.ir.type_text import type_text

        token = self.tokens[key]
        texts = f"'{type_text(wanted)}' vs '{type_text(has)}'"
        message = f"use of value '{token}' expects different type than prior uses: {texts}"
        from shlo_jit.text.mismatch_hints import definition_of, type_mismatch_hint

        definition = definition_of(self.scope.get(token))
        hint = type_mismatch_hint(token, has, wanted, self.scope.get(token))
        use = diagnose(message, self.span(key), label="syntax", hint=hint, code="syntax.type_mismatch")
        raise ParseError([use] if definition is None else [definition, use])
