import { parseConfig } from "../../src/config/parse.ts";

// Run by hostile.test.ts, because V8 can abort the whole process on deep nesting. Answers each text with what became
// of it: whether it was taken, how many problems, and the first of them.
export interface Outcome {
  readonly taken: boolean;
  readonly problems: number;
  readonly first: string;
}

process.on("message", (text: string) => {
  const { config, problems } = parseConfig(text, "/home/me");
  const result: Outcome = {
    taken: config !== null,
    problems: problems.length,
    first: problems[0]?.message ?? "",
  };
  process.send?.(result);
});
process.send?.("ready");
