import t from "tap";
import { requestId } from "../../src/core/ids.ts";

t.test(
  "a request's id contains its start time, sorts by it, and is random in every other place",
  async (t) => {
    const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    const timeOf = (id: string) =>
      [...id.slice(0, 10)].reduce((time, character) => time * 32 + CROCKFORD.indexOf(character), 0);
    const times = [0, 1, 31, 32, 2 ** 25 - 1, 2 ** 25, Date.parse("2026-11-15T12:00:00.123Z"), 2 ** 48 - 1];
    const ids = times.map(requestId);
    t.strictSame(ids.map(timeOf), times);
    t.strictSame(ids.toSorted(), ids);
    const many = Array.from({ length: 2000 }, () => requestId(0));
    t.equal(new Set(many).size, 2000);
    for (let place = 10; place < 26; place += 1)
      t.equal(new Set(many.map((id) => id.charAt(place))).size, 32, `place ${place}`);
  },
);
