// A field of two substances in a library's memory, and operations on it.
import { load } from "./library.js";

export const SIZE = 256;

export class Reaction {
  constructor(library) {
    const field = () => library.array("f32", [SIZE, SIZE]);
    this.steps = library.functions.steps;
    this.now = { u: field(), v: field() };
    this.next = { u: field(), v: field() };
    this.feed = library.array("f32", []);
    this.kill = library.array("f32", []);
    this.count = library.array("i32", []);
    this.picture = library.array("ui8", [SIZE, SIZE, 4]);
    this.clear();
  }

  clear() {
    this.now.u.view.fill(1);
    this.now.v.view.fill(0);
  }

  // Adds some of the second substance around a point.
  drop(x, y, radius = 4) {
    const u = this.now.u.view, v = this.now.v.view;
    for (let dy = -radius; dy <= radius; dy++)
      for (let dx = -radius; dx <= radius; dx++) {
        if (dx * dx + dy * dy > radius * radius) continue;
        const at = ((y + dy + SIZE) % SIZE) * SIZE + ((x + dx + SIZE) % SIZE);
        u[at] = 0.5;
        v[at] = 0.25;
      }
  }

  // Computes a number of steps, and draws the picture.
  advance(count, feed, kill) {
    this.count.view[0] = count;
    this.feed.view[0] = feed;
    this.kill.view[0] = kill;
    const { now, next } = this;
    this.steps(now.u, now.v, this.feed, this.kill, this.count, next.u, next.v, this.picture);
    [this.now, this.next] = [next, now];
  }
}

// `bytes`: contents of reaction.wasm.
export async function reaction(bytes) {
  return new Reaction(await load(bytes, "reaction"));
}
