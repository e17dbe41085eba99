"""Control flow of the random programs: while, if and case, nested, over captured and carried values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from random_writer import Named, Shape, Writer, type_of

DEEPEST = 2


class Control(Writer):
    """`simple` are the writers used inside of conditions, `every` those inside of bodies."""

    simple: Sequence[Any] = ()
    every: Sequence[Any] = ()

    def predicate(self) -> str:
        """A scalar i1 that depends on a value."""
        x, shape, dtype = self.any()
        if shape:
            op = self.pick(["maximum", "add", "minimum"])
            x, _ = self.fold(op, x, shape, dtype, self.rng.permutation(len(shape)).tolist(), 0)
        bound = self.constant((), dtype, self.pick([-2, 0, 1, 5]) + (0.37 if dtype == "f32" else 0))
        return self.compare(self.pick(["LT", "GE"]), x, bound, (), dtype)

    def derived(self, shape: Shape, dtype: str) -> str:
        """A new value of a type from existing ones, of moderate size."""
        t = type_of(shape, dtype)
        if dtype == "i1":
            word, y = self.pick(["and", "or", "xor"]), self.same(shape, dtype) if shape else self.predicate()
            return self.emit(shape, dtype, f"stablehlo.{word} {self.same(shape, dtype)}, {y} : {t}")
        x, y = self.same(shape, dtype), self.same(shape, dtype)
        z = self.emit(shape, dtype, f"stablehlo.{self.pick(['add', 'subtract', 'maximum'])} {x}, {y} : {t}")
        if dtype == "i32":
            return self.emit(shape, dtype, f"stablehlo.and {z}, {self.constant(shape, dtype, 255)} : {t}")
        if self.chance(0.5):
            return self.emit(shape, dtype, f"stablehlo.multiply {z}, {self.constant(shape, dtype, 0.5)} : {t}")
        return self.emit(shape, dtype, f"stablehlo.tanh {z} : {t}")

    def outcome(self, shape: Shape, dtype: str) -> str:
        """A result of a region with a type: an existing or a new value."""
        found = [v[0] for v in self.values if v[1:] == (shape, dtype)]
        if found and self.chance(0.45):
            return self.pick(found[-8:])
        return self.derived(shape, dtype)

    def steps(self, most: int, choices: Sequence[Any]) -> None:
        for _ in range(self.below(0, most + 1)):
            self.step(choices)

    def keep(self, name: str, types: Sequence[tuple[Shape, str]], share: float) -> None:
        """Keeps most results of an op for others to read."""
        for j, (shape, dtype) in enumerate(types):
            if self.chance(share):
                self.values.append((f"{name}#{j}", shape, dtype))

    def loop(self) -> None:
        """A while loop of a few iterations over a counter and one to five values, which may start from the same one."""
        if self.depth >= DEEPEST:
            return
        starts = [self.any() for _ in range(self.below(1, 4))]
        if self.chance(0.3):
            starts.append(starts[0])
        masks = [v for v in self.values if v[2] == "i1" and v[1]]
        if masks and self.chance(0.3):
            starts.append(self.pick(masks))
        flags = [(self.predicate(), (), "i1")] if self.chance(0.4) else []
        k = self.fresh()
        low, step, iterations = self.pick([0, 0, -1, 2]), self.pick([1, 1, 2]), self.below(0, 5)
        first = (self.constant((), "i32", low), (), "i32")
        carried: list[Named] = [first, *starts, *flags]
        states = [(f"{k}_s{j}", shape, dtype) for j, (_, shape, dtype) in enumerate(carried)]
        condition = self.condition(states, bool(flags), low + step * iterations)
        body = self.body(states, step)
        types = ", ".join(type_of(shape, dtype) for _, shape, dtype in carried)
        binds = ", ".join(f"{s[0]} = {c[0]}" for s, c in zip(states, carried, strict=True))
        head = f"{k}:{len(carried)} = stablehlo.while({binds}) : {types}"
        self.lines += [head, "cond {", *condition, "} do {", *body, "}"]
        self.keep(k, [s[1:] for s in states], 0.75)

    def condition(self, states: Sequence[Named], flagged: bool, end: int) -> list[str]:
        with self.region(states) as lines:
            counter = states[0][0]
            around = self.counters and self.chance(0.3)  # as often as an outer loop has iterated
            last = self.pick(self.counters) if around else self.constant((), "i32", end)
            longer = self.chance(0.2)
            go = self.compare("LT" if around or longer or self.chance(0.8) else "NE", counter, last, (), "i32")
            if longer or self.chance(0.5):
                self.values = list(states)
                self.steps(2, self.simple)
                more = states[-1][0] if flagged and self.chance(0.6) else self.predicate()
                if longer:  # than the counter allows, but not forever
                    limit = self.compare("LT", counter, self.constant((), "i32", end + 2), (), "i32")
                    more = self.line(f"stablehlo.and {more}, {limit} : tensor<i1>")
                    go = self.line(f"stablehlo.or {go}, {more} : tensor<i1>")
                else:
                    go = self.line(f"stablehlo.and {go}, {more} : tensor<i1>")
            lines.append(f"stablehlo.return {go} : tensor<i1>")
        return lines

    def body(self, states: Sequence[Named], step: int) -> list[str]:
        with self.region(states) as lines:
            self.counters.append(states[0][0])
            self.steps(4, self.every)
            new = [self.outcome(shape, dtype) for _, shape, dtype in states[1:]]
            more = self.constant((), "i32", step)
            following = self.line(f"stablehlo.add {states[0][0]}, {more} : tensor<i32>")
            types = ", ".join(type_of(shape, dtype) for _, shape, dtype in states)
            lines.append(f"stablehlo.return {', '.join([following, *new])} : {types}")
        return lines

    def branch(self) -> None:
        """An if or a case of one to three branches, with one to three results."""
        if self.depth >= DEEPEST + 1:
            return
        types = [self.any()[1:] for _ in range(self.below(1, 4))]
        if self.chance(0.5):
            op, count, chosen, t = "if", 2, self.predicate(), "i1"
        else:
            op, count, chosen, t = "case", self.below(1, 4), self.index(), "i32"
        k = self.fresh()
        words = ", ".join(type_of(*t) for t in types)
        regions = []
        for _ in range(count):
            with self.region() as lines:
                self.steps(2, self.every)
                results = [self.outcome(*t) for t in types]
                lines.append(f"stablehlo.return {', '.join(results)} : {words}")
            regions.append("{\n" + "\n".join(lines) + "\n}")
        text = f'"stablehlo.{op}"({chosen}) ({", ".join(regions)}) : (tensor<{t}>) -> ({words})'
        self.lines.append(f"{k}:{len(types)} = {text}")
        self.keep(k, types, 0.85)
