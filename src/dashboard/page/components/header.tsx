import { useFrame } from "../frame.tsx";
import type { LiveState } from "../live/live.ts";
import { hrefOf, PAGES, type PageName } from "../route.ts";

interface HeaderProps {
  readonly page: PageName;
  readonly state: LiveState;
  readonly onSkip: () => void;
}

export function Header({ page, state, onSkip }: HeaderProps) {
  const { t } = useFrame();
  const { link, now } = state;
  return (
    <header class="top">
      <button type="button" class="skip" onClick={onSkip}>
        {t("frame.skip")}
      </button>
      <a class="brand" href={hrefOf("overview")}>
        <KeyMark />
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
      <span class="link" data-state={link.state} role="status">
        {t(`frame.link.${link.state}`)}
      </span>
    </header>
  );
}

function KeyMark() {
  return (
    <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden="true">
      <g fill="none" stroke="currentColor" stroke-width="3.4" stroke-linecap="round">
        <circle cx="9" cy="16" r="5.5" />
        <path d="M14.5 16H29M24 16v5.5" />
      </g>
    </svg>
  );
}
