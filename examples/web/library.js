// Loads a library that shlo_jit has exported as WebAssembly, in a browser or in Node:
//
//     const library = await load(bytes, "reaction");
//     const x = library.array("f32", [256, 256]);
//     x.view.fill(1);
//     library.functions.steps(x, ...);         // inputs, then outputs
//
// The list of functions is read from the library. Memory only grows; arrays live as long as the library.

const ARRAYS = {
  i1: Uint8Array, i8: Int8Array, ui8: Uint8Array, i16: Int16Array, ui16: Uint16Array, i32: Int32Array,
  ui32: Uint32Array, i64: BigInt64Array, ui64: BigUint64Array, f32: Float32Array, f64: Float64Array,
};
const ALIGNMENT = 64;
const PAGE = 65536;
const OPTIONS_BYTES = 40; // size of shlo_options, with pointers of 4 bytes

// An array in the library's memory.
class LibraryArray {
  constructor(library, type, shape) {
    this.library = library;
    this.type = type;
    this.shape = shape;
    this.length = shape.reduce((a, b) => a * b, 1);
    this.address = library.allocate(this.length * ARRAYS[type].BYTES_PER_ELEMENT);
  }

  // Its elements. Read this again after every allocation, which may move the memory.
  get view() {
    return new ARRAYS[this.type](this.library.exports.memory.buffer, this.address, this.length);
  }
}

class Library {
  constructor(exports, name) {
    this.exports = exports;
    this.name = name;
    this.end = exports.__heap_base.value;
    this.metadata = this.readMetadata();
    this.instance = this.create();
    this.functions = {};
    for (const f of this.metadata.functions) this.functions[f.name] = (...arrays) => this.call(f, arrays);
  }

  array(type, shape) {
    return new LibraryArray(this, type, shape);
  }

  // Allocates zeroed memory.
  allocate(bytes) {
    const address = Math.ceil(this.end / ALIGNMENT) * ALIGNMENT;
    this.end = address + bytes;
    const memory = this.exports.memory;
    const missing = this.end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
    return address;
  }

  symbol(name) {
    return this.exports[`${this.name}_${name}`];
  }

  // NAME_library() returns a record: at byte 16, the address of its JSON description, and its length.
  readMetadata() {
    const record = this.symbol("library")();
    const numbers = new Uint32Array(this.exports.memory.buffer, record, 7);
    return JSON.parse(this.text(numbers[4], numbers[6]));
  }

  text(address, bytes) {
    const all = new Uint8Array(this.exports.memory.buffer, address);
    return new TextDecoder().decode(all.slice(0, bytes ?? all.indexOf(0)));
  }

  check(status) {
    if (status !== 0) throw new Error(`${this.name}: ${this.text(this.symbol("status_text")(status))}`);
  }

  // There is no system to allocate memory: the instance uses ours.
  create() {
    const bytes = Number(this.symbol("memory_bytes")(1));
    const memory = this.allocate(bytes);
    const options = this.allocate(OPTIONS_BYTES);
    const created = this.allocate(4);
    const view = new DataView(this.exports.memory.buffer);
    view.setUint32(options, OPTIONS_BYTES, true);
    view.setUint32(options + 24, memory, true);
    view.setUint32(options + 32, bytes, true);
    this.check(this.symbol("create")(created, options));
    return new Uint32Array(this.exports.memory.buffer, created, 1)[0];
  }

  call(f, arrays) {
    const ports = [...f.inputs, ...f.outputs];
    if (arrays.length !== ports.length) throw new TypeError(`${f.name}: ${ports.length} arrays are wanted`);
    ports.forEach(([name, shape, type], i) => {
      const is = `${arrays[i].type}[${arrays[i].shape}]`;
      if (is !== `${type}[${shape}]`) throw new TypeError(`${f.name}, array ${i} ${name}: ${type}[${shape}], not ${is}`);
    });
    this.check(this.symbol(f.c_name)(this.instance, ...arrays.map((array) => array.address)));
  }
}

export async function load(bytes, name, imports = {}) {
  const { instance } = await WebAssembly.instantiate(bytes, imports);
  return new Library(instance.exports, name);
}
