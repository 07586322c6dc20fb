import { randomUUID } from "node:crypto";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** A ULID: 48 bits of time, then 80 random ones. Sorts by time, so that the newest record is the last. */
export function requestId(now: number): string {
  // Node makes UUIDs out of a pool of random bytes, which is far cheaper than to ask for bytes each time. Taken are 20 of
  // its digits that are random throughout: neither the version's nor the variant's.
  const uuid = randomUUID();
  const time = five(Math.floor(now / 2 ** 25)) + five(now % 2 ** 25);
  const random = four((digits(uuid, 5, 1) << 16) | digits(uuid, 9, 4)) + four(digits(uuid, 0, 5));
  return time + random + four(digits(uuid, 24, 5)) + four(digits(uuid, 29, 5));
}

/** 25 bits. */
function five(bits: number): string {
  return CROCKFORD.charAt(bits >>> 20) + four(bits & 0xfffff);
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

const NINE = 0x39;
const ZERO = 0x30;
const LETTER_A = 0x61;

/** So many hexadecimal digits as a number. */
function digits(text: string, from: number, count: number): number {
  let bits = 0;
  for (let at = from; at < from + count; at += 1) {
    const code = text.charCodeAt(at);
    bits = (bits << 4) | (code <= NINE ? code - ZERO : code - LETTER_A + 10);
  }
  return bits;
}
