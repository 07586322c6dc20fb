import type { Status } from "../../../control/status.ts";
import { advice } from "../../../core/advice.ts";
import { useFrame } from "../frame.tsx";
import { Command } from "./copy.tsx";
import { Text } from "./text.tsx";

/** What to do where nothing was ever called. */
export function FirstSteps({ status: { listen, sandbox, tools } }: { readonly status: Status }) {
  const { t } = useFrame();
  const tool = tools[0]?.name ?? "<tool>";
  const [address = "localhost:5397"] = listen;
  const connect = sandbox ? advice.init() : advice.addGateway();
  return (
    <section class="panel first-steps" aria-labelledby="first-steps">
      <header>
        <h2 id="first-steps">{t("first.title")}</h2>
      </header>
      <ol class="body">
        <li>
          <h3>{t("first.call")}</h3>
          <Command text={`curl http://${address}/v1/models -H "Authorization: Bearer $KEYBEARER_TOKEN"`} />
          <p class="muted small">
            <Text id={sandbox ? "first.call.sandbox" : "first.call.token"} values={{ tool }} />
          </p>
        </li>
        <li>
          <h3>{t("first.connect")}</h3>
          <Command text={connect} />
        </li>
        <li>
          <h3>{t("first.adopt")}</h3>
          <Command text={advice.adopt()} />
        </li>
        <li>
          <h3>{t("first.claude")}</h3>
          <Command text={advice.useWrite(tool, "claude-code")} />
        </li>
      </ol>
    </section>
  );
}
