import { randomUUID } from "node:crypto";

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** A ULID: 48 bits of time, then 80 random ones. Sorts by time, so that the newest record is the last. */
export function requestId(now: number): string {
  let time = "";
  let rest = now;
  for (let i = 0; i < 10; i += 1) {
    time = CROCKFORD.charAt(rest % 32) + time;
    rest = Math.floor(rest / 32);
  }
  // Node makes UUIDs out of a pool of random bytes, which is far cheaper than to ask for bytes each time. Taken are 20 of
  // its digits that are random throughout: neither the version's nor the variant's.
  const uuid = randomUUID();
  return time + characters(uuid.slice(0, 8) + uuid.slice(9, 11)) + characters(uuid.slice(24, 34));
}

/** Ten hexadecimal digits, 40 bits, as eight characters. */
function characters(digits: string): string {
  let text = "";
  for (let rest = Number.parseInt(digits, 16), i = 0; i < 8; i += 1) {
    text += CROCKFORD.charAt(rest % 32);
    rest = Math.floor(rest / 32);
  }
  return text;
}
