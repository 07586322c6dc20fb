/* What records are selected by, for reports and for the dashboard's page. */

export const SELECTED_NAMES = ["tool", "model", "project", "session", "group", "key", "machine"] as const;
export type SelectedName = (typeof SELECTED_NAMES)[number];

/** How a request went: an answer that is an error is a failure, whoever made it. */
export const OUTCOMES = ["complete", "failed", "refused", "client-left", "interrupted"] as const;
export type Outcome = (typeof OUTCOMES)[number];
