import type { Note } from "../../ui/messages.ts";

export interface ServiceNote extends Note {
  /** A stable name for programs. */
  readonly id: string;
  /** It keeps the service from serving, now or at its next start. */
  readonly grave: boolean;
}
