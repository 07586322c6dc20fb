import { costInWords, dollars, exact } from "../../../../core/units.ts";
import type { MirrorReport, ModelFactor, ToolMoney } from "../../../../mirror/report/shape.ts";
import { factorInWords } from "../../components/record-facts-table.tsx";
import { TableWrap } from "../../components/table-wrap.tsx";
import { Text } from "../../components/text.tsx";
import { useFrame } from "../../frame.tsx";
import { isOtherPrice, kindPrices } from "./state.ts";

type Of<T> = T & { readonly gateway: string };

/** What we reckon against what was charged, and how the operator's prices differ from the list. */
export function CostPanel({ reports }: { readonly reports: readonly MirrorReport[] }) {
  const { t } = useFrame();
  const tools = reports.flatMap(({ gateway, tools: all }) => all.map((one) => ({ ...one, gateway })));
  const models = reports.flatMap(({ gateway, models: all }) => all.map((one) => ({ ...one, gateway })));
  const several = reports.length > 1;
  return (
    <section class="panel" aria-labelledby="bill-money">
      <header>
        <h2 id="bill-money">{t("bill.money")}</h2>
      </header>
      {tools.length === 0 ? (
        <p class="empty">{t("bill.money.empty")}</p>
      ) : (
        <Tools tools={tools} several={several} />
      )}
      {models.length === 0 ? null : <Models models={models} several={several} />}
    </section>
  );
}

function Tools({ tools, several }: { readonly tools: readonly Of<ToolMoney>[]; readonly several: boolean }) {
  const { t } = useFrame();
  const foreign = tools.some((tool) => tool.foreign > 0);
  const suspected = tools.some((tool) => tool.suspected > 0);
  return (
    <TableWrap>
      <table class="data bill-named">
        <caption class="visually-hidden">{t("bill.money.tools")}</caption>
        <thead>
          <tr>
            <th scope="col">{t("bill.tool")}</th>
            {several ? <th scope="col">{t("bill.keys.gateway")}</th> : null}
            <Num head={t("bill.requests")} />
            <Num head={t("mirror.ours")} />
            <Num head={t("mirror.theirs")} />
            <Num head={t("bill.difference")} />
            <Num head={t("bill.factor")} />
            {foreign ? <Num head={t("bill.foreign")} /> : null}
            {foreign ? <Num head={t("bill.foreign.money")} /> : null}
            {suspected ? <Num head={t("bill.suspected")} /> : null}
            {suspected ? <Num head={t("bill.suspected.money")} /> : null}
          </tr>
        </thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={`${tool.gateway} ${tool.tool}`}>
              <th scope="row">{tool.tool}</th>
              {several ? <td>{tool.gateway}</td> : null}
              <td class="num">{exact(tool.requests)}</td>
              <td class="num">{costInWords(tool.ours_microdollars, tool.ours_unknown)}</td>
              <td class="num">{costInWords(tool.theirs_microdollars, tool.theirs_unknown)}</td>
              <td class="num">{differenceOf(tool)}</td>
              <td class="num">{factorOf(tool)}</td>
              {foreign ? <Foreign count={tool.foreign} money={tool.foreign_microdollars} /> : null}
              {suspected ? <Foreign count={tool.suspected} money={tool.suspected_microdollars} /> : null}
            </tr>
          ))}
        </tbody>
      </table>
    </TableWrap>
  );
}

function Num({ head }: { readonly head: string }) {
  return (
    <th scope="col" class="num">
      {head}
    </th>
  );
}

/** Rows that are foreign, or suspected to be. */
function Foreign({ count, money }: { readonly count: number; readonly money: number }) {
  const some = count > 0;
  return (
    <>
      <td class="num" data-foreign={some}>
        {some ? <strong>! {exact(count)}</strong> : "0"}
      </td>
      <td class="num" data-foreign={some}>
        {some ? dollars(money) : "–"}
      </td>
    </>
  );
}

function differenceOf(tool: ToolMoney): string {
  const { ours_microdollars: ours, theirs_microdollars: theirs } = tool;
  if (ours === null || theirs === null || hasUnknown(tool)) return costInWords(null);
  return theirs > ours ? `+${dollars(theirs - ours)}` : dollars(theirs - ours);
}

function factorOf(tool: ToolMoney): string {
  const { ours_microdollars: ours, theirs_microdollars: theirs } = tool;
  if (ours === null || theirs === null || ours === 0 || hasUnknown(tool)) return "–";
  return factorInWords(theirs / ours);
}

function hasUnknown({ ours_unknown: ours, theirs_unknown: theirs }: ToolMoney): boolean {
  return ours + theirs > 0;
}

function Models({
  models,
  several,
}: {
  readonly models: readonly Of<ModelFactor>[];
  readonly several: boolean;
}) {
  const { t } = useFrame();
  return (
    <>
      <h3 class="panel-part">{t("bill.models")}</h3>
      <TableWrap>
        <table class="data bill-named">
          <caption class="visually-hidden">{t("bill.models")}</caption>
          <thead>
            <tr>
              <th scope="col">{t("bill.model")}</th>
              {several ? <th scope="col">{t("bill.keys.gateway")}</th> : null}
              <Num head={t("bill.requests")} />
              <Num head={t("bill.factor")} />
              <Num head={t("bill.multiplier")} />
            </tr>
          </thead>
          <tbody>
            {models.map((model) => (
              <tr key={`${model.gateway} ${model.model} ${model.group} ${model.tier}`}>
                <th scope="row">
                  {[model.model, model.tier, model.group].filter((name) => name !== null).join(", ")}
                </th>
                {several ? <td>{model.gateway}</td> : null}
                <td class="num">{exact(model.requests)}</td>
                <td class="num">
                  <Price model={model} />
                </td>
                <td class="num">
                  <Multiplier model={model} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </TableWrap>
      {models.some((model) => isOtherPrice(model.factor) || kindPrices(model).length > 0) ? (
        <p class="panel-part muted small">
          <Text id="bill.price.next" />
        </p>
      ) : null}
    </>
  );
}

/** The operator's own price is no fault, but a word is due. */
function Price({ model }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const { factor, explanation } = model;
  const left = explanation?.unexplained_microdollars ?? 0;
  const kinds = kindPrices(model);
  return (
    <>
      {kinds.length === 0 ? (
        <OnePrice factor={Object.values(explanation?.factors ?? {})[0] ?? factor} />
      ) : (
        <strong title={t("bill.price.kinds", { n: explanation?.explained ?? 0 })}>
          ≠ {kinds.map(([kind, one]) => `${t(KIND_NAMES[kind])} ${factorInWords(one)}`).join(", ")}
        </strong>
      )}
      {left === 0 ? null : (
        <>
          {" "}
          <span class="muted">{t("bill.price.unexplained", { money: dollars(left) })}</span>
        </>
      )}
    </>
  );
}

const KIND_NAMES = {
  input: "mirror.fact.input",
  cache_read: "mirror.fact.cache-read",
  cache_write: "mirror.fact.cache-write",
  output: "mirror.fact.output",
} as const;

function OnePrice({ factor }: { readonly factor: number | null }) {
  const { t } = useFrame();
  if (factor === null) return <span class="muted">{t("bill.price.unknown")}</span>;
  if (!isOtherPrice(factor)) return <span class="muted">{t("bill.price.same")}</span>;
  return (
    <strong title={t("bill.price.other", { factor: factorInWords(factor) })}>
      ≠ {factorInWords(factor)}
    </strong>
  );
}

function Multiplier({ model }: { readonly model: ModelFactor }) {
  const { t } = useFrame();
  const { multiplier, multiplier_here: here } = model;
  const theirs = multiplier === null ? t("bill.multiplier.other") : factorInWords(multiplier);
  if (here === null) return <>{theirs}</>;
  return (
    <>
      <strong>≠ {theirs}</strong>{" "}
      <span class="muted">{t("bill.multiplier.here", { factor: factorInWords(here) })}</span>
    </>
  );
}
