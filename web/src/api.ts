// The documented HTTP API (docs/reference/http.md), and nothing else. What comes is made into the shapes below, so
// that the rest of the page needs no guard against a field that is not there.

export type Entry = {
  host: string;
  pid: number;
  label: string;
  mode: string;
  owner: string;
  permits: number | undefined;
  priority: number;
};
// undefined: not known, or never.
export type Holder = Entry & { token: string; held: number | undefined; expiresIn: number | undefined };
export type Waiter = Entry & { waiting: number | undefined };
export type Lock = {
  name: string;
  holders: Holder[];
  waiters: Waiter[];
  permits: number | undefined;
  freePermits: number | undefined;
  history: LockEvent[];
};

export const eventKinds = ['granted', 'queued', 'released', 'lost', 'broken'] as const;
export type EventKind = (typeof eventKinds)[number];
export type LockEvent = {
  kind: EventKind;
  atMs: number;
  name: string;
  token: string;
  label: string;
  host: string;
  pid: number;
  why: string;
};

export type Actor = { id: string; host: string; pid: number; label: string; owner: string };
export type Wait = { from: string; to: string; name: string };
export type Waits = { actors: Actor[]; waits: Wait[]; cycles: string[][] };

export type Finding = { level: string; about: string; sentence: string };
export type Doctor = { store: string; engine: string; findings: Finding[] };
export type Facts = Record<string, string | number | boolean | null>;

// A refusal in the service's own words, or the absence of any answer (status 0).
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly retryAfter = 0,
  ) {
    super(detail);
  }
}

type Json = { [name: string]: unknown };

const text = (value: unknown): string => (typeof value === 'string' ? value : value === undefined || value === null ? '' : String(value));
const number = (value: unknown): number => (typeof value === 'number' ? value : Number(value) || 0);
const known = (value: unknown): number | undefined => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);
const list = (value: unknown): Json[] => (Array.isArray(value) ? value : []);

// Tokens have 64 bits, JavaScript's numbers 53. The number's own text is kept where the browser gives it.
export function parseExactly(body: string): unknown {
  if (!/\d{16}/.test(body)) return JSON.parse(body);
  const keep = (_key: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source !== undefined ? context.source : value;
  return JSON.parse(body, keep as (this: unknown, key: string, value: unknown) => unknown);
}

// 0 is what has no token.
function tokenOf(from: Json): string {
  const token = text(from.token_text ?? from.token);
  return token === '0' ? '' : token;
}

function entryOf(from: Json): Entry {
  return {
    host: text(from.host),
    pid: number(from.pid),
    label: text(from.label),
    mode: text(from.mode),
    owner: text(from.owner),
    permits: known(from.permits),
    priority: number(from.priority),
  };
}

export function lockOf(from: Json): Lock {
  return {
    name: text(from.name),
    holders: list(from.holders).map((one) => ({
      ...entryOf(one),
      token: tokenOf(one),
      held: known(one.held_seconds),
      expiresIn: known(one.expires_in_seconds),
    })),
    waiters: list(from.waiters).map((one) => ({ ...entryOf(one), waiting: known(one.waiting_seconds) })),
    permits: known(from.permits),
    freePermits: known(from.free_permits),
    history: list(from.history).flatMap((one) => eventOf(text(one.event ?? one.what ?? one.kind), one) ?? []),
  };
}

export function eventOf(kind: string, from: Json): LockEvent | undefined {
  const which = eventKinds.find((one) => one === kind);
  if (which === undefined) return undefined;
  return {
    kind: which,
    atMs: number(from.at_ms),
    name: text(from.name),
    token: tokenOf(from),
    label: text(from.label),
    host: text(from.host),
    pid: number(from.pid),
    why: text(from.why),
  };
}

// Actors may be named by an id or by their place.
export function waitsOf(from: Json): Waits {
  return {
    actors: list(from.actors).map((one, place) => ({
      id: text(one.id ?? place),
      host: text(one.host),
      pid: number(one.pid),
      label: text(one.label),
      owner: text(one.owner ?? one.lease),
    })),
    waits: list(from.waits).map((one) => ({ from: text(one.from), to: text(one.to), name: text(one.name) })),
    cycles: (Array.isArray(from.cycles) ? from.cycles : []).map((one: unknown) => (Array.isArray(one) ? one.map(text) : [])),
  };
}

async function problemOf(answer: Response): Promise<Problem> {
  const retryAfter = Number(answer.headers.get('Retry-After')) || 0;
  try {
    const said = JSON.parse(await answer.text()) as Json;
    return new Problem(answer.status, text(said.code), text(said.detail) || text(said.title), retryAfter);
  } catch {
    // A proxy in between answers in a language of its own.
    return new Problem(answer.status, 'http', `HTTP ${answer.status} ${answer.statusText}`.trim(), retryAfter);
  }
}

function query(parameters: Record<string, string | number>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== '');
  return given.length === 0 ? '' : '?' + given.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
}

export class Api {
  // Addresses are relative, so that the page also works below a folder of a proxy.
  constructor(
    private readonly key: () => string,
    private readonly base = './',
    private readonly patience = 10_000,
  ) {}

  // Throws a Problem, and nothing else.
  private async send(method: string, path: string, headers: Record<string, string>, stop?: AbortSignal, patience = this.patience): Promise<Response> {
    const controller = new AbortController();
    const abort = () => controller.abort();
    if (stop?.aborted) abort();
    stop?.addEventListener('abort', abort);
    // Of the headers only: what is streamed may take for ever.
    const timer = setTimeout(abort, patience);
    try {
      const key = this.key();
      const answer = await fetch(this.base + path, {
        method,
        headers: key === '' ? headers : { ...headers, Authorization: `Bearer ${key}` },
        cache: 'no-store',
        redirect: 'error',
        signal: controller.signal,
      });
      if (!answer.ok) throw await problemOf(answer);
      return answer;
    } catch (failure) {
      if (failure instanceof Problem) throw failure;
      throw new Problem(0, stop?.aborted ? 'stopped' : 'unreachable', '');
    } finally {
      clearTimeout(timer);
    }
  }

  private async get(path: string): Promise<Json> {
    const answer = await this.send('GET', path, { Accept: 'application/json' });
    try {
      const body = parseExactly(await answer.text());
      return typeof body === 'object' && body !== null ? (body as Json) : {};
    } catch {
      throw new Problem(0, 'unreachable', '');
    }
  }

  async locks(prefix: string, limit: number): Promise<Lock[]> {
    return list((await this.get('v1/locks' + query({ prefix, limit }))).locks).map(lockOf);
  }
  async lock(name: string): Promise<Lock> {
    return lockOf(await this.get('v1/locks/' + encodeURIComponent(name)));
  }
  // How many holders it had.
  async breakLock(name: string): Promise<number> {
    const answer = await this.send('DELETE', 'v1/locks/' + encodeURIComponent(name), { 'X-Holdfast-Intent': 'break' }, undefined, 30_000);
    return number(((await answer.json()) as Json).holders_ended);
  }
  async waits(prefix: string): Promise<Waits> {
    return waitsOf(await this.get('v1/waits' + query({ prefix })));
  }
  async store(): Promise<Facts> {
    return (await this.get('v1/store')) as Facts;
  }
  async stats(): Promise<Json> {
    return await this.get('v1/stats');
  }
  async doctor(): Promise<Doctor> {
    const from = await this.get('v1/doctor');
    return {
      store: text(from.store),
      engine: text(from.engine),
      findings: list(from.findings).map((one) => ({ level: text(one.level), about: text(one.about), sentence: text(one.sentence) })),
    };
  }
  // fetch, and not EventSource: that can send no key.
  events(prefix: string, stop: AbortSignal): Promise<Response> {
    return this.send('GET', 'v1/events' + query({ prefix }), { Accept: 'text/event-stream' }, stop);
  }
}
