import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { stableNode, stablePackage } from "../../src/service/spec.ts";
import { newHome } from "../doubles/command.ts";

/** realpath() in a file system with these links. Their targets exist, and nothing else does. */
function links(of: Record<string, string>) {
  const targets = Object.values(of);
  return (path: string) => of[path] ?? (targets.includes(path) ? path : null);
}

const H = "/home/ann";

t.test("a path that survives an upgrade is used where there is one", async (t) => {
  for (const [running, leads, path] of [
    ["/usr/bin/node", {}, "/usr/bin/node"],
    ["/usr/local/bin/node", {}, "/usr/local/bin/node"],
    ["/usr/bin/nodejs", { "/usr/bin/node": "/usr/bin/nodejs" }, "/usr/bin/node"],
    ["/opt/node-22/bin/node", { "/usr/local/bin/node": "/opt/node-22/bin/node" }, "/usr/local/bin/node"],
    [
      "/opt/homebrew/Cellar/node/22.1.0/bin/node",
      {
        "/opt/homebrew/opt/node/bin/node": "/opt/homebrew/Cellar/node/22.1.0/bin/node",
        "/opt/homebrew/bin/node": "/opt/homebrew/Cellar/node/22.1.0/bin/node",
      },
      "/opt/homebrew/opt/node/bin/node",
    ],
    [
      "/usr/local/Cellar/node@20/20.19.1_2/bin/node",
      { "/usr/local/opt/node@20/bin/node": "/usr/local/Cellar/node@20/20.19.1_2/bin/node" },
      "/usr/local/opt/node@20/bin/node",
    ],
    [
      `${H}/.local/share/fnm/node-versions/v22.1.0/installation/bin/node`,
      {
        [`${H}/.local/share/fnm/aliases/default/bin/node`]: `${H}/.local/share/fnm/node-versions/v22.1.0/installation/bin/node`,
      },
      `${H}/.local/share/fnm/aliases/default/bin/node`,
    ],
    [
      `${H}/.local/share/mise/installs/node/22.1.0/bin/node`,
      {
        [`${H}/.local/share/mise/installs/node/22/bin/node`]: `${H}/.local/share/mise/installs/node/22.1.0/bin/node`,
      },
      `${H}/.local/share/mise/installs/node/22/bin/node`,
    ],
    [
      "/nix/store/abc-nodejs-22/bin/node",
      { "/run/current-system/sw/bin/node": "/nix/store/abc-nodejs-22/bin/node" },
      "/run/current-system/sw/bin/node",
    ],
  ] as const) {
    t.same(stableNode(running, links({ ...leads, [running]: running })), { path, warning: null }, running);
  }
});

t.test("a path that is removed with its version is recognized, with what to type then", async (t) => {
  for (const [manager, running] of [
    ["nvm", `${H}/.nvm/versions/node/v22.1.0/bin/node`],
    ["nvm", `${H}/.config/nvm/versions/node/v20.19.0/bin/node`],
    ["fnm", `${H}/.fnm/node-versions/v22.1.0/installation/bin/node`],
    ["volta", `${H}/.volta/tools/image/node/22.1.0/bin/node`],
    ["mise", `${H}/.local/share/mise/installs/node/22.1.0/bin/node`],
    ["asdf", `${H}/.asdf/installs/nodejs/22.1.0/bin/node`],
    ["nodenv", `${H}/.nodenv/versions/22.1.0/bin/node`],
    ["n", `${H}/n/versions/node/22.1.0/bin/node`],
    ["n", "/usr/local/n/versions/node/22.1.0/bin/node"],
    ["nodebrew", `${H}/.nodebrew/node/v22.1.0/bin/node`],
    ["nvs", `${H}/.nvs/node/22.1.0/x64/bin/node`],
    ["proto", `${H}/.proto/tools/node/22.1.0/bin/node`],
    ["Homebrew", "/opt/homebrew/Cellar/node/22.1.0/bin/node"],
    ["Nix", "/nix/store/abc-nodejs-22/bin/node"],
  ] as const) {
    // A stable link that leads to another version is not used: keybearer may not work with that one.
    const other = { "/usr/bin/node": "/usr/bin/node", "/opt/homebrew/bin/node": "/elsewhere/node" };
    const { path, warning } = stableNode(running, links({ ...other, [running]: running }));
    t.equal(path, running);
    t.match(warning, new RegExp(`one version of ${manager}: .*keybearer service install$`), running);
  }
});

t.test("a link that one shell owns is never used", async (t) => {
  const shell = "/run/user/1000/fnm_multishells/123_456/bin/node";
  const real = `${H}/.local/share/fnm/node-versions/v22.1.0/installation/bin/node`;
  const { path, warning } = stableNode(shell, links({ [shell]: real }));
  t.equal(path, real);
  t.match(warning, /fnm/);
});

t.test("a node in a folder of the user's own keeps the path that was typed", async (t) => {
  const home = await newHome(t);
  const real = realpathSync(home);
  mkdirSync(join(real, "node-22"));
  writeFileSync(join(real, "node-22", "node"), "");
  symlinkSync("node-22", join(real, "current"));
  const typed = join(real, "current", "node");
  t.same(stableNode(typed, realpathOrNull), { path: typed, warning: null });
});

t.test("the package has a path that survives an upgrade, too", async (t) => {
  const end = "keybearer/dist/cli/main.js";
  const pnpm = `${H}/.local/share/pnpm/global/5/.pnpm/keybearer@0.1.0/node_modules/${end}`;
  const link = `${H}/.local/share/pnpm/global/5/node_modules/${end}`;
  const cellar = "/opt/homebrew/Cellar/keybearer/0.1.0/libexec/dist/cli/main.js";
  const opt = "/opt/homebrew/opt/keybearer/libexec/dist/cli/main.js";
  for (const [main, leads, path] of [
    [`/usr/lib/node_modules/${end}`, {}, `/usr/lib/node_modules/${end}`],
    [`${H}/src/${end}`, {}, `${H}/src/${end}`],
    [pnpm, { [link]: pnpm }, link],
    [cellar, { [opt]: cellar }, opt],
  ] as const) {
    t.same(stablePackage(main, links({ ...leads, [main]: main })), { path, warning: null }, main);
  }
  for (const [main, warning] of [
    [pnpm, /pnpm .*keybearer service install$/],
    [cellar, /Homebrew .*keybearer service install$/],
    [`${H}/.npm/_npx/0a1b/node_modules/${end}`, /cache .*npm install -g keybearer$/],
    [`${H}/.cache/pnpm/dlx/0a1b/node_modules/${end}`, /cache .*npm install -g keybearer$/],
    [`${H}/.nvm/versions/node/v22.1.0/lib/node_modules/${end}`, /nvm .*npm install -g keybearer, then/],
    [
      `${H}/.local/share/fnm/node-versions/v22.1.0/installation/lib/node_modules/${end}`,
      /fnm .*keybearer service install$/,
    ],
  ] as const) {
    const found = stablePackage(main, links({ [main]: main }));
    t.equal(found.path, main);
    t.match(found.warning, warning, main);
  }
});

function realpathOrNull(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}
