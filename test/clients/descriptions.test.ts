import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import {
  type DescribedFile,
  fillPattern,
  type KeyField,
  matchingPaths,
  matchPattern,
  type Surroundings,
} from "../../src/clients/description.ts";
import { formatFor } from "../../src/clients/format.ts";
import { valueIn } from "../../src/clients/setting.ts";
import { DESCRIPTIONS, findFile, WRITABLE } from "../../src/clients/settings-files.ts";
import { CLIENTS } from "../../src/clients/table.ts";
import { findVariable, referenceIn, VARIABLES } from "../../src/clients/variables.ts";

const KEY = "sk-9f3Kx7Qm2LpZ8vTn4RbW6yHc";
const GATEWAY = "https://gw.example.com/v1";

function machine(t: Test, files: Readonly<Record<string, string>>, more: Partial<Surroundings> = {}) {
  const home = mkdtempSync(join(tmpdir(), "kb-described-"));
  t.teardown(() => rmSync(home, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text);
  }
  const where: Surroundings = { env: {}, home, cwd: home, platform: "linux", folders: [], ...more };
  return { home, where };
}

/** Every key field with a value in it: client, file, path, the key, where it goes, and how it is moved. */
function keysOn(where: Surroundings): string[] {
  const found: string[] = [];
  const seen = new Set<string>();
  for (const { client, files } of DESCRIPTIONS) {
    for (const file of files(where)) {
      const tree = treeOf(file.path, file.format);
      if (tree === undefined || file.isShared || file.isOpaque || seen.has(file.path)) continue;
      seen.add(file.path);
      const name = file.path.replace(`${where.home}/`, "~/");
      for (const key of file.keys)
        found.push(...keysIn(file, key, tree).map((line) => `${client} ${name} ${line}`));
    }
  }
  return found;
}

function keysIn(file: DescribedFile, field: KeyField, tree: unknown): string[] {
  return matchingPaths(tree, field.key).flatMap((path) => {
    const names = matchPattern(field.key, path) ?? [];
    const value = valueIn(tree, path);
    if (typeof value !== "string") return [];
    const key = field.within === null ? value : field.within.exec(value)?.[2];
    if (key === undefined) return [];
    const beside = field.address === null ? undefined : valueIn(tree, fillPattern(field.address, names));
    const address =
      typeof beside === "string" ? beside : (elsewhere(field, names) ?? builtIn(field, names, tree));
    const how = file.byHand === null ? field.move : "by hand";
    return [
      `${path.join(".")} ${key.replace(KEY, "KEY")} ${address ?? "?"} ${field.isName ? "variable, " : ""}${how}`,
    ];
  });
}

function elsewhere({ elsewhere }: KeyField, names: readonly (string | number)[]): string | null {
  for (const { path, format } of elsewhere?.files.toReversed() ?? []) {
    const found = elsewhere?.address(treeOf(path, format), names);
    if (typeof found === "object") return found.address;
    if (found === "ambiguous") return "?";
  }
  return null;
}

function builtIn({ builtIn }: KeyField, names: readonly (string | number)[], tree: unknown): string | null {
  return typeof builtIn === "function" ? builtIn(names, tree) : builtIn;
}

function treeOf(path: string, format: DescribedFile["format"]): unknown {
  return format === "text" || !existsSync(path)
    ? undefined
    : formatFor(format).at(readFileSync(path, "utf8"), []);
}

t.test("the keys in clients' own files are found, each with the address that it goes to", async (t) => {
  const { where } = machine(t, {
    ".claude/settings.json": `{ "apiKeyHelper": "echo '${KEY}'", "env": { "ANTHROPIC_BASE_URL": "${GATEWAY}" } }`,
    ".codex/config.toml": `model_provider = "gw"\n[model_providers.gw]\nbase_url = "${GATEWAY}"\nenv_key = "GW_KEY"\nrequires_openai_auth = true\n[model_providers.two]\nexperimental_bearer_token = "${KEY}"\nhttp_headers = { Authorization = "Bearer ${KEY}", X-Org = "me" }\n[mcp_servers.web.env]\nWEB_KEY = "${KEY}"\n`,
    ".codex/auth.json": `{ "OPENAI_API_KEY": "${KEY}", "auth_mode": "apikey" }`,
    ".config/opencode/opencode.json": `{ "provider": { "gw": { "options": { "apiKey": "${KEY}", "baseURL": "${GATEWAY}" } }, "openai": { "options": { "apiKey": "{env:X}" } } } }`,
    ".local/share/opencode/auth.json": `{ "gw": { "type": "api", "key": "${KEY}" }, "anthropic": { "type": "api", "key": "${KEY}" }, "github": { "type": "oauth", "access": "x" } }`,
    ".qwen/settings.json": `{ "security": { "auth": { "apiKey": "${KEY}", "baseUrl": "${GATEWAY}" } }, "modelProviders": { "openai": [{ "id": "x", "envKey": "X_KEY", "baseUrl": "${GATEWAY}" }] } }`,
    ".cline/data/settings/providers.json": `{ "providers": { "anthropic": { "settings": { "apiKey": "${KEY}" } } } }`,
    ".cline/data/secrets.json": `{ "openAiApiKey": "${KEY}", "openRouterApiKey": "${KEY}" }`,
    ".cline/data/globalState.json": `{ "openAiBaseUrl": "${GATEWAY}" }`,
    ".continue/config.yaml": `models:\n  - provider: openai\n    apiKey: ${KEY}\n  - apiBase: ${GATEWAY}\n    apiKey: \${{ secrets.GW }}\n`,
    ".aider.conf.yml": `openai-api-key: ${KEY}\napi-key:\n  - gemini=${KEY}\n`,
    ".config/io.datasette.llm/keys.json": `{ "openai": "${KEY}", "gw": "${KEY}", "other": "${KEY}" }`,
    ".config/io.datasette.llm/extra-openai-models.yaml": `- model_id: a\n  api_base: ${GATEWAY}\n  api_key_name: gw\n`,
    ".config/goose/secrets.yaml": `OPENAI_API_KEY: ${KEY}\nCUSTOM_GW_API_KEY: ${KEY}\n`,
    ".config/goose/config.yaml": `OPENAI_HOST: https://gw.example.com\n`,
    ".config/goose/custom_providers/custom_gw.json": `{ "api_key_env": "CUSTOM_GW_API_KEY", "base_url": "https://two.example.com" }`,
    ".config/crush/crush.json": `{ "providers": { "gw": { "base_url": "${GATEWAY}", "api_key": "$GW_KEY" } } }`,
    ".pi/agent/auth.json": `{ "gw": { "type": "api_key", "key": "${KEY}" } }`,
    ".pi/agent/models.json": `{ "providers": { "gw": { "baseUrl": "${GATEWAY}", "apiKey": "GW_KEY" } } }`,
    ".claude.json": `{ "primaryApiKey": "${KEY}", "mcpServers": { "web": { "env": { "WEB_KEY": "${KEY}" } } } }`,
  });
  t.same(keysOn(where), [
    `claude-code ~/.claude/settings.json apiKeyHelper KEY ${GATEWAY} rewrite`,
    "claude-code ~/.claude.json primaryApiKey KEY https://api.anthropic.com by hand",
    "claude-code ~/.claude.json mcpServers.web.env.WEB_KEY KEY ? by hand",
    `codex ~/.codex/auth.json OPENAI_API_KEY KEY ${GATEWAY} rewrite`,
    "codex ~/.codex/config.toml model_providers.two.experimental_bearer_token KEY https://api.openai.com/v1 in place",
    `codex ~/.codex/config.toml model_providers.gw.env_key GW_KEY ${GATEWAY} variable, in place`,
    "codex ~/.codex/config.toml model_providers.two.http_headers.Authorization KEY https://api.openai.com/v1 in place",
    "codex ~/.codex/config.toml mcp_servers.web.env.WEB_KEY KEY ? by hand",
    `opencode ~/.local/share/opencode/auth.json gw.key KEY ${GATEWAY} rewrite`,
    "opencode ~/.local/share/opencode/auth.json anthropic.key KEY https://api.anthropic.com/v1 rewrite",
    `opencode ~/.config/opencode/opencode.json provider.gw.options.apiKey KEY ${GATEWAY} in place`,
    "opencode ~/.config/opencode/opencode.json provider.openai.options.apiKey {env:X} https://api.openai.com/v1 in place",
    `qwen-code ~/.qwen/settings.json security.auth.apiKey KEY ${GATEWAY} in place`,
    `qwen-code ~/.qwen/settings.json modelProviders.openai.0.envKey X_KEY ${GATEWAY} variable, in place`,
    `cline-cli ~/.cline/data/secrets.json openAiApiKey KEY ${GATEWAY} rewrite`,
    "cline-cli ~/.cline/data/secrets.json openRouterApiKey KEY https://openrouter.ai/api/v1 rewrite",
    "cline-cli ~/.cline/data/settings/providers.json providers.anthropic.settings.apiKey KEY https://api.anthropic.com/v1 in place",
    "continue ~/.continue/config.yaml models.0.apiKey KEY https://api.openai.com/v1 in place",
    `continue ~/.continue/config.yaml models.1.apiKey \${{ secrets.GW }} ${GATEWAY} in place`,
    "aider ~/.aider.conf.yml openai-api-key KEY https://api.openai.com/v1 in place",
    "aider ~/.aider.conf.yml api-key.0 KEY ? by hand",
    "llm ~/.config/io.datasette.llm/keys.json openai KEY https://api.openai.com/v1 rewrite",
    `llm ~/.config/io.datasette.llm/keys.json gw KEY ${GATEWAY} rewrite`,
    "llm ~/.config/io.datasette.llm/keys.json other KEY ? rewrite",
    "goose ~/.config/goose/secrets.yaml OPENAI_API_KEY KEY https://gw.example.com rewrite",
    "goose ~/.config/goose/secrets.yaml CUSTOM_GW_API_KEY KEY https://two.example.com rewrite",
    `crush ~/.config/crush/crush.json providers.gw.api_key $GW_KEY ${GATEWAY} in place`,
    `pi ~/.pi/agent/models.json providers.gw.apiKey GW_KEY ${GATEWAY} in place`,
    `pi ~/.pi/agent/auth.json gw.key KEY ${GATEWAY} rewrite`,
  ]);
});

t.test("a key in auth.json of Codex that no provider in use sends has no certain address", async (t) => {
  const { where } = machine(t, {
    ".codex/config.toml": `model_provider = "gw"\n[model_providers.gw]\nbase_url = "${GATEWAY}"\nenv_key = "X_KEY"\n`,
    ".codex/auth.json": `{ "OPENAI_API_KEY": "${KEY}" }`,
  });
  t.match(keysOn(where)[0], /OPENAI_API_KEY KEY \? rewrite/);
});

t.test(
  "files come in the order in which the client reads them, with a project's behind the user's",
  async (t) => {
    const { home, where } = machine(t, { "code/app/.git/HEAD": "", "code/app/src/x": "" });
    const project: Surroundings = { ...where, cwd: join(home, "code/app/src") };
    const files = (client: string, around = project) =>
      (DESCRIPTIONS.find((each) => each.client === client)?.files(around) ?? [])
        .filter(({ byHand, isOpaque }) => byHand === null && !isOpaque)
        .map(({ path, isProject }) => `${path.replace(`${home}/`, "~/")}${isProject ? " (project)" : ""}`);
    t.same(files("claude-code"), [
      "~/.claude/settings.json",
      "~/code/app/.claude/settings.json (project)",
      "~/code/app/.claude/settings.local.json (project)",
      "~/code/app/src/.claude/settings.json (project)",
      "~/code/app/src/.claude/settings.local.json (project)",
    ]);
    t.same(files("gemini-cli").slice(0, 6), [
      "~/.env",
      "~/.gemini/.env",
      "~/code/app/.env (project)",
      "~/code/app/.gemini/.env (project)",
      "~/code/app/src/.env (project)",
      "~/code/app/src/.gemini/.env (project)",
    ]);
    t.same(files("aider").slice(-3), [
      "~/.aider.conf.yml",
      "~/code/app/.aider.conf.yml (project)",
      "~/code/app/src/.aider.conf.yml (project)",
    ]);
    t.same(
      files("claude-code", { ...where, folders: [join(home, "other")] }).slice(1),
      ["~/other/.claude/settings.json (project)", "~/other/.claude/settings.local.json (project)"],
      "a folder that was named counts without a repository",
    );
    t.same(files("claude-code", where), ["~/.claude/settings.json"], "the home folder is no project");
  },
);

t.test("each client's own variables say where its files are", async (t) => {
  const { home, where } = machine(t, {});
  const first = (client: string, env: Record<string, string>) =>
    DESCRIPTIONS.find((each) => each.client === client)
      ?.writes({ ...where, env })
      .flatMap((settings) => settings.files({ ...where, env }));
  t.same(first("claude-code", { CLAUDE_CONFIG_DIR: "/c" }), ["/c/settings.json"]);
  t.same(first("codex", { CODEX_HOME: "/x" }), ["/x/config.toml"]);
  t.same(first("opencode", { OPENCODE_CONFIG: "own.json" }), [join(home, "own.json")]);
  t.same(first("opencode", { XDG_CONFIG_HOME: "relative" }), [
    join(home, ".config/opencode/opencode.jsonc"),
    join(home, ".config/opencode/opencode.json"),
  ]);
  t.same(first("kilo-code", { XDG_CONFIG_HOME: "/xdg" }), ["/xdg/kilo/kilo.jsonc", "/xdg/kilo/kilo.json"]);
  t.same(first("qwen-code", { QWEN_HOME: "/q" }), ["/q/settings.json"]);
  t.same(first("cline-cli", { CLINE_DATA_DIR: "/d" }), ["/d/settings/providers.json"]);
  t.same(first("llm", { LLM_USER_PATH: "/l" }), ["/l/keys.json", "/l/extra-openai-models.yaml"]);
  t.same(first("pi", { PI_CODING_AGENT_DIR: "/p" }), ["/p/models.json", "/p/settings.json"]);
  t.same(first("copilot-cli", { SHELL: "/bin/zsh", ZDOTDIR: "/z" }), ["/z/.zshrc"]);
});

t.test("variables: who reads them, their addresses exist, and each is there once", async (t) => {
  const ids = new Set(CLIENTS.map(({ id }) => id));
  t.equal(new Set(VARIABLES.map(({ name }) => name)).size, VARIABLES.length);
  for (const { name, clients, address } of VARIABLES) {
    for (const client of clients) t.ok(ids.has(client), `${name}: ${client}`);
    for (const each of address) t.equal(findVariable(each)?.role, "address", `${name}: ${each}`);
  }
  t.match(findVariable("ANTHROPIC_AUTH_TOKEN"), {
    role: "key",
    family: "anthropic",
    base: "root",
    builtIn: "https://api.anthropic.com",
  });
});

t.test("a reference to a variable is not a key", async (t) => {
  const braced = ["GW", "env:GW", "{ secrets.GW }", "GW:-"].map((inner) => `$\{${inner}}`);
  const references = [...braced, "{env:GW}", "$GW", "os.environ/GW"];
  for (const text of references) t.equal(referenceIn(text), "GW", text);
  t.equal(referenceIn("GW_API_KEY"), "GW_API_KEY", "pi");
  for (const text of [
    KEY,
    "$(pass show gw)",
    "!pass show gw",
    "{file:~/key}",
    "kb_abc",
    "$GW-more",
    "SECRET",
  ])
    t.equal(referenceIn(text), null, text);
});

t.test("only files and settings that a write can reach are known for --undo", async (t) => {
  const { home, where } = machine(t, { ".config/fish/conf.d/keys.fish": "" });
  const claude = findFile("claude-code", join(home, ".claude/settings.json"), where);
  t.equal(claude?.format, "json");
  t.match(claude?.field(["env", "ANTHROPIC_BASE_URL"], false), { holds: "address" });
  t.match(claude?.field(["env", "OPENAI_API_KEY"], false), { holds: "key" });
  t.match(claude?.field(["apiKeyHelper"], false), { holds: "other" });
  t.equal(claude?.field(["hooks"], true), null);
  t.equal(claude?.field(["env", "PATH"], false), null);
  t.match(claude?.field(["env", "GW"], true), { holds: "key" }, "a key may go back into any variable");
  t.ok(findFile("claude-code", "/srv/app/.claude/settings.local.json", where), "a project's file");
  t.equal(findFile("claude-code", join(home, ".claude/other.json"), where), null);
  t.equal(findFile("claude-code", "/etc/claude-code/managed-settings.json", where), null, "only reported");
  t.equal(findFile("shell", join(home, ".profile"), where)?.format, "sh");
  t.equal(findFile("shell", join(home, ".config/fish/conf.d/keys.fish"), where)?.format, "fish");
  t.match(findFile("shell", join(home, ".zshrc"), where)?.field(["OPENAI_API_KEY", 1], false), {
    holds: "key",
  });
  t.equal(findFile("shell", join(home, ".zshrc"), where)?.field(["PATH", 0], false), null);
  t.equal(findFile("env-file", "/srv/app/.env.local", where), null, "it is not there");
  t.equal(findFile("aider", join(home, ".claude/settings.json"), where), null, "another client's");
  t.equal(findFile("nobody", join(home, ".profile"), where), null);
});

t.test("what keybearer only reports has steps for a person, and what it moves can be written", async (t) => {
  const { where } = machine(t, {});
  for (const platform of ["linux", "darwin"] as const) {
    for (const { client, files } of DESCRIPTIONS) {
      for (const file of files({ ...where, platform })) {
        const isReported = file.format === "text" || file.isOpaque;
        if (isReported) t.type(file.byHand, "string", `${client} ${file.path}`);
        for (const { key, move, byHand } of file.keys) {
          if (move === "by hand") t.type(byHand ?? file.byHand, "string", `${client} ${key.join(".")}`);
          if (move === "rewrite" && file.byHand === null) t.ok(WRITABLE.includes(client), client);
        }
      }
    }
  }
});
