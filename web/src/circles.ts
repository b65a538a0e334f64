// Who waits in a circle, as the service has found it. It names the members of each, in no order; each wait from one of
// them for another is part of it.
import type { Wait, Waits } from './api.ts';

export class Circles {
  private readonly of = new Map<string, number>();

  constructor(readonly waits: Waits) {
    waits.cycles.forEach((members, number) => members.forEach((id) => this.of.set(id, number)));
  }

  has(id: string): boolean {
    return this.of.has(id);
  }
  isStuck(wait: { from: string; to: string }): boolean {
    const number = this.of.get(wait.from);
    return number !== undefined && this.of.get(wait.to) === number;
  }
  // Of the locks that are waited for in a circle.
  names(): Set<string> {
    return new Set(this.waits.waits.filter((wait) => this.isStuck(wait)).map((wait) => wait.name));
  }

  // As one tells it: who waits for somebody, then for whom that one waits, round to the first.
  told(number: number): Wait[] {
    const left = new Map<string, Wait[]>();
    for (const wait of this.waits.waits)
      if (this.isStuck(wait) && this.of.get(wait.from) === number) left.set(wait.from, [...(left.get(wait.from) ?? []), wait]);
    const out: Wait[] = [];
    for (const first of [...left.keys()])
      for (let at: string | undefined = first; at !== undefined; ) {
        const wait: Wait | undefined = left.get(at)?.shift();
        if (wait !== undefined) out.push(wait);
        // What one could not come to on the way is told behind it.
        at = wait !== undefined ? wait.to : (left.get(first)?.length ?? 0) > 0 ? first : undefined;
      }
    return out;
  }
}
