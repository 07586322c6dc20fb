import fc from "fast-check";
import t from "tap";
import { requestId } from "../../src/core/ids.ts";
import { hashToken, makeToken, tokenShape } from "../../src/identity/token.ts";

t.test("a token is complete, of the promised form, and never the same twice", async (t) => {
  const tokens = Array.from({ length: 200 }, makeToken);
  t.equal(new Set(tokens).size, 200);
  for (const token of tokens) {
    t.match(token, /^kb_[A-Za-z0-9_-]{49}$/);
    t.equal(tokenShape(token), "complete");
  }
});

t.test("every shorter piece of a token is incomplete, from either end", async (t) => {
  const token = makeToken();
  for (let n = 3; n < token.length; n += 1)
    t.equal(tokenShape(token.slice(0, n)), "incomplete", `${n} characters`);
  for (let n = 1; n < token.length - 3; n += 1) t.equal(tokenShape(`kb_${token.slice(3 + n)}`), "incomplete");
  t.equal(tokenShape(`${token}x`), "incomplete");
  t.equal(tokenShape(`${token} `), "incomplete");
  t.equal(tokenShape(token + token), "incomplete");
});

t.test("every single changed character makes a token incomplete", async (t) => {
  const token = makeToken();
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  let wrong = 0;
  for (let at = 3; at < token.length; at += 1) {
    for (const other of alphabet) {
      if (other === token[at]) continue;
      if (tokenShape(token.slice(0, at) + other + token.slice(at + 1)) !== "incomplete") wrong += 1;
    }
  }
  t.equal(wrong, 0, `of ${(token.length - 3) * 63} changes`);
});

t.test("two swapped neighbours make a token incomplete", async (t) => {
  const token = makeToken();
  for (let at = 3; at + 1 < token.length; at += 1) {
    if (token[at] === token[at + 1]) continue;
    const swapped = token.slice(0, at) + token[at + 1] + token[at] + token.slice(at + 2);
    t.equal(tokenShape(swapped), "incomplete");
  }
});

t.test("whatever does not begin as a token is none", async (t) => {
  for (const text of ["", "kb", "KB_", "sk-abc", " kb_x", "Bearer kb_x", "kb-abc"])
    t.equal(tokenShape(text), "other");
  fc.assert(
    fc.property(
      fc.string(),
      (text) => tokenShape(text) === (text.startsWith("kb_") ? "incomplete" : "other"),
    ),
  );
});

t.test("what is kept of a token is its SHA-256", async (t) => {
  t.equal(hashToken("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
});

t.test("a request's id tells when it began, sorts by that, and is random in every other place", async (t) => {
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
});
