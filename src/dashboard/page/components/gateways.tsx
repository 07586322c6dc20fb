import { shownGatewayState } from "../../../control/gateway-state.ts";
import type { GatewayStatus } from "../../../control/status.ts";
import { duration, exact } from "../../../core/units.ts";
import type { Now } from "../../api.ts";
import { timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";
import { type Column, Table } from "./table.tsx";

/** Whether each gateway can be reached, by the last requests to it, and how fast it begins to answer. */
export function Gateways({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { gateways } = now.status;
  if (gateways.length === 0) return null;
  return (
    <section class="panel gateways" aria-labelledby="gateways">
      <header>
        <h2 id="gateways">{t("overview.gateways")}</h2>
      </header>
      <Table
        caption={t("overview.gateways")}
        columns={columnsFor(now, t)}
        rows={gateways}
        keyOf={({ name }) => name}
      />
    </section>
  );
}

function columnsFor({ at, first_bytes, status }: Now, t: Translate): readonly Column<GatewayStatus>[] {
  const startedAt = at - status.uptime_s * 1000;
  return [
    { id: "name", title: t("overview.gateway"), cell: ({ name }) => name },
    { id: "address", title: t("overview.gateway.address"), cell: ({ base_url }) => base_url },
    {
      id: "state",
      title: t("overview.gateway.state"),
      cell: (gateway) => (
        <span class="row">
          <span class="state" data-state={gateway.state}>
            {t(`gateway.${shownGatewayState(gateway, startedAt)}`, {
              n: exact(gateway.before?.requests_today ?? 0),
            })}
          </span>
          {gateway.since === null
            ? ""
            : t("overview.gateway.since", { time: timeInWords(gateway.since, at) })}
        </span>
      ),
    },
    {
      id: "first-byte",
      title: t("overview.first-byte"),
      isNumber: true,
      cell: ({ name }) => {
        const found = first_bytes.find(({ gateway }) => gateway === name);
        if (found === undefined) return "–";
        const title = t("overview.first-byte.of", { n: found.requests });
        return <span title={title}>{duration(found.median_ms)}</span>;
      },
    },
  ];
}
