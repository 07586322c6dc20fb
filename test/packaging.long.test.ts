import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import t, { type Test } from "tap";
import { newHome, startProgram } from "./doubles/command.ts";
import { ROOT } from "./doubles/paths.ts";

t.test(
  "the published package contains the program, the page with its licences, and no sources",
  async (t) => {
    // The script would build dist again while other tests use it.
    const { stdout } = await promisify(execFile)("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      cwd: ROOT,
    });
    const paths: string[] = JSON.parse(stdout)[0].files.map((file: { path: string }) => file.path);
    for (const path of [
      "dist/cli/main.js",
      "dist/index-worker.js",
      "dist/mirror-worker.js",
      "dist/prices.json",
      "dist/dashboard/index.html",
      "dist/dashboard/licenses.txt",
      "config.example.yaml",
      "service/keybearer.service",
      "LICENSE",
      "NOTICE",
    ]) {
      t.ok(paths.includes(path), path);
    }
    t.same(
      paths.filter((path) => /^(?:src|test|docs|build)\/|\.ts$|\.map$/.test(path)),
      [],
    );
  },
);

/** npm's answers if the registry cannot be reached, or does not have a package. */
const NO_REGISTRY =
  /npm (?:error|ERR!) (?:code )?(?:ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT|SELF_SIGNED\w*|UNABLE_TO\w*|E40[0-9]|E5\d\d)/;
/** What npm needs to reach the registry. */
const NPM_VARIABLES = /^(?:PATH|HOME|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|npm_config_.*|(?:https?|no)_proxy)$/i;

/** Packs the package, as `npm pack` does, and installs it for npx and with `npm i -g` into a folder of the test. */
async function packed(t: Test) {
  const folder = await newHome(t);
  const variables = Object.entries(process.env).filter(([name]) => NPM_VARIABLES.test(name));
  const env: NodeJS.ProcessEnv = { ...Object.fromEntries(variables), KEYBEARER_HOME: folder };
  const npm = (...args: string[]) => promisify(execFile)("npm", args, { cwd: ROOT, env });
  // npx leaves what it installs beside the cache. The downloads are shared, so that they are fetched once.
  const downloads = join((await npm("config", "get", "cache")).stdout.trim(), "_cacache");
  const cache = join(folder, "npm");
  mkdirSync(cache);
  if (existsSync(downloads)) symlinkSync(downloads, join(cache, "_cacache"));
  Object.assign(env, { npm_config_cache: cache, npm_config_prefer_offline: "true" });
  const made = await npm("pack", "--ignore-scripts", "--json", "--pack-destination", folder);
  const tarball = join(folder, JSON.parse(made.stdout)[0].filename);
  return { folder, env, npm, tarball };
}

t.test(
  "the packed package runs by npx and after npm i -g, and names commands that can be typed",
  async (t) => {
    const { folder, env, npm, tarball } = await packed(t);
    const prefix = join(folder, "prefix");
    try {
      await npm("install", "--global", "--prefix", prefix, tarball);
    } catch (error) {
      if (!NO_REGISTRY.test(String(error))) throw error;
      return t.skip(`npm cannot reach a registry with the dependencies: ${error}`, async () => {});
    }
    const installed = join(prefix, "bin", "keybearer");
    const version = await promisify(execFile)(installed, ["--version"], { env });
    t.equal(version.stdout.trim(), JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).version);

    // If the test fails: killing npx does not end what it started.
    t.teardown(() => promisify(execFile)(installed, ["stop"], { env }).catch(() => {}));
    const typed = (line: string) => startProgram(t, "/bin/sh", ["-c", `cd '${folder}' && exec ${line}`], env);
    // A relative path, because npx takes an absolute one for a program.
    const running = typed(`npx --yes ./${basename(tarball)} run`);
    const [, origin, token] = await running.says(/curl (\S+)\/v1\/models \\\n.*Bearer (kb_[\w-]+)"/);
    const models = await fetch(`${origin}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    t.match(await models.json(), { data: [{ id: /^sandbox-/ }] });
    const [, usage = ""] = await running.says(/what it cost: (.*)\n/);
    const status = usage.replace(/usage$/, "status --json");
    const shown = await typed(status).ended;
    t.equal(shown.code, 0, `${status}\n${shown.stderr}`);
    process.kill(JSON.parse(shown.stdout).pid, "SIGTERM");
    t.match(await running.ended, { code: 0 });
  },
);
