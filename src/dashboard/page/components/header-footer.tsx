import type { Now } from "../../api.ts";
import { agoInWords, spanInWords } from "../format.ts";
import { useFrame } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { LANGUAGES, prefer, readTheme, THEMES } from "../preferences.ts";
import { hrefOf, PAGES, type PageName } from "../route.ts";
import { Bookmark } from "./bookmark.tsx";
import { Select, State } from "./panel.tsx";

interface HeaderProps {
  readonly page: PageName;
  readonly state: LiveState;
}

export function Header({ page, state: { link, now } }: HeaderProps) {
  const { t } = useFrame();
  return (
    <header class="top">
      <a class="brand" href={hrefOf("overview")}>
        keybearer
      </a>
      <nav aria-label={t("frame.pages")}>
        {PAGES.map((each) => (
          <a key={each} href={hrefOf(each)} aria-current={each === page ? "page" : undefined}>
            {t(`${each}.title`)}
          </a>
        ))}
      </nav>
      {now?.status.sandbox ? <span class="tag">{t("frame.sandbox")}</span> : null}
      <span role="status">
        <State state={link.state}>{t(`frame.link.${link.state}`)}</State>
      </span>
    </header>
  );
}

export function Footer({ now }: { readonly now: Now | null }) {
  const { t, language } = useFrame();
  if (now === null) return null;
  const { version, uptime_s: up, listen, config, sandbox } = now.status;
  return (
    <footer class="row muted small">
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
        <Select
          label={t("frame.language")}
          value={language}
          choices={LANGUAGES}
          onChoose={(chosen) => prefer("language", chosen)}
        />
        <Select
          label={t("frame.theme")}
          value={readTheme()}
          choices={THEMES.map((theme) => [theme, t(`frame.theme.${theme}`)])}
          onChoose={(chosen) => prefer("theme", chosen)}
        />
      </span>
    </footer>
  );
}
