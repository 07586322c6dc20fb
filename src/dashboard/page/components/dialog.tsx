import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { useFrame } from "../frame.tsx";

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** Above the page, until it is closed: by its button, by Escape, or by `onClose`'s caller. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const { t } = useFrame();
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const opener = document.activeElement;
    if (dialog.current?.open === false) dialog.current.showModal();
    return () => (opener instanceof HTMLElement && opener.isConnected ? opener.focus() : undefined);
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby={heading} onClose={onClose}>
      <div class="dialog-head">
        <h2 id={heading}>{title}</h2>
        <button type="button" class="plain" onClick={() => dialog.current?.close()}>
          {t("frame.close")}
        </button>
      </div>
      {children}
    </dialog>
  );
}
