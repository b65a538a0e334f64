// Texts that run: ages and countdowns. They are written into their own element ten times a second, and nothing is drawn
// anew for it.
import { useLayoutEffect, useRef } from 'preact/hooks';

const running = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function tick(): void {
  if (!document.hidden) for (const write of running) write();
}

export function useRunning(text: () => string): { current: HTMLElement | null } {
  const place = useRef<HTMLElement | null>(null);
  useLayoutEffect(() => {
    const write = () => {
      const now = text();
      if (place.current && place.current.textContent !== now) place.current.textContent = now;
    };
    write();
    running.add(write);
    timer ??= setInterval(tick, 100);
    return () => {
      running.delete(write);
      if (running.size > 0) return;
      clearInterval(timer);
      timer = undefined;
    };
  });
  return place;
}
