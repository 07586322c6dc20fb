import t from "tap";
import { formatModels } from "../../src/cli/models.ts";
import { askDaemon } from "../../src/control/client.ts";
import type { ToolModels } from "../../src/doctor/models.ts";
import { failingNames } from "../../src/doctor/models.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { toolOf } from "../doubles/parsed-config.ts";
import { startSandbox } from "../doubles/sandbox.ts";

const SCREEN = { width: 80, utf8: true };

function listOf(more: Partial<ToolModels>): ToolModels {
  return {
    ...{ tool: "codex", gateway: "main", group: null, multiplier: 1, key: "…a1b2", problem: null },
    models: [
      { id: "gpt-5.1", in_group: true, input_microdollars: 1_250_000, output_microdollars: 10_000_000 },
      { id: "own-model", in_group: true, input_microdollars: null, output_microdollars: null },
    ],
    failing: [],
    ...more,
  };
}

t.test("the daemon lists the models of each tool's key, with group, prices and failing names", async (t) => {
  const sandbox = await startSandbox(t);
  const { key } = sandbox.createKey({ name: "codex", group: "coding" });
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `gateways:
  main: { base_url: "${sandbox.baseUrl}", groups: { coding: { multiplier: 1.5, models: ["*-code"] } } }
prices: { sandbox-code: { input: 1.25, output: 10 } }
tools:
  codex: { key: ${key.reveal()}, token: "${hash}", group: coding, model: sandbox }
  lost: { key: env:NOT_SET }
  idle: { key: env:NOT_SET, enabled: false }
`,
  );
  await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  const asked = await askDaemon<ToolModels[]>(under.paths, "GET", "/models");
  t.match(asked, {
    ok: true,
    value: [
      {
        tool: "codex",
        multiplier: 1.5,
        problem: null,
        models: [
          { id: "sandbox-large", in_group: false, input_microdollars: null },
          {
            id: "sandbox-code",
            in_group: true,
            input_microdollars: 1_250_000,
            output_microdollars: 10_000_000,
          },
        ],
        failing: [{ name: "sandbox", in_config: true, instead: ["sandbox-large", "sandbox-code"] }],
      },
      { tool: "lost", problem: { cause: "key-unavailable", why: /NOT_SET/ }, models: [] },
    ],
  });
  t.notOk(key.isIn(JSON.stringify(asked)));
  const one = await askDaemon<ToolModels[]>(under.paths, "GET", "/models/idle");
  t.match(one, { ok: true, value: [{ tool: "idle" }] }, "a tool that is named is asked for, enabled or not");
  t.match(await askDaemon(under.paths, "GET", "/models/nobody"), {
    ok: false,
    problem: "there is no tool nobody",
  });
});

t.test("failing names that are in use come first, then those that are listed only with a date", async (t) => {
  const list = ["gpt-5-2025-08-07", "claude-sonnet-4-5@20250929", "o3", "openai/gpt-4.1"];
  const use = (model: string, requests: number, answered: number, tool = "codex") => ({
    ...{ tool, key: "…a1b2", model, requests, answered },
  });
  const uses = [
    use("gpt-4.1", 3, 3),
    use("o3", 9, 9),
    use("gone", 5, 0),
    use("not-mine", 1, 0, "chat"),
    use("", 2, 2),
  ];
  t.match(failingNames(toolOf("model: gpt-5"), list, uses), [
    { name: "gpt-5", in_config: true, instead: ["gpt-5-2025-08-07"] },
    { name: "gone", requests: 5, answered: 0, instead: [] },
    { name: "gpt-4.1", requests: 3, answered: 3, instead: ["openai/gpt-4.1"] },
    { name: "claude-sonnet-4-5", requests: 0, instead: ["claude-sonnet-4-5@20250929"] },
  ]);
});

t.test("tools with the same models are shown together", async (t) => {
  t.equal(
    formatModels([listOf({}), listOf({ tool: "chat", key: "…c3d4" })], SCREEN),
    `codex (key …a1b2) and chat (key …c3d4): gateway main
model      input/M  output/M
gpt-5.1      $1.25    $10.00
own-model        -         -
`,
  );
});

t.test("multiplier, group, failing names and problems are shown within 80 columns", async (t) => {
  const [model, own] = listOf({}).models;
  if (model === undefined || own === undefined) return t.fail("there are two models");
  const failing = [
    { name: "gpt-5", requests: 12, answered: 0, in_config: true, instead: ["gpt-5.1", "gpt-5-2025-08-07"] },
  ];
  const why = "incomplete key: the gateway does not know it (401: Invalid API key)";
  const shown = formatModels(
    [
      listOf({ group: "coding", multiplier: 1.5, models: [model, { ...own, in_group: false }], failing }),
      listOf({ tool: "chat", models: [], problem: { cause: "incomplete-key", why, next: "copy it whole" } }),
    ],
    SCREEN,
  );
  t.match(shown, /^codex \(key …a1b2\): gateway main, group coding, prices ×1\.5\n/);
  t.match(shown, /gpt-5\.1 +\$1\.875 +\$15\.00\n/);
  t.match(shown, /own-model .* not in group: refused here\n/);
  t.match(
    shown,
    /names that are not in this list:\ngpt-5 \(model: in config\.yaml; 12 requests in 30 days, 0/,
  );
  t.match(shown, "→ gpt-5.1, gpt-5-2025-08-07");
  t.match(shown, `\n\nchat (key …a1b2): gateway main\n${why}\n  → copy it whole\n`);
  t.ok(shown.split("\n").every((line) => line.length <= 80));
});
