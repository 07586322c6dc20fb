import { shellWord } from "../../../keys/words.ts";
import type { Step } from "../../../service/manager.ts";
import { printableLines } from "../../ui/text.ts";

/** What would be done, in order. The text of a file is printed as it would be written. */
export function sayPlan(steps: readonly Step[]): void {
  process.stdout.write(`${printableLines(steps.map(stepInWords).join("\n"))}\n`);
}

function stepInWords(step: Step): string {
  switch (step.kind) {
    case "write":
      return `would write ${step.file}:\n\n${step.text.trimEnd()}\n`;
    case "make":
      return `would make the folder ${step.folder}`;
    case "remove":
      return `would remove ${step.file}`;
    case "run":
      return `would run ${step.argv.map(shellWord).join(" ")}`;
  }
}
