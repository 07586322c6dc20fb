import { useId, useState } from "preact/hooks";
import type { BrowsersAnswer, RememberedBrowser } from "../../../control/browsers.ts";
import { useAct } from "../act.ts";
import { dayOf } from "../format.ts";
import { useFrame } from "../frame.tsx";
import { type BrowserKey, makeBrowserKey, readBrowserKey, takeIntoUse } from "../live/browser-key.ts";
import { wordsOf } from "../live/failed.ts";
import { useAnswer } from "../use-answer.ts";
import { ActionDialog } from "./action-dialog.tsx";
import { Dialog } from "./dialog.tsx";
import { Table } from "./table.tsx";

interface NewBrowser {
  readonly name: string;
  readonly key: BrowserKey;
}

/** The button that remembers this browser, so that a bookmark opens the dashboard without a terminal. */
export function Bookmark() {
  const { t, live } = useFrame();
  const [isOpen, setOpen] = useState(false);
  const [made, setMade] = useState<NewBrowser | null>(null);
  const close = () => setOpen(false);
  // Only now: until then the key that this browser had is in use.
  const remembered = (key: BrowserKey) => void takeIntoUse(key).then(() => live.changed());
  return (
    <>
      <button type="button" class="plain" onClick={() => setOpen(true)}>
        {t("bookmark.open")}
      </button>
      {isOpen ? (
        <BookmarkDialog
          onMade={(browser) => {
            close();
            setMade(browser);
          }}
          onClose={close}
        />
      ) : null}
      {made === null ? null : (
        <ActionDialog
          asked={{ kind: "remember-browser", name: made.name, public_key: made.key.publicKey }}
          onDone={() => remembered(made.key)}
          onClose={() => setMade(null)}
        />
      )}
    </>
  );
}

interface BookmarkDialogProps {
  readonly onMade: (browser: NewBrowser) => void;
  readonly onClose: () => void;
}

function BookmarkDialog({ onMade, onClose }: BookmarkDialogProps) {
  const { t, client } = useFrame();
  const asked = useAnswer(async (signal) => {
    const answer = await client.get("/api/browsers", undefined, signal);
    return { answer, key: await readBrowserKey() };
  }, []);
  return (
    <Dialog title={t("bookmark.title")} onClose={onClose}>
      <p>{t("bookmark.lead")}</p>
      {asked.failure === null ? null : <p role="alert">{t("frame.failed", { why: asked.failure })}</p>}
      {asked.value === null ? null : (
        <Remembered answer={asked.value.answer} own={asked.value.key} onMade={onMade} onClose={onClose} />
      )}
    </Dialog>
  );
}

interface RememberedProps extends BookmarkDialogProps {
  readonly answer: BrowsersAnswer;
  /** The key of this browser; null: it has none. */
  readonly own: BrowserKey | null;
}

function Remembered({ answer: { browsers, why, next }, own, onMade, onClose }: RememberedProps) {
  const { t } = useFrame();
  const itself = browsers.find((each) => each.public_key === own?.publicKey);
  return (
    <>
      {why === null ? null : (
        <p class="wrong" role="alert">
          {why}
          {next === null ? "" : ` → ${next}`}
        </p>
      )}
      {browsers.length === 0 ? null : <Browsers browsers={browsers} onClose={onClose} />}
      {itself === undefined ? null : <p>{t("bookmark.this", { name: itself.name })}</p>}
      {why === null && itself === undefined ? <Remember onMade={onMade} /> : null}
    </>
  );
}

interface BrowsersProps {
  readonly browsers: readonly RememberedBrowser[];
  readonly onClose: () => void;
}

function Browsers({ browsers, onClose }: BrowsersProps) {
  const { t } = useFrame();
  const act = useAct();
  const revoke = (name: string) => {
    onClose();
    act({ kind: "revoke-browser", name });
  };
  return (
    <Table
      caption={t("bookmark.list")}
      rows={browsers}
      keyOf={({ name }) => name}
      columns={[
        { id: "name", title: t("bookmark.name"), cell: ({ name }) => name },
        { id: "used", title: t("bookmark.used"), cell: ({ used_at }) => dayOf(used_at) },
        {
          id: "revoke",
          title: t("bookmark.revoke"),
          cell: ({ name }) => (
            <button type="button" class="plain" onClick={() => revoke(name)}>
              {t("bookmark.revoke")}
              <span class="visually-hidden"> {name}</span>
            </button>
          ),
        },
        { id: "key", title: t("bookmark.key"), cell: ({ fingerprint }) => <code>{fingerprint}</code> },
        { id: "made", title: t("bookmark.made"), cell: ({ made_at }) => dayOf(made_at) },
      ]}
    />
  );
}

function Remember({ onMade }: Pick<BookmarkDialogProps, "onMade">) {
  const { t } = useFrame();
  const [name, setName] = useState(nameOf(navigator.userAgent));
  const [problem, setProblem] = useState<string | null>(null);
  const field = useId();
  const make = () => {
    makeBrowserKey().then(
      (key) => onMade({ name, key }),
      (error: unknown) => setProblem(wordsOf(error)),
    );
  };
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        make();
      }}
    >
      <label for={field}>{t("bookmark.name")}</label>
      <input
        id={field}
        type="text"
        pattern="[A-Za-z0-9][A-Za-z0-9_.\-]{0,39}"
        title={t("bookmark.name.rule")}
        required
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
      />
      {problem === null ? null : (
        <p class="wrong" role="alert">
          {problem}
        </p>
      )}
      <p>
        <button type="submit" class="primary">
          {t("bookmark.remember")}
        </button>
      </p>
    </form>
  );
}

/** A first proposal: most people have one browser of a kind. */
function nameOf(userAgent: string): string {
  const [found = "browser"] = /Firefox|Edg|Chrome|Safari/.exec(userAgent) ?? [];
  return found === "Edg" ? "edge" : found.toLowerCase();
}
