// What has become of one lock in the last minutes, as spans on a line of time: who had it, and how many waited.
import type { Lock, LockEvent } from './api.ts';

export type Span = { from: number; to: number; lane: number; who: string; token: string; isOpen: boolean };
export type Step = { at: number; waiting: number };
export type Mark = { at: number; kind: 'lost' | 'broken' };
export type Strip = { spans: Span[]; lanes: number; steps: Step[]; most: number; marks: Mark[] };

type By = { label: string; host: string; pid: number };
const whoOf = (one: By) => one.label || (one.host === '' && one.pid === 0 ? '' : `${one.host}:${one.pid}`);
const keyOf = (one: By) => JSON.stringify([one.label, one.host, one.pid]);

const mostLanes = 4;

// `now` is the service's clock, in milliseconds; what began before `since` is cut.
export function stripOf(events: LockEvent[], lock: Lock, since: number, now: number): Strip {
  const spans: Span[] = [];
  const marks: Mark[] = [];
  const changes: Array<{ at: number; by: number }> = [];
  const open = new Map<string, { at: number; who: string }>();
  const queued = new Map<string, number[]>();
  const cut = (at: number) => Math.min(Math.max(at, since), now);
  const close = (token: string, at: number, who: string) => {
    const began = open.get(token);
    open.delete(token);
    spans.push({ from: cut(began?.at ?? since), to: cut(at), lane: 0, who: began?.who || who, token, isOpen: false });
  };
  const unqueue = (one: By, at: number) => {
    const began = queued.get(keyOf(one))?.shift();
    if (began !== undefined) changes.push({ at: cut(began), by: 1 }, { at: cut(at), by: -1 });
  };

  for (const event of [...events].sort((a, b) => a.atMs - b.atMs)) {
    const who = whoOf(event);
    if (event.kind === 'queued') {
      const key = keyOf(event);
      queued.set(key, [...(queued.get(key) ?? []), event.atMs]);
    } else if (event.kind === 'granted') {
      unqueue(event, event.atMs);
      open.set(event.token, { at: event.atMs, who });
    } else {
      // Who waited and gave up has no token.
      if (event.token === '') unqueue(event, event.atMs);
      else close(event.token, event.atMs, who);
      if (event.kind !== 'released' && event.atMs >= since) marks.push({ at: cut(event.atMs), kind: event.kind });
      // A break ends all of them.
      if (event.kind === 'broken') for (const token of [...open.keys()]) close(token, event.atMs, '');
    }
  }
  // The list of holders is the truth about the present: what events did not tell comes from it.
  for (const holder of lock.holders) {
    const began = open.get(holder.token)?.at ?? (holder.held === undefined ? since : now - holder.held * 1000);
    spans.push({ from: cut(began), to: now, lane: 0, who: whoOf(holder), token: holder.token, isOpen: true });
  }
  for (const waiter of lock.waiters) {
    const began = waiter.waiting === undefined ? (queued.get(keyOf(waiter))?.shift() ?? since) : now - waiter.waiting * 1000;
    changes.push({ at: cut(began), by: 1 });
  }

  const shown = spans.filter((span) => span.to > since && span.to >= span.from).sort((a, b) => a.from - b.from || a.to - b.to);
  const lanes = intoLanes(shown);
  const steps = stepsOf(changes, since);
  return { spans: shown, lanes, steps, most: Math.max(0, ...steps.map((step) => step.waiting)), marks };
}

// Spans of one lane do not cover each other; those beyond the last lane share it.
function intoLanes(spans: Span[]): number {
  const ends: number[] = [];
  for (const span of spans) {
    let lane = ends.findIndex((end) => end <= span.from);
    if (lane < 0) lane = Math.min(ends.length, mostLanes - 1);
    span.lane = lane;
    ends[lane] = Math.max(ends[lane] ?? 0, span.to);
  }
  return Math.max(1, ends.length);
}

function stepsOf(changes: Array<{ at: number; by: number }>, since: number): Step[] {
  changes.sort((a, b) => a.at - b.at || b.by - a.by);
  const steps: Step[] = [{ at: since, waiting: 0 }];
  for (const change of changes) {
    const last = steps[steps.length - 1]!;
    const waiting = Math.max(0, last.waiting + change.by);
    if (change.at === last.at) last.waiting = waiting;
    else steps.push({ at: change.at, waiting });
  }
  return steps;
}
