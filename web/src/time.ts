// Durations as an operator reads them, and the clock of what is shown.

export type Units = { second: string; minute: string; hour: string; day: string };

const two = (number: number) => String(number).padStart(2, '0');

// "3.4 s", "34 s", "12 m 05 s", "3 h 07 m", "2 d 04 h": two figures are enough to judge by.
export function duration(seconds: number, units: Units, digits = 1): string {
  const whole = Math.max(0, seconds);
  if (whole < 9.95 || (digits > 0 && whole < 59.95 && digits > 1)) return `${whole.toFixed(1)} ${units.second}`;
  const rounded = Math.round(whole);
  if (rounded < 60) return `${rounded} ${units.second}`;
  const minutes = Math.floor(rounded / 60);
  if (minutes < 60) return `${minutes} ${units.minute} ${two(rounded % 60)} ${units.second}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} ${units.hour} ${two(minutes % 60)} ${units.minute}`;
  return `${Math.floor(hours / 24)} ${units.day} ${two(hours % 24)} ${units.hour}`;
}

// A countdown keeps its tenths for the last minute: it must be seen to move.
export function countdown(seconds: number, units: Units): string {
  const left = Math.max(0, seconds);
  return left < 60 ? `${(Math.floor(left * 10) / 10).toFixed(1)} ${units.second}` : duration(left, units);
}

// Exact settings, "2.5 s", "250 ms", never rounded to what is easier to read.
export function setting(seconds: number, units: Units): string {
  if (seconds > 0 && seconds < 1) return `${Number((seconds * 1000).toPrecision(6))} ms`;
  if (seconds < 120 || seconds % 60 !== 0) return `${Number(seconds.toPrecision(9))} ${units.second}`;
  if (seconds < 7200 || seconds % 3600 !== 0) return `${seconds / 60} ${units.minute}`;
  if (seconds < 172800 || seconds % 86400 !== 0) return `${seconds / 3600} ${units.hour}`;
  return `${seconds / 86400} ${units.day}`;
}

export function timeOfDay(at: number): string {
  const when = new Date(at);
  const tenths = Math.floor(when.getMilliseconds() / 100);
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}.${tenths}`;
}

// What is shown is as old as the last answer. While answers come, ages and countdowns run on; while they do not, they
// stand still: a lock must not seem to be held for ever longer when nobody can say so.
export class ShownClock {
  private frozenAt: number | undefined;
  constructor(private readonly steady: () => number = () => performance.now()) {}

  now(): number {
    return this.frozenAt ?? this.steady();
  }
  freeze(at: number): void {
    this.frozenAt ??= at;
  }
  run(): void {
    this.frozenAt = undefined;
  }
  get isFrozen(): boolean {
    return this.frozenAt !== undefined;
  }
}

// The service's wall clock, from events that have just been sent: this machine's may be set to something else. Those
// that came fastest say most.
export class ServiceClock {
  private offsets: number[] = [];
  constructor(private readonly wall: () => number = () => Date.now()) {}

  heard(atMs: number): void {
    this.offsets.push(this.wall() - atMs);
    if (this.offsets.length > 32) this.offsets.shift();
  }
  get offset(): number {
    return this.offsets.length === 0 ? 0 : Math.min(...this.offsets);
  }
  now(): number {
    return this.wall() - this.offset;
  }
}
