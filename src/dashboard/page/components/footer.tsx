import type { Now } from "../../api.ts";
import { agoInWords, spanInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { Language } from "../messages/messages.ts";
import { chooseLanguageFor, chooseTheme, readTheme, THEMES, type Theme } from "../settings.ts";
import { Bookmark } from "./bookmark.tsx";

export function Footer({ now }: { readonly now: Now | null }) {
  const { t, language } = useFrame();
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
      <span class="row">
        <Bookmark />
        <label>
          {t("frame.language")}{" "}
          <select
            value={language}
            onChange={(event) => chooseLanguageFor(event.currentTarget.value as Language)}
          >
            <option value="en">English</option>
            <option value="zh-CN">简体中文</option>
          </select>
        </label>
        <label>
          {t("frame.theme")}{" "}
          <select value={readTheme()} onChange={(event) => chooseTheme(event.currentTarget.value as Theme)}>
            {THEMES.map((theme) => (
              <option key={theme} value={theme}>
                {t(`frame.theme.${theme}`)}
              </option>
            ))}
          </select>
        </label>
      </span>
    </footer>
  );
}
