// The last minutes in numbers: one sample for each look at the list, and how many events each second had.
import type { EventKind, Lock, LockEvent } from './api.ts';

export const minutesShown = 5;
const span = minutesShown * 60_000;

export type Sample = { at: number; held: number; waiting: number; longest: number };
export type Point = { at: number; value: number | undefined }; // undefined: nothing is known there

export function sampleOf(locks: Lock[], at: number): Sample {
  let held = 0;
  let waiting = 0;
  let longest = 0;
  for (const lock of locks) {
    if (lock.holders.length > 0) held += 1;
    waiting += lock.waiters.length;
    for (const waiter of lock.waiters) longest = Math.max(longest, waiter.waiting ?? 0);
  }
  return { at, held, waiting, longest };
}

export class Series {
  samples: Sample[] = [];
  private counts = new Map<number, Record<EventKind, number>>();
  // Waits that ended in a grant: when, and how long in seconds.
  grants: Array<{ at: number; waited: number }> = [];
  private queued = new Map<string, number[]>();
  private heardSince: number | undefined;

  forget(): void {
    this.samples = [];
    this.grants = [];
    this.counts.clear();
    this.queued.clear();
    this.heardSince = undefined;
  }

  sampled(sample: Sample): void {
    this.samples.push(sample);
    while (this.samples.length > 0 && this.samples[0]!.at < sample.at - span) this.samples.shift();
  }

  // The stream of events is there, from `at` on; rates before are not known.
  listening(at: number): void {
    this.heardSince ??= at;
  }
  deaf(): void {
    this.heardSince = undefined;
    this.queued.clear();
  }

  happened(event: LockEvent, at: number): void {
    const second = Math.floor(at / 1000);
    const counts = this.counts.get(second) ?? { granted: 0, queued: 0, released: 0, lost: 0, broken: 0 };
    counts[event.kind] += 1;
    this.counts.set(second, counts);
    for (const old of this.counts.keys()) {
      if (old >= second - minutesShown * 60) break;
      this.counts.delete(old);
    }
    this.match(event, at);
  }

  // One entry of a queue looks like another of the same process and label; the first that came is taken for the first that went.
  private match(event: LockEvent, at: number): void {
    const key = JSON.stringify([event.name, event.label, event.host, event.pid]);
    if (event.kind === 'queued') {
      if (this.queued.size < 10_000) this.queued.set(key, [...(this.queued.get(key) ?? []), event.atMs]);
      return;
    }
    if (event.kind !== 'granted' && event.token !== '') return;
    const began = this.queued.get(key);
    const first = began?.shift();
    if (began?.length === 0) this.queued.delete(key);
    if (event.kind !== 'granted') return;
    this.grants.push({ at, waited: first === undefined ? 0 : Math.max(0, event.atMs - first) / 1000 });
    while (this.grants.length > 0 && this.grants[0]!.at < at - span) this.grants.shift();
  }

  // Per second, over buckets of `width` seconds that have ended.
  rate(kinds: EventKind[], now: number, width = 5): Point[] {
    const out: Point[] = [];
    const last = Math.floor(now / 1000 / width) * width;
    for (let from = last - minutesShown * 60; from < last; from += width) {
      let sum = 0;
      for (let second = from; second < from + width; ++second) for (const kind of kinds) sum += this.counts.get(second)?.[kind] ?? 0;
      const isKnown = sum > 0 || (this.heardSince !== undefined && from * 1000 >= this.heardSince - 1000 * width);
      out.push({ at: (from + width) * 1000, value: isKnown ? sum / width : undefined });
    }
    return out;
  }

  of(field: 'held' | 'waiting' | 'longest'): Point[] {
    const out: Point[] = [];
    let before: number | undefined;
    for (const sample of this.samples) {
      // Nothing was heard for so long: no line across.
      if (before !== undefined && sample.at - before > 6000) out.push({ at: sample.at - 1, value: undefined });
      out.push({ at: sample.at, value: sample[field] });
      before = sample.at;
    }
    return out;
  }

  // Of the waits that ended in the last minute.
  waited(now: number, share: number): number | undefined {
    const recent = this.grants.filter((one) => one.at >= now - 60_000).map((one) => one.waited);
    if (recent.length === 0) return undefined;
    recent.sort((a, b) => a - b);
    return recent[Math.min(recent.length - 1, Math.floor(share * recent.length))];
  }
}
