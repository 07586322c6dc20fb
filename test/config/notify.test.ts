import t from "tap";
import { parseConfig } from "../../src/config/parse.ts";

const TOP = "gateway: https://gateway.example.com/v1\ntools: { codex: {} }\n";

function parse(notify: string) {
  return parseConfig(`${TOP}notify: ${notify}\n`, "/home/me");
}

t.test("without notify, the desktop is the only channel", async (t) => {
  const { config, problems } = parseConfig(TOP, "/home/me");
  t.same(problems, []);
  t.match(config?.notify, { desktop: true, command: null, quiet: null });
  t.same(Object.keys(config?.notify.webhooks ?? {}), []);
});

t.test("every setting", async (t) => {
  const { config, problems } = parse(`
  desktop: false
  command: [~/bin/my-alert, --quiet]
  webhooks:
    ops: { kind: slack, url: keychain:keybearer/slack }
    mine: { url: https://example.com/hook, secret: file:~/.config/keybearer/keys/hook }
    chat: { kind: telegram, url: https://api.telegram.org/bot1234:abcdef, to: "-1001234" }
    phone: { kind: ntfy, url: https://ntfy.sh/, to: alerts, proxy: "http://proxy:3128", ca_file: /etc/ca.pem }
    here: { url: http://localhost:9000/hook }
  events: { limit: false, suspicion: [ops, command], leak: mine }
  quiet: "22:00-07:00"`);
  t.same(problems, []);
  const notify = config?.notify;
  t.match(notify, { desktop: false, command: ["/home/me/bin/my-alert", "--quiet"] });
  t.same(notify?.events, { limit: [], suspicion: ["ops", "command"], leak: ["mine"] });
  t.same(notify?.quiet, { from: 22 * 60, to: 7 * 60 });
  t.match(notify?.webhooks.ops, { kind: "slack", url: { kind: "keychain", account: "slack" }, to: null });
  t.match(notify?.webhooks.mine, { kind: "generic", secret: { kind: "file" } });
  t.match(notify?.webhooks.phone, { to: "alerts", proxy: "http://proxy:3128", authority: { pem: "" } });
});

/** What is written, where the problem is, and what the message or the hint says. */
const MISTAKES: readonly (readonly [notify: string, path: string, words: RegExp])[] = [
  ["{ dekstop: true }", "dekstop", /did you mean desktop/],
  ["{ comand: [/bin/x] }", "comand", /did you mean command/],
  ["{ command: [my-alert] }", "", /absolute path of a program/],
  ["{ quiet: late }", "quiet", /no quiet hours → "22:00-07:00"/],
  ['{ quiet: "07:00-07:00" }', "quiet", /no quiet hours/],
  ['{ quiet: "24:00-07:00" }', "quiet", /no quiet hours/],
  [
    "{ webhooks: { desktop: { url: https://a.example.com/x } } }",
    "webhooks.desktop",
    /can be called desktop/,
  ],
  [
    "{ webhooks: { 'a b': { url: https://a.example.com/x } } }",
    'webhooks."a b"',
    /cannot be the name of a webhook/,
  ],
  ["{ webhooks: { ops: { kind: slack } } }", "webhooks.ops", /no url → url: https:\/\/hooks\.slack\.com/],
  ["{ webhooks: { ops: { kind: teams, url: https://a.example.com/x } } }", "webhooks.ops.kind", /slack/],
  ["{ webhooks: { ops: { url: http://a.example.com/x } } }", "webhooks.ops.url", /unencrypted → write https/],
  ["{ webhooks: { ops: { url: a.example.com/hook } } }", "webhooks.ops.url", /not the address of a webhook/],
  ["{ webhooks: { ops: { url: 'ftp://a.example.com/x' } } }", "webhooks.ops.url", /not the address/],
  [
    "{ webhooks: { ops: { url: 'https://u:p@a.example.com/x' } } }",
    "webhooks.ops.url",
    /user name or password/,
  ],
  ["{ webhooks: { ops: { url: 'https://a.example.com/x#y' } } }", "webhooks.ops.url", /contains a #/],
  ["{ webhooks: { ops: { url: $HOOK } } }", "webhooks.ops.url", /write env:HOOK/],
  [
    "{ webhooks: { ops: { kind: ntfy, url: https://ntfy.sh/alerts, to: alerts } } }",
    "webhooks.ops.url",
    /the topic is in to/,
  ],
  [
    '{ webhooks: { ops: { kind: telegram, url: https://api.telegram.org/1234, to: "1" } } }',
    "webhooks.ops.url",
    /ends with \/bot/,
  ],
  [
    "{ webhooks: { ops: { kind: ntfy, url: https://ntfy.sh } } }",
    "webhooks.ops",
    /for whom .* → to: the topic/,
  ],
  [
    "{ webhooks: { ops: { url: https://a.example.com/x, to: me } } }",
    "webhooks.ops.to",
    /says for whom .* → remove it/,
  ],
  [
    "{ webhooks: { ops: { kind: slack, url: https://a.example.com/x, secret: abcdefgh } } }",
    "webhooks.ops.secret",
    /no secret but its url → remove it/,
  ],
  [
    "{ webhooks: { ops: { url: https://a.example.com/x, secret: abcdefgh } } }",
    "webhooks.ops.secret",
    /begins with whsec_ → make one with: echo/,
  ],
  ["{ events: { leak: ops } }", "events.leak", /there is no channel "ops" → false, or of desktop/],
  ["{ desktop: false, events: { leak: desktop } }", "events.leak", /there is no channel "desktop"/],
  ["{ events: { leaks: false } }", "events.leaks", /did you mean leak/],
];

t.test("mistakes say where they are and what to write", async (t) => {
  for (const [notify, path, words] of MISTAKES) {
    const { config, problems } = parse(notify);
    t.equal(config, null, notify);
    const found = problems.filter((one) => one.path === ["notify", path].filter(Boolean).join("."));
    const texts = found.map(({ message, hint }) => `${message} → ${hint}`).join("\n");
    t.match(
      texts,
      words,
      `${notify}: ${JSON.stringify(problems.map(({ path, message }) => [path, message]))}`,
    );
  }
});

t.test("a mistake in one webhook is reported once, and a route to it is none", async (t) => {
  const { problems } = parse("{ webhooks: { ops: { kind: slack } }, events: { leak: ops } }");
  t.same(
    problems.map(({ path }) => path),
    ["notify.webhooks.ops"],
  );
});

t.test("the secret part of an address is in no problem", async (t) => {
  for (const rest of ["services/T0/B0/abcdefgh", "plain-words-only", "?token=plainwords"]) {
    const { problems } = parse(
      `\n  webhooks:\n    ops: { kind: slack, url: https://hooks.example.com/${rest}, secret: longsecretword, x: 1 }`,
    );
    t.ok(problems.length >= 2);
    const shown = JSON.stringify(problems);
    t.notMatch(shown, rest.replace("?", ""));
    t.notMatch(shown, "longsecretword");
    t.match(shown, "https://hooks.example.");
  }
});
