"""Checks of the arguments of `compile` and conversion to `CompileOptions`.

Each function takes an argument as the user gave it. It raises TypeError or ValueError that names the argument, the
expected and the given value.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from shlo_jit.codegen.target import check_runs_here, resolve
from shlo_jit.custom.functions import CustomCode, as_code
from shlo_jit.errors import UsageTypeError, UsageValueError
from shlo_jit.kernels.target import Target
from shlo_jit.options import CompileOptions, GivenMoves, StoredSchedule
from shlo_jit.runtime.cache import default_cache
from shlo_jit.runtime.callbacks import check_name, check_target, registered, registered_code
from shlo_jit.runtime.cpus import thread_count
from shlo_jit.runtime.machine import native
from shlo_jit.runtime.pool import POOL
from shlo_jit.runtime.stored_schedules import STORED
from shlo_jit.suggest import did_you_mean

if TYPE_CHECKING:
    from shlo_jit.aot.export_options import ExportOptions
    from shlo_jit.runtime.given_arrays import GivenArray

MOST_PROCESSES = 256
"""Maximum processes of a grid on one machine, and of each of its dimensions."""


def wrong_kind(message: str, hint: str = "") -> UsageTypeError:
    """Makes the error of an option of the wrong kind."""
    return UsageTypeError(message, code="option.kind", hint=hint)


def wrong_value(message: str, hint: str = "") -> UsageValueError:
    """Makes the error of an option with an invalid value."""
    return UsageValueError(message, code="option.value", hint=hint)


def compile_options(
    entry: object,
    *,
    threads: int | None = None,
    target: object = "native",
    custom_calls: object = None,
    composites: object = None,
    cache: object = True,
    donate: object = (),
    dynamic: object = "specialize",
    fold_scales: object = False,
    round_activations: object = None,
    assume_finite: object = False,
    schedule: object = None,
    reproducible: object = False,
) -> CompileOptions:
    """Options of a compilation on this machine; see `api.compile`."""
    _environment()
    implementations = _calls("custom_calls", custom_calls)
    if composites:
        from shlo_jit.passes.frontend.inline import COMPOSITE

        implementations |= {COMPOSITE + n: f for n, f in _calls("composites", composites).items()}
    code = registered_code(implementations)
    machine = _target(target, flag("cache", cache))
    return CompileOptions(
        entry=_text("entry", entry).removeprefix("@"),
        cache=flag("cache", cache) and all(c.digest for _, c in code),
        donate=_donate(donate),
        dynamic=_dynamic(dynamic),
        fold_scales=flag("fold_scales", fold_scales),
        round_activations=rounded_type(round_activations),
        assume_finite=flag("assume_finite", assume_finite),
        schedule=_schedule(schedule, flag("cache", cache)),
        reproducible=_reproducible(reproducible, (machine,), schedule),
        target=machine,
        threads=thread_count(threads),
        calls=registered(implementations),
        code=code,
        implementations={name: f for name, f in implementations.items() if as_code(f) is None},
    )


def _schedule(given: object, cache: bool = True) -> GivenMoves | StoredSchedule:
    """The moves of steps by their labels, or the word for a stored schedule."""
    if given is None:
        return ()
    if isinstance(given, str):
        for word in STORED:
            if given == word and not cache:
                raise wrong_value(f"schedule: {given!r} is in the object cache, which cache=False does not use")
            if given == word:
                return word
        expected = f"schedule: expected moves by the label of a step, or {' or '.join(map(repr, STORED))}"
        raise wrong_value(f"{expected}, got {given!r}", did_you_mean(given, STORED))
    return given_moves(given)


def given_moves(given: object) -> GivenMoves:
    """The moves of steps by their labels."""
    from shlo_jit.schedule.moves import from_json

    if not isinstance(given, Mapping) or not all(isinstance(label, str) for label in given):
        raise wrong_kind(f"schedule: expected moves by the label of a step, got {given!r}", hint=MOVES_HINT)
    found = []
    for label, moves in sorted(given.items()):
        try:
            found.append((label, from_json(list(moves) if isinstance(moves, tuple) else moves)))
        except ValueError as error:
            raise wrong_value(f"schedule: step {label}: {error}", hint=MOVES_HINT) from None
    return tuple(found)


MOVES_HINT = 'exe.text("moves") prints those of a program'


def constants(given: object, cache: bool = False) -> tuple[GivenArray, ...]:
    """The arrays that are given as constants; see `api.compile`. `cache`: whether the object cache may remember digests
    of files."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        message = f"constants: expected a dictionary of arrays by argument, got {type(given).__name__}"
        raise wrong_kind(message, 'write constants={"w": array}')
    from shlo_jit.runtime.given_arrays import given_arrays

    return given_arrays(given, default_cache() if cache else None)


def grid(num_replicas: object, num_partitions: object, programs: object) -> tuple[int | None, int | None]:
    """Replicas and partitions, if given; see `api.compile`."""
    sizes = [_positive(name, n) for name, n in (("num_replicas", num_replicas), ("num_partitions", num_partitions))]
    if programs is None:
        return sizes[0], sizes[1]
    rows = [*programs] if isinstance(programs, Sequence) and not isinstance(programs, str) else []
    if not rows or not all(isinstance(r, Sequence) and not isinstance(r, str) and r for r in rows):
        raise wrong_kind(f"programs: expected for each replica the entries of its partitions, got {programs!r}")
    for row in rows:
        for name in row:
            _text("programs", name)
    found = len(rows), len(rows[0])
    if any(len(row) != found[1] for row in rows):
        raise wrong_value("programs: every replica must have as many partitions as the first")
    for name, size, n in zip(("num_replicas", "num_partitions"), sizes, found, strict=True):
        if size not in (None, n):
            raise wrong_value(f"{name}: {size}, but programs has {n}")
    return found


def _positive(name: str, given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int):
        raise wrong_kind(f"{name}: expected a positive integer, got {given!r}")
    if not 1 <= given <= MOST_PROCESSES:
        raise wrong_value(f"{name}: expected 1 to {MOST_PROCESSES}, got {given}")
    return given


TRANSPORTS = ("processes", "threads", "mpi")


def transport(given: object) -> str:
    """Checks how processes run and communicate."""
    name = "transport"
    if given is None:
        name = "SHLO_JIT_TRANSPORT"
        given = os.environ.get(name, "").strip() or "processes"
    return _word(name, given, TRANSPORTS)


def time_out(given: object) -> float:
    """Checks a time limit in seconds."""
    return _seconds("time_out", given)


def search_seconds(given: object) -> float:
    """Checks the duration of a search in seconds."""
    return _seconds("seconds", given)


def _seconds(option: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise wrong_kind(f"{option}: expected a number of seconds, got {given!r}")
    if not 0 < given < 1e9:
        raise wrong_value(f"{option}: expected a positive number of seconds, got {given!r}")
    return float(given)


def _target(given: object, cache: bool) -> Target:
    if cache and given == "native":
        return native()
    target = resolve(_text("target", given))
    check_runs_here(target)
    return target


def _dynamic(given: object) -> str:
    return _word("dynamic", given, ("specialize", "symbolic"))


def _reproducible(given: object, targets: Sequence[Target], schedule: object) -> bool:
    """Checks whether results must be reproducible, which targets without multiply-adds and given schedules exclude."""
    if not flag("reproducible", given):
        return False
    for target in targets:
        if not target.has_fma:
            message = f"reproducible: target {target.name!r} has no fused multiply-adds, which its bits require"
            raise wrong_value(message, "choose x86-64-v3 or later, aarch64 or riscv64")
    if schedule is not None:
        message = "reproducible: a given schedule may add up in another order"
        raise wrong_value(message, "give either reproducible=True or a schedule")
    return True


def rounded_type(given: object) -> Literal["int8"] | None:
    """Checks the type to which activations are rounded."""
    if given in (None, "int8"):
        return "int8" if given is not None else None
    expected = "round_activations: expected None or 'int8'"
    if isinstance(given, str):
        raise wrong_value(f"{expected}, got {given!r}", did_you_mean(given, ("int8",)))
    raise wrong_kind(f"{expected}, got {given!r}")


def _word(option: str, given: object, known: Sequence[str]) -> str:
    """Checks that an option is one of some words."""
    text = _text(option, given)
    if text not in known:
        words = f"{', '.join(known[:-1])} or {known[-1]}"
        raise wrong_value(f"{option}: expected {words}, got {given!r}", did_you_mean(text, known))
    return text


def flag(option: str, given: object) -> bool:
    """Checks an option that is True or False."""
    if not isinstance(given, bool):
        raise wrong_kind(f"{option}: expected True or False, got {given!r}")
    return given


def _calls(option: str, given: object) -> dict[str, Callable[..., Any]]:
    """Returns a copy of implementations by name, so that later changes of the user's dictionary have no effect."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        message = f"{option}: expected a dictionary of names and callables, got {type(given).__name__}"
        raise wrong_kind(message, f'write {option}={{"name": function}}')
    what = option.removesuffix("s").replace("_", " ")
    for name, function in given.items():
        check_name(what, name)
        check_target(what, name, function)
    return dict(given)


def _donate(given: object) -> tuple[int, ...] | Literal["program"]:
    """Returns indices in ascending order; `options.check_donated` compares them with the program's arguments later."""
    if given == "program":
        return "program"
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        hint = f"write donate=[{given}]" if isinstance(given, int) and not isinstance(given, bool) else ""
        raise wrong_kind(f"donate: expected a sequence of argument indices, or 'program', got {given!r}", hint)
    indices = []
    for item in given:
        try:
            if isinstance(item, bool):
                raise TypeError
            indices.append(operator.index(item))
        except TypeError:
            raise wrong_kind(f"donate: expected argument indices, got {item!r}") from None
    twice = sorted({i for i in indices if indices.count(i) > 1})
    if twice:
        raise wrong_value(f"donate: argument {twice[0]} is given twice")
    return tuple(sorted(indices))


def _environment() -> None:
    """Raises ValueError for an invalid variable that is otherwise read too late: when memory is released."""
    assert POOL.limit >= 0


def _text(option: str, given: object) -> str:
    if not isinstance(given, str):
        raise wrong_kind(f"{option}: expected a string, got {given!r}")
    return given


def load_options(threads: int | None, custom_calls: object, weights: object) -> dict[str, Any]:
    """The keywords of `runtime.library.load_library`; see `api.load`."""
    _environment()
    return {
        "threads": thread_count(threads),
        "custom_calls": _calls("custom_calls", custom_calls),
        "weights": None if weights is None else str(_path("weights", weights)),
        "cache": default_cache(),
    }


def export_options(
    path: object,
    header: object,
    target: object,
    name: object,
    entry: object,
    weights: object,
    threads: object,
    custom_calls: tuple[object, object],
    donate: object,
    linker: object,
    shapes: object,
    fold_scales: object,
    round_activations: object,
    assume_finite: object,
    schedule: object,
    constants: object = None,
    reproducible: object = False,
) -> ExportOptions:
    """Options of an export; see `api.export`. `custom_calls`: custom calls and composites."""
    from shlo_jit.aot.c_names import c_prefix
    from shlo_jit.aot.export_options import ExportOptions

    library = _path("path", path)
    targets = _targets(target)
    is_reproducible = _reproducible(reproducible, targets, schedule)
    targets = tuple(replace(t, reproducible=is_reproducible) for t in targets)
    entries = _entries(entry)
    if weights not in ("embedded", "file"):
        meant = did_you_mean(str(weights), ("embedded", "file"))
        raise wrong_value(f"weights: expected 'embedded' or 'file', got {weights!r}", meant)
    if name is None:
        name = c_prefix(library.name.partition(".")[0].removeprefix("lib"))
    elif not isinstance(name, str) or c_prefix(name) != name:
        raise wrong_value(f"name: expected an identifier of C (and not 'shlo'), got {name!r}")
    calls, code = _exported_calls(*custom_calls)
    return ExportOptions(
        library,
        None if header is None else _path("header", header),
        name,
        entries,
        targets,
        weights == "file",
        flag("threads", threads),
        "" if linker is None else _text("linker", linker),
        _shapes(shapes, entries),
        CompileOptions(
            targets[0],
            donate=_donate(donate),
            calls=calls,
            code=code,
            has_lapack=True,
            fold_scales=flag("fold_scales", fold_scales),
            round_activations=rounded_type(round_activations),
            assume_finite=flag("assume_finite", assume_finite),
            schedule=_exported_schedule(schedule, entries),
            reproducible=is_reproducible,
        ),
        _exported_constants(constants, entries),
    )


def _exported_constants(given: object, entries: tuple[str, ...]) -> dict[str, tuple[GivenArray, ...]]:
    """The arrays for arguments of each function: `constants` itself, or its values by function if there are several."""
    if given is None:
        return {}
    if len(entries) == 1:
        return {entries[0]: constants(given)}
    if not isinstance(given, Mapping) or not all(isinstance(of, Mapping) for of in given.values()):
        message = "constants: several functions are exported: expected a dictionary of constants by function"
        raise wrong_kind(message, 'write constants={"f": {"w": array}}')
    found = {}
    for name, of in given.items():
        entry = _text("constants", name).removeprefix("@")
        if entry not in entries:
            known = ", ".join("@" + e for e in entries)
            raise wrong_value(f"constants: @{entry} is not exported; expected one of {known}")
        found[entry] = constants(of)
    return found


def _exported_schedule(given: object, entries: tuple[str, ...]) -> GivenMoves:
    """The moves of an export, whose labels are those of its only function."""
    if given is None:
        return ()
    if isinstance(given, str):
        hint = "give the moves: shlo_jit.tune returns them as `.schedule`, and `shlo-jit tune --save` writes them"
        raise wrong_value(f"schedule: a stored schedule is for this machine, not for a library; got {given!r}", hint)
    if len(entries) != 1:
        raise wrong_value("schedule: several functions are exported; export each with its own schedule")
    return given_moves(given)


def _exported_calls(
    custom_calls: object, composites: object
) -> tuple[frozenset[str], tuple[tuple[str, CustomCode], ...]]:
    """Names of custom calls that have implementations, and those whose implementation is code."""
    if not isinstance(custom_calls, Iterable) or isinstance(custom_calls, str | bytes):
        raise wrong_kind(f"custom_calls: expected names, or a dictionary of names and code, got {custom_calls!r}")
    given = dict(custom_calls) if isinstance(custom_calls, Mapping) else dict.fromkeys(custom_calls)
    for name, target in given.items():
        check_name("custom call", name)
        if target is not None and as_code(target) is None:
            raise wrong_kind(f"custom call {name!r}: expected code that a library can contain, or None, got {target!r}")
    if composites:
        from shlo_jit.passes.frontend.inline import COMPOSITE

        given |= {COMPOSITE + name: target for name, target in _calls("composites", composites).items()}
    found = {name: code for name, code in registered_code() if name not in given}
    found |= {name: code for name, target in given.items() if (code := as_code(target)) is not None}
    return frozenset((*given, *found)), tuple(sorted(found.items()))


def _shapes(given: object, entries: tuple[str, ...]) -> dict[str, list[Any]]:
    """Calls by function."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(entries) != 1:
            raise wrong_value("shapes: several functions are exported: expected a dictionary of calls by function")
        given = {entries[0]: given}
    found: dict[str, list[Any]] = {}
    for name, calls in given.items():
        entry = _text("shapes", name).removeprefix("@")
        if entry not in entries:
            raise wrong_value(
                f"shapes: @{entry} is not exported; expected one of {', '.join('@' + e for e in entries)}"
            )
        if not isinstance(calls, Sequence) or isinstance(calls, str | bytes) or not calls:
            raise wrong_kind(f"shapes: expected a list of calls, each the shapes of all arguments, got {calls!r}")
        found[entry] = list(calls)
    return found


def _path(option: str, given: object) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise wrong_kind(f"{option}: expected a path, got {given!r}")
    return Path(os.fsdecode(given))


def _targets(given: object) -> tuple[Target, ...]:
    """Checks targets of one architecture and system."""
    names = [name.strip() for name in _text("target", given).split(",")]
    targets = tuple(map(resolve, names))
    for other in targets[1:]:
        if (other.arch, other.system) != (targets[0].arch, targets[0].system):
            what = f"{targets[0].name!r} and {other.name!r}"
            raise wrong_value(f"target: {what} are for different machines: export a library for each")
    if len({t.instructions for t in targets}) < len(targets):
        raise wrong_value(f"target: {given!r} names one target twice")
    if len(targets) > 1 and targets[0].arch == "wasm32":
        raise wrong_value("target: WebAssembly cannot test for features: export a library for each")
    return targets


def _entries(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Iterable):
        raise wrong_kind(f"entry: expected a function's name, or several, got {given!r}")
    entries = tuple(_text("entry", entry).removeprefix("@") for entry in given)
    if not entries or len(set(entries)) < len(entries):
        raise wrong_value(f"entry: expected different functions, got {entries!r}")
    return entries
