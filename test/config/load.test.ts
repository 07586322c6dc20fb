import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmod, chown, copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { type Loaded, loadConfig } from "../../src/config/load.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import { asOrdinaryUser } from "../doubles/ordinary-user.ts";

const KEY = `sk-${randomBytes(16).toString("hex")}`;
const WITHOUT = "gateway: https://gateway.example.com/v1\ntools: { codex: { key: env:KEY } }\n";
const WITH = WITHOUT.replace("env:KEY", KEY);
const LOGIN = `gateways: { main: { base_url: https://gateway.example.com/v1, console: { login: { password: ${KEY} } } } }\ntools: { codex: { key: env:KEY } }\n`;

async function folder(t: Test): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(made, { recursive: true, force: true }));
  return made;
}

async function written(t: Test, text: string | Buffer, mode = 0o600): Promise<string> {
  const file = join(await folder(t), "config.yaml");
  await writeFile(file, text);
  await chmod(file, mode);
  return file;
}

async function load(file: string, strict = true): Promise<Loaded> {
  const loaded = await loadConfig(file, { home: "/home/me", strict });
  t.notOk(JSON.stringify(loaded.problems).includes(KEY), "the key is in no problem");
  return loaded;
}

t.test("a private file without a mistake has no problems", async (t) => {
  const loaded = await load(await written(t, WITH));
  t.match(loaded, { found: true, text: WITH, problems: [] });
  t.equal(loaded.config?.tools.codex?.key.kind, "literal");
});

for (const [mode, verb] of [
  [0o644, "read"],
  [0o640, "read"],
  [0o660, "change"],
  [0o602, "change"],
] as const) {
  const octal = mode.toString(8);
  t.test(`a key in a file of mode ${octal} is an error that names the chmod`, async (t) => {
    const file = await written(t, WITH, mode);
    const loaded = await load(file);
    t.equal(loaded.config, null);
    t.match(loaded.problems, [
      { severity: "error", message: `other users can ${verb} ${file}`, hint: `chmod 600 ${file}` },
    ]);
  });

  t.test(`mode ${octal} without a key inside is a warning, and the file is used`, async (t) => {
    const file = await written(t, WITHOUT, mode);
    const loaded = await load(file);
    t.not(loaded.config, null);
    t.match(loaded.problems, [
      { severity: "warning", message: `other users can ${verb} ${file}`, hint: `chmod 600 ${file}` },
    ]);
  });
}

t.test("a console's password counts as a secret, too", async (t) => {
  t.equal((await load(await written(t, LOGIN, 0o644))).config, null);
});

t.test("the shared store's password counts as a secret, too", async (t) => {
  const store = (password: string) =>
    `${WITHOUT}shared: { store: { url: rediss://s.example.net, password: "${password}" } }\n`;
  t.match(await load(await written(t, store(KEY), 0o644)), {
    config: null,
    problems: [{ hint: /chmod 600/ }],
  });
  t.not((await load(await written(t, store("env:KEY"), 0o644))).config, null);
  const secret = `${WITHOUT}shared: { store: rediss://s.example.net, secret: "${KEY}" }\n`;
  t.equal((await load(await written(t, secret, 0o644))).config, null);
});

t.test("the ca_file of the shared store is read with config.yaml", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const pem = join(await folder(t), "ca.pem");
  await copyFile(certificates.authority, pem);
  const text = `${WITHOUT}shared: { store: { url: rediss://s.example.net, ca_file: ${pem} } }\n`;
  const { config, problems } = await load(await written(t, text));
  t.same(problems, []);
  t.equal(config?.shared?.store.authority?.pem, await readFile(pem, "utf8"));
  t.ok(Object.isFrozen(config?.shared) && Object.isFrozen(config?.shared?.store));
  await writeFile(pem, "not a certificate");
  t.match(await load(await written(t, text)), { config: null, problems: [{ path: "shared.store.ca_file" }] });
});

t.test("a file that is only checked gets a warning, with a key inside as well", async (t) => {
  const loaded = await load(await written(t, WITH, 0o644), false);
  t.not(loaded.config, null);
  t.match(loaded.problems, [{ severity: "warning", hint: /chmod 600/ }]);
});

t.test("through a link it is the file itself that must be private", async (t) => {
  const file = await written(t, WITH, 0o644);
  const link = join(await folder(t), "config.yaml");
  await symlink(file, link);
  t.equal((await load(link)).config, null);
  await chmod(file, 0o600);
  t.not((await load(link)).config, null);
});

t.test("a key inside a git work tree is a warning, a reference is none", async (t) => {
  const root = await folder(t);
  await mkdir(join(root, ".git"));
  await mkdir(join(root, "a", "b"), { recursive: true });
  const file = join(root, "a", "b", "config.yaml");
  await writeFile(file, WITH, { mode: 0o600 });
  const loaded = await load(file);
  t.not(loaded.config, null);
  t.match(loaded.problems, [
    {
      severity: "warning",
      message: `there is a key in ${file}, inside the git work tree ${root}`,
      hint: /env:/,
    },
  ]);
  await writeFile(file, WITHOUT);
  t.same((await load(file)).problems, []);
});

t.test("a file over 1 MB is refused unread, one of 1 MB is not", async (t) => {
  const most = `${WITHOUT}#${" ".repeat(1_000_000 - WITHOUT.length - 1)}`;
  t.equal(most.length, 1_000_000);
  t.same((await load(await written(t, most))).problems, []);
  const loaded = await load(await written(t, `${most} `));
  t.match(loaded, {
    found: true,
    text: null,
    config: null,
    problems: [{ severity: "error", message: /larger than 1 MB: not read/ }],
  });
});

t.test("a file that is not UTF-8 is refused", async (t) => {
  for (const bytes of [Buffer.from([0xff, 0xfe, 0x61, 0x00]), Buffer.from([0x61, 0x3a, 0x20, 0xe9])]) {
    t.match(await load(await written(t, bytes)), {
      found: true,
      text: null,
      config: null,
      problems: [{ message: /is not UTF-8 text/ }],
    });
  }
});

t.test("a byte order mark is kept in the text and does no harm", async (t) => {
  const loaded = await load(await written(t, `\u{FEFF}${WITH}`));
  t.equal(loaded.text, `\u{FEFF}${WITH}`);
  t.same(loaded.problems, []);
});

t.test("what is not a file is refused", async (t) => {
  const made = await folder(t);
  t.match(await load(made), {
    found: true,
    text: null,
    config: null,
    problems: [{ message: `${made} is not a file` }],
  });
  t.match(await load("/dev/null"), {
    found: true,
    config: null,
    problems: [{ message: "/dev/null is not a file" }],
  });
});

t.test("a pipe without a writer is refused at once", async (t) => {
  const pipe = join(await folder(t), "config.yaml");
  t.equal(spawnSync("mkfifo", [pipe]).status, 0);
  t.match(await load(pipe), { found: true, config: null, problems: [{ message: `${pipe} is not a file` }] });
});

t.test("a file that is not there is distinguished from one that cannot be read", async (t) => {
  const file = join(await folder(t), "config.yaml");
  t.match(await load(file), {
    found: false,
    text: null,
    config: null,
    problems: [{ message: `there is no ${file}` }],
  });
  const under = join(await written(t, WITH), "config.yaml");
  t.match(await load(under), { found: true, text: null, problems: [{ message: /cannot be read: ENOTDIR/ }] });
  const unreadable = await written(t, WITH, 0o000);
  asOrdinaryUser(t, dirname(unreadable), unreadable);
  t.match(await load(unreadable), {
    found: true,
    text: null,
    config: null,
    problems: [{ message: /cannot be read: EACCES/ }],
  });
});

const notRoot = process.getuid?.() === 0 ? false : "only root can give a file away";

t.test("a file that belongs to another user is not used with a key in it", { skip: notRoot }, async (t) => {
  const file = await written(t, WITH);
  await chown(file, 65_534, 65_534);
  t.match(await load(file), {
    config: null,
    problems: [{ severity: "error", message: /belongs to another user/ }],
  });
});

const CONSOLE =
  "gateways: { main: { base_url: https://gateway.example.com/v1, console: { kind: openrouter } } }";

t.test("a console that cannot be mirrored is an error that names the kinds that can", async (t) => {
  const text = WITHOUT.replace("gateway: https://gateway.example.com/v1", CONSOLE);
  t.match(await load(await written(t, text)), {
    config: null,
    problems: [
      {
        severity: "error",
        path: "gateways.main.console.kind",
        message: /openrouter is not supported yet; sub2api, new-api, one-api, litellm are/,
        hint: /omit console:/,
      },
    ],
  });
});
