import t from "tap";
import { newConfig } from "../../src/cli/init/new-config.ts";
import { createExcerpts } from "../../src/config/text/excerpt.ts";

const FIRST = newConfig({
  baseUrl: "https://gateway.example.com/v1",
  tool: "codex",
  key: "keychain:keybearer/codex",
  token: `sha256:${"a".repeat(64)}`,
});

function excerptsOf(text: string) {
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  return createExcerpts(text, starts);
}

t.test("the examples in a new config.yaml are no secrets, so hints may name the same", (t) => {
  const { clean } = excerptsOf(FIRST);
  for (const hint of ["such as 2027-03-31", "such as 60/minute or $60/month", "such as claude-sonnet-4-5"])
    t.equal(clean(hint), hint);
  t.end();
});

t.test("a key stays hidden behind a # and below settings that are switched off", (t) => {
  const key = "Zq81mmPx40TtLw93";
  for (const lines of [
    `    #key: ${key}\n`,
    `    #expires: 2027-03-31\n    #key: ${key}\n`,
    `    #expires: 2027-03-31\n      ${key}\n`,
    `      #note: ${key}\n`,
    `    # ${key}\n`,
  ]) {
    const text = `${FIRST}    token: sha256:${"b".repeat(64)}\n${lines}`;
    const { clean, excerpt } = excerptsOf(text);
    const line = text.slice(0, text.indexOf(key)).split("\n").length;
    t.equal(clean(`about ${key}`), "about [hidden]", lines);
    t.notMatch(excerpt(line, 1), key, lines);
  }
  t.end();
});
