import { Command } from "commander";
import { askDaemon } from "../control/client.ts";
import type { ConfirmedAction, Digits, WaitingAction } from "../control/confirmation.ts";
import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import { EXIT } from "../core/errors.ts";
import { MINUTE_MS } from "../core/units.ts";
import { fail, notice, print, printDiff, printText } from "./ui/messages.ts";
import { askYesOrNo } from "./ui/prompts.ts";
import { commandPaths, stdio } from "./ui/stdio.ts";
import { isInteractive } from "./ui/terminal.ts";
import { ago } from "./ui/units.ts";

/** As long as the digits are valid, and a moment more. */
const WAIT_MS = 2 * MINUTE_MS + 15_000;

export function confirmCommand(): Command {
  return new Command("confirm")
    .summary("confirm what the dashboard asks for")
    .description("show what an open dashboard page asks for, and print six digits to type into that page")
    .action(confirm);
}

async function confirm(): Promise<void> {
  // A page that somebody else controls must not confirm itself, and nor must a program.
  if (!isInteractive())
    return fail(`confirm needs a person at a terminal. open one and type: ${advice.confirm()}`, EXIT.usage);
  const paths = commandPaths();
  const asked = await askDaemon<WaitingAction[]>(paths, "GET", "/confirmations");
  if (!asked.ok) return fail(asked, EXIT.failed);
  const waiting = asked.value.toReversed();
  if (waiting.length === 0)
    return fail(
      { problem: "no page of the dashboard waits for a confirmation", next: advice.open() },
      EXIT.failed,
    );
  if (waiting.length > 1) print(`${waiting.length} actions wait; the newest comes first`);
  const action = await chooseAction(waiting);
  if (action === null) return fail("not confirmed; nothing changed", EXIT.failed);
  const path = encodeURIComponent(action.id);
  // Asked before there are digits: the page may be quick.
  const ended = askDaemon<ConfirmedAction>(paths, "GET", `/confirmed/${path}`, undefined, WAIT_MS);
  const digits = await askDaemon<Digits>(paths, "POST", `/confirm/${path}`, {});
  if (!digits.ok) return fail(digits, EXIT.failed);
  print(`type these digits into the page within two minutes: ${digits.value.digits}`);
  const answer = await ended;
  if (!answer.ok)
    return fail({ ...answer, problem: `how it ended is not known: ${answer.problem}` }, EXIT.failed);
  const { state, what, next, token } = answer.value;
  if (state !== "done") return fail({ problem: what, next }, EXIT.failed);
  if (token !== null) {
    stdio().stdout.write(`${token}\n`);
    notice("the line above is the token, shown this once; config.yaml holds its hash");
  }
  printText({ problem: `done: ${what}`, next: next === null ? null : `to undo it: ${next}` });
}

/** The first that the person asked for. null: none of them. */
async function chooseAction(waiting: readonly WaitingAction[]): Promise<WaitingAction | null> {
  for (const action of waiting) {
    printText(`the dashboard asks, ${ago(systemClock.now() - action.asked_at)} ago: ${action.what}`);
    printDiff(action.diff);
    const answer = await askYesOrNo("did you ask for this?", "no");
    if (answer !== false) return answer === null ? null : action;
  }
  return null;
}
