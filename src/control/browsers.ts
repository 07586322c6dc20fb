/* The browsers that open the dashboard by a bookmark. What the daemon answers `keybearer open --list` and `--revoke`. */

export interface RememberedBrowser {
  readonly name: string;
  /** SPKI in base64url. Only the browser has the private key. */
  readonly public_key: string;
  /** Of the public key, short enough to compare by eye. */
  readonly fingerprint: string;
  /** The address that it opens: http://localhost:5398 */
  readonly origin: string;
  readonly made_at: number;
  readonly used_at: number;
}

export interface BrowsersAnswer {
  readonly browsers: readonly RememberedBrowser[];
  /** Why none of them can open the dashboard now; null: each of them can. */
  readonly why: string | null;
  readonly next: string | null;
  /** Names it for the page; null: only the words say it. */
  readonly code: string | null;
}

export interface Browsers {
  list(): BrowsersAnswer;
  /** Ends its sessions, too. null: there is none of that name. Throws an HttpError if it cannot be saved. */
  revoke(name: string): Promise<Record<string, never> | null>;
}
