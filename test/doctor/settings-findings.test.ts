import { execFileSync } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { makeInventory } from "../../src/adopt/inventory.ts";
import { findSettings, isOwnAddress } from "../../src/clients/find.ts";
import { Secret } from "../../src/core/secret.ts";
import { makeToken } from "../../src/core/token.ts";
import type { Finding } from "../../src/doctor/findings.ts";
import { type Machine, scanOrProblem, settingsFindings } from "../../src/doctor/settings-findings.ts";
import { longTest } from "../doubles/effort.ts";

const OFFICIAL = "sk-official0Vb7Qx93LmZr8TnKd";
const OURS = "sk-ours5Hq2WcYt6PeJn1RsAf4Gz";
// Its last four letters are in no message.
const HOST = "https://api.example.com.9qxz";
const TOKEN = makeToken();

async function machine(t: Test, files: Readonly<Record<string, string>>): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), "kb-around-"));
  t.teardown(() => rm(home, { recursive: true, force: true }));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(home, path)), { recursive: true });
    await writeFile(join(home, path), text);
  }
  return home;
}

interface Where extends Partial<Pick<Machine, "env" | "sources">> {
  readonly platform?: NodeJS.Platform;
}

async function scan(t: Test, home: string, more: Where = {}): Promise<Finding[]> {
  const { env = {}, sources = [], platform = "linux" } = more;
  const keys = [new Secret(OURS)];
  const ports = [5397];
  const found = await findSettings({ env, home, cwd: join(home, "project"), platform, folders: [] }, keys);
  const { pairs } = makeInventory(found, (url) => isOwnAddress(url, ports));
  const findings = settingsFindings(found, {
    env,
    home,
    keys,
    ports,
    gateways: ["https://gateway.example.com"],
    tools: ["claude-code", "codex"],
    sources,
    isMovable: (key) => pairs.some(({ places }) => places.includes(key)),
  });
  const text = JSON.stringify(findings);
  for (const value of [OFFICIAL, OURS, TOKEN, HOST]) {
    t.notOk(text.includes(value), "no value is reported");
    t.notOk(text.includes(value.slice(-4)), "nor a part of it");
  }
  return findings;
}

function lines(findings: readonly Finding[]): string[] {
  return findings.map(({ level, what }) => `${level}: ${what}`);
}

t.test("a machine with only keybearer's settings has no finding", async (t) => {
  const home = await machine(t, {
    ".bashrc": `export OPENAI_BASE_URL=http://localhost:5397/v1\nexport OPENAI_API_KEY='${TOKEN}'\n# export OPENAI_API_KEY=${OFFICIAL}\n`,
    ".claude/settings.json": `{ "env": { "ANTHROPIC_BASE_URL": "http://127.0.0.1:5397", "ANTHROPIC_AUTH_TOKEN": "${TOKEN}" } }`,
    ".codex/auth.json": '{ "OPENAI_API_KEY": null }',
    ".codex/config.toml": '[model_providers.local]\nbase_url = "http://localhost:11434/v1"\n',
    ".continue/config.yaml": "models:\n  - apiKey: $KEYBEARER_TOKEN\n    apiBase: 'http://[::1]:5397/v1'\n",
  });
  const findings = await scan(t, home, { env: { ANTHROPIC_BASE_URL: "http://localhost:5397/" } });
  // Also the system's own, such as /etc/environment.
  t.match(lines(findings), [
    /^ok: no setting in the environment and in \d+ settings files leads past keybearer$/,
  ]);
  t.equal(findings.length, 1);
});

t.test("an address of another provider is reported with every place, and what to type", async (t) => {
  const home = await machine(t, {
    ".zshrc": `alias ll=ls\nexport ANTHROPIC_BASE_URL="${HOST}"\n`,
    ".config/fish/conf.d/keys.fish": `set -gx ANTHROPIC_BASE_URL ${HOST}\n`,
    ".config/environment.d/10-ai.conf": `COPILOT_PROVIDER_BASE_URL=${HOST}/v1\n`,
  });
  const findings = await scan(t, home, { env: { ANTHROPIC_BASE_URL: HOST, CLAUDE_CODE_USE_BEDROCK: "1" } });
  t.same(lines(findings), [
    "problem: ANTHROPIC_BASE_URL in the environment, ~/.zshrc:2 and ~/.config/fish/conf.d/keys.fish:1 sends Claude Code past keybearer",
    "problem: CLAUDE_CODE_USE_BEDROCK in the environment sends Claude Code past keybearer",
    "warning: COPILOT_PROVIDER_BASE_URL in ~/.config/environment.d/10-ai.conf:1 sends GitHub Copilot CLI past keybearer",
  ]);
  t.equal(findings[0]?.next, "the right settings: keybearer use claude-code --write");
});

t.test(
  "a key that keybearer does not hold is a warning, and a problem if it would be sent beside a token",
  async (t) => {
    const home = await machine(t, { ".profile": `\nOPENAI_API_KEY=${OFFICIAL}; export OPENAI_API_KEY\n` });
    const alone = await scan(t, home, { env: { ANTHROPIC_API_KEY: OFFICIAL } });
    t.same(
      alone.map(({ level, id }) => [level, id]),
      [
        ["warning", "other-provider"],
        ["warning", "other-provider"],
      ],
    );
    t.match(alone[0]?.next, /^unset ANTHROPIC_API_KEY if that is not intended/);
    t.match(alone[1]?.what, /^OPENAI_API_KEY in ~\/\.profile:2 is a key that keybearer does not hold/);
    t.equal(alone[1]?.next, "keybearer adopt --write");

    await mkdir(join(home, ".claude"));
    await writeFile(
      join(home, ".claude/settings.json"),
      `{ "apiKeyHelper": "/bin/my-key", "env": {\n "ANTHROPIC_BASE_URL": "http://localhost:5397",\n "ANTHROPIC_AUTH_TOKEN": "${TOKEN}" } }`,
    );
    const both = await scan(t, home, { env: { ANTHROPIC_API_KEY: OFFICIAL } });
    t.match(both[0], { level: "problem", id: "two-credentials", next: "unset ANTHROPIC_API_KEY" });
    t.match(both[0]?.what, /ANTHROPIC_API_KEY in the environment is not a token/);
    t.match(lines(both).join("\n"), /warning: apiKeyHelper in ~\/\.claude\/settings\.json:1 runs a program/);
  },
);

t.test("adopt is advised for a second credential that it moves", async (t) => {
  const home = await machine(t, {
    ".config/environment.d/ai.conf": `OPENAI_BASE_URL=http://localhost:5397/v1\nOPENAI_API_KEY=${TOKEN}\n`,
    ".zshrc": `export OPENAI_BASE_URL=https://gateway.example.com/v1 OPENAI_API_KEY=${OFFICIAL}\n`,
  });
  const findings = await scan(t, home);
  const found = findings.find(({ id }) => id === "two-credentials");
  t.match(found, { what: /^OPENAI_API_KEY in ~\/\.zshrc:1 is not a token/, next: "keybearer adopt --write" });
});

t.test("a key in a client's file is a problem only beside keybearer's own address", async (t) => {
  const settings = (base: string) =>
    `{ "env": {\n"ANTHROPIC_BASE_URL": "${base}",\n"ANTHROPIC_AUTH_TOKEN": "${OFFICIAL}" } }`;
  const home = await machine(t, {
    ".claude/settings.json": settings("http://localhost:5397"),
    ".config/opencode/opencode.json": `{ "provider": { "a": { "options": { "baseURL": "http://localhost:5397/v1", "apiKey": "${TOKEN}" } },\n"b": { "options": { "apiKey": "${OFFICIAL}" } } } }`,
  });
  const findings = await scan(t, home);
  t.match(lines(findings), [
    /^problem: ANTHROPIC_AUTH_TOKEN in ~\/\.claude\/settings\.json:3 is not a token/,
    /^warning: apiKey in ~\/\.config\/opencode\/opencode\.json:2 is a key that keybearer does not hold/,
  ]);
  t.same(
    findings.map(({ next }) => next),
    ["a token instead: keybearer use claude-code --write", "keybearer adopt says what to do"],
    "a key that goes to no known address is not moved",
  );
});

t.test("a key that keybearer holds is a problem wherever else it is found", async (t) => {
  const home = await machine(t, {
    ".codex/auth.json": `{\n  "auth_mode": "apikey",\n  "OPENAI_API_KEY": "${OURS}"\n}\n`,
    ".aider.conf.yml": `# openai-api-key: ${OURS}\n`,
    "project/.env": `SOMETHING=${OURS}\n`,
  });
  const env = { SCRIPTS_KEY: OURS, MINE: OURS, OPENAI_API_KEY: OURS };
  const findings = await scan(t, home, { env, sources: ["SCRIPTS_KEY"] });
  t.same(
    findings.map(({ level, id, what }) => [level, id, what]),
    [
      ["problem", "own-key", "MINE in the environment is a key that keybearer holds: every program gets it"],
      [
        "problem",
        "own-key",
        "OPENAI_API_KEY in the environment is a key that keybearer holds: every program gets it",
      ],
      ["problem", "own-key", "a key that keybearer holds is also in ~/.codex/auth.json:3"],
      ["problem", "own-key", "a key that keybearer holds is also in ~/project/.env:1"],
      ["problem", "own-key", "a key that keybearer holds is also in ~/.aider.conf.yml:1"],
    ],
  );
  t.same(
    findings.slice(2).map(({ next }) => next),
    ["keybearer adopt --write", "delete the key there", "delete the key there"],
    "what only its value shows is in a comment or in a field that is not known",
  );
});

t.test("after use --write, adopt moves what it leaves in the client's files", async (t) => {
  const home = await machine(t, {
    ".codex/auth.json": `{ "OPENAI_API_KEY": "${OURS}" }\n`,
    ".codex/config.toml":
      '[model_providers.keybearer]\nbase_url = "http://localhost:5397/v1"\n' +
      `[model_providers.old]\nbase_url = "https://gateway.example.com/v1"\nexperimental_bearer_token = "${OURS}"\n`,
  });
  const findings = await scan(t, home);
  t.match(
    findings.map(({ what, next }) => `${what} → ${next}`),
    [
      /auth\.json:1 → keybearer adopt --write$/,
      /config\.toml:5 → keybearer adopt --write$/,
      /^base_url in ~\/\.codex\/config\.toml:4 leads past keybearer, if Codex is set to use that provider → keybearer adopt --write$/,
    ],
  );
});

t.test("a key beside a gateway's address belongs to it, even if keybearer does not hold it", async (t) => {
  const home = await machine(t, {
    ".zshrc": `export OPENAI_BASE_URL=https://gateway.example.com/v1\nexport OPENAI_API_KEY=${OFFICIAL}\n`,
  });
  t.match(lines(await scan(t, home)), [
    /OPENAI_BASE_URL in ~\/\.zshrc:1 sends/,
    /^warning: OPENAI_API_KEY in ~\/\.zshrc:2 is a key of your gateway that keybearer does not hold:/,
  ]);
  t.equal((await scan(t, home))[0]?.next, "with its key: keybearer adopt --write");
});

t.test("settings of clients are found in each format, and an incomplete token is reported", async (t) => {
  const home = await machine(t, {
    ".config/opencode/opencode.json": `{"provider":{"x":{"options":{"baseURL":"${HOST}/v1","apiKey":"${OFFICIAL}"}}}}`,
    ".codex/config.toml": `model_provider = "x"\n[model_providers.x]\nbase_url = '${HOST}/v1'\n`,
    ".continue/config.yaml": `models:\n  - apiBase: ${HOST}/v1\n    apiKey: ${TOKEN.slice(0, -3)}\n`,
    "Library/LaunchAgents/env.plist": `<dict>\n<key>OPENAI_BASE_URL</key>\n<string>${HOST}</string></dict>`,
    ".config/powershell/profile.ps1": `$env:GEMINI_API_KEY = "${OFFICIAL}"\n`,
    ".config/systemd/user/agent.service": `[Service]\nEnvironment="OPENAI_API_BASE=${HOST}/v1" X=1\n`,
  });
  const text = lines(await scan(t, home, { platform: "darwin" })).join("\n");
  for (const place of [
    "GEMINI_API_KEY in ~/.config/powershell/profile.ps1:1 is a key",
    "OPENAI_API_BASE in ~/.config/systemd/user/agent.service:2 sends",
    "OPENAI_BASE_URL in ~/Library/LaunchAgents/env.plist:2 sends",
    "base_url in ~/.codex/config.toml:3 sends Codex past",
    "baseURL in ~/.config/opencode/opencode.json:1 sends",
    "apiKey in ~/.config/opencode/opencode.json:1 is a key",
    "apiBase in ~/.continue/config.yaml:2 sends Continue past",
    "problem: apiKey in ~/.continue/config.yaml:3 holds an incomplete token",
  ])
    t.ok(text.includes(place), place);
});

t.test("a program that prints a key and a login count where they are sent", async (t) => {
  const home = await machine(t, {
    ".zshrc": 'export OPENAI_API_KEY=$(pass show x)\nexport ANTHROPIC_API_KEY="$KEYBEARER_TOKEN"\n',
    ".profile": "export CLAUDE_CODE_USE_VERTEX=0\nexport CLAUDE_CODE_USE_FOUNDRY=1\n",
    ".claude/settings.json": `{ "env": { "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-abcdefghijkl" } }`,
    ".claude.json": `{ "mcpServers": { "x": { "env": { "SOME_KEY": "${OFFICIAL}" } } } }`,
  });
  const findings = await scan(t, home);
  t.match(lines(findings), [
    /^warning: CLAUDE_CODE_OAUTH_TOKEN in ~\/\.claude\/settings\.json:1 is a key that keybearer does not hold/,
    /^problem: CLAUDE_CODE_USE_FOUNDRY in ~\/\.profile:2 sends Claude Code past/,
    /^warning: OPENAI_API_KEY in ~\/\.zshrc:1 is a key that keybearer does not hold/,
  ]);
  t.equal(findings.length, 3, "a key of an MCP server is no client's");
});

t.test("files that must not be read are skipped and reported", async (t) => {
  const home = await machine(t, { ".zshrc": "", ".bashrc": "x".repeat(1_000_001), ".zshenv": "x" });
  await symlink("/dev/zero", join(home, ".profile"));
  await symlink("/etc/passwd", join(home, ".zprofile"));
  await symlink(join(home, "gone"), join(home, ".kshrc"));
  await mkdir(join(home, ".bash_profile"));
  execFileSync("mkfifo", [join(home, ".zlogin")]);
  await chmod(join(home, ".zshenv"), 0o000);
  const text = lines(await scan(t, home)).at(-1) ?? "";
  t.match(text, /^warning: not checked: /);
  t.match(text, /~\/\.profile is a link that leads out of/);
  t.match(text, /~\/\.bashrc is larger than 1 MB/);
  t.match(text, /~\/\.bash_profile is not a file/);
  if (process.getuid?.() === 0)
    return void t.skip("a file that may not be read: root may read all", async () => {});
  t.match(text, /~\/\.zshenv may not be read/);
});

t.test("a scan that fails or hangs is a warning", async (t) => {
  const locked = await scanOrProblem(Promise.reject(new Error("a folder is locked")));
  t.match(locked, [{ about: "this machine", level: "warning", what: /a folder is locked/ }]);
  const hanging = await scanOrProblem(new Promise(() => {}), 1);
  t.match(hanging, [{ about: "this machine", level: "warning", what: /it took too long/ }]);
});

// A pattern that backtracks would take hours for these.
longTest(t, "a hostile file is searched in bounded time", async (t) => {
  const texts = ["set -".repeat(190_000), '"apiKey": "\\'.repeat(70_000), "apiKey = ".repeat(100_000)];
  for (const text of texts) {
    const home = await machine(t, { ".bashrc": text, ".codex/config.toml": text });
    await t.resolves(scan(t, home));
  }
});
