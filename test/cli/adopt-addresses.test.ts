import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { command, newHome } from "../doubles/command.ts";
import { canary } from "../doubles/secret-scan.ts";

/* Which address a key belongs to. A wrong one would send the key to somebody else, so in doubt a key is reported. */

const GATEWAY = "https://gateway.example.com";

/** What adopt says of the only key: where it would be sent; "reported": nowhere. @ stands for the key in the files. */
async function findAddress(t: Test, files: Readonly<Record<string, string>>, cwd = "") {
  const home = await newHome(t);
  const key = canary();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text.replaceAll("@", key), { mode: 0o600 });
  }
  const before = process.cwd();
  process.chdir(join(home, cwd));
  try {
    const { stdout, code } = await command(t, home, ["adopt", "--json"], { env: { SHELL: "/bin/zsh" } });
    t.equal(code, 1);
    t.notOk(stdout.includes(key.slice(0, -4)));
    const { keys, reported } = JSON.parse(stdout);
    t.equal(keys.length + reported.length > 0, true, stdout);
    return reported.length > 0
      ? "reported"
      : keys.map((each: { base_url: string }) => each.base_url).join(" ");
  } finally {
    process.chdir(before);
  }
}

const CASES: Readonly<Record<string, readonly [files: Readonly<Record<string, string>>, address: string]>> = {
  "beside the key": [
    { ".zshrc": `export OPENAI_BASE_URL=${GATEWAY}/v1\nexport OPENAI_API_KEY=@\n` },
    `${GATEWAY}/v1`,
  ],
  "built in, if there is none anywhere": [
    { ".zshrc": "export OPENAI_API_KEY=@\n" },
    "https://api.openai.com/v1",
  ],
  "in another start file": [
    { ".zshenv": `export OPENAI_BASE_URL=${GATEWAY}/v1\n`, ".zshrc": "export OPENAI_API_KEY=@\n" },
    `${GATEWAY}/v1`,
  ],
  "in the settings of the client that reads the variable": [
    {
      ".claude/settings.json": `{"env":{"ANTHROPIC_BASE_URL":"${GATEWAY}"}}`,
      ".zshrc": "export ANTHROPIC_AUTH_TOKEN=@\n",
    },
    `${GATEWAY}/v1`,
  ],
  "in a variable, for a field of a client": [
    { ".zshrc": `export OPENAI_API_BASE=${GATEWAY}/v1\n`, ".aider.conf.yml": "openai-api-key: @\n" },
    `${GATEWAY}/v1`,
  ],
  "from another variable": [
    { ".zshrc": 'export OPENAI_BASE_URL="$GW/v1"\nexport OPENAI_API_KEY=@\n' },
    "reported",
  ],
  "from another variable, in a start file": [
    { ".zshenv": "export OPENAI_BASE_URL=$GW\n", ".zshrc": "export OPENAI_API_KEY=@\n" },
    "reported",
  ],
  "two different ones": [
    {
      ".zshenv": `export OPENAI_BASE_URL=${GATEWAY}/v1\n`,
      ".zprofile": "export OPENAI_BASE_URL=https://other.example.com/v1\n",
      ".zshrc": "export OPENAI_API_KEY=@\n",
    },
    "reported",
  ],
  "in a file that keybearer does not change, and that wins": [
    { ".zshrc": "export OPENAI_API_KEY=@\n", ".xprofile": `export OPENAI_BASE_URL=${GATEWAY}/v1\n` },
    "reported",
  ],
  "with a key in it": [
    { ".zshrc": `export OPENAI_BASE_URL=${GATEWAY}/@/v1\nexport OPENAI_API_KEY=@\n` },
    "reported",
  ],
};

for (const [title, [files, address]] of Object.entries(CASES))
  t.test(`an address ${title}`, async (t) => {
    t.equal(await findAddress(t, files), address);
  });

t.test("a project's address never counts for a key outside the project", async (t) => {
  const files = {
    ".aider.conf.yml": "openai-api-key: @\n",
    "repo/.git/HEAD": "ref: refs/heads/main\n",
    "repo/.aider.conf.yml": "openai-api-base: https://evil.example.com/v1\n",
  };
  t.equal(await findAddress(t, files, "repo"), "reported");
});

t.test("a key that Claude Code would send beside its token is reported, not moved", async (t) => {
  const home = await newHome(t);
  mkdirSync(join(home, ".claude"));
  const { makeToken } = await import("../../src/core/token.ts");
  const env = { ANTHROPIC_BASE_URL: "http://localhost:5397", ANTHROPIC_AUTH_TOKEN: makeToken() };
  writeFileSync(join(home, ".claude/settings.json"), JSON.stringify({ env }), { mode: 0o600 });
  writeFileSync(join(home, ".zshrc"), `export ANTHROPIC_API_KEY=${canary()}\n`, { mode: 0o600 });
  const { stdout } = await command(t, home, ["adopt"], {});
  t.match(stdout.replaceAll(/\s+/g, " "), /ANTHROPIC_API_KEY: Claude Code sends it beside its token/);
  t.notMatch(stdout, "next:");
});

t.test("options that contradict each other are refused", async (t) => {
  const home = await newHome(t);
  for (const args of [
    ["--undo", "nonsense"],
    ["--undo", "--only", "codex"],
    ["--only", "nonsense"],
    ["--store", "file"],
    ["--force"],
  ]) {
    const { code, stderr } = await command(t, home, ["adopt", ...args]);
    t.equal(code, 2, `${args.join(" ")}: ${stderr}`);
  }
});
