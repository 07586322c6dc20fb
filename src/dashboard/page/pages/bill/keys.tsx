import { dollars } from "../../../../core/units.ts";
import { consoleFigures } from "../../../../limits/format.ts";
import type { KeyReport } from "../../../../mirror/report/shape.ts";
import type { KeysProblem } from "../../../api.ts";
import { factorInWords } from "../../components/compared.ts";
import { type Column, Table } from "../../components/table.tsx";
import { agoInWords, dayOf } from "../../format.ts";
import { useFrame } from "../../frame.tsx";
import type { Translate } from "../../messages/messages.ts";

interface KeysProps {
  readonly keys: readonly KeyReport[];
  readonly problems: readonly KeysProblem[];
  readonly now: number;
}

/** The console's key list beside the tools that hold each key here. */
export function ConsoleKeys({ keys, problems, now }: KeysProps) {
  const { t } = useFrame();
  const several = keys.some(({ gateway }) => gateway !== keys[0]?.gateway);
  return (
    <section class="panel bill-keys" aria-labelledby="bill-keys">
      <header>
        <h2 id="bill-keys">{t("bill.keys")}</h2>
      </header>
      {problems.map(({ gateway, why, next }) => (
        <p class="panel-part" key={gateway}>
          {t("bill.keys.problem", { gateway, why })} {next === null ? null : <code>{next}</code>}
        </p>
      ))}
      {keys.length === 0 ? (
        problems.length === 0 && <p class="empty">{t("bill.keys.empty")}</p>
      ) : (
        <Table
          caption={t("bill.keys")}
          columns={columnsOf(several, now, t)}
          rows={keys}
          keyOf={({ gateway, ref }) => `${gateway} ${ref}`}
        />
      )}
    </section>
  );
}

function columnsOf(several: boolean, now: number, t: Translate): Column<KeyReport>[] {
  const ago = (time: number | null) => (time === null ? "–" : agoInWords(time, now, t));
  const gateway: Column<KeyReport> = {
    id: "gateway",
    title: t("bill.keys.gateway"),
    cell: (key) => key.gateway,
  };
  return [
    { id: "name", title: t("bill.keys.name"), cell: ({ name }) => name },
    ...(several ? [gateway] : []),
    { id: "key", title: t("bill.keys.key"), cell: ({ key }) => (key === null ? "–" : <code>{key}</code>) },
    {
      id: "tools",
      title: t("bill.keys.tool"),
      cell: ({ tools }) =>
        tools.length === 0 ? <span class="muted">{t("bill.keys.not-held")}</span> : tools.join(", "),
    },
    {
      id: "state",
      title: t("bill.keys.state"),
      cell: ({ state }) => (
        <span class="state" data-state={state}>
          {t(`bill.keys.state.${state}`)}
        </span>
      ),
    },
    {
      id: "group",
      title: t("bill.keys.group"),
      cell: ({ group, multiplier }) =>
        `${group ?? "–"} ${multiplier === null ? "" : factorInWords(multiplier)}`,
    },
    { id: "quota", title: t("bill.keys.quota"), isNumber: true, cell: (key) => quotaOf(key, t) },
    { id: "windows", title: t("bill.keys.windows"), cell: (key) => windowsOf(key) },
    {
      id: "expires",
      title: t("bill.keys.expires"),
      cell: ({ expires_at: time }) => (time === null ? "–" : dayOf(time)),
    },
    { id: "last-use", title: t("bill.keys.last-use"), cell: ({ last_used_at: time }) => ago(time) },
    { id: "as-of", title: t("bill.keys.as-of"), cell: ({ as_of: time }) => ago(time) },
  ];
}

function windowsOf({ windows }: KeyReport): string {
  const words = windows.map(({ window, used, most }) => {
    const figures = consoleFigures(used, most);
    return `${window} ${figures.used}/${figures.max}`;
  });
  return words.join(", ") || "–";
}

function quotaOf({ quota, unlimited, quota_used: used }: KeyReport, t: Translate): string {
  if (quota === null) {
    const without = t(unlimited ? "bill.keys.unlimited" : "bill.keys.state.unknown");
    return used === null ? without : `${dollars(used)} / ${without}`;
  }
  const figures = consoleFigures(used, quota);
  return used === null ? figures.max : `${figures.used} / ${figures.max}`;
}
