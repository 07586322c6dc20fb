import type { ComponentChildren } from "preact";

interface BannerProps {
  readonly kind: "bad" | "warn";
  readonly title: string;
  readonly children: ComponentChildren;
}

/** Only the title is an alert: what counts up below it would be read out again and again. */
export function Banner({ kind, title, children }: BannerProps) {
  return (
    <div class="banner" data-kind={kind}>
      <div role="alert">
        <h2>{title}</h2>
      </div>
      {children}
    </div>
  );
}
