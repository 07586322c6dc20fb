const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LATEST = 2 ** 48 - 1;

/** What the ids of all records from this time on are not smaller than: a record's id begins with when it began. */
export function firstIdAt(time: number): string {
  let rest = Math.min(LATEST, Math.max(0, Math.ceil(time)));
  let text = "";
  for (let at = 0; at < 10; at += 1) {
    text = CROCKFORD.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}
