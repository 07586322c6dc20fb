import { lineEnd, nextLine } from "../core/lines.ts";
import { cannotEdit, type Edited, lineCounter, matchAt } from "./text-edit.ts";

/*
 * The words of a shell's start file, as far as assignments need it: which texts are quoted, which are comments or here-documents,
 * and where each command begins. Commands are not understood, and what is inside $( ), ` ` and ( ) of a list is passed over.
 */

/** sh: POSIX shells, bash and zsh. */
export type ShellDialect = "sh" | "fish";

/** A word with its quotes, as a range of the text. */
export interface Word {
  readonly start: number;
  readonly end: number;
}

export interface Command {
  readonly words: readonly [Word, ...Word[]];
  /** The keyword or operator before it, such as `then` or `&&`. Empty: it just follows another command. */
  readonly before: string;
  /** The one behind it. */
  readonly after: string;
}

export type Commands =
  | { readonly ok: true; readonly commands: readonly Command[] }
  | (Edited & { readonly ok: false });

export function readCommands(text: string, dialect: ShellDialect): Commands {
  const lexer = new Lexer(text, dialect);
  const tokens = lexer.readTokens(null);
  if (lexer.problem !== null) return cannotEdit(lexer.problem.text, lineCounter(text)(lexer.problem.at));
  return { ok: true, commands: toCommands(tokens) };
}

/** The words of a command, or a keyword or operator. */
type Token = readonly [Word, ...Word[]] | string;

function toCommands(tokens: readonly Token[]): Command[] {
  const isBreak = (token: Token) => token === "\n" || token === ";";
  const befores: string[] = [];
  let mark = "";
  for (const token of tokens) {
    befores.push(mark);
    if (typeof token !== "string") mark = "";
    else if (!isBreak(token)) mark = token;
  }
  const commands: Command[] = [];
  mark = "";
  for (const [index, token] of [...tokens.entries()].reverse()) {
    if (typeof token !== "string") {
      commands.push({ words: token, before: befores[index] ?? "", after: mark });
      mark = "";
    } else if (!isBreak(token)) mark = token;
  }
  return commands.reverse();
}

/** Settings are never nested this deep, and the lexer is recursive. */
const MAX_DEPTH = 100;

/** Behind these another command follows. */
const KEYWORDS: Readonly<Record<ShellDialect, RegExp>> = {
  sh: /^(?:if|then|elif|else|fi|while|until|do|done|esac|time|[{}!])$/,
  fish: /^(?:if|else|while|and|or|not|begin|end|time|!)$/,
};

/** With a comment up to the end of the line. A backslash joins two lines. */
const BLANKS = /(?:[ \t]+|\\\r?\n)*(?:#[^\n]*)?/y;
const REDIRECTION = /&>>?|<<<|<<-?|<>|[<>]&|>>|>\||<|>/y;
const OPERATOR = /\r?\n|&&|\|\||;;&?|;&|\|&?|&|;|[()]/y;
/** Characters of a word without a meaning. */
const PLAIN: Readonly<Record<ShellDialect, RegExp>> = {
  sh: /[^ \t\r\n\\'"`$;&|<>()]+|\r(?!\n)/y,
  fish: /[^ \t\r\n\\'"$;&|<>()]+|\r(?!\n)/y,
};

class Lexer {
  problem: { readonly text: string; readonly at: number } | null = null;
  private readonly text: string;
  private readonly dialect: ShellDialect;
  private at: number;
  private depth = 0;
  /** Their bodies begin on the next line. */
  private hereDocuments: { readonly delimiter: string; readonly tabs: boolean }[] = [];

  constructor(text: string, dialect: ShellDialect) {
    this.text = text;
    this.dialect = dialect;
    this.at = text.startsWith("\uFEFF") ? 1 : 0;
  }

  /** Reads up to the end of the text, or up to and with the ) of a substitution or a list. */
  readTokens(inside: null | "substitution" | "list"): Token[] {
    const start = this.at;
    const tokens: Token[] = [];
    let words: Word[] = [];
    const endCommand = () => {
      const [first, ...rest] = words;
      if (first !== undefined) tokens.push([first, ...rest]);
      words = [];
    };
    let isTest = false;
    // A ) closes a subshell or a pattern of `case` first.
    let parentheses = 0;
    let cases = 0;
    for (let next = this.next(inside === "list"); next !== null; next = this.next(inside === "list")) {
      if (typeof next === "string") {
        if (next === "\n") isTest = false;
        // In [[ a && ( b ) ]] operators do not begin a command.
        if (isTest) continue;
        if (next === ")" && inside !== null && parentheses === 0 && cases === 0) return tokens;
        if (next === "(") parentheses += 1;
        if (next === ")" && parentheses > 0) parentheses -= 1;
        endCommand();
        tokens.push(next);
        continue;
      }
      const word = this.textOf(next);
      const [first] = words;
      const isFirst = first === undefined && inside !== "list";
      if (isFirst && word === "case" && this.dialect === "sh") cases += 1;
      if (isFirst && word === "esac" && cases > 0) cases -= 1;
      if (isFirst && word === "[[") isTest = true;
      if (word === "]]") isTest = false;
      // `function name {`, and in zsh `} always {`.
      const isBody = word === "{" && first !== undefined && /^(?:function|always)$/.test(this.textOf(first));
      if (isBody || (isFirst && KEYWORDS[this.dialect].test(word))) {
        endCommand();
        tokens.push(word);
      } else words.push(next);
    }
    endCommand();
    if (inside !== null) this.fail("this ( is not closed", start - 1);
    return tokens;
  }

  /** The next word or operator; null: the text ends. Comments, redirections and here-documents are passed over. */
  private next(isInList: boolean): Word | string | null {
    for (;;) {
      this.skip(BLANKS);
      if (this.at >= this.text.length) return null;
      const redirection = this.skip(REDIRECTION);
      if (redirection === "") break;
      this.skip(BLANKS);
      const start = this.at;
      this.skipWord();
      if (this.dialect === "fish" || !/^<<-?$/.test(redirection)) continue;
      const delimiter = this.textOf({ start, end: this.at }).replace(/['"\\]/g, "");
      this.hereDocuments.push({ delimiter, tabs: redirection === "<<-" });
    }
    const start = this.at;
    if (this.dialect === "sh" && !isInList && this.text.startsWith("((", start)) {
      this.skipArithmetic();
    } else if (this.dialect === "fish" && this.text[start] === "(") {
      this.skipWord();
    } else {
      const operator = this.skip(OPERATOR);
      if (operator.endsWith("\n")) {
        this.skipHereDocuments();
        return "\n";
      }
      if (operator !== "") return operator;
      this.skipWord();
    }
    return { start, end: this.at };
  }

  private skip(expression: RegExp): string {
    const skipped = matchAt(expression, this.text, this.at)?.[0] ?? "";
    this.at += skipped.length;
    return skipped;
  }

  private fail(text: string, at: number): void {
    this.problem ??= { text, at };
    this.at = this.text.length;
  }

  private textOf({ start, end }: Word): string {
    return this.text.slice(start, end);
  }

  private skipWord(): void {
    const start = this.at;
    for (;;) {
      const character = this.text[this.at];
      if (character === undefined) return;
      if (character === "(" && this.dialect === "fish") {
        this.skipSubstitution("substitution");
      } else if (character === "(") {
        // NAME=(a list), else a subshell.
        if (!/^[A-Za-z_][A-Za-z0-9_]*\+?=$/.test(this.text.slice(start, this.at))) return;
        this.skipSubstitution("list");
      } else if (!this.skipQuoted(character)) {
        if (this.skip(PLAIN[this.dialect]) === "") return;
      }
    }
  }

  /** What can be in a word, in arithmetic and in ${ }. */
  private skipQuoted(character: string): boolean {
    if (character === "\\") this.skipEscape();
    else if (character === "'") this.skipTo("'", this.dialect === "fish");
    else if (character === '"') this.skipDoubleQuoted();
    else if (character === "$") this.skipDollar(false);
    else if (character === "`" && this.dialect === "sh") this.skipTo("`", true);
    else return false;
    return true;
  }

  private skipEscape(): void {
    const length = this.text.startsWith("\r\n", this.at + 1) ? 3 : 2;
    this.at = Math.min(this.at + length, this.text.length);
  }

  /** Goes behind the next quote of this kind. */
  private skipTo(quote: string, hasEscapes: boolean): void {
    const start = this.at;
    for (this.at += 1; this.at < this.text.length; ) {
      if (this.text[this.at] === "\\" && hasEscapes) {
        this.skipEscape();
      } else if (this.text[this.at] === quote) {
        this.at += 1;
        return;
      } else this.at += 1;
    }
    this.fail("this quote is not closed", start);
  }

  private skipDoubleQuoted(): void {
    const start = this.at;
    for (this.at += 1; this.at < this.text.length; ) {
      const character = this.text[this.at];
      if (character === '"') {
        this.at += 1;
        return;
      }
      if (character === "\\") this.skipEscape();
      else if (character === "$") this.skipDollar(true);
      else if (character === "`" && this.dialect === "sh") this.skipTo("`", true);
      else this.at += 1;
    }
    this.fail("this quote is not closed", start);
  }

  private skipDollar(isInQuotes: boolean): void {
    const next = this.text[this.at + 1];
    this.at += 1;
    if (next === "(") {
      if (this.text[this.at + 1] === "(" && this.dialect === "sh") this.skipArithmetic();
      else this.skipSubstitution("substitution");
    } else if (this.dialect === "sh" && next === "{") {
      this.skipBraces(isInQuotes);
    } else if (this.dialect === "sh" && next === "'" && !isInQuotes) {
      this.skipTo("'", true);
    }
  }

  /** $(commands) and (list). */
  private skipSubstitution(kind: "substitution" | "list"): void {
    if (!this.enter()) return;
    this.at += 1;
    this.readTokens(kind);
    this.depth -= 1;
  }

  /** ((1 << 2)), in which << begins no here-document. */
  private skipArithmetic(): void {
    if (!this.enter()) return;
    const start = this.at;
    let open = 0;
    while (this.at < this.text.length) {
      const character = this.text.charAt(this.at);
      if (this.skipQuoted(character)) continue;
      this.at += 1;
      if (character === "(") open += 1;
      if (character === ")") open -= 1;
      if (open > 0) continue;
      this.depth -= 1;
      return;
    }
    this.fail("this ( is not closed", start);
  }

  /**
   * ${name}, ${name:-word} and the like. In double quotes a ' stands for itself, except in patterns such as ${name#'x'}. bash requires
   * two of them in any case, which makes no difference here.
   */
  private skipBraces(isInQuotes: boolean): void {
    if (!this.enter()) return;
    const start = this.at;
    const isPattern = matchAt(/\{[!#]?[\w@*?$-]*(?:\[[^\]\n]{0,200}\])?[#%/]/y, this.text, start) !== null;
    this.at += 1;
    while (this.at < this.text.length) {
      const character = this.text.charAt(this.at);
      if (character === "'" && isInQuotes && !isPattern) {
        this.at += 1;
      } else if (character === "$") {
        this.skipDollar(isInQuotes);
      } else if (!this.skipQuoted(character)) {
        this.at += 1;
        if (character !== "}") continue;
        this.depth -= 1;
        return;
      }
    }
    this.fail("this { is not closed", start);
  }

  private enter(): boolean {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) this.fail(`more than ${MAX_DEPTH} brackets are nested`, this.at);
    return this.depth <= MAX_DEPTH;
  }

  /** A here-document that is never closed ends with the text, as in a shell. */
  private skipHereDocuments(): void {
    for (const { delimiter, tabs } of this.hereDocuments) {
      let isEnd = false;
      while (!isEnd && this.at < this.text.length) {
        const line = this.text.slice(this.at, lineEnd(this.text, this.at));
        isEnd = (tabs ? line.replace(/^\t+/, "") : line) === delimiter;
        this.at = nextLine(this.text, this.at);
      }
    }
    this.hereDocuments = [];
  }
}
