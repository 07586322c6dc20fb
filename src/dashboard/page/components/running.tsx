import { duration, exact } from "../../../core/units.ts";
import type { Now, RunningCall } from "../../api.ts";
import { useFrame } from "../frame.tsx";
import { useTime } from "../use-time.ts";
import { Text } from "./text.tsx";

interface RunningProps {
  readonly now: Now;
  /** Nothing more is heard: times must not go on as if it were. */
  readonly stopped: boolean;
}

export function Running({ now, stopped }: RunningProps) {
  const { t } = useFrame();
  const { running, running_total: total } = now;
  const time = useTime();
  return (
    <section class="panel" aria-labelledby="running">
      <header>
        <h2 id="running">{t("overview.running")}</h2>
        <span class="muted">{t("overview.running.count", { n: total })}</span>
      </header>
      {running.length === 0 ? (
        <p class="empty">
          <Text
            id={now.status.tools.length === 0 ? "overview.running.empty.no-tools" : "overview.running.empty"}
          />
        </p>
      ) : (
        <div class="table-wrap">
          <table class="data running" aria-labelledby="running">
            <thead>
              <tr>
                <th scope="col">{t("overview.tool")}</th>
                <th scope="col">{t("overview.model")}</th>
                <th scope="col" class="num">
                  {t("overview.waited")}
                </th>
                <th scope="col" class="num">
                  {t("overview.first-byte")}
                </th>
                <th scope="col" class="num">
                  {t("overview.tokens-so-far")}
                </th>
                <th scope="col" class="num">
                  {t("overview.for")}
                </th>
              </tr>
            </thead>
            <tbody>
              {running.map((call) => (
                <Row key={call.id} call={call} time={stopped ? now.at : Math.max(time, now.at)} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {total > running.length && running.length > 0 ? (
        <p class="muted small body">{t("overview.running.more", { shown: running.length, n: total })}</p>
      ) : null}
    </section>
  );
}

function Row({ call, time }: { readonly call: RunningCall; readonly time: number }) {
  const { t } = useFrame();
  const { started_at: started, first_byte_at: first, waiting, waited_ms: waited } = call;
  const age = Math.max(0, time - started);
  return (
    <tr>
      <th scope="row">{call.tool}</th>
      <td class="model" title={call.endpoint}>
        {call.model ?? <span class="muted">{t("overview.model.unknown")}</span>}
      </td>
      <td class="num" data-label={t("overview.waited")}>
        {waiting ? <span class="tag">{t("overview.waits")}</span> : waited > 0 ? duration(waited) : "–"}
      </td>
      <td class="num" data-label={t("overview.first-byte")}>
        {first === null ? (
          <span class="muted">{t("overview.first-byte.none")}</span>
        ) : (
          duration(first - started)
        )}
      </td>
      <td class="num" data-label={t("overview.tokens")}>
        <Tokens call={call} />
      </td>
      <td class="num" data-label={t("overview.for")}>
        {age < 60_000 ? `${Math.floor(age / 1000)} s` : duration(age)}
      </td>
    </tr>
  );
}

function Tokens({ call: { output_tokens: tokens, tokens_by: by } }: { readonly call: RunningCall }) {
  const { t } = useFrame();
  if (tokens === null) return <span title={t("overview.tokens-so-far.none")}>–</span>;
  if (by !== "pieces") return <>{exact(tokens)}</>;
  return <span title={t("overview.tokens-so-far.pieces")}>≈ {exact(tokens)}</span>;
}
