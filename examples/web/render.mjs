// The same without a browser: node render.mjs reaction.ppm [STEPS]
import { readFile, writeFile } from "node:fs/promises";
import { reaction, SIZE } from "./reaction.js";

const [path, steps = "3000"] = process.argv.slice(2);
const fail = (why) => { console.error(why); process.exit(1); };
if (!path || !(Number(steps) > 0)) fail("usage: node render.mjs PICTURE.ppm [STEPS]");
const wasm = await readFile(new URL("reaction.wasm", import.meta.url)).catch(() => fail("no reaction.wasm: run make"));
const field = await reaction(wasm);
for (let i = 0; i < 20; i++) field.drop((i * 97 + 40) % SIZE, (i * 61 + 90) % SIZE, 3 + (i % 4));
const start = performance.now();
field.advance(Number(steps), 0.0545, 0.062);
console.log(`${((performance.now() - start) / Number(steps)).toFixed(3)} ms a step`);
const colours = field.picture.view.filter((_, i) => i % 4 !== 3);
await writeFile(path, Buffer.concat([Buffer.from(`P6 ${SIZE} ${SIZE} 255\n`), Buffer.from(colours)]));
