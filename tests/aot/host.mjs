// Calls a function of an exported WebAssembly module: node host.mjs MODULE NAME FUNCTION IN... OUT...
// Inputs are read from files as they lie in memory, outputs written likewise. Memory is the caller's.
import fs from "node:fs";

const [, , path, name, number, ...files] = process.argv;
const module = new WebAssembly.Module(fs.readFileSync(path));
const imports = WebAssembly.Module.imports(module);
if (imports.length) throw new Error("the module needs " + imports.map((i) => i.name).join(", "));
const { exports } = new WebAssembly.Instance(module, {});
const { memory } = exports;
let top = exports.__heap_base.value;

function allocate(bytes) {
  const at = (top + 63) & ~63;
  top = at + bytes;
  const missing = Math.ceil((top - memory.buffer.byteLength) / 65536);
  if (missing > 0) memory.grow(missing);
  return at;
}

const view = () => new DataView(memory.buffer);
const library = exports[`${name}_library`]();
const [at, length] = [view().getUint32(library + 16, true), Number(view().getBigUint64(library + 24, true))];
const metadata = JSON.parse(Buffer.from(memory.buffer, at, length).toString());
const { c_name } = metadata.functions[Number(number)];
const functions = view().getUint32(library + 12, true);

// struct shlo_function has 6 fields of 4 bytes, shlo_port 3 pointers, 2 ints and 2 64-bit numbers: 40 bytes.
const own = functions + 24 * Number(number);
const ports = (field, count) =>
  Array.from({ length: view().getUint32(own + count, true) }, (_, i) =>
    Number(view().getBigUint64(view().getUint32(own + field, true) + 40 * i + 24, true)));
const [inputs, outputs] = [ports(12, 4), ports(16, 8)];

const bytes = Number(exports[`${name}_memory_bytes`](1));
const [options, place, work] = [allocate(48), allocate(4), allocate(bytes)];
view().setUint32(options, 40, true);
view().setInt32(options + 4, 1, true);
view().setUint32(options + 24, work, true);
view().setBigUint64(options + 32, BigInt(bytes), true);
let status = exports[`${name}_create`](place, options);
const pointers = [...inputs, ...outputs].map(allocate);
if (!status) {
  inputs.forEach((n, i) => new Uint8Array(memory.buffer, pointers[i], n).set(fs.readFileSync(files[i])));
  status = exports[`${name}_${c_name}`](view().getUint32(place, true), ...pointers);
  outputs.forEach((n, i) => {
    const k = inputs.length + i;
    fs.writeFileSync(files[k], new Uint8Array(memory.buffer, pointers[k], n));
  });
}
console.log(status);
process.exit(status);
