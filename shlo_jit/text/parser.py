"""Parser of text into a `Module`: recursive descent over the tokens, one method per production.

    text        ::= (alias | resources | op)*                    ops outside a module are wrapped in one
    alias       ::= `#name` `=` attribute | `!name` `=` type
    op          ::= (results `=`)? (generic | pretty) location?
    results     ::= `%name` (`:` count)? (`,` ...)*
    generic     ::= string `(` operands `)` successors? properties? regions? dictionary? `:` function-type
    properties  ::= `<` dictionary `>`
    regions     ::= `(` region (`,` region)* `)`
    region      ::= `{` block* `}`
    block       ::= (`^name` (`(` arguments `)`)? `:`)? op*

Pretty forms are in the tables of `pretty.py`, names of values in `value_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shlo_jit.deep import NESTING_LIMIT, deeply
from shlo_jit.errors import ParseError, Source, Span, check_text, decode_text, diagnose
from shlo_jit.ir.attributes import Dense, OpaqueAttr, parts_of_attribute
from shlo_jit.ir.collector import paused_collector
from shlo_jit.ir.core import Block, Module, Op, Region
from shlo_jit.ir.types import MAX_PARTS, FunctionType, TensorType, Type, parts_of
from shlo_jit.text import attributes as attribute_syntax
from shlo_jit.text import pretty_func
from shlo_jit.text import types as type_syntax
from shlo_jit.text.lexer import SyntaxRefusal, unescape
from shlo_jit.text.literals import Cut, CutSource, cut_string
from shlo_jit.text.pretty import ISOLATED, PRETTY
from shlo_jit.text.resources import parse_resources
from shlo_jit.text.syntax import Argument, parse_argument
from shlo_jit.text.value_names import ValueCursor

Handler = Callable[["Parser", str], Op]


@deeply
@paused_collector()
def parse_module(text: str | bytes, name: str = "<text>", cuts: Sequence[Cut] | None = None) -> Module:
    """Returns the program in `text`. `cuts` are the literals that were already cut out of it.

    Raises ParseError with file, line, column and what was expected.
    """
    if cuts is None:
        text, cuts = cut_string(check_text(text, name) if isinstance(text, str) else decode_text(text, name))
    source = CutSource(str(text), name, cuts) if cuts else Source(str(text), name)
    try:
        return Parser(source).module()
    except SyntaxRefusal as refusal:
        from shlo_jit.text.explain import diagnosed

        raise ParseError([diagnosed(source, refusal), *refusal.context]) from None


def attribute_of_text(text: str) -> Any:
    """Returns the attribute that makes up the whole text. Raises ParseError."""
    source = Source(text, "<attribute>")
    p = Parser(source)
    try:
        found = p.attribute()
        if p.peek():
            p.fail("the end of the attribute")
    except SyntaxRefusal as refusal:
        raise ParseError(diagnose(refusal.message, Span(source, refusal.start, refusal.end), label="syntax")) from None
    return found


class Parser(ValueCursor):
    """A cursor with all names visible at its position: values, types, attributes, locations, resources."""

    __slots__ = (
        "alias_parts", "attribute_aliases", "known_types", "locations", "open_regions", "resources", "type_aliases",
        "unread",
    )  # fmt: skip

    def __init__(self, source: Source):
        super().__init__(source)
        self.attribute_aliases: dict[str, Any] = {}
        self.alias_parts: dict[int, int] = {}
        """Number of nodes in the trees of aliased attributes, by id."""
        self.type_aliases: dict[str, Type] = {}
        self.known_types: dict[str, Type] = {}
        self.locations: dict[str, str] = {}
        self.resources: dict[str, bytes] = {}
        self.unread: list[Dense] = []
        self.open_regions = 0
        """Nesting depth of regions at the cursor."""

    # ---- the whole text

    def module(self) -> Module:
        """text ::= (alias | resources | op)*"""
        ops: list[Op] = []
        while token := self.tokens[self.i]:
            if token[0] in "#!" and self.tokens[self.i + 1] == "=":
                self._alias(token)
            elif token == "{-#":
                parse_resources(self)
            else:
                ops.append(self.op())
        for value in self.unread:
            _ = value.array  # the resources have been read now, so an invalid one is detected here
        if len(ops) == 1 and ops[0].name == "builtin.module":
            top = ops[0]
        else:
            top = Op("builtin.module", [], [], {}, [Region([Block([], ops)])], self.source, 0, 0)
        return Module(top, self.source, self.locations, scoped=True)

    def _alias(self, token: str) -> None:
        """alias ::= `#name` `=` attribute | `!name` `=` type"""
        at = self.i
        name = token[1:]
        self.i += 2
        if "." in name:
            self.error("the name of an alias must not contain dots", at)
        if name in self.attribute_aliases or name in self.locations or name in self.type_aliases:
            self.error(f"alias '{token}' is defined twice", at)
        if token[0] == "!":
            self.type_aliases[name] = type = self.type()
            self._check_parts(token, parts_of(type), at)
        elif self.at_location():
            self.locations[name] = self.location().text
        else:
            self.attribute_aliases[name] = value = attribute_syntax.parse_attribute(self)
            self.alias_parts[id(value)] = count = parts_of_attribute(value, self.alias_parts)
            self._check_parts(token, count, at)

    def _check_parts(self, token: str, count: int, at: int) -> None:
        """Rejects an alias that is too large when it is written out."""
        if count > MAX_PARTS:
            self.error(f"alias '{token}' has {count:,} parts when written out, at most {MAX_PARTS:,} are allowed", at)

    # ---- operations

    def op(self) -> Op:
        """op ::= (results `=`)? (generic | pretty) location?"""
        tokens = self.tokens
        at = self.i
        token = tokens[at]
        names: list[tuple[str, int, int]] | None = None
        single = False
        if token[:1] == "%":
            if tokens[at + 1] == "=":
                single = True
                self.i = at + 2
            else:
                names = self._results()
        start = self.i
        name = tokens[start]
        handler = PRETTY.get(name)
        if handler is not None:
            self.i = start + 1
            op = handler(self, name)
        elif name[:1] == '"':
            op = self._generic()
        else:
            op = self._unknown(name)
        op.source = self.source
        op.start = self.starts[start]
        last = self.i - 1
        op.end = self.starts[last] + len(tokens[last])
        if tokens[self.i][:3] == "loc" and self.at_location():
            op.location = self.location()
        if single and len(op.results) == 1 and "#" not in token:
            scope = self.scope
            value = op.results[0]
            if token in scope or self.forward:
                value = op.results[0] = self._define_slowly(token, value, at)
            value.name = token[1:]
            scope[token] = value
            self.defined.append(token)
        elif single or names is not None:
            self._bind(op, [(token, 1, at)] if names is None else names, start)
        return op

    def _results(self) -> list[tuple[str, int, int]]:
        """results ::= `%name` (`:` count)? (`,` ...)* `=`: names with their counts and token indices"""
        names: list[tuple[str, int, int]] = []
        while True:
            at = self.i
            token = self.tokens[at]
            if token[:1] != "%":
                self.fail("the name of a result")
            self.i += 1
            count = 1
            if self.accept(":"):
                count = self.integer()
                if count < 1:
                    self.error("the number of results has to be at least 1", self.i - 1)
            names.append((token, count, at))
            if self.accept("="):
                return names
            if not self.accept(","):
                self.fail("',', ':' or '=' after the name of a result")

    def _bind(self, op: Op, names: list[tuple[str, int, int]], at: int) -> None:
        """Assigns names to the results of `op`."""
        total = sum(count for _, count, _ in names)
        if total != len(op.results):
            self.error(f"operation defines {len(op.results)} results but was provided {total} to bind", names[0][2])
        index = 0
        for token, count, name_at in names:
            if "#" in token:
                self.error(f"'{token}' is not a valid name for a result", name_at)
            for n in range(count):
                keys = [f"{token}#{n}", token] if n == 0 and count > 1 else [token if count == 1 else f"{token}#{n}"]
                for key in keys:
                    op.results[index] = self.define(key, op.results[index], name_at)
                    op.results[index].name = token[1:]
                index += 1

    def _generic(self) -> Op:
        """generic ::= string `(` operands `)` successors? properties? regions? dictionary? `:` function-type"""
        at = self.i
        name = attribute_syntax.parse_string(self)
        if "." not in name or name.strip() != name:
            self.error(f'"{name[:60]}" is not the name of an operation', at)
        self.expect("(")
        keys = self.operand_names(")")
        successors = self.successors() if self.tokens[self.i] == "[" else None
        attributes: dict[str, Any] = {}
        if self.accept("<"):
            attributes = attribute_syntax.parse_dictionary(self)
            self.expect(">")
        regions = self.regions(name) if self.tokens[self.i] == "(" else []
        if self.tokens[self.i] == "{":
            dictionary_at = self.i
            for key, value in attribute_syntax.parse_dictionary(self).items():
                if key in attributes:
                    self.error(f"attribute '{key}' is given twice", dictionary_at)
                attributes[key] = value
        self.expect(":")
        type = type_syntax.parse_function_type(self, self.type_aliases, self.known_types)
        operands = self.resolve(keys, type.inputs)
        if successors:
            attributes["successors"] = successors
        if name == "func.func":
            pretty_func.drop_empty_dictionaries(attributes)
        if name == "builtin.module" and (len(regions) != 1 or len(regions[0].blocks) != 1):
            self.error("a module must have one region with one block", at)
        return Op(name, operands, type.results, attributes, regions)

    def successors(self) -> tuple[OpaqueAttr, ...]:
        """successors ::= `[` `^name` (`,` `^name`)* `]`"""
        self.expect("[")
        blocks: list[OpaqueAttr] = []
        while True:
            if self.peek()[:1] != "^":
                self.fail("the name of a block")
            blocks.append(OpaqueAttr(self.next()))
            if self.accept("]"):
                return tuple(blocks)
            if not self.accept(","):
                self.fail("']' or ','")

    def _unknown(self, name: str) -> Op:
        """Handles a word that is not a known operation: reports the error or tries the form of unknown dialects."""
        if not (name[:1].isalpha() or name[:1] == "_"):
            self.fail("operation name in quotes or an operation")
        if "." not in name:
            self.fail("operation name in quotes or an operation")
        handler = PRETTY[""]
        self.i += 1
        return handler(self, name)

    # ---- regions

    def regions(self, name: str) -> list[Region]:
        """regions ::= `(` region (`,` region)* `)`"""
        self.expect("(")
        isolated = name in ISOLATED
        regions = [self.region(isolated=isolated)]
        while self.accept(","):
            regions.append(self.region(isolated=isolated))
        if not self.accept(")"):
            self.fail("')' or ','")
        return regions

    def region(self, arguments: list[Argument] | None = None, isolated: bool = False) -> Region:
        """region ::= `{` block* `}`. `arguments` are those of the first block if the op's syntax names them."""
        first = self.i
        self.expect("{")
        self.open_regions += 1
        if self.open_regions > NESTING_LIMIT:
            self.error(f"nested too deeply (more than {NESTING_LIMIT} regions)", first)
        outer = (self.scope, self.defined, self.forward, self.in_blocks)
        if isolated:
            self.scope = {}
        self.defined, self.forward, self.in_blocks = [], {}, False
        region = Region()
        if arguments is not None:
            for argument in arguments:
                self.define(argument.key, argument.value, argument.at)
        labels: dict[str, int] = {}
        if arguments is not None or self.tokens[self.i][:1] not in "^}":
            region.blocks.append(self._block(_first_block(arguments or []), first))
        while self.tokens[self.i][:1] == "^":
            # any block except the first may use values that a later block defines
            self.in_blocks = bool(region.blocks)
            region.blocks.append(self._labelled_block(labels, first))
        self.expect("}")
        if self.forward:
            token, (_, at) = next(iter(self.forward.items()))
            self.error(f"use of undeclared SSA value name '{token}'", at)
        scope = self.scope
        for key in self.defined:
            del scope[key]
        self.scope, self.defined, self.forward, self.in_blocks = outer
        self.open_regions -= 1
        return region

    def _labelled_block(self, labels: dict[str, int], first: int) -> Block:
        """block ::= `^name` (`(` arguments `)`)? `:` op*"""
        label = self.tokens[self.i]
        if label in labels:
            self.error(f"block '{label}' is defined twice")
        labels[label] = self.i
        self.i += 1
        arguments: list[Argument] = []
        if self.accept("("):
            while not self.accept(")"):
                arguments.append(parse_argument(self))
                self.define(*arguments[-1][:3])
                if not self.accept(",") and self.tokens[self.i] != ")":
                    self.fail("')' or ','")
        self.expect(":")
        return self._block(_first_block(arguments, label[1:]), first)

    def _block(self, block: Block, first: int) -> Block:
        """op* up to the next block or the end of the region"""
        tokens = self.tokens
        ops = block.ops
        parse = self.op
        while True:
            token = tokens[self.i]
            if token == "}" or token[:1] == "^":
                return block
            if not token:
                self.fail(f"'}}' or an operation (the region at line {self._line(first)} is not closed)")
            ops.append(parse())

    def _line(self, at: int) -> int:
        return self.source.line_column(self.starts[at])[0]

    # ---- building blocks of the pretty forms

    def type(self) -> Type:
        """type"""
        found = self.known_types.get(self.tokens[self.i])
        if found is not None:
            self.i += 1
            return found
        return type_syntax.parse_type(self, self.type_aliases, self.known_types)

    def function_type(self) -> FunctionType:
        """function-type"""
        return type_syntax.parse_function_type(self, self.type_aliases, self.known_types)

    def result_types(self) -> list[Type]:
        """results ::= type | `(` types `)`"""
        return type_syntax.result_types(self, self.type_aliases, self.known_types)

    def type_list(self, first: Type | None = None) -> list[Type]:
        """types ::= type (`,` type)*"""
        types = [self.type() if first is None else first]
        while self.accept(","):
            types.append(self.type())
        return types

    def tensor_type(self) -> TensorType:
        at = self.i
        type = self.type()
        if not isinstance(type, TensorType):
            self.error("expected a tensor type", at)
        return type

    def dictionary(self) -> dict[str, Any]:
        """dictionary? as an op's attributes"""
        return attribute_syntax.parse_dictionary(self) if self.tokens[self.i] == "{" else {}

    def attribute(self) -> Any:
        return attribute_syntax.parse_attribute(self)

    def ints(self) -> tuple[int, ...]:
        return attribute_syntax.parse_ints(self)

    def word(self) -> str:
        """A bare word."""
        token = self.tokens[self.i]
        if not token[:1].isalpha() or not token.isidentifier():
            self.fail("a word")
        self.i += 1
        return token

    def symbol_name(self) -> str:
        """symbol ::= `@name` | `@"name"`"""
        token = self.tokens[self.i]
        if token[:1] != "@" or len(token) < 2:
            self.fail("valid '@'-identifier for symbol name")
        self.i += 1
        return unescape(token[1:]) if token[1] == '"' else token[1:]

    def at_location(self) -> bool:
        """Whether a location is next."""
        token = self.tokens[self.i]
        return token == "loc" or token[:4] == "loc("

    def location(self) -> OpaqueAttr:
        """location ::= `loc(` ... `)`, kept as text"""
        token = self.tokens[self.i]
        if token != "loc":
            if not token.startswith("loc("):
                self.fail("a location")
            self.i += 1
            return OpaqueAttr(" ".join(token.split()) if "\n" in token else token)
        first = self.i
        self.i += 1
        if self.tokens[self.i] != "(":
            self.fail("'('")
        self.skip_brackets()
        return OpaqueAttr(self.text_since(first))


def _first_block(arguments: list[Argument], label: str = "") -> Block:
    """Returns an empty block with these arguments."""
    locations = tuple(argument.location for argument in arguments)
    values = [argument.value for argument in arguments]
    return Block(values, label=label, locations=locations if any(locations) else ())
