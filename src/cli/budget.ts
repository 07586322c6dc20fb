import { formatScalar } from "../config/edit-layout.ts";
import { parseConfig } from "../config/parse.ts";
import { parseDollars, price, withDollarSign } from "../config/values.ts";
import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import { Prices, readPriceTable } from "../metering/prices.ts";
import { NO_TOKENS } from "../metering/usage.ts";
import { canceled, notice } from "./ui/messages.ts";
import type { Prompter } from "./ui/prompts.ts";
import { joinNames } from "./ui/units.ts";

/* The daily budget of the first tool, which `init` asks for. */

/** What is written for it, as lines of config.yaml. */
export interface Budget {
  /** Value of tools.<tool>.limits; null: no limits. */
  readonly limits: string | null;
  /** Below `prices:`. */
  readonly prices: readonly string[];
}

interface BudgetOptions {
  readonly budget?: string;
  readonly yes?: boolean;
}

interface BudgetRequest {
  readonly tool: string;
  /** The models that the gateway lists; null: the list was not read. */
  readonly models: readonly string[] | null;
  readonly prompter: Prompter | null;
}

const NONE: Budget = { limits: null, prices: [] };
const DEFAULT_DOLLARS = "10";
/** About as many as an agent sends in a long day. */
const DEFAULT_REQUESTS = "500";
/** A gateway may list hundreds of models. */
const MAX_ASKED = 10;
const MAX_NAMED = 8;

/** A daily amount as it is typed: 10, $10, 2.50, none. null: it is not one. Otherwise as config.yaml has it. */
export function readBudget(text: string): string | null {
  const bare = text.trim().replace(/^\$\s?|\/day$/g, "");
  if (bare === "none") return bare;
  const read = parseDollars(withDollarSign(bare));
  return "value" in read && read.value > 0 ? `$${bare}/day` : null;
}

export const BUDGET_HELP = "a budget is dollars for one day, such as 10 or 2.50, or none";

/** null: the person stopped, and that was printed. */
export async function askBudget(
  { tool, models, prompter }: BudgetRequest,
  { budget, yes = false }: BudgetOptions,
): Promise<Budget | null> {
  const asked = yes || prompter?.interactive !== true ? null : prompter;
  if (asked === null && !yes && budget === undefined) {
    notice({ problem: `${tool} has no budget`, next: advice.limitSpend(tool) });
    return NONE;
  }
  const spend = await chooseSpend(tool, budget, asked);
  if (spend === null) return null;
  if (spend === "none") return NONE;
  const unpriced = withoutPrice(models ?? []);
  if (unpriced.length === 0) return limitSpend(spend);
  const noneHasPrice = unpriced.length === models?.length;
  // What was named is not replaced by something else.
  const byDefault = noneHasPrice && budget === undefined ? "r" : "k";
  return chooseForUnpriced({ tool, spend, unpriced, byDefault }, asked);
}

/** The amount of --budget, else the default or what the person types. null: the person stopped, and that was printed. */
async function chooseSpend(
  tool: string,
  option: string | undefined,
  asked: Prompter | null,
): Promise<string | null> {
  if (option !== undefined || asked === null) return readBudget(option ?? DEFAULT_DOLLARS);
  const question = `daily budget of ${tool} in dollars, or none [${DEFAULT_DOLLARS}]: `;
  return askUntil(asked, question, (text) => readBudget(text || DEFAULT_DOLLARS), BUDGET_HELP);
}

interface UnpricedChoice {
  readonly tool: string;
  /** As config.yaml has it. */
  readonly spend: string;
  /** The models without a known price. */
  readonly unpriced: readonly string[];
  /** r: requests per day instead of money. k: keep the budget. */
  readonly byDefault: "r" | "k";
}

/** With a budget, requests for models without a known price are refused. null: the person stopped, and that was printed. */
async function chooseForUnpriced(
  { tool, spend, unpriced, byDefault }: UnpricedChoice,
  asked: Prompter | null,
): Promise<Budget | null> {
  notice(
    `no price is known for ${joinNames(unpriced, MAX_NAMED)}: with a budget, requests for ${unpriced.length === 1 ? "it" : "them"} are refused`,
  );
  const kept = limitSpend(spend);
  if (asked === null) return byDefault === "r" ? requestsPerDay(tool, DEFAULT_REQUESTS) : noteUnpriced(kept);
  const choice = await askUntil(
    asked,
    `p: type prices, r: limit requests per day instead, k: keep the budget [${byDefault}]: `,
    (text) => (/^[prk]?$/i.test(text) ? text.toLowerCase() || byDefault : null),
    "type p, r or k",
  );
  if (choice === null) return null;
  if (choice === "k") return noteUnpriced(kept);
  if (choice === "p") return askPrices(asked, unpriced, kept);
  const count = await askUntil(
    asked,
    `requests per day of ${tool} [${DEFAULT_REQUESTS}]: `,
    (text) => (/^[1-9]\d{0,8}$/.test(text || DEFAULT_REQUESTS) ? text || DEFAULT_REQUESTS : null),
    "type a whole number above zero",
  );
  return count === null ? null : requestsPerDay(tool, count);
}

function limitSpend(spend: string): Budget {
  return { limits: `{ spend: ${spend} }`, prices: [] };
}

function requestsPerDay(tool: string, count: string): Budget {
  notice(`${tool} may send ${count} requests per day`);
  return { limits: `{ requests: ${count}/day }`, prices: [] };
}

function noteUnpriced(budget: Budget): Budget {
  notice({
    problem: "their prices can be written later: below prices: in config.yaml",
    next: advice.editConfig(),
  });
  return budget;
}

async function askPrices(
  prompter: Prompter,
  unpriced: readonly string[],
  { limits }: Budget,
): Promise<Budget | null> {
  notice("prices are in dollars per million tokens. Enter leaves a model out");
  const prices: string[] = [];
  for (const model of unpriced.filter(canBeWritten).slice(0, MAX_ASKED)) {
    const answer = await askUntil(
      prompter,
      `${model}, input and output, such as 3 15: `,
      readPrices,
      "type two prices, such as 3 15",
    );
    if (answer === null) return null;
    if (answer !== "") prices.push(`${formatScalar(model)}: ${answer}`);
  }
  const budget = { limits, prices };
  return prices.length < unpriced.length ? noteUnpriced(budget) : budget;
}

/** As config.yaml has them; empty: none. null: these are no two prices. */
function readPrices(text: string): string | null {
  if (text === "") return "";
  const [input = "", output = "", ...more] = text.split(/[\s,;/]+/).map((each) => each.replace("$", ""));
  const isRead = more.length === 0 && "value" in price(input) && "value" in price(output);
  return isRead ? `{ input: ${input}, output: ${output} }` : null;
}

/** Names are the gateway's own words, and config.yaml does not take each of them. */
function canBeWritten(model: string): boolean {
  const trial = `gateway: https://gateway.example.com/v1\ntools: { x: {} }\nprices:\n  ${formatScalar(model)}: { input: 1, output: 1 }\n`;
  return parseConfig(trial, "/").problems.every(({ severity }) => severity !== "error");
}

/** The models whose requests a limit on money refuses. */
function withoutPrice(models: readonly string[]): string[] {
  if (models.length === 0) return [];
  const prices = new Prices(readPriceTable());
  const isPriced = (model: string) =>
    prices.findPrice({ asked: model, answered: null }, { ...NO_TOKENS, input: 1 }, systemClock.now(), {}) !==
    null;
  return models.filter((model) => !isPriced(model));
}

/** Asks until `read` understands the answer. null: the person stopped, and that was printed. */
async function askUntil(
  prompter: Prompter,
  question: string,
  read: (text: string) => string | null,
  help: string,
): Promise<string | null> {
  for (;;) {
    const answer = await prompter.text(question);
    if (answer === null) return canceled();
    const understood = read(answer.trim());
    if (understood !== null) return understood;
    notice(help);
  }
}
