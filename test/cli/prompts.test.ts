import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import type { Command } from "commander";
import t from "tap";
import { createProgram } from "../../src/cli/program.ts";
import { newHome, saveConfig } from "../doubles/command.ts";
import { ROOT } from "../doubles/paths.ts";
import { atScreen } from "../doubles/screen.ts";

/** Commands that a program must not answer for a person, and two that only ask what a person sees or wants. */
const WITHOUT_YES = [
  "confirm",
  "trust",
  "tools lift",
  "sessions allow",
  "sessions lift",
  "mirror ack",
  "config edit",
  "notify test",
];

/**
 * Every question with a yes or no answer: its file in src/cli, its default, and the commands that ask it. What the person asked
 * for defaults to yes. What deletes, moves a key or gives away money defaults to no.
 */
const CONFIRMATIONS: readonly (readonly [string, string, string, readonly string[]])[] = [
  [
    "adopt/finish.ts",
    "{key.fingerprint} was in a file. replace it by a new key of {name} now?",
    "yes",
    ["adopt"],
  ],
  ["adopt/move.ts", "move it into keybearer?", "yes", ["adopt"]],
  [
    "adopt/move.ts",
    "{name} is a project's: containers cannot reach keybearer. move it, too?",
    "no",
    ["adopt"],
  ],
  ["adopt/offer.ts", "move them into keybearer now?", "yes", ["init"]],
  ["config-edit.ts", '{count(errors, "problem")}. open the editor again?', "yes", ["config edit"]],
  ["console-changes.ts", "question", 'action === "delete" ? "no" : "yes"', ["tools disable", "tools enable"]],
  ["init.ts", "{result.problem}. use {result.suggestion}?", "yes", ["init"]],
  ["keys-change.ts", "question", "no", ["keys delete"]],
  ["mirror/sync.ts", "acknowledge this?", "no", ["mirror ack"]],
  ["notify/test.ts", "did a notification appear on the desktop?", "yes", ["notify test"]],
  ["service/install.ts", "no tool would have a key. install it anyway?", "yes", ["service install"]],
  ["service/offer.ts", "start keybearer now, in the background?", "yes", ["init"]],
  ["service/offer.ts", "start keybearer now and at every login, as a service?", "yes", ["init"]],
  ["service/uninstall.ts", "remove the service and all of this, for good?", "no", ["service uninstall"]],
  [
    "tools/rotate-at-console.ts",
    "the key of {name} {ended}. make one with {renewedText(renewed)}?",
    "no",
    ["tools rotate"],
  ],
  ["tools/rotate-at-console.ts", "rotate them now?", "yes", ["tools rotate"]],
  ["tools/rotate-at-console.ts", "rotate the key of {name} now?", "yes", ["tools rotate"]],
  ["confirm.ts", "did you ask for this?", "no", ["confirm"]],
  [
    "sessions/change.ts",
    "allow session {session.session} of {session.tool} again?",
    "no",
    ["sessions allow"],
  ],
  [
    "sessions/change.ts",
    "give session {id} of {tool} {amountInWords(kind, extra)} more?",
    "no",
    ["sessions lift"],
  ],
  ["sessions/change.ts", "take back what session {id} of {tool} was given?", "yes", ["sessions lift"]],
  ["tools/lift.ts", "give {name} {what}?", "no", ["tools lift"]],
  ["tools/lift.ts", "take back the extra allowances of {name}?", "yes", ["tools lift"]],
  ["tools/lift.ts", "question", "no", ["tools lift"]],
  ["tools/remove.ts", "delete its key from {where}, too?", "no", ["tools remove"]],
  ["tools/remove.ts", "remove {name} from {paths.config}?", "no", ["tools remove"]],
  ["tools/token.ts", "revoke token {name} of {tool}?", "no", ["tools revoke"]],
  ["trust.ts", "trust this?", "no", ["trust"]],
  ["use/set-up.ts", "set up {client.name} now?", "yes", ["init"]],
  ["use/write.ts", "put {named(changed)} back?", "yes", ["use"]],
  ["use/write.ts", "question", "yes", ["use"]],
  ["use/write.ts", "remove {conflict.name} as well?", "no", ["use"]],
  ["use/write.ts", "remove {named(changed)}?", "no", ["use"]],
  ["use/write.ts", "write this to {named(files)}?", "yes", ["use"]],
  ["ui/prompts.ts", "question", "byDefault", []],
  ["ui/prompts.ts", "question", "byDefault", []],
];

const CALL = /\b(?:confirm|agrees|askYesOrNo)\(\s*(`[^`]*`|"[^"]*"|question),\s*(action[^)]*|[^,)]+)/g;

/** A string or a template of the source, without its quotes and dollar signs. */
function bare(source: string): string {
  return source.replace(/^["`](.*)["`]$/, "$1").replaceAll("$" + "{", "{");
}

function findConfirmations(): string[][] {
  const folder = join(ROOT, "src", "cli");
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) =>
      [...readFileSync(join(folder, name), "utf8").matchAll(CALL)].map(
        ([, question = "", byDefault = ""]) => [name, bare(question), bare(byDefault.trim())],
      ),
    )
    .sort();
}

t.test(
  "every question is on the list, with its default and with -y, or a person has to answer it",
  async (t) => {
    t.same(
      findConfirmations(),
      CONFIRMATIONS.map(([file, question, byDefault]) => [file, question, byDefault]).sort(),
    );
    const program = createProgram();
    const find = (path: string) =>
      path
        .split(" ")
        .reduce<Command | undefined>((at, word) => at?.commands.find((c) => c.name() === word), program);
    const commands = new Set(CONFIRMATIONS.flatMap(([, , , names]) => names));
    for (const name of commands) {
      const hasYes = find(name)?.options.some(({ long, short }) => long === "--yes" && short === "-y");
      t.equal(hasYes, !WITHOUT_YES.includes(name), name);
    }
    const asksNothing = WITHOUT_YES.filter((name) => !commands.has(name));
    t.same(asksNothing, [], "the list of exceptions is as short as possible");
  },
);

t.test("a question is broken between words, and a long path stays whole", async (t) => {
  const home = join(await newHome(t), "a-folder-with-a-rather-long-name".repeat(3));
  mkdirSync(home, { mode: 0o700 });
  const file = await saveConfig(home, "gateway: http://127.0.0.1:9/v1\ntools: { codex: {}, zed: {} }\n");
  const person = atScreen(t, home, ["tools", "remove", "codex"]);
  await person.says(/\[y\/N\]/);
  person.type("\r");
  const { code, stdout } = await person.ended;
  t.equal(code, 1);
  t.match(stripVTControlCharacters(stdout), `remove codex from\n  ${file}?\n`);
});
