"""Links objects to an image: laid out at an address, with every reference resolved.

Code and constants come first. Data that programs write to follow on a separate page, then very large sections. Each
external symbol gets an entry: a stub that jumps to the symbol, followed by its address. The entry serves calls whose
target is out of reach, and references through a table of addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shlo_jit.codegen.elf import ABSOLUTE, ObjectFile, Section
from shlo_jit.codegen.relocations import CALL_REACH, RELOCATIONS, STUBS

PAGE = 1 << 16
"""The largest page of any supported system."""
FAR_BYTES = 1 << 30
"""Sections of at least this size come last; otherwise they would separate sections that must reach each other."""
ENTRY = 16
"""Bytes of a stub and its address."""

Symbol = tuple[int, int]
"""Number of an object and of a symbol in it."""


class Layout(NamedTuple):
    """Layout of the image, as offsets."""

    sections: dict[tuple[int, int], int]
    """Offsets by number of the object and of the section."""
    entries: dict[Symbol, int]
    fixed_bytes: int
    """Bytes of code and constants; a multiple of PAGE if data follow."""
    size: int


class Linker:
    """Links objects for one machine. Raises ValueError for objects that do not fit together."""

    def __init__(self, objects: Sequence[ObjectFile]) -> None:
        self.objects = objects
        machines = {o.machine for o in objects}
        if len(machines) != 1 or not machines <= set(RELOCATIONS):
            raise ValueError(f"objects for unknown or different machines {sorted(machines)}")
        (self.machine,) = machines
        self.kinds = RELOCATIONS[self.machine]
        self.defined = self._definitions()
        self.layout = self._lay_out()

    def _definitions(self) -> dict[str, Symbol]:
        """Global symbols by name."""
        found: dict[str, Symbol] = {}
        for number, o in enumerate(self.objects):
            for symbol in np.flatnonzero((o.symbols["section"] != 0) & (o.symbols["info"] >> 4 != 0)).tolist():
                if found.setdefault(o.names[symbol], (number, symbol)) != (number, symbol) and not o.is_weak(symbol):
                    raise ValueError(f"symbol {o.names[symbol]} is defined twice")
        return found

    def _lay_out(self) -> Layout:
        places: dict[tuple[int, int], int] = {}
        entries: dict[Symbol, int] = {}
        end = self._place(lambda s: not s.writable and s.size < FAR_BYTES, 0, places)
        end = _aligned(end, ENTRY)
        for symbol in self._wanted():
            entries[symbol] = end
            end += ENTRY
        fixed = end
        if any(s.writable or s.size >= FAR_BYTES for o in self.objects for s in o.sections.values()):
            fixed = _aligned(end, PAGE)
            end = self._place(lambda s: s.writable and s.size < FAR_BYTES, fixed, places)
            end = self._place(lambda s: s.size >= FAR_BYTES, end, places)
        return Layout(places, entries, fixed, end)

    def _place(self, belongs: Callable[[Section], bool], end: int, places: dict[tuple[int, int], int]) -> int:
        """Places the sections of one kind, starting at `end`. Returns the end of the last one."""
        for number, o in enumerate(self.objects):
            for at, section in o.sections.items():
                if belongs(section):
                    places[number, at] = end = _aligned(end, section.alignment)
                    end += section.size
        return end

    def _wanted(self) -> list[Symbol]:
        """Symbols that need an entry: undefined ones, and those that are looked up in a table of addresses."""
        wanted: dict[Symbol, None] = {}
        for number, o in enumerate(self.objects):
            undefined = np.flatnonzero(o.symbols["section"] == 0).tolist()[1:]  # the first symbol is null
            wanted.update(((number, symbol), None) for symbol in undefined)
            for section in o.sections.values():
                rows = section.relocations
                for type in {t for t in set(rows["type"].tolist()) if t in self.kinds and self.kinds[t].slot}:
                    wanted.update(((number, s), None) for s in rows["symbol"][rows["type"] == type].tolist())
        return list(wanted)

    def symbol_offset(self, name: str) -> int | None:
        """Offset of a global symbol in the image; None if the objects do not define it."""
        if name not in self.defined:
            return None
        number, symbol = self.defined[name]
        row = self.objects[number].symbols[symbol]
        place = self.layout.sections.get((number, int(row["section"])))
        return None if place is None else place + int(row["value"])

    def unwind_tables(self) -> list[int]:
        """Offsets of the unwind tables; few objects have one."""
        places = self.layout.sections.items()
        return [at for (number, section), at in places if self.objects[number].sections[section].is_unwind_table]

    def functions(self) -> Iterator[tuple[str, int, int]]:
        """Yields name, offset in the image and size of every function."""
        for number, o in enumerate(self.objects):
            for name, section, value, size in o.functions():
                if (number, section) in self.layout.sections:
                    yield name, self.layout.sections[number, section] + value, size

    def write(self, image: np.ndarray, base: int, find: Callable[[str], int | None]) -> None:
        """Fills the image (zeroed bytes, which will be at address `base`). `find` returns the addresses of external
        symbols. Raises LookupError for an undefined symbol, OverflowError for one that is too far."""
        for number, o in enumerate(self.objects):
            for at, section in o.sections.items():
                start = self.layout.sections[number, at]
                image[start : start + len(section.data)] = np.frombuffer(section.data, np.uint8)
        for number, o in enumerate(self.objects):
            addresses, slots = self._addresses(image, base, number, o, find)
            for at, section in o.sections.items():
                if len(section.relocations):
                    start = self.layout.sections[number, at]
                    self._relocate(image, base, start, section.relocations, addresses, slots)

    def _addresses(
        self, image: np.ndarray, base: int, number: int, o: ObjectFile, find: Callable[[str], int | None]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for every symbol of an object, its address and that of its entry (0 if it has none); writes the
        entries."""
        addresses, slots = np.zeros(len(o.names), np.int64), np.zeros(len(o.names), np.int64)
        for symbol, (section, value) in enumerate(
            zip(o.symbols["section"].tolist(), o.symbols["value"].tolist(), strict=True)
        ):
            if (number, section) in self.layout.sections:
                addresses[symbol] = base + self.layout.sections[number, section] + value
            elif section == ABSOLUTE:
                addresses[symbol] = value
        stub = np.frombuffer(STUBS[self.machine], np.uint8)
        for (owner, symbol), at in self.layout.entries.items():
            if owner != number:
                continue
            if o.symbols["section"][symbol] == 0:
                addresses[symbol] = self._elsewhere(o, symbol, base, find)
            image[at : at + 8] = stub
            image[at + 8 : at + 16] = addresses[symbol : symbol + 1].view(np.uint8)
            slots[symbol] = base + at
        return addresses, slots

    def _elsewhere(self, o: ObjectFile, symbol: int, base: int, find: Callable[[str], int | None]) -> int:
        """Address of an undefined symbol: defined in another object, or found outside."""
        name = o.names[symbol]
        offset = self.symbol_offset(name)
        address = base + offset if offset is not None else find(name)
        if address is None and not o.is_weak(symbol):
            raise LookupError(f"nothing defines {name}")
        return address or 0

    def _relocate(
        self, image: np.ndarray, base: int, start: int, rows: np.ndarray, addresses: np.ndarray, slots: np.ndarray
    ) -> None:
        """Applies the relocations of the section that begins at offset `start`."""
        for type in set(rows["type"].tolist()):
            if type not in self.kinds:
                raise ValueError(f"unknown relocation type {type}")
            kind = self.kinds[type]
            group = rows[rows["type"] == type]
            symbols, addends = group["symbol"], group["addend"]
            at = start + group["offset"].astype(np.int64)
            places, targets = base + at, addresses[symbols]
            if kind.is_call:
                far = (np.abs(targets - places) >= CALL_REACH[self.machine] - PAGE) & (slots[symbols] != 0)
                targets = np.where(far, slots[symbols], targets)
            bytes_of = at[:, None] + np.arange(np.dtype(kind.word).itemsize)
            if (bytes_of >= len(image)).any():
                raise ValueError("an ELF relocation points nowhere")
            word = image[bytes_of].view(kind.word).astype(np.int64)[:, 0]
            word = kind.formula(targets + addends, places, slots[symbols] + 8 + addends, word)
            image[bytes_of] = word.astype(kind.word)[:, None].view(np.uint8)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
