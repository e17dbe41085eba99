"""Arrays that a caller gives as constants of a program: when they are copied, and what identifies them.

An array in memory that nobody changes is used in place: a mapped file that is not writable, an array whose owner is
read-only, an array of JAX. Any other array is copied, so that later changes have no effect. Files in use must not be
changed in place; a compilation notices that a file has changed since its bytes were last read.
"""

from __future__ import annotations

import errno
import mmap
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shlo_jit import tuning
from shlo_jit.errors import UsageTypeError
from shlo_jit.forking import thread_pool
from shlo_jit.ir import aligned, digests
from shlo_jit.ir.dtypes import by_numpy
from shlo_jit.runtime.cache import ObjectCache
from shlo_jit.runtime.constants import GivenBytes, bring, forget
from shlo_jit.runtime.cpus import usable_cpus
from shlo_jit.runtime.dlpack import foreign_array
from shlo_jit.runtime.mapped_files import FileStatus, RememberedDigests, base, file_status, is_mapped, views

Key = int | str
"""An argument by its index or by a name."""


@dataclass(frozen=True)
class GivenArray:
    """A value for an argument that becomes a constant."""

    key: Key
    value: Any
    """An array in memory that nobody changes, or a Python number. Anything else is refused when it is compared with the
    argument."""
    digest: str = ""
    """SHA-256 of the array's bytes, or of its only element if it is a splat; empty for other values."""
    bytes: GivenBytes | None = None
    """The bytes of a large array, which programs read in place. They stay registered as long as this exists."""
    file: FileStatus | None = None
    """The file that the array is mapped from, before its bytes were read."""
    is_remembered: bool = False
    """Whether the digest is that of an earlier process, and the bytes have not been read."""

    @property
    def identity(self) -> str:
        """Identifies key and value, in every process."""
        if not self.digest:  # other values than numbers are refused, so nothing is stored for them
            value = repr(self.value) if isinstance(self.value, bool | int | float | complex) else ""
            return f"{self.key!r} {type(self.value).__name__} {value}"
        return f"{self.key!r} {self.value.dtype} {self.value.shape} {self.digest}"


def given_arrays(constants: Mapping[Key, Any], cache: ObjectCache | None = None) -> tuple[GivenArray, ...]:
    """Returns the values in an order that does not depend on that of the mapping. Raises TypeError for keys of the
    wrong kind, for masked elements, and for objects of other libraries that cannot be converted to arrays.

    `cache`: the object cache, which remembers digests of files that `mapped_arrays` has mapped.
    """
    rows = sorted(((_key(key), value) for key, value in constants.items()), key=lambda row: (str(row[0]), repr(row[0])))
    values = [(key, _settled(key, value)) for key, value in rows]
    files = [file_status(value) if isinstance(value, np.ndarray) else None for _, value in values]
    hashed = [*_digests([value for _, value in values if _has_digest(value)], RememberedDigests(cache))]
    made = []
    for (key, value), file in zip(values, files, strict=True):
        if not _has_digest(value):
            made.append(GivenArray(key, value))
            continue
        data, digest, is_remembered = hashed.pop(0)
        large = GivenBytes(data, digest) if data.nbytes >= tuning.SHARED_CONSTANT_BYTES else None
        made.append(GivenArray(key, value, digest, large, file, is_remembered))
    bring(given.bytes for given in made if given.bytes is not None)
    return tuple(made)


def _key(key: object) -> Key:
    if isinstance(key, str):
        return key
    try:
        if isinstance(key, bool):
            raise TypeError
        return operator.index(key)  # type: ignore[arg-type]
    except TypeError:
        message = f"constants: expected an argument's index or name as the key, got {key!r}"
        raise UsageTypeError(message, code="option.kind") from None


# ---------------------------------------------------------------------- copies
def _settled(key: Key, value: Any) -> Any:
    """Returns an array that does not change: the given one if possible, otherwise a copy. Numbers, and values that no
    argument can have, are returned unchanged."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        if masked.is_masked(value):
            message = f"constants: {key!r}: expected an array, got a masked array with masked elements"
            raise UsageTypeError(message, code="argument.kind", hint="use its .filled(value)")
        value = value.data
    if isinstance(value, bool | int | float | complex):
        return value
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif _is_jax(value):
        array = _JaxMemory.array(np.asarray(value))
    else:
        try:
            found = foreign_array(value)
        except TypeError as error:
            raise UsageTypeError(f"constants: {key!r}: {error}", code="argument.kind") from error
        if found is None:
            return value
        array = found
    if array.dtype.newbyteorder("=") not in by_numpy() and not is_raw(array.dtype):
        return array
    return _in_place(array)


def is_raw(dtype: np.dtype) -> bool:
    """Whether elements are bytes without a type, as `numpy.save` writes those of bf16 and other small types."""
    return dtype.kind == "V" and dtype.names is None and dtype.subdtype is None and dtype not in by_numpy()


def _in_place(array: np.ndarray) -> np.ndarray:
    """Returns the array itself if programs can read it where it is, otherwise a sealed copy."""
    dtype = array.dtype.newbyteorder("=")
    if array.size > 1 and not any(array.strides):
        element = array[(slice(0, 1),) * array.ndim].astype(dtype)
        return np.broadcast_to(digests.sealed(_normal(element).reshape(())), array.shape)
    flags = array.flags
    is_aligned = flags.aligned and not (is_raw(dtype) and array.__array_interface__["data"][0] % dtype.itemsize)
    if flags.c_contiguous and is_aligned and array.dtype == dtype and _is_constant(array):
        return _normal(array)
    copy = aligned.empty(array.nbytes).view(dtype).reshape(array.shape)
    copy[...] = array
    return digests.sealed(_normal(copy))


def _normal(array: np.ndarray) -> np.ndarray:
    """Returns booleans with the bytes 0 and 1, which are all that programs expect."""
    if array.dtype != np.bool_ or not array.size or array.view(np.uint8).max(initial=0) <= 1:
        return array
    return digests.sealed(array.view(np.uint8) != 0)


class _JaxMemory:
    """Array interface of a JAX array's memory, which nobody changes, and which it keeps."""

    def __init__(self, bytes_of: np.ndarray) -> None:
        self._kept = bytes_of
        self.__array_interface__ = {**bytes_of.__array_interface__, "version": 3}

    @classmethod
    def array(cls, view: np.ndarray) -> np.ndarray:
        """Returns an array that is recognized as constant. JAX's views are not, if they come by DLPack (bf16, f8)."""
        if _is_constant(view) or view.flags.writeable or not view.flags.c_contiguous:
            return view
        data = np.asarray(cls(view.reshape(-1).view(np.uint8)))
        return data.view(view.dtype).reshape(view.shape)


def _is_jax(value: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def _is_constant(array: np.ndarray) -> bool:
    """Whether nobody writes to the memory of an array: it belongs to read-only arrays, bytes, or a mapped file."""
    if any(view.flags.writeable for view in views(array)):
        return False
    owner = base(array)
    if isinstance(owner, memoryview):
        return owner.readonly and (isinstance(owner.obj, bytes | mmap.mmap) or _is_jax(owner.obj))
    if isinstance(owner, mmap.mmap):
        with memoryview(owner) as view:
            return view.readonly
    return owner is None or isinstance(owner, bytes | _JaxMemory)


# ---------------------------------------------------------------------- digests
def _has_digest(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.flags.writeable:
        return False
    return value.dtype in by_numpy() or is_raw(value.dtype)


def _digests(arrays: Iterable[np.ndarray], remembered: RememberedDigests) -> Iterator[tuple[np.ndarray, str, bool]]:
    """Yields the bytes of each array, or of the element of a splat, their digest, and whether it was remembered."""
    parts = [array if array.flags.c_contiguous else array[(slice(0, 1),) * array.ndim] for array in arrays]
    data = [part.reshape(-1).view(np.uint8) for part in parts]
    known = [remembered.find(part) if digests.known_digest(part) is None else None for part in data]
    unknown = [part for part, digest in zip(data, known, strict=True) if digest is None]
    found = iter(_computed(unknown))
    for part, digest in zip(data, known, strict=True):
        if digest is None:
            computed = next(found)
            remembered.add(part, computed)
            yield part, computed, False
        else:
            digests.note(part, digest, file_status(part))
            yield part, digest, True
    remembered.store()


def _computed(data: Sequence[np.ndarray]) -> list[str]:
    """Returns digests, computed in several threads if that takes long: hashing does not hold the GIL."""
    threads = min(usable_cpus(), len(data))
    if threads < 2 or sum(part.nbytes for part in data) < tuning.THREADED_BYTES:
        return [digest_of(part) for part in data]
    with thread_pool(threads, "shlo_jit digests") as executor:
        return [*executor.map(digest_of, data)]


def digest_of(data: np.ndarray) -> str:
    """Returns the digest of an array's bytes, which is computed once. Bytes of a file are read again if the file may
    have changed."""
    if not is_mapped(data):
        return digests.digest(data)
    status, known = file_status(data), digests.known_digest(data)
    if status is not None and known is not None and known[1] == status:
        return known[0]
    return _read_digest(data)


def _read_digest(data: np.ndarray) -> str:
    """Reads mapped bytes and returns their digest."""
    status, known = file_status(data), digests.known_digest(data)
    found = digests.content_digest(data)
    if known is not None and known[0] != found:
        forget(known[0])
    is_settled = status is not None and status.is_settled and status == file_status(data)
    digests.note(data, found, status if is_settled else None)
    return found


def check_remembered(given: Iterable[GivenArray], cache: ObjectCache | None) -> None:
    """Reads the arrays whose digests were remembered. Raises OSError if they have other bytes: then the file was
    changed without a change of its times."""
    for array in given:
        if array.is_remembered and array.bytes is not None and _read_digest(array.bytes.data) != array.digest:
            RememberedDigests(cache).forget(array.bytes.data)
            path = None if array.file is None else array.file.path
            raise OSError(
                errno.ESTALE, "the file of a constant has changed, and its time of modification has not", path
            )
