import type { Snapshot } from "../../config/snapshot.ts";
import type { Clock } from "../../core/clock.ts";
import type { Prices } from "../../metering/prices.ts";
import { tierParts } from "../store/verdicts.ts";
import type { MirrorReader } from "../sync/mirror-thread.ts";
import { isMoreThanRounding, type TokenPrices, tokenPrices } from "./price-differences.ts";
import type { MirrorReport, ModelFactor } from "./shape.ts";

interface ExplainDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly prices: Prices;
  readonly reader: Pick<MirrorReader, "ask">;
}

/** The report's lines of the models, with the reason where money differs. */
export async function explainModels(
  gateway: string,
  { models, tools }: Pick<MirrorReport, "models" | "tools">,
  deps: ExplainDeps,
): Promise<readonly ModelFactor[]> {
  const differing = models.filter(({ difference_microdollars: difference, requests }) =>
    isMoreThanRounding(difference, requests),
  );
  if (differing.length === 0) return models;
  const lines = differing.map((line) => ({ ...line, prices: findPrices(line, deps) }));
  const names = tools.map(({ tool }) => tool);
  const explanations = await deps.reader.ask("explainLines", gateway, lines, names);
  return models.map((line) => {
    const explanation = explanations?.[differing.indexOf(line)] ?? null;
    return explanation === null ? line : { ...line, explanation };
  });
}

function findPrices({ model, tier }: ModelFactor, deps: ExplainDeps): TokenPrices | null {
  const { prices, snapshot, clock } = deps;
  const { service, isLongContext } = tierParts(tier);
  const names = { asked: model, answered: null };
  const own = snapshot().config.prices;
  return tokenPrices((tokens) => prices.findPrice(names, tokens, clock.now(), own, service), isLongContext);
}
