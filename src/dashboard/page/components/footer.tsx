import type { Now } from "../../api.ts";
import { agoInWords, spanInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";

export function Footer({ now }: { readonly now: Now | null }) {
  const { t } = useFrame();
  if (now === null) return null;
  const { version, uptime_s: up, listen, config, sandbox } = now.status;
  return (
    <footer>
      <span>
        {t("frame.footer", { version, span: spanInWords(up * 1000, t), listen: listen.join(", ") })}
      </span>
      <span>
        {sandbox
          ? t("frame.footer.sandbox", { path: config.path })
          : t("frame.footer.config", { path: config.path, ago: agoInWords(config.loaded_at, now.at, t) })}
      </span>
    </footer>
  );
}
