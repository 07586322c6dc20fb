import fc from "fast-check";
import t from "tap";
import { hashToken, makeToken, tokenShape } from "../../src/core/token.ts";

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

t.test("a text that does not begin as a token is not one", async (t) => {
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
