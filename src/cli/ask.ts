import { createInterface } from "node:readline/promises";

/** Whether a person is there who can be asked. */
export function atTerminal(): boolean {
  return process.stdin.isTTY === true && process.stdout.isTTY === true;
}

/** Whether the person typed yes, and nothing less. */
export async function saysYes(question: string): Promise<boolean> {
  const answer = await ask(`${question} type yes: `);
  return answer?.trim().toLowerCase() === "yes";
}

/** null: the person ended the input (Ctrl-D, Ctrl-C) instead. Then the question alone would never be answered. */
async function ask(question: string): Promise<string | null> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const ended = new Promise<null>((resolve) => terminal.once("close", () => resolve(null)));
  const answer = await Promise.race([terminal.question(question).catch(() => null), ended]);
  terminal.close();
  if (answer === null) process.stdout.write("\n");
  return answer;
}
