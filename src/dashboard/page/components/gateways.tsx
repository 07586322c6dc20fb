import type { GatewayStatus } from "../../../control/status.ts";
import { exact } from "../../../core/units.ts";
import type { Now } from "../../api.ts";
import { timeInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Translate } from "../messages/messages.ts";

/** Whether each gateway can be reached, by the last requests to it. */
export function Gateways({ now }: { readonly now: Now }) {
  const { t } = useFrame();
  const { gateways } = now.status;
  if (gateways.length === 0) return null;
  return (
    <section class="panel" aria-labelledby="gateways">
      <header>
        <h2 id="gateways">{t("now.gateways")}</h2>
      </header>
      <div class="table-wrap">
        <table class="data gateways" aria-labelledby="gateways">
          <thead>
            <tr>
              <th scope="col">{t("now.gateway")}</th>
              <th scope="col">{t("now.gateway.address")}</th>
              <th scope="col">{t("now.gateway.state")}</th>
            </tr>
          </thead>
          <tbody>
            {gateways.map((gateway) => (
              <Row key={gateway.name} gateway={gateway} at={now.at} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ gateway, at }: { readonly gateway: GatewayStatus; readonly at: number }) {
  const { t } = useFrame();
  const { name, base_url: address, state, next } = gateway;
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>{address}</td>
      <td>
        <span class="row">
          <span class="state" data-state={state}>
            {t(`gateway.${state}`)}
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
  if (state !== "failing") return t("now.gateway.since", { time });
  return t("now.gateway.failing", { time, n: exact(failures), why: why ?? t("frame.unknown") });
}
