import t from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Call } from "../../src/proxy/call.ts";
import { buildOpening } from "../../src/proxy/records.ts";
import { RequestHead } from "../../src/proxy/request-head.ts";
import { snapshotOf } from "../doubles/parsed-config.ts";

const SNAPSHOT = snapshotOf(
  "gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-agents-0123456789 } }\n",
);

t.test("a record has the client's user agent, if a console would list the same text", async (t) => {
  const codex = "codex_cli_rs/0.50.0 (Ubuntu 24.4.0; x86_64) xterm-256color";
  const cases: readonly [what: string, sent: string | undefined, recorded: string | null][] = [
    ["of a client", codex, codex],
    ["none", undefined, null],
    ["an empty one", " ", null],
    ["a long one is cut", "a".repeat(300), "a".repeat(120)],
    ["with the tool's key", "agent/1.0 sk-agents-0123456789", null],
    ["with any key", `agent/1.0 sk-ant-api03-${"x7".repeat(20)}`, null],
    ["with anything that looks like a secret", "agent/1.0 word3f9a0c27be5d81640af2c9e7", null],
    ["with a short secret behind its name", "agent (password=hunter2)", null],
    ["with a short token", "Bearer abcdef123456", null],
    ["with a key beyond the cut", `${"a".repeat(300)} sk-agents-0123456789`, null],
    ["with a control character", "agent\t1.0", null],
    ["with a letter that the gateway reads as another", "caf\u00e9/1.0", null],
  ];
  for (const [what, sent, recorded] of cases) {
    const headers = sent === undefined ? {} : { "user-agent": sent };
    const head = new RequestHead(
      { method: "POST", url: "/v1/chat/completions", headers, rawHeaders: [] },
      SNAPSHOT,
      [],
    );
    t.equal(buildOpening(new Call(head, systemClock)).user_agent, recorded, what);
  }
});
