import fc from "fast-check";

const A = `sha256:${"a".repeat(64)}`;
const B = `sha256:${"b".repeat(64)}`;

/** A configuration as lines, in many hands' writing. */
export interface Written {
  readonly text: string;
  readonly tool: string;
  readonly tools: number;
  readonly eol: string;
}

const comment = fc.constantFrom("", "", "  # it's { a: [comment", " # 100% mine: yes");
const hash = fc.constantFrom(A, B);
const plainSetting = fc.constantFrom(
  ["group: coding"],
  ["model: 'gpt: 5'"],
  ['expires: "2027-03-31"'],
  ["enabled:"],
  ["limits: { concurrent: 4, requests: [60/minute, 1k/day] }"],
  ["limits:", "  requests: 60/minute", "  # deeper", "  spend:", "    - $5/day", "    - $60/month"],
  ["allow_origins:", "- app://one", "- app://two"],
  ["limits: {", "  wait: 20s, # long", "  concurrent: 4", "}"],
  ["process: |", "  /usr/bin/x", "  # not a comment"],
);

const tokenSetting = fc.oneof(
  fc.constant([] as string[]),
  fc
    .tuple(hash, fc.constantFrom("", "'", '"'), comment)
    .map(([value, quote, note]) => [`token: ${quote}${value}${quote}${note}`]),
  comment.map((note) => [`token:${note}`]),
  comment.map((note) => [`token: [${A}, '${B}']${note}`]),
  fc.constant([`token: [`, `  ${A}, # one`, `  ${B} # two`, `]`]),
  fc
    .tuple(fc.constantFrom("", "  "), comment, comment)
    .map(([dent, one, two]) => [
      `token:${one}`,
      `${dent}- ${A}${two}`,
      `${dent}# between`,
      `${dent}- "${B}"`,
    ]),
);

const flowTool = fc
  .tuple(
    fc.constantFrom("", `token: ${A}`, `token: [ ${A}, "${B}" ]`, "token:"),
    fc.boolean(),
    fc.boolean(),
    comment,
  )
  .map(([token, group, lines, note]) => {
    const entries = [...(group ? ["group: coding"] : []), ...(token === "" ? [] : [token])];
    if (entries.length === 0) return [` {}${note}`];
    if (!lines) return [` { ${entries.join(", ")} }${note}`];
    return [
      " {",
      ...entries.map((entry, at) => `  ${entry}${at < entries.length - 1 ? "," : ""}${note}`),
      "}",
    ];
  });

const blockTool = fc
  .tuple(
    fc.uniqueArray(plainSetting, { maxLength: 3, selector: (lines) => lines[0]?.split(":")[0] }),
    tokenSetting,
    fc.nat(3),
    fc.constantFrom(2, 3, 4),
    comment,
  )
  .map(([settings, token, at, width, note]) => {
    const all = [...settings.slice(0, at), token, ...settings.slice(at)].flat();
    return [note, ...all.map((line) => " ".repeat(width) + line)];
  });

const oneTool = fc.oneof(flowTool, blockTool, blockTool);
const names = ["codex", '"no"', "'claude-code'", "1.0"] as const;

export const written: fc.Arbitrary<Written> = fc
  .record({
    tools: fc.array(oneTool, { minLength: 1, maxLength: 4 }),
    chosen: fc.nat(3),
    width: fc.constantFrom(2, 4),
    between: fc.constantFrom([], [""], ["", "  # about the next"], ["# at the margin"]),
    after: fc.constantFrom([], ["", "log: { level: info }"], ["# the end"], [""]),
    eol: fc.constantFrom("\n", "\r\n"),
    bom: fc.constantFrom("", "\uFEFF"),
    ended: fc.boolean(),
  })
  .map(({ tools, chosen, width, between, after, eol, bom, ended }) => {
    const indent = " ".repeat(width);
    const lines = tools.flatMap(([first, ...more], at) => [
      `${indent}${names[at]}:${first}`,
      ...more.map((line) => indent + line),
      ...between,
    ]);
    const text = ["gateway: https://gateway.example.com/v1 # here", "tools:", ...lines, ...after].join(eol);
    const at = chosen % tools.length;
    return {
      text: bom + text + (ended ? eol : ""),
      tool: (names[at] ?? "").replaceAll(/['"]/g, ""),
      tools: tools.length,
      eol,
    };
  });

/** From where to where the old text differs from the new one, beginning and end being the same. */
export function changedRange(before: string, after: string): [start: number, end: number] {
  let head = 0;
  while (head < before.length && before[head] === after[head]) head += 1;
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  return [head, before.length - tail];
}
