import { shownGatewayState } from "../../../control/gateway-state.ts";
import type { GatewayStatus } from "../../../control/status.ts";
import { exact } from "../../../core/units.ts";
import type { Now } from "../../api.ts";
import { timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";

/** Whether each gateway can be reached, by the last requests to it. */
export function Gateways({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { gateways, uptime_s: uptime } = now.status;
  if (gateways.length === 0) return null;
  return (
    <section class="panel" aria-labelledby="gateways">
      <header>
        <h2 id="gateways">{t("overview.gateways")}</h2>
      </header>
      <div class="table-wrap">
        <table class="data gateways" aria-labelledby="gateways">
          <thead>
            <tr>
              <th scope="col">{t("overview.gateway")}</th>
              <th scope="col">{t("overview.gateway.address")}</th>
              <th scope="col">{t("overview.gateway.state")}</th>
            </tr>
          </thead>
          <tbody>
            {gateways.map((gateway) => (
              <Row key={gateway.name} gateway={gateway} at={now.at} startedAt={now.at - uptime * 1000} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface RowProps {
  readonly gateway: GatewayStatus;
  readonly at: number;
  readonly startedAt: number;
}

function Row({ gateway, at, startedAt }: RowProps) {
  const { t } = useFrame();
  const { name, base_url: address, state, before, next } = gateway;
  const shown = shownGatewayState(gateway, startedAt);
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{address}</td>
      <td>
        <span class="row">
          <span class="state" data-state={state}>
            {t(`gateway.${shown}`, { n: exact(before?.requests_today ?? 0) })}
          </span>
          {details(gateway, at, t)}
        </span>
        {next === null ? null : <p class="next">{next}</p>}
      </td>
    </tr>
  );
}

/** since 14:02, 180 requests: nothing listens there (ECONNREFUSED) */
function details({ state, since, failures, why }: GatewayStatus, at: number, t: Translate): string {
  if (since === null) return "";
  const time = timeInWords(since, at);
  if (state !== "failing") return t("overview.gateway.since", { time });
  return t("overview.gateway.failing", { time, n: exact(failures), why: why ?? t("frame.unknown") });
}
