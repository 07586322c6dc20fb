/**
 * Under which names a model may stand in the price list, the likeliest first. Gateways decorate names; what is taken
 * off here never changes which model it is, or what its maker asks for it:
 *
 * - a path of makers and resellers in front: anthropic/…, openrouter/google/…, models/…, us.anthropic.…-v1:0
 * - a note in brackets in front: [vip]…, and Claude Code's [1m] behind (long context has its own tier in the list)
 * - a date behind, in whole or to the month, with - or @: the maker keeps the price of a dated name under it, if it
 *   ever differed; -latest, @latest, @default, and Gemini's -001
 * - thinking behind the names of Claude and Gemini, and the effort behind those of OpenAI's reasoning models
 * - a dot for a dash between two digits, and Claude's number before or behind its family
 *
 * - which preview it is, where the list has one price for all that begin so
 *
 * Everything else could be another model (-mini, -pro, -fast, -max, -image, a size, another path) or another price
 * (:free, :nitro), and then unknown is better than wrong.
 */
export function namesInList(name: string): string[] {
  const bare = withoutPath(name.trim().toLowerCase().replace(NOTE, ""));
  if (bare === null || FREE.test(name)) return [];
  const names: string[] = [];
  for (let left: string | null = bare; left !== null; left = withoutSuffix(left)) {
    const spelled = oneSpelling(left);
    names.push(spelled, ...otherOrder(spelled), spelled.replace(PREVIEW, ANY_PREVIEW));
  }
  return names;
}

/** The same for a name of the list itself and for one that is looked for. */
export function oneSpelling(name: string): string {
  return name.toLowerCase().replace(/(?<=\d)\.(?=\d)/g, "-");
}

/** Stands in a name for any preview of it. */
export const ANY_PREVIEW = "-preview-*";

const PREVIEW = /-preview(?:-\d\d-\d\d(?:\d\d)?)?$/;
const NOTE = /^(?:(?:\[[^\]]*\]|【[^】]*】|\([^)]*\)|（[^）]*）)\s*)+/;
const FREE = /(?:^|[^a-z])free(?:[^a-z]|$)|免费/i;

/** Those in whose hands a model stays the same. A path with anybody else in it is not followed. */
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
  for (const suffix of SUFFIXES) {
    const shorter = name.replace(suffix, "");
    if (shorter !== name) return shorter;
  }
  return null;
}

function otherOrder(name: string): string[] {
  const numberFirst = /^claude-(\d(?:-\d)?)-(opus|sonnet|haiku)$/.exec(name);
  if (numberFirst !== null) return [`claude-${numberFirst[2]}-${numberFirst[1]}`];
  const familyFirst = /^claude-(opus|sonnet|haiku)-(\d(?:-\d)?)$/.exec(name);
  return familyFirst === null ? [] : [`claude-${familyFirst[2]}-${familyFirst[1]}`];
}
