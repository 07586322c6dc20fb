import { randomBytes } from "node:crypto";
import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { echoForms, wholeKeyForms } from "../doubles/secret-scan.ts";

const PREFIXES = ["sk-", "sk-ant-api03-", "sk-proj-", "AIza", "", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."];
const bodies = [randomBytes(32).toString("hex"), randomBytes(36).toString("base64")];

t.test("16 consecutive characters of a key's body are found, plain, in hex and in base64", async (t) => {
  const missed: string[] = [];
  for (const body of bodies) {
    for (const prefix of PREFIXES) {
      const key = new Secret(prefix + body);
      for (let at = 0; at + 16 <= body.length; at += 1) {
        for (const [name, text] of echoForms(body.slice(at, at + 16))) {
          const clean = key.maskIn(`<${text}>`);
          const isFound = key.isIn(text) && key.isIn(Buffer.from(text)) && clean.length === text.length + 2;
          if (!isFound || !/^<[^*]{0,4}\*+[^*]{0,4}>$/.test(clean))
            missed.push(`${name} of the 16 characters at ${at} behind ${prefix}: ${clean}`);
        }
        if (key.isIn(`<${body.slice(at, at + 15)}>`)) missed.push(`15 characters at ${at} are not enough`);
      }
    }
  }
  t.same(missed.slice(0, 10), []);
});

t.test("a part in hex is found by the characters it stands for, however few digits it has", async (t) => {
  const key = new Secret("sk-9f4164faccd1d3c4df02b7e85a6930");
  const hex = Buffer.from("f4164faccd1d3c4d").toString("hex");
  t.equal(new Set(hex).size, 4);
  t.equal(key.maskIn(`<${hex}>`), `<${"*".repeat(hex.length)}>`);
});

t.test("the whole key is found in escapes, and all of it is replaced", async (t) => {
  for (const value of [...bodies.map((body) => `sk-${body}`), "sk-shortest", `sk-"\\/+=%&'${bodies[0]}`]) {
    const key = new Secret(value);
    for (const [name, text] of wholeKeyForms(value)) {
      t.equal(key.redactFrom(`no ${text} here`), "no [redacted] here", name);
      t.equal(key.maskIn(`no ${text} here`), `no ${"*".repeat(text.length)} here`, name);
    }
    t.equal(key.redactFrom(`${value}, ${value}`), "[redacted], [redacted]");
  }
});

t.test("what many keys have in common is not taken for one", async (t) => {
  const key = new Secret(`sk-ant-api03-${"A".repeat(20)}${bodies[0]}`);
  for (const text of [
    "keys begin with sk-ant-api03-",
    Buffer.from("keys begin with sk-ant-api03-").toString("base64"),
    "sk-ant-api03-AAAAAAAAAAAAAAAA",
    "-".repeat(100),
    randomBytes(20_000).toString("base64"),
  ])
    t.equal(key.redactFrom(text), text);
  const jwt = new Secret(`eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.${bodies[0]}`);
  t.notOk(jwt.isIn("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"), "the header of a JWT");
});
