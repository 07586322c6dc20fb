import { readFileSync } from "node:fs";
import t from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";

const ONE = "# mine\ngateway: https://one.example.com/v1\ntools:\n  codex: {}\n  zed: { group: x }\n".replace(
  "{ group: x }",
  "{ model: m }",
);

t.test("gateways are listed with their groups, console and tools", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, ONE);
  const listed = await command(t, home, ["gateways"]);
  t.equal(listed.code, 0);
  t.match(
    listed.stdout,
    /^gateway {2}base url +groups +console +tools\nmain +https:\/\/one\.example\.com\/v1 .*codex, zed\n$/,
  );
  const json = await command(t, home, ["gateways", "list", "--json"]);
  t.same(JSON.parse(json.stdout), [
    {
      name: "main",
      base_url: "https://one.example.com/v1",
      groups: [],
      console: null,
      tools: ["codex", "zed"],
    },
  ]);
});

t.test("a second gateway is added, and the tools keep theirs", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, ONE);
  const added = await command(t, home, ["gateways", "add", "work", "https://two.example.com/v1/"]);
  t.match(added, { code: 0, stderr: "", stdout: /^--- .*\+ {4}gateway: main|gateway work is added/s });
  const text = readFileSync(file, "utf8");
  t.ok(text.startsWith("# mine\ngateways:\n"));
  t.equal((await command(t, home, ["check"])).code, 0);
  const json = JSON.parse((await command(t, home, ["gateways", "--json"])).stdout);
  t.match(json, [
    { name: "main", tools: ["codex", "zed"] },
    { name: "work", base_url: "https://two.example.com/v1", tools: [] },
  ]);
  t.equal((await command(t, home, ["gateways", "add", "third", "https://three.example.com/v1"])).code, 0);
  t.match(await command(t, home, ["gateways", "add", "work", "https://two.example.com/v1"]), {
    code: 1,
    stderr: /there is a gateway work in config\.yaml already/,
  });
});

t.test("an invalid address or name changes nothing", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, ONE);
  for (const [name, url, code] of [
    ["work", "http://two.example.com/v1", 2],
    ["work", "nonsense", 2],
    ["a b", "https://two.example.com/v1", 1],
  ] as const) {
    const ended = await command(t, home, ["gateways", "add", name, url]);
    t.match(ended, { code, stdout: "" }, `${name} ${url}`);
    t.not(ended.stderr, "");
    t.equal(readFileSync(file, "utf8"), ONE);
  }
});
