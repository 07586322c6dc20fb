import t from "tap";
import { parseConfig } from "../../src/config/parse.ts";

const GOOD = `gateways:
  main:
    base_url: https://gateway.example.com/v1
    groups:
      coding: { multiplier: 1.5, models: ["claude-*"] }
tools:
  codex:
    group: coding
    key: env:CODEX_KEY
    limits:
      requests: 60/minute
      spend: [$5/day, $60/month]
  zed: {}
usage: { keep: 400d }
`;

/** What is changed, into what, where the caret is, and what the message or the hint says. */
const MISTAKES: readonly (readonly [from: string, to: string, place: string, words: RegExp])[] = [
  ["    key:", "      key:", "9:7", /indented deeper than the setting above it/],
  ["    key:", "   key:", "9:4", /begin in the same column/],
  ["    group: coding", "\tgroup: coding", "8:1", /indent with spaces/],
  ["    group: coding", "  \tgroup: coding", "8:3", /indent with spaces/],
  ["  codex:\n", "  codex\n", "7:3", /write `name: value`/],
  ["group: coding", "group coding", "8:5", /write `name: value`/],
  ["group: coding", "group = coding", "8:5", /write `name: value`/],
  ["group: coding", "group:coding", "8:5", /put a space after the colon/],
  ["tools:\n", "tools\n", "6:1", /write `name: value`/],
  ["usage:", "// mine\nusage:", "14:1", /write `name: value`/],
  ["group: coding", 'group: "coding', "8:12", /this quote is not closed/],
  ["group: coding", "group: 'coding", "8:12", /this quote is not closed/],
  ["$60/month]", "$60/month", "12:14", /this \[ is not closed/],
  ['["claude-*"] }', '["claude-*"]', "5:15", /this \{ is not closed/],
  ["$60/month]", "$60/month]]", "12:33", /this \] closes nothing/],
  ["400d }", "400d }}", "14:22", /this \} closes nothing/],
  ["1.5, models", "1.5 models", "5:29", /need a comma between them/],
  ["    key:", "    - key:", "9:5", /remove the dash/],
  ["group: coding", "group:\u00a0coding", "8:11", /type a plain space/],
  ["group: coding\n", "group: coding\n    group: other\n", "9:5", /keep one of the two/],
  ["  zed: {}", "  codex: {}", "13:3", /keep one of the two/],
  ["60/minute", "60/min", "11:17", /per second, minute, hour/],
  ["limits:", "limit:", "10:5", /did you mean limits\?/],
  ["tools:", "tolls:", "6:1", /did you mean tools\?/],
  ["gateways:", "gatewys:", "1:1", /did you mean gateways\?/],
  ["base_url:", "baseurl:", "3:5", /did you mean base_url\?/],
  ["1.5,", "1,5,", "5:31", /written with a dot/],
  ["1.5,", '"high",', "5:29", /such as 1\.5/],
  ["group: coding", "group: [coding]", "8:12", /write `group: value`/],
  ["  zed: {}", "  zed: [a]", "13:8", /without a dash/],
  ["  zed: {}", "  zed:", "13:7", /write `zed: \{\}`/],
  ["group: coding", "group: &g coding", "8:12", /write the value where it is used/],
  ["group: coding", "group: !!str coding", "8:12", /remove !!str/],
  ["  zed: {}", "  zed: { <<: *codex }", "13:14", /write these settings out/],
  ["usage: { keep: 400d }\n", "---\ntools: {}\n", "14:1", /keep one document/],
  ["usage:", "gateway: https://x.example.com/v1\nusage:", "14:1", /keep one of the two/],
  ["    group: coding", "    enabled: maybe", "8:14", /write true or false/],
];

t.test("one mistake is one problem, with a caret where it is and a hint", (t) => {
  t.same(parseConfig(GOOD, "/home/me").problems, []);
  for (const [from, to, place, words] of MISTAKES) {
    const { config, problems } = parseConfig(
      GOOD.replace(from, () => to),
      "/home/me",
    );
    const about = JSON.stringify(to);
    t.equal(config, null, about);
    t.equal(problems.length, 1, about);
    const [problem] = problems;
    t.equal(`${problem?.line}:${problem?.column}`, place, about);
    t.match(`${problem?.message} → ${problem?.hint}`, words, about);
    t.not(problem?.hint, null, about);
    const [source = "", caret = ""] = problem?.excerpt?.split("\n") ?? [];
    t.ok(caret.indexOf("^") <= source.length, about);
  }
  t.end();
});

t.test("a number in quotes is the number", (t) => {
  const { config, problems } = parseConfig(GOOD.replace("1.5", '"1.5"'), "/home/me");
  t.same(problems, []);
  t.equal(config?.gateways.main?.groups.coding?.multiplier, 1.5);
  t.end();
});
