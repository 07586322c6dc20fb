// Random numbers that are the same for the same seed.
/** Numbers from 0 up to, and without, 1: the same ones for the same seed (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** The same as whole numbers from 0 up to, and without, `below`. */
export function random(seed: number): (below: number) => number {
  const next = createRandom(seed);
  return (below) => Math.floor(next() * below);
}
