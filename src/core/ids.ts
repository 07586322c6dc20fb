import { randomInt } from "node:crypto";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/** Four characters of five bits each. */
const FOUR = 2 ** 20;

/** A ULID: 48 bits of time, then 80 random ones. Sorts by time, so that the newest record is the last. */
export function requestId(now: number): string {
  const time = five(Math.floor(now / 2 ** 25)) + five(now % 2 ** 25);
  return time + eight(randomInt(FOUR * FOUR)) + eight(randomInt(FOUR * FOUR));
}

/** 40 bits. */
function eight(bits: number): string {
  return four(Math.floor(bits / FOUR)) + four(bits % FOUR);
}

/** 25 bits. */
function five(bits: number): string {
  return CROCKFORD.charAt(bits >>> 20) + four(bits % FOUR);
}

/** 20 bits. */
function four(bits: number): string {
  return String.fromCharCode(
    CROCKFORD.charCodeAt(bits >>> 15),
    CROCKFORD.charCodeAt((bits >>> 10) & 31),
    CROCKFORD.charCodeAt((bits >>> 5) & 31),
    CROCKFORD.charCodeAt(bits & 31),
  );
}
