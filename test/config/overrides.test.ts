import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { setValue } from "../../src/config/edit.ts";
import { readEffective } from "../../src/config/load.ts";
import { applyOverrides, onlyOverrides, overridesFor, toolsThatDiffer } from "../../src/config/overrides.ts";
import { parseConfig } from "../../src/config/parse.ts";
import { changeConfig, saveConfig } from "../../src/config/save.ts";
import { findPaths } from "../../src/core/paths.ts";
import { createLayeredConfig } from "../../src/daemon/layered-config.ts";

const HASH = `sha256:${"4f1c".padEnd(64, "0")}`;
const OTHER = `sha256:${"aa".padEnd(64, "0")}`;
const ROOT = `# root's own
gateway: https://gateway.example.com/v1
owners: [alice]
tools:
  codex:
    key: file:~/keys/codex
    limits: { spend: $5/day }   # not more
    token: [{ name: laptop, hash: "${HASH}", created: 2026-11-16 }]
  scripts: { key: file:~/keys/scripts }
`;

/** What is in force after an owner's change. */
function change(t: Test, from: string, to: string) {
  const wanted = ROOT.replace(from, to);
  t.not(wanted, ROOT);
  const own = overridesFor(ROOT, wanted, "/var/lib/keybearer");
  if (!own.ok) return { problem: own.problem };
  const applied = applyOverrides(ROOT, own.text, "/var/lib/keybearer");
  if (!applied.ok) throw new Error(applied.problem);
  const { config } = parseConfig(applied.text, "/var/lib/keybearer");
  return { own: own.text, tool: config?.tools.codex, overridden: applied.overridden, text: applied.text };
}

t.test("an owner's change is applied over config.yaml if it narrows, adds a token or moves a key", (t) => {
  const lowered = change(t, "$5/day", "$3/day");
  t.match(lowered.tool?.limits.spend, [{ max: 3_000_000, per: "day" }]);
  t.same(lowered.overridden, ["tools.codex.limits.spend"]);
  t.match(lowered.text, /# not more/, "the rest of root's text stays");
  t.match(change(t, "key: file:~/keys/scripts", "key: file:~/keys/scripts, enabled: false").overridden, [
    "tools.scripts.enabled",
  ]);
  const added = change(
    t,
    "2026-11-16 }]",
    `2026-11-16 }, { name: ci, hash: "${OTHER}", created: 2026-11-19 }]`,
  );
  t.match(added.tool?.tokens, [{ name: "laptop" }, { name: "ci" }]);
  const revoked = change(t, `[{ name: laptop, hash: "${HASH}", created: 2026-11-16 }]`, "[]");
  t.same(revoked.tool?.tokens, []);
  const moved = change(t, "file:~/keys/codex", "file:~/keys/codex-2");
  t.match(moved.tool?.key, { path: "/var/lib/keybearer/keys/codex-2" });
  t.notMatch(moved.own, /keys\/codex[^-]/, "the source before is a digest: it may be a key itself");
  t.end();
});

t.test("what would allow more, and what is not about these settings, is for root", (t) => {
  for (const [from, to] of [
    ["$5/day", "$9/day"],
    ["limits: { spend: $5/day }", "limits: {}"],
    ["gateway.example.com", "evil.example.com"],
    ["[alice]", "[alice, bob]"],
    ["  scripts: { key: file:~/keys/scripts }\n", ""],
    ["key: file:~/keys/scripts", "key: file:~/keys/scripts, ask_usage: true"],
  ] as const)
    t.match(change(t, from, to).problem, /only root may change that/, `${from} → ${to}`);
  t.end();
});

t.test("root's later decisions count: a lower limit, another key, a tool that is gone", (t) => {
  const lowered = change(t, "$5/day", "$3/day").own ?? "";
  const stricter = applyOverrides(ROOT.replace("$5/day", "$2/day"), lowered, "/");
  t.match(stricter, {
    ok: true,
    text: /\$2\/day/,
    problems: [{ path: "tools.codex.limits.spend" }],
    overridden: [],
  });
  const moved = change(t, "file:~/keys/codex", "file:~/keys/codex-2").own ?? "";
  const replaced = applyOverrides(ROOT.replace("file:~/keys/codex", "credential:codex"), moved, "/");
  t.match(replaced, { ok: true, text: /credential:codex/, overridden: [] });
  const gone = ROOT.replace(/ {2}codex:[\s\S]*?(?= {2}scripts)/, "");
  t.match(applyOverrides(gone, lowered, "/"), { ok: true, text: gone });
  t.end();
});

t.test("overrides that cannot be understood let nothing through", (t) => {
  for (const text of [
    "tools: [",
    "tools: { codex: { gateway: other } }",
    "tools: { codex: { process: /bin/x } }",
  ])
    t.match(applyOverrides(ROOT, text, "/"), { ok: false, problem: /overrides\.yaml/ }, text);
  t.match(applyOverrides(ROOT, "", "/"), { ok: true, text: ROOT });
  t.end();
});

t.test("root takes over what was applied to the tools that it changes, and nothing else", (t) => {
  const own = "tools: { codex: { enabled: false }, scripts: { enabled: false } }\n";
  t.equal(onlyOverrides(own, ["scripts"]), "tools: { scripts: { enabled: false } }\n");
  t.equal(onlyOverrides(own, ["other"]), "");
  t.same(toolsThatDiffer(ROOT, ROOT.replace("$5", "$9")), ["codex"]);
  t.end();
});

/** The files of a system service, whose owner has lowered a limit if `isChanged`. */
async function createPlace(t: Test, isChanged: boolean) {
  const home = t.testdir({ "config.yaml": ROOT });
  const config = join(home, "config.yaml");
  const overrides = join(home, "overrides.yaml");
  const place = { ...findPaths({ config, env: {}, home }), mode: "system" as const, overrides };
  if (isChanged)
    await changeConfig(place, (text) => setValue(text, ["tools", "codex", "limits", "spend"], "$4/day"));
  return place;
}

t.test("of changes that come at the same time none is lost", async (t) => {
  for (const isChanged of [false, true]) {
    const place = await createPlace(t, isChanged);
    const disable = (tool: string) =>
      changeConfig(place, (text) => setValue(text, ["tools", tool, "enabled"], "false"));
    const lower = changeConfig(place, (text) =>
      setValue(text, ["tools", "codex", "limits", "spend"], "$3/day"),
    );
    for (const done of await Promise.all([disable("codex"), disable("scripts"), lower]))
      t.match(done, { ok: true, changed: true });
    const { text } = await readEffective(place);
    const tools = parseConfig(text ?? "", place.home).config?.tools;
    t.match(tools, {
      codex: { enabled: false, limits: { spend: [{ max: 3_000_000 }] } },
      scripts: { enabled: false },
    });
  }
});

t.test("of two texts that are made from the same one only the first is saved", async (t) => {
  for (const isChanged of [false, true]) {
    const place = await createPlace(t, isChanged);
    const before = (await readEffective(place)).text ?? "";
    const texts = ["codex", "scripts"].map((tool) => setValue(before, ["tools", tool, "enabled"], "false"));
    const saved = await Promise.all(
      texts.map((edited) => saveConfig(place, before, edited.ok ? edited.text : "")),
    );
    t.same(saved.map(({ ok }) => ok).toSorted(), [false, true]);
    t.match(
      saved.find(({ ok }) => !ok),
      { isStale: true },
    );
  }
});

t.test("root takes only what it has seen of an owner's changes", async (t) => {
  const place = await createPlace(t, true);
  const layered = createLayeredConfig({ paths: place, overridden: () => [], refresh: async () => {} });
  const seen = onlyOverrides(readFileSync(place.overrides, "utf8"), ["codex"]);
  const before = createHash("sha256").update(String(seen)).digest("hex");
  await changeConfig(place, (text) => setValue(text, ["tools", "codex", "enabled"], "false"));
  await t.rejects(layered.forget({ before, tools: ["codex"] }), {
    message: "an owner changed the configuration meanwhile",
  });
  t.match((await readEffective(place)).text, /enabled: false/, "what the owner narrowed meanwhile stays");
});
