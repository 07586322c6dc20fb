import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { parseConfig } from "../../src/config/parse.ts";
import { Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import { ROOT } from "../doubles/paths.ts";

function inputOf(name: string): string {
  const text = readFileSync(join(ROOT, "test", "config", "cases", `${name}.yaml`), "utf8");
  return text.split(/^-----\n/m)[0] ?? "";
}

/** Paths of everything that could still be changed. A Secret keeps its value where no code reaches it. */
function loose(value: unknown, path: string): string[] {
  if (typeof value !== "object" || value === null || value instanceof Secret) return [];
  const inside = Reflect.ownKeys(value).flatMap((name) =>
    loose(Reflect.get(value, name), `${path}.${String(name)}`),
  );
  return Object.isFrozen(value) ? inside : [path, ...inside];
}

for (const name of [
  "the-smallest",
  "everything",
  "console-forms",
  "limits",
  "key-forms",
  "token-forms",
  "prices",
  "shared-everything",
  "shared-store-as-an-address",
]) {
  t.test(`the configuration of ${name} is frozen all the way down`, async (t) => {
    const { config, problems } = parseConfig(inputOf(name), "/home/me");
    t.not(config, null, JSON.stringify(problems));
    t.same(loose(config, "config"), []);
  });
}

t.test("a snapshot cannot be changed either", async (t) => {
  const { config } = parseConfig(inputOf("everything"), "/home/me");
  if (config === null) return t.fail("the example has problems");
  const snapshot = new Snapshot(1, config, new Map(), []);
  t.ok(Object.isFrozen(snapshot));
  t.ok(Object.isFrozen(snapshot.origins));
  t.throws(() => Object.assign(snapshot, { revision: 2 }), TypeError);
});

t.test("the example configuration that comes with keybearer has no problems and is frozen", async (t) => {
  const text = readFileSync(join(ROOT, "config.example.yaml"), "utf8");
  const { config, problems } = parseConfig(text, "/home/me");
  t.same(problems, []);
  t.same(loose(config, "config"), []);
});

t.test("a tool that expires on a day holds through the end of that local day", async (t) => {
  const text = "gateway: https://gateway.example.com/v1\ntools: { codex: { expires: 2027-03-31 } }\n";
  const { config } = parseConfig(text, "/home/me");
  t.equal(config?.tools.codex?.expires, new Date(2027, 3, 1).getTime());
});
