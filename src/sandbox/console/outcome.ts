/** What a console action answers, in sub2api's envelope. */
export interface Outcome {
  readonly status: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

export function success(data: unknown): Outcome {
  return { status: 200, body: { code: 0, message: "success", data } };
}

/** An action's own refusal: its code is the status, as a number. */
export function failure(status: number, message: string, reason?: string): Outcome {
  return { status, body: { code: status, message, ...(reason === undefined ? {} : { reason }) } };
}

/** A refusal before the action is reached: flat, its code a word. */
export function flatFailure(
  status: number,
  code: string,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): Outcome {
  return { status, body: { code, message }, headers };
}

export interface Page {
  readonly page: number;
  readonly size: number;
}

const DEFAULT_SIZE = 20;
const MOST_SIZE = 1000;

/** A size beyond the bound is not cut to it but ignored, which has surprised more than one client. */
export function pageOf(query: URLSearchParams): Page {
  const page = Number(query.get("page") ?? 1);
  const size = Number(query.get("page_size") ?? query.get("limit") ?? DEFAULT_SIZE);
  return {
    page: Number.isInteger(page) && page >= 1 ? page : 1,
    size: Number.isInteger(size) && size >= 1 && size <= MOST_SIZE ? size : DEFAULT_SIZE,
  };
}

export function paged<T>(all: readonly T[], { page, size }: Page, shape: (item: T) => object): Outcome {
  return success({
    items: all.slice((page - 1) * size, page * size).map(shape),
    total: all.length,
    page,
    page_size: size,
    pages: Math.max(1, Math.ceil(all.length / size)),
  });
}
