/**
 * The names that a model may have in the price list, the likeliest first. Gateways decorate names. Only decorations that
 * never change the model or its price are removed:
 *
 * - a path of makers and resellers in front: anthropic/…, openrouter/google/…, models/…, us.anthropic.…-v1:0
 * - a note in brackets in front: [vip]…, and Claude Code's [1m] at the end (long context has its own tier in the list)
 * - a date at the end, whole or to the month, with - or @ (if a dated name ever had another price, the list has that
 *   name), -latest, @latest, @default, and Gemini's -001
 * - thinking at the end of Claude and Gemini names, and the effort at the end of OpenAI's reasoning models
 * - a dot for a dash between two digits, and Claude's number before or after its family
 * - which preview it is, if the list has one price for all of them
 *
 * Anything else may mean another model (-mini, -pro, -fast, -max, -image, a size, another path) or another price (:free,
 * :nitro). An unknown price is better than a wrong one.
 */
export function namesInList(name: string): string[] {
  const bare = withoutPath(name.trim().toLowerCase().replace(NOTE, ""));
  if (bare === null || FREE.test(name)) return [];
  const names: string[] = [];
  for (let left: string | null = bare; left !== null; left = withoutSuffix(left)) {
    const normalized = normalizeName(left);
    names.push(normalized, ...otherOrder(normalized), normalized.replace(PREVIEW, ANY_PREVIEW));
  }
  return names;
}

/** For names of the list and for names that are looked up in it. */
export function normalizeName(name: string): string {
  return name.toLowerCase().replace(/(?<=\d)\.(?=\d)/g, "-");
}

/** Stands for any preview of a model. */
export const ANY_PREVIEW = "-preview-*";

const PREVIEW = /-preview(?:-\d\d-\d\d(?:\d\d)?)?$/;
const NOTE = /^(?:(?:\[[^\]]*\]|【[^】]*】|\([^)]*\)|（[^）]*）)\s*)+/;
const FREE = /(?:^|[^a-z])free(?:[^a-z]|$)|免费/i;

/** Makers and resellers that do not change a model. A path with any other name in it is not followed. */
const PATH =
  /^(?:(?:anthropic|openai|google|gemini|x-?ai|deepseek(?:-ai)?|moonshot(?:ai)?|mistral(?:ai)?|cohere|perplexity|z-?ai(?:-org)?|zhipu(?:ai)?|minimax(?:ai)?|voyage(?:ai)?|openrouter|azure(?:_ai)?|bedrock|vertex(?:[-_]ai)?|publishers|models)\/)+/;
const BEDROCK = /^(?:[a-z-]{2,8}\.)?anthropic\.(claude-.+?)(?:-v\d+)?(?::\d+)?(?::\d+k)?$/;

function withoutPath(name: string): string | null {
  const last = name.replace(PATH, "");
  if (last === "" || last.includes("/")) return null;
  return BEDROCK.exec(last)?.[1] ?? last;
}

const SUFFIXES: readonly RegExp[] = [
  /[-@]20\d\d-?(?:0[1-9]|1[0-2])(?:-?(?:0[1-9]|[12]\d|3[01]))?$/,
  /[-@](?:latest|default)$/,
  /(?<=^gemini-.+)-00\d$/,
  /(?<=^(?:claude|gemini)-.+)[-:](?:no-?|non-)?thinking(?:-\d+)?$/,
  /(?<=^claude-.+)\[1m\]$/,
  /(?<=^(?:gpt-[5-9]|o[134]).*)-(?:none|minimal|low|medium|high|xhigh)$/,
];

function withoutSuffix(name: string): string | null {
  const suffix = SUFFIXES.find((pattern) => pattern.test(name));
  return suffix === undefined ? null : name.replace(suffix, "");
}

function otherOrder(name: string): string[] {
  const numberFirst = /^claude-(\d(?:-\d)?)-(opus|sonnet|haiku)$/.exec(name);
  if (numberFirst !== null) return [`claude-${numberFirst[2]}-${numberFirst[1]}`];
  const familyFirst = /^claude-(opus|sonnet|haiku)-(\d(?:-\d)?)$/.exec(name);
  return familyFirst === null ? [] : [`claude-${familyFirst[2]}-${familyFirst[1]}`];
}
