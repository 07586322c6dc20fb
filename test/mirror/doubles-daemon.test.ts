import t from "tap";
import { EVERY_CONSOLE, startConsole } from "../doubles/consoles/start-console.ts";
import { KEY, keyed } from "../doubles/consoles/visitor.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { recordFor, tokensIn } from "../doubles/usage-journey.ts";

for (const name of EVERY_CONSOLE) {
  t.test(`${name} serves a daemon, and bills what the daemon counts`, async (t) => {
    const double = keyed(await startConsole(t, name));
    const { token, hash } = freshToken();
    const under = await startUnderTest(
      t,
      `gateways:
  main:
    base_url: ${double.url}/v1
    console:
${double.config.map((line) => `      ${line}`).join("\n")}
tools:
  codex: { key: ${KEY}, token: "${hash}" }
`,
    );
    const endpoints =
      double.kind === "one-api" ? ["/v1/chat/completions"] : ["/v1/chat/completions", "/v1/messages"];
    const counts = {
      "x-test-input": "21",
      "x-test-output": "8",
      "x-test-cache-read": "6",
      "x-test-cache-write": "3",
    };
    for (const endpoint of endpoints) {
      for (const stream of [false, true]) {
        const before = double.rows();
        const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", ...counts };
        const body = JSON.stringify({ model: "m", stream, messages: [] });
        const answer = await fetch(`${under.url}${endpoint}`, { method: "POST", headers, body });
        await answer.text();
        const record = await recordFor(under, answer);
        t.match(
          tokensIn(record),
          { input: 21, cacheRead: 6, cacheWrite: 3, output: 8 },
          `${endpoint} ${stream}`,
        );
        t.ok(double.rows() > before);
      }
    }
    t.same(
      double.asked.filter(({ path }) => path.includes(KEY)),
      [],
    );
  });
}
