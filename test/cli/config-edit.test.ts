import { lstatSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { join } from "node:path";
import t, { type Test } from "tap";
import { command, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { atScreen } from "../doubles/screen.ts";

const CONFIG = `listen: localhost:0
gateway: http://127.0.0.1:9/v1
tools:
  codex: { key: env:CODEX_KEY }   # mine
`;
const BETTER = CONFIG.replace("}", ", limits: { requests: 60/minute } }");
const WORSE = CONFIG.replace("tools:", "tolls:");

/** `config edit` at a terminal, with an editor that is a shell script; $1 is the file to edit. */
function editWith(t: Test, home: string, script: string, env: NodeJS.ProcessEnv = {}) {
  const editor = join(home, "editor.sh");
  writeFileSync(editor, `#!/bin/sh\n${script}\n`, { mode: 0o700 });
  writeFileSync(join(home, "better.yaml"), BETTER);
  writeFileSync(join(home, "worse.yaml"), WORSE);
  return atScreen(t, home, ["config", "edit"], { env: { EDITOR: editor, ...env } });
}

/** The copies that were left beside config.yaml. */
function copiesIn(home: string): string[] {
  return readdirSync(home).filter((name) => name.startsWith(".config"));
}

t.test("config edit is refused without a terminal", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const { code, stderr } = await command(t, home, ["config", "edit"], { env: { EDITOR: "false" } });
  t.match({ code, stderr }, { code: 2, stderr: /needs a person at a terminal/ });
  t.equal(readFileSync(file, "utf8"), CONFIG);
});

t.test("the editor gets a private copy, and a good text replaces config.yaml", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const script = `stat -c %a "$2" > ${home}/mode; cat ${home}/better.yaml > "$2"`;
  const { code, stdout } = await editWith(t, home, script, { VISUAL: `${home}/editor.sh --wait` }).ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /config\.yaml is saved/);
  t.equal(readFileSync(file, "utf8"), BETTER);
  t.equal(readFileSync(join(home, "mode"), "utf8"), "600\n");
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.same(copiesIn(home), []);
});

t.test("a text without changes is not saved, and a link stays a link", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  await mkdir(join(home, "dotfiles"));
  const target = join(home, "dotfiles", "keybearer.yaml");
  await rename(file, target);
  symlinkSync(target, file);
  const inode = statSync(file).ino;
  const same = await editWith(t, home, "touch $1").ended;
  t.match(same, { code: 0, stdout: /nothing was changed/ });
  t.equal(statSync(file).ino, inode);
  const changed = await editWith(t, home, `cp ${home}/better.yaml "$1"`).ended;
  t.equal(changed.code, 0, changed.stdout);
  t.ok(lstatSync(file).isSymbolicLink());
  t.equal(readFileSync(target, "utf8"), BETTER);
  t.same(copiesIn(home), []);
});

t.test("problems are shown, and the editor opens again with the same text", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const script = `if [ -e ${home}/again ]; then grep -q tolls "$1" && cp ${home}/better.yaml "$1"
else touch ${home}/again; cp ${home}/worse.yaml "$1"; fi`;
  const person = editWith(t, home, script);
  await person.says(/1 problem\. open the editor again\? \[Y\/n\]/);
  t.match(person.stdout(), /config\.yaml:3:1: tolls:\s+"tolls"\s+is\s+not a\s+setting\s+here/);
  t.match(person.stdout(), /did you mean tools\?/);
  t.equal(readFileSync(file, "utf8"), CONFIG);
  person.type("y\r");
  t.equal((await person.ended).code, 0);
  t.equal(readFileSync(file, "utf8"), BETTER);
  t.same(copiesIn(home), []);
});

t.test("a text that is not applied is kept beside config.yaml", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const person = editWith(t, home, `cp ${home}/worse.yaml "$1"`);
  await person.says(/open the editor again\?/);
  person.type("n\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 78);
  t.match(stdout, /not applied; nothing was changed/);
  t.equal(readFileSync(file, "utf8"), CONFIG);
  const [copy = ""] = copiesIn(home);
  t.match(stdout.replace(/\s+/g, " "), new RegExp(`your text is kept in .*${copy}`));
  t.equal(readFileSync(join(home, copy), "utf8"), WORSE);
  t.equal(statSync(join(home, copy)).mode & 0o777, 0o600);
});

t.test("a file that another program saved meanwhile is not overwritten", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const { code, stdout } = await editWith(t, home, `cp ${home}/better.yaml "$1"; echo '# theirs' >> ${file}`)
    .ended;
  t.equal(code, 1);
  t.match(stdout.replace(/\s+/g, " "), /was changed by something else meanwhile and was left as it is/);
  t.equal(readFileSync(file, "utf8"), `${CONFIG}# theirs\n`);
  t.equal(copiesIn(home).length, 1);
});

t.test("an editor that fails or is missing changes nothing", async (t) => {
  const home = await newHome(t);
  const file = await saveConfig(home, CONFIG);
  const failed = await editWith(t, home, "exit 3").ended;
  t.match(failed, { code: 1, stdout: /the editor ended with exit code 3/ });
  const missing = await editWith(t, home, "", { EDITOR: "/no/such/editor" }).ended;
  t.equal(missing.code, 1);
  t.match(missing.stdout, /the editor \/no\/such\/editor cannot be started/);
  t.equal(readFileSync(file, "utf8"), CONFIG);
  t.same(copiesIn(home), []);
});

t.test("a running daemon uses the new file, and the command says so", async (t) => {
  const home = await newHome(t);
  await saveConfig(home, CONFIG);
  const { daemon } = await serveIn(t, home);
  const { code, stdout } = await editWith(t, home, `cp ${home}/better.yaml "$1"`).ended;
  t.equal(code, 0, stdout);
  t.match(stdout, /the running keybearer uses it from the next request on/);
  t.equal(daemon.snapshot().config.tools.codex?.limits.requests.length, 1);
});
