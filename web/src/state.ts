// What the page knows, kept up to date: it asks for the list at most once a second while it is looked at, listens to
// events so that what happens is asked for at once, and says for how long it has heard nothing.
import { Allowance, backoff } from './backoff.ts';
import { Problem, eventOf, parseExactly, type Api, type Lock, type LockEvent, type Waits } from './api.ts';
import { follow, type Message } from './events.ts';
import { Series, sampleOf } from './series.ts';
import { ServiceClock, ShownClock } from './time.ts';
import type { Route } from './route.ts';

export type Connection =
  | { kind: 'starting' }
  | { kind: 'live' }
  | { kind: 'away'; problem: Problem; retryAt: number } // the service or its store; tried again at retryAt
  | { kind: 'key'; problem: Problem } // wants a key, or another one
  | { kind: 'refused'; problem: Problem }; // there, but does not tell this

// What stands in the list of events: an event, or why there is a gap.
export type Item = { id: number; at: number; event: LockEvent } | { id: number; at: number; gap: 'dropped' | 'interrupted' };

export type Detail = { name: string; lock: Lock | undefined; problem: Problem | undefined; at: number };

export const mostLocks = 1000;
export const mostEvents = 500;
const quietPeriod = 1500; // between two looks when nothing happens
const hiddenPatience = 60_000; // events are listened to for so long when nobody looks

const now = () => performance.now();
const nobody: Waits = { actors: [], waits: [], cycles: [] };

export class Live {
  connection: Connection = { kind: 'starting' };
  listening: 'no' | 'trying' | 'yes' | 'refused' = 'no';
  locks: Lock[] = [];
  waits: Waits = nobody;
  waitsProblem: Problem | undefined;
  detail: Detail | undefined;
  items: Item[] = [];
  address = ''; // of the store
  at = 0; // of the last answer, by performance.now()
  readonly series = new Series();
  readonly clock = new ShownClock();
  readonly service = new ServiceClock();

  private aim = { view: 'locks', prefix: '', lock: '' };
  private readonly allowance = new Allowance(1000, 2, now());
  private listeners = new Set<() => void>();
  private notice: ReturnType<typeof setTimeout> | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private dueAt = Infinity;
  private isAsking = false;
  private attempt = 0;
  private generation = 0; // of the aim; answers to an older one are dropped
  private waitsAt = -Infinity;
  private stream: AbortController | undefined;
  private wakeStream: (() => void) | undefined;
  private streamAttempt = 0;
  private wasListening = false;
  private itemId = 0;
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly api: Api) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // A storm of events draws the page ten times a second, not a thousand times.
  private changed(isUrgent = true): void {
    if (isUrgent) {
      clearTimeout(this.notice);
      this.notice = undefined;
      for (const listener of this.listeners) listener();
    } else {
      this.notice ??= setTimeout(() => this.changed(), 100);
    }
  }

  start(route: Route): void {
    this.aim = { view: route.view, prefix: route.prefix, lock: route.lock };
    document.addEventListener('visibilitychange', () => this.visibility());
    addEventListener('online', () => this.lookSoon());
    this.lookSoon();
    void this.listen();
  }

  aimAt(route: Route): void {
    const before = this.aim;
    this.aim = { view: route.view, prefix: route.prefix, lock: route.lock };
    if (before.prefix !== route.prefix) {
      this.generation += 1;
      this.series.forget();
      this.items = [];
      this.waits = nobody;
      this.wasListening = false;
      this.listenAnew();
    }
    if (before.lock !== route.lock) this.detail = undefined;
    if (before.prefix !== route.prefix || before.lock !== route.lock || before.view !== route.view) {
      this.waitsAt = -Infinity;
      this.lookSoon();
    }
  }

  // A key was given, or taken back.
  keyChanged(): void {
    this.generation += 1;
    this.attempt = 0;
    this.forget();
    this.connection = { kind: 'starting' };
    this.lookSoon();
    this.listenAnew();
    this.changed();
  }

  // What one key may see is not left to be seen by another.
  private forget(): void {
    this.locks = [];
    this.waits = nobody;
    this.detail = undefined;
    this.items = [];
    this.series.forget();
    this.wasListening = false;
  }

  // ---- the list

  // As soon as the allowance permits.
  lookSoon(): void {
    this.lookIn(this.allowance.wait(now()));
  }

  private lookIn(delay: number): void {
    if (document.hidden) return;
    const at = now() + delay;
    if (at >= this.dueAt) return;
    this.dueAt = at;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.dueAt = Infinity;
      void this.look();
    }, delay);
  }

  private async look(): Promise<void> {
    if (this.isAsking || document.hidden) return;
    this.isAsking = true;
    this.allowance.take(now());
    const { generation, aim } = this;
    const [list, waits, detail] = await Promise.all([
      this.api.locks(aim.prefix, mostLocks).then(this.ok, this.failed),
      this.wantsWaits() ? this.api.waits(aim.prefix).then(this.ok, this.failed) : undefined,
      aim.lock === '' ? undefined : this.api.lock(aim.lock).then(this.ok, this.failed),
    ]);
    this.isAsking = false;
    if (generation !== this.generation) return this.lookSoon();
    if (waits !== undefined) {
      this.waitsAt = now();
      this.waitsProblem = waits.problem;
      if (waits.value) this.waits = waits.value;
    }
    if (detail !== undefined && aim.lock === this.aim.lock && (detail.value || detail.problem!.status > 0))
      this.detail = { name: aim.lock, lock: detail.value, problem: detail.problem, at: now() };
    if (list.value) this.answered(list.value);
    else this.unanswered(list.problem!);
    this.changed();
  }

  private readonly ok = <T>(value: T): { value?: T; problem?: Problem } => ({ value });
  private readonly failed = (problem: Problem): { value?: never; problem?: Problem } => ({ problem });

  // Circles are told on every page, but asked for less often where they are not the subject.
  private wantsWaits(): boolean {
    if (this.aim.view === 'waits') return true;
    return this.locks.some((lock) => lock.waiters.length > 0) ? now() - this.waitsAt > 1900 : this.waits.waits.length > 0;
  }

  private answered(locks: Lock[]): void {
    const isBack = this.connection.kind !== 'live';
    const hadWaiters = this.locks.some((lock) => lock.waiters.length > 0);
    this.locks = locks;
    this.at = now();
    this.clock.run();
    this.attempt = 0;
    this.connection = { kind: 'live' };
    this.series.sampled(sampleOf(locks, Date.now()));
    if (isBack) {
      this.streamAttempt = 0;
      this.wakeStream?.();
      void this.askAddress();
    }
    this.lookIn(quietPeriod);
    if (!hadWaiters && locks.some((lock) => lock.waiters.length > 0)) this.lookSoon();
  }

  // Of which store this is the picture; it may be another one after a restart.
  private async askAddress(): Promise<void> {
    const { value } = await this.api.store().then(this.ok, this.failed);
    if (value) this.address = String(value.store ?? '');
    this.changed(false);
  }

  private unanswered(problem: Problem): void {
    if (problem.status === 401) {
      this.forget();
      this.stream?.abort();
      this.connection = { kind: 'key', problem };
      return;
    }
    const isAway = problem.status === 0 || problem.status === 408 || problem.status === 429 || problem.status >= 500;
    if (isAway && problem.code !== 'unsupported') {
      if (this.at > 0) this.clock.freeze(this.at);
      // A stream to a service that is gone may seem to live for a long time.
      if (problem.status === 0 && this.listening === 'yes') this.stream?.abort();
      const delay = Math.max(problem.retryAfter * 1000, backoff(this.attempt++));
      this.connection = { kind: 'away', problem, retryAt: now() + delay };
      this.lookIn(delay);
      return;
    }
    // It is there and says no: the list is not what is shown any more, but one lock may be.
    this.locks = [];
    this.at = now();
    this.clock.run();
    this.connection = { kind: 'refused', problem };
    this.lookIn(this.aim.lock === '' ? 10_000 : quietPeriod);
  }

  private visibility(): void {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      clearTimeout(this.timer);
      this.dueAt = Infinity;
      this.hiddenTimer = setTimeout(() => this.stream?.abort(), hiddenPatience);
      return;
    }
    this.lookSoon();
    this.wakeStream?.();
  }

  // ---- events

  private listenAnew(): void {
    this.streamAttempt = 0;
    this.stream?.abort();
    this.wakeStream?.();
  }

  private async listen(): Promise<never> {
    for (;;) {
      const controller = new AbortController();
      this.stream = controller;
      this.listening = 'trying';
      let refusal: Problem | undefined;
      const { generation } = this;
      try {
        const answer = await this.api.events(this.aim.prefix, controller.signal);
        this.heardNothing(generation);
        await follow(answer, (message) => {
          if (generation === this.generation) this.heard(message);
        });
      } catch (failure) {
        if (failure instanceof Problem) refusal = failure;
      }
      this.series.deaf();
      if (refusal?.status === 401 && generation === this.generation) {
        this.forget();
        this.connection = { kind: 'key', problem: refusal };
      }
      const isRefused = refusal !== undefined && refusal.status >= 400 && refusal.status !== 408 && refusal.status !== 429 && (refusal.status < 500 || refusal.status === 501);
      this.listening = isRefused ? 'refused' : 'trying';
      this.changed();
      // The end of a stream is often the first that is seen of the end of a service.
      if (!isRefused && !controller.signal.aborted) this.lookSoon();
      await this.pauseStream(generation, isRefused ? 15_000 : backoff(this.streamAttempt++));
    }
  }

  // Woken by an answer to the list, another prefix, another key, or by being looked at.
  private pauseStream(generation: number, delay: number): Promise<void> {
    if (generation !== this.generation) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        // While the list is not answered, or nobody looks, an own attempt says nothing new.
        if (this.connection.kind === 'away' || this.connection.kind === 'key' || document.hidden) return;
        done();
      }, delay);
      const done = () => {
        clearTimeout(timer);
        this.wakeStream = undefined;
        resolve();
      };
      this.wakeStream = done;
    });
  }

  private heardNothing(generation: number): void {
    if (generation !== this.generation) return;
    this.listening = 'yes';
    this.streamAttempt = 0;
    this.series.listening(Date.now());
    if (this.wasListening) this.add({ id: ++this.itemId, at: this.service.now(), gap: 'interrupted' });
    this.wasListening = true;
    this.lookSoon();
    this.changed();
  }

  private heard(message: Message): void {
    let data: { [name: string]: unknown };
    try {
      data = parseExactly(message.data) as typeof data;
    } catch {
      return;
    }
    if (message.event === 'dropped') {
      this.add({ id: ++this.itemId, at: this.service.now(), gap: 'dropped' });
      this.changed(false);
      return;
    }
    if (message.event === 'hello' && typeof data.at_ms === 'number') this.service.heard(data.at_ms);
    const event = eventOf(message.event, data);
    if (event === undefined) return;
    this.service.heard(event.atMs);
    this.series.happened(event, Date.now());
    this.add({ id: ++this.itemId, at: event.atMs, event });
    this.lookSoon();
    this.changed(false);
  }

  private add(item: Item): void {
    this.items = [item, ...this.items.slice(0, mostEvents - 1)];
  }
}
