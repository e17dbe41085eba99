"""Random products with numbers of two or four bits that are fields of integers: any dimension may number the fields, in
any order, along the terms or the outputs, with scales and minimums along any of the dimensions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import cached_property

import ml_dtypes
import numpy as np
from random_operands import tensor

FIELD = -1
"""The dimension that numbers the fields; the others are numbered from 0."""
WORDS = {"ui8": np.uint8, "i8": np.int8, "ui16": np.uint16, "ui32": np.uint32, "i32": np.int32}
SCALES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MOST_WEIGHTS = 300_000


@dataclass
class FieldsProgram:
    """A product of `x` (rows, terms) with weights (outputs, terms) unpacked from `words`."""

    seed: int
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        while not self._draw():
            pass

    @cached_property
    def _choice(self) -> random.Random:
        return random.Random(self.seed)

    @cached_property
    def _numbers(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    # ------------------------------------------------------------------ what is drawn
    def _draw(self) -> bool:
        """Draws the dimensions; returns whether their sizes suit."""
        c = self._choice
        self.bits, self.word = c.choice((2, 4)), c.choice(("ui8", "ui8", "i8", "ui16", "ui32", "i32"))
        self.fields = 8 * np.dtype(WORDS[self.word]).itemsize // self.bits
        outputs = [c.choice((1, 2, 3, 5, 16, 24, 40)) for _ in range(c.choice((1, 1, 2)))]
        terms = [c.choice((2, 3, 4, 16, 32, 48, 64)) for _ in range(c.choice((1, 2, 2, 3)))]
        extents = [*outputs, *terms]
        self.extents = {**dict(enumerate(extents)), FIELD: self.fields}
        numbers_outputs = c.random() < 0.3
        first, last = (0, len(outputs)) if numbers_outputs else (len(outputs), len(extents))
        self.order = list(range(len(extents)))
        self.order.insert(c.randint(first, last), FIELD)
        self.outputs = len(outputs) + numbers_outputs
        self.shape = (math.prod(self._sizes(self.order[: self.outputs])), math.prod(self._sizes(self.order[self.outputs :])))
        self.order_of_words = list(range(len(extents)))
        if c.random() < 0.5:
            c.shuffle(self.order_of_words)
        elif c.random() < 0.5:
            self.order_of_words = [*range(len(outputs), len(extents)), *range(len(outputs))]
        self.place = c.randint(0, len(extents))
        """The position of the dimension of the fields among those of the words, while they are unpacked."""
        self.positions = self._positions()
        self.concatenates = c.random() < 0.5 and self.fields <= 8
        self.rows = c.choice((1, 1, 2, 3, 4, 5, 8, 9, 20))
        self.scaled = [d for d in self.order if c.random() < 0.6]
        self.shifted = [d for d in self.order if c.random() < 0.4] if c.random() < 0.4 else None
        self.scale_type = c.choice(tuple(SCALES))
        self.transposes, self.adds = c.random() < 0.5, c.random() < 0.3
        return math.prod(self.shape) <= MOST_WEIGHTS and self.shape[1] >= 16

    def _positions(self) -> list[int]:
        """The number of the field of a word at each position of the dimension of the fields."""
        numbers = list(range(self.fields))
        match self._choice.choice(("same", "same", "reversed", "halves", "any")):
            case "reversed":
                numbers.reverse()
            case "halves":
                numbers = [*numbers[::2], *numbers[1::2]]
            case "any":
                self._choice.shuffle(numbers)
        return numbers

    def _sizes(self, dims: list[int]) -> tuple[int, ...]:
        return tuple(self.extents[d] for d in dims)

    # ------------------------------------------------------------------ the arrays, and what they give
    @cached_property
    def arguments(self) -> list[np.ndarray]:
        """The activations, the words, the scales and perhaps the minimums."""
        r, word = self._numbers, WORDS[self.word]
        ends = np.iinfo(word)
        x = r.integers(-4, 5, (self.rows, self.shape[1])).astype(np.float32)
        words = r.integers(ends.min, ends.max, self._sizes(self.order_of_words), word, endpoint=True)
        scales = (2.0 ** r.integers(-2, 3, self._sizes(self.scaled))).astype(SCALES[self.scale_type])
        if self.shifted is None:
            return [x, words, scales]
        return [x, words, scales, r.integers(-3, 4, self._sizes(self.shifted)).astype(SCALES[self.scale_type])]

    @cached_property
    def weights(self) -> np.ndarray:
        """The unpacked weights (outputs, terms) in f64."""
        words = self.arguments[1]
        plain = words.view(f"u{words.itemsize}").astype(np.uint64)
        parts = [plain >> np.uint64(p * self.bits) & np.uint64((1 << self.bits) - 1) for p in self.positions]
        values = np.stack(parts, self.place).transpose(self._to_order(self._unpacked)).astype(np.float64)
        values *= self._spread(self.arguments[2], self.scaled)
        if self.shifted is not None:
            values = values + self._spread(self.arguments[3], self.shifted)
        return values.reshape(self.shape)

    def _spread(self, array: np.ndarray, dims: list[int]) -> np.ndarray:
        """`array`, whose dimensions are `dims`, with extents of 1 for the others."""
        return array.astype(np.float64).reshape([self.extents[d] if d in dims else 1 for d in self.order])

    @property
    def _unpacked(self) -> list[int]:
        """The dimensions of the unpacked fields, before they are brought into their order."""
        return [*self.order_of_words[: self.place], FIELD, *self.order_of_words[self.place :]]

    def _to_order(self, dims: list[int]) -> list[int]:
        return [dims.index(d) for d in self.order]

    def expected(self) -> np.ndarray:
        return self.arguments[0].astype(np.float64) @ self.weights.T + self.adds

    def bound(self, rounds_activations: bool) -> np.ndarray:
        """The largest error of the elements (rows, outputs)."""
        x, weights = np.abs(self.arguments[0]).astype(np.float64), np.abs(self.weights)
        if not rounds_activations:
            return 1e-6 * (x @ weights.T) + 1e-6
        return 0.02 * x.max() * weights.sum(1)[None] + 1e-6

    # ------------------------------------------------------------------ the program
    @cached_property
    def text(self) -> str:
        types = [tensor(a.shape, n) for a, n in zip(self.arguments, ("f32", self.word, *2 * (self.scale_type,)), strict=False)]
        parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
        result = tensor((self.rows, self.shape[0]), "f32")
        weights = self._weights()
        if self.transposes:
            there, back = tensor(self.shape, "f32"), tensor(self.shape[::-1], "f32")
            weights = self._op(f"transpose {weights}, dims = [1, 0] : ({there}) -> {back}")
            dims, of = "[1] x [0]", back
        else:
            dims, of = "[1] x [1]", tensor(self.shape, "f32")
        y = self._op(f"dot_general %a0, {weights}, contracting_dims = {dims} : ({types[0]}, {of}) -> {result}")
        if self.adds:
            y = self._op(f"add {y}, {self._op(f'constant dense<1.0> : {result}')} : {result}")
        body = "\n  ".join(self.lines)
        return f"func.func @main({parameters}) -> {result} {{\n  {body}\n  return {y} : {result}\n}}"

    def _op(self, text: str) -> str:
        self.lines.append(f"%v{len(self.lines)} = stablehlo.{text}")
        return f"%v{len(self.lines) - 1}"

    def _weights(self) -> str:
        fields = self._concatenated() if self.concatenates else self._shifted_words()
        unpacked, full = self._sizes(self._unpacked), self._sizes(self.order)
        types = f"({tensor(unpacked, self.word)}) -> {tensor(full, self.word)}"
        x = self._op(f"transpose {fields}, dims = {self._to_order(self._unpacked)} : {types}")
        x = self._op(f"convert {x} : ({tensor(full, self.word)}) -> {tensor(full, 'f32')}")
        x = self._op(f"multiply {x}, {self._broadcast('%a2', self.scaled)} : {tensor(full, 'f32')}")
        if self.shifted is not None:
            x = self._op(f"add {x}, {self._broadcast('%a3', self.shifted)} : {tensor(full, 'f32')}")
        return self._op(f"reshape {x} : ({tensor(full, 'f32')}) -> {tensor(self.shape, 'f32')}")

    def _broadcast(self, x: str, dims: list[int]) -> str:
        small, full = self._sizes(dims), tensor(self._sizes(self.order), "f32")
        if self.scale_type != "f32":
            x = self._op(f"convert {x} : ({tensor(small, self.scale_type)}) -> {tensor(small, 'f32')}")
        at = [self.order.index(d) for d in dims]
        return self._op(f"broadcast_in_dim {x}, dims = {at} : ({tensor(small, 'f32')}) -> {full}")

    def _shifted_words(self) -> str:
        """The fields as words that are shifted by a constant array."""
        small, wide = self._sizes(self.order_of_words), self._sizes(self._unpacked)
        t, steps = tensor(wide, self.word), tensor((self.fields,), self.word)
        others = [d for d in range(len(wide)) if d != self.place]
        x = self._op(f"broadcast_in_dim %a1, dims = {others} : ({tensor(small, self.word)}) -> {t}")
        c = self._op(f"constant dense<{[p * self.bits for p in self.positions]}> : {steps}")
        s = self._op(f"broadcast_in_dim {c}, dims = [{self.place}] : ({steps}) -> {t}")
        return self._masked(self._op(f"shift_right_logical {x}, {s} : {t}"), t)

    def _concatenated(self) -> str:
        """The fields one by one, concatenated."""
        small, wide = self._sizes(self.order_of_words), self._sizes(self._unpacked)
        one = tensor((*small[: self.place], 1, *small[self.place :]), self.word)
        t, parts = tensor(small, self.word), []
        for p in self.positions:
            s = self._op(f"constant dense<{p * self.bits}> : {t}")
            part = self._masked(self._op(f"shift_right_logical %a1, {s} : {t}"), t)
            parts.append(self._op(f"reshape {part} : ({t}) -> {one}"))
        types = f"({', '.join([one] * len(parts))}) -> {tensor(wide, self.word)}"
        return self._op(f"concatenate {', '.join(parts)}, dim = {self.place} : {types}")

    def _masked(self, x: str, type: str) -> str:
        return self._op(f"and {x}, {self._op(f'constant dense<{(1 << self.bits) - 1}> : {type}')} : {type}")
