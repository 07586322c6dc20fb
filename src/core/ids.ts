import { randomInt } from "node:crypto";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/** Characters of an id that are its time. */
const TIME_LENGTH = 10;
const MAX_TIME = 2 ** 48 - 1;
/** Four characters of five bits each. */
const FOUR = 2 ** 20;

/** A ULID: 48 bits of time, then 80 random ones. Sorts by time, so that the newest record is the last. */
export function requestId(now: number): string {
  const time = five(Math.floor(now / 2 ** 25)) + five(now % 2 ** 25);
  return time + eight(randomInt(FOUR * FOUR)) + eight(randomInt(FOUR * FOUR));
}

/** How an id of this time begins: no id of this time or later is smaller. The id of a record is of when it began. */
export function firstIdAt(time: number): string {
  let rest = Math.min(MAX_TIME, Math.max(0, Math.ceil(time)));
  let text = "";
  for (let digit = 0; digit < TIME_LENGTH; digit += 1) {
    text = CROCKFORD.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

/** When the request with this id began; null: it is not a whole id. */
export function readIdTime(id: string): number | null {
  if (!/^[0-9A-HJKMNP-TV-Z]{26}$/.test(id)) return null;
  let time = 0;
  for (const digit of id.slice(0, TIME_LENGTH)) time = time * 32 + CROCKFORD.indexOf(digit);
  return time;
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
