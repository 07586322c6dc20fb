import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { ask, get, hello, post, startSandbox } from "../doubles/sandbox.ts";
import { canary, filesBelow, scan, textsOf } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

t.test(
  "no key, token or prompt shows up in any output, file or argument of a daemon that traces",
  async (t) => {
    const sandbox = await startSandbox(t);
    const home = await newHome(t);
    const keys = { literal: canary(), env: canary(), file: canary(), command: canary() };
    const tokens = { literal: freshToken(), env: freshToken(), file: freshToken(), command: freshToken() };
    const stray = { foreign: canary(), prompt: canary(), unknownToken: freshToken().token };
    const ids = Object.values(keys).map(
      (key) => sandbox.createKey({ name: "c", group: "default", customKey: key }).id,
    );
    const own = join(home, "keys");
    mkdirSync(own, { mode: 0o700 });
    for (const name of ["file", "command"] as const)
      writeFileSync(join(own, name), `${keys[name]}\n`, { mode: 0o600 });
    const config = `listen: localhost:0
gateway: ${sandbox.baseUrl}
tools:
  literal: { key: ${keys.literal}, token: "${tokens.literal.hash}", token_in_url: true }
  env: { key: env:CANARY_KEY, token: "${tokens.env.hash}" }
  file: { key: "file:${own}/file", token: "${tokens.file.hash}" }
  command: { key: { command: [/bin/cat, ${own}/command] }, token: "${tokens.command.hash}" }
log: { level: trace }
`;
    await saveConfig(home, config);
    const running = await startServing(t, home, { env: { CANARY_KEY: keys.env } });
    const { url } = running;
    const prompt = { ...hello(), messages: [{ role: "user", content: stray.prompt }] };
    const answers: string[] = [];

    for (const { token } of Object.values(tokens)) {
      t.equal((await get(`${url}/v1/models`, token)).status, 200, "the key works");
      t.equal((await post(`${url}/v1/chat/completions`, token, prompt)).status, 200);
      t.equal(
        (await post(`${url}/v1/messages`, token, { ...prompt, stream: true, max_tokens: 9 })).status,
        200,
      );
    }
    t.equal((await ask(`${url}/t/${tokens.literal.token}/v1/models`)).status, 200);
    const bad = [
      await get(`${url}/v1/models`, stray.foreign),
      await get(`${url}/v1/models`, stray.unknownToken),
      await get(`${url}/v1/models`, tokens.env.token.slice(0, -4)),
      await ask(`${url}/t/${tokens.env.token}/v1/models`),
      await ask(`${url}/t/${tokens.literal.token}/nowhere`),
      await ask(`${url}/v1/v1/models?key=${stray.foreign}`),
      await ask(`${url}/v1/models`, {
        headers: { authorization: `Bearer ${tokens.env.token}`, "x-api-key": stray.foreign },
      }),
    ];
    for (const { status, headers, text } of bad) {
      t.ok(status >= 400);
      answers.push(text, JSON.stringify([...headers]));
    }
    for (const [at, id] of ids.entries()) {
      sandbox.order(id, { kind: "echo", status: 401 }, 1);
      sandbox.order(id, { kind: "garbage" }, 1);
      const token = Object.values(tokens)[at]?.token ?? "";
      for (const _ of ["echo", "garbage"]) {
        const { text, headers } = await get(`${url}/v1/models`, token);
        answers.push(text, JSON.stringify([...headers]));
      }
    }
    // Mistakes in the very lines that hold a key, and a key that moves.
    for (const broken of [
      config.replace(`key: ${keys.literal}`, `key: ${keys.literal} ,,`),
      config.replace(`key: ${keys.literal}`, `kee: ${keys.literal}`),
      config.replace(`key: ${keys.literal},`, `key: "${keys.literal}`),
      config.replace(tokens.env.hash, tokens.env.token),
    ]) {
      const lines = running.stderr().length;
      await saveConfig(home, broken);
      await until("the broken file is told", () =>
        running.stderr().slice(lines).includes("keeps using the last valid version"),
      );
      for (const args of [["check"], ["check", "--json"], ["status"]]) {
        const { stdout, stderr } = await command(t, home, args);
        answers.push(stdout, stderr);
      }
    }
    await saveConfig(home, config.replace(sandbox.baseUrl, "http://127.0.0.1:9/v1"));
    await running.logs(/held \(/);
    for (const args of [["status"], ["status", "--json"], ["tools"], ["tools", "--json"]]) {
      const { stdout, stderr } = await command(t, home, args);
      answers.push(stdout, stderr);
    }

    const placed = [join(home, "config.yaml"), join(own, "file"), join(own, "command")];
    const files = filesBelow(home).filter((path) => !placed.includes(path));
    t.ok(files.length > 0, "there are files to look into");
    const paths = {
      stdout: running.stdout(),
      stderr: running.stderr(),
      answers: answers.join("\n"),
      ...textsOf(files),
      ...(process.platform === "linux"
        ? { cmdline: readFileSync(`/proc/${running.pid}/cmdline`, "latin1") }
        : {}),
    };
    t.match(paths.stderr, /"level":"(trace|debug|info)"/, "there is a log");
    t.ok(paths.stderr.split("\n").length > 20, "and it tells of the requests");
    const plain = Object.fromEntries(
      Object.entries(tokens).map(([name, { token }]) => [`token ${name}`, token]),
    );
    t.same(scan(paths, { ...keys, ...plain, ...stray }), []);
    for (const path of filesBelow(home)) {
      const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
      t.equal(mode & 0o077, 0, `${path} is nobody else's`);
    }
  },
);
