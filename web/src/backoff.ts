// How long to wait before trying again: soon at first, as a restarted service is back within a second; never longer
// than ten seconds; and spread, so that a hundred pages do not come back in one moment.

export function backoff(attempt: number, random: () => number = Math.random): number {
  const base = Math.min(10_000, 500 * 2 ** Math.min(attempt, 10));
  return Math.round(base * (0.75 + random() / 2));
}

// At most one request per `each`, and a second one when there was none for a while: what happened just now is seen at
// once, and a storm of events costs the service no more than silence does.
export class Allowance {
  private left: number;
  private at: number;
  constructor(
    private readonly each: number,
    private readonly most: number,
    now: number,
  ) {
    this.left = most;
    this.at = now;
  }
  private refill(now: number): void {
    this.left = Math.min(this.most, this.left + (now - this.at) / this.each);
    this.at = now;
  }
  // Milliseconds until one may be sent.
  wait(now: number): number {
    this.refill(now);
    return this.left >= 1 ? 0 : Math.ceil((1 - this.left) * this.each);
  }
  take(now: number): void {
    this.refill(now);
    this.left -= 1;
  }
}
