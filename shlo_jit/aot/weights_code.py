"""Code by which an instance finds its constants: in the library, in a file that it maps, or in memory of the host.

Memory of the host has the contents of such a file.
"""

from __future__ import annotations

from shlo_jit.aot.image import Image
from shlo_jit.aot.services import OF_ANOTHER_SIZE, Services
from shlo_jit.aot.tables import text_bytes
from shlo_jit.aot.writing import NULL, is_null, leave_if
from shlo_jit.codegen.library_format import WEIGHTS_ALIGNMENT, WEIGHTS_HEADER, WEIGHTS_MAGIC, LibraryStatus
from shlo_jit.kernels.builder import Builder, ModuleText
from shlo_jit.kernels.llvm_values import V, i32, i64

LONGEST_PATH = 4096


def weights_header(image: Image) -> bytes:
    """Header of a file of weights."""
    return WEIGHTS_HEADER.pack(WEIGHTS_MAGIC, image.weights.identity, image.weights.nbytes)


def weights_file_name(library: str) -> str:
    """Name of the file of weights beside a library of that name."""
    return f"{library}.weights"


def weights_symbol(image: Image) -> str:
    """Symbol of the constants in the library."""
    return f"{image.name}.weights"


class WeightsCode:
    """Writes `i32 @NAME.weights.find(ptr path, ptr data, i64 nbytes, ptr found)`.

    The function stores the address of the first constant, and the number of bytes it has mapped, in `found`.
    """

    def __init__(self, module: ModuleText, image: Image, services: Services) -> None:
        self.module = module
        self.image = image
        self.services = services
        self.total = WEIGHTS_HEADER.size + image.weights.nbytes

    def find(self, b: Builder, path: V, data: V, nbytes: V, found: V) -> V:
        """Emits a call of the function and returns its status."""
        return b.call("i32", f"{self.image.name}.weights.find", [path, data, nbytes, found], declare=False)

    def write(self) -> None:
        params = [("ptr", "path"), ("ptr", "data"), ("i64", "nbytes"), ("ptr", "found")]
        b = self.module.function(f"{self.image.name}.weights.find", params, "i32", attributes="nounwind")
        *_, found = b.params
        b.store(i64(0), b.offset(found, 8))
        if not self.image.weights.nbytes:
            b.store(NULL, found)
        elif not self.image.weights_in_file:
            # Load the address from memory: the constants may be further away than an instruction reaches.
            at = f"{weights_symbol(self.image)}.address"
            self.module.define_global(at, f"internal constant ptr @{weights_symbol(self.image)}, align 8")
            b.store(b.emit("ptr", f"load volatile ptr, ptr @{at}"), found)
        else:
            self._write_file(b)
        b.ret(i32(LibraryStatus.OK))

    def _write_file(self, b: Builder) -> None:
        header = weights_header(self.image)
        name = f"{self.image.name}.weights.header"
        self.module.define_global(name, f"private constant [{len(header)} x i8] {text_bytes(header)}, align 8")
        path, data, nbytes, found = b.params
        given, missing, end = b.label("given"), b.label("missing"), b.label("end")
        b.branch_if(is_null(b, data), missing, given)

        b.start(given)
        enough = b.icmp("uge", nbytes, self.total)
        leave_if(b, b.not_(enough), LibraryStatus.WRONG_WEIGHTS)
        aligned = b.and_(b.cast("ptrtoint", data, "i64"), i64(WEIGHTS_ALIGNMENT - 1))
        leave_if(b, b.icmp("ne", aligned, 0), LibraryStatus.BAD_POINTER)
        leave_if(b, b.not_(self._is_ours(b, data)), LibraryStatus.WRONG_WEIGHTS)
        b.store(b.offset(data, WEIGHTS_HEADER.size), found)
        b.branch(end)

        b.start(missing)
        if self.services.has_files:
            self._map(b, path, found)
        else:
            leave_if(b, V("i1", "true"), LibraryStatus.NO_WEIGHTS)
        b.branch(end)
        b.start(end)

    def _map(self, b: Builder, path: V, found: V) -> None:
        place = b.alloca("i8", LONGEST_PATH)
        (path,) = b.if_else(is_null(b, path), lambda: [self._path_beside(b, place)], lambda: [path])
        mapped = self.services.map_file(b, path, i64(self.total))
        leave_if(b, is_null(b, mapped), LibraryStatus.NO_WEIGHTS)
        leave_if(b, b.icmp("eq", mapped, OF_ANOTHER_SIZE), LibraryStatus.WRONG_WEIGHTS)
        with b.if_(b.not_(self._is_ours(b, mapped))):
            self.services.unmap_file(b, mapped, i64(self.total))
            b.ret_early(i32(LibraryStatus.WRONG_WEIGHTS))
        b.store(b.offset(mapped, WEIGHTS_HEADER.size), found)
        b.store(i64(self.total), b.offset(found, 8))

    def _is_ours(self, b: Builder, data: V) -> V:
        header = V("ptr", f"@{self.image.name}.weights.header")
        with b.loop_carry(0, WEIGHTS_HEADER.size // 8, [i64(0)]) as carry:
            pair = (b.load("i64", b.element(p, "i64", carry.index)) for p in (data, header))
            carry.next(b.or_(carry.values[0], b.xor(*pair)))
        return b.icmp("eq", carry.values[0], 0)

    def _path_beside(self, b: Builder, place: V) -> V:
        """Writes the path of the file of weights in the library's folder to `place`.

        It is just the file's name if the library's path is unknown or too long.
        """
        name = weights_file_name(self.image.name).encode() + b"\0"
        file = f"{self.image.name}.weights.file"
        self.module.define_global(file, f"private constant [{len(name)} x i8] {text_bytes(name)}, align 1")
        own = self.services.own_path(b, V("ptr", f"@{self.image.name}.weights.find"))

        def folder() -> list[V]:
            """Copies the path and returns the number of bytes up to its last slash."""
            with b.repeat([i64(0), i64(0)]) as loop:
                index, length = loop.values
                letter = b.load("i8", b.offset(own, index))
                b.store(letter, b.offset(place, index))
                after = b.add(index, 1)
                loop.next(after, b.select(b.icmp("eq", letter, V("i8", "47")), after, length))
                is_more = b.icmp("ne", letter, V("i8", "0"))
                loop.again = b.and_(is_more, b.icmp("slt", after, LONGEST_PATH - len(name)))
            return [b.select(is_more, i64(0), loop.values[1])]

        (length,) = b.if_else(is_null(b, own), lambda: [i64(0)], folder)
        b.memcpy(b.offset(place, length), V("ptr", f"@{file}"), len(name))
        return place
