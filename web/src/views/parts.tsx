// Small pieces that several views show.
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import type { Problem } from '../api.ts';
import { words } from '../i18n/index.ts';
import { hashOf } from '../route.ts';
import { pieces, plain } from '../text.ts';
import { countdown, duration } from '../time.ts';
import { useRunning } from '../ticker.ts';

// What somebody else wrote: isolated, so that its direction of writing ends where it ends.
export function Foreign({ text, is = '' }: { text: string; is?: string }) {
  return (
    <bdi class={is} title={plain(text)}>
      {pieces(text).map((piece) => (piece.isCode ? <span class="hidden-character">{piece.text}</span> : piece.text))}
    </bdi>
  );
}

export function LockLink({ name }: { name: string }) {
  const { route } = useShared();
  return (
    <a href={hashOf({ ...route, view: 'locks', lock: name })}>
      <Foreign text={name} is="name" />
    </a>
  );
}

type By = { label: string; host: string; pid: number; owner?: string };

export function processOf(one: By): string {
  if (one.host === '' && one.pid === 0) return one.owner ?? '';
  return one.pid === 0 ? one.host : `${one.host || '?'}:${one.pid}`;
}

export function Who({ of }: { of: By }) {
  const process = processOf(of);
  return (
    <span class="who">
      {of.label !== '' && <Foreign text={of.label} is="label" />}
      {of.label !== '' && process !== '' && ' '}
      {process !== '' && <Foreign text={process} is={of.label === '' ? 'process alone' : 'process'} />}
    </span>
  );
}

// Seconds that were said at `at`, and grow.
export function Age({ seconds, at }: { seconds: number | undefined; at: number }) {
  const { live } = useShared();
  const place = useRunning(() => (seconds === undefined ? '–' : duration(seconds + (live.clock.now() - at) / 1000, words().units)));
  return <span class="number" ref={place as { current: HTMLSpanElement | null }} />;
}

export function Countdown({ seconds, at }: { seconds: number | undefined; at: number }) {
  const { live } = useShared();
  const place = useRunning(() => (seconds === undefined ? words().never : countdown(seconds - (live.clock.now() - at) / 1000, words().units)));
  return <span class={seconds === undefined ? 'dim' : 'number'} title={seconds === undefined ? words().neverWhy : ''} ref={place as { current: HTMLSpanElement | null }} />;
}

// A text that changes by itself, as "in 3 s".
export function Running({ text }: { text: () => string }) {
  const place = useRunning(text);
  return <span class="number" ref={place as { current: HTMLSpanElement | null }} />;
}

// "{who} waits for {name}" with something in the places.
export function Sentence({ of, ...places }: { of: string } & Record<string, ComponentChildren>) {
  const parts = (of as string).split(/\{(\w+)\}/);
  return <>{parts.map((part, index) => (index % 2 === 0 ? part : places[part]))}</>;
}

// In the service's words, which are English.
export function said(problem: Problem): VNode | string {
  if (problem.detail === '') return words().noAnswer;
  return (
    <bdi lang="en">
      {pieces(problem.detail).map((piece) => (piece.isCode ? <span class="hidden-character">{piece.text}</span> : piece.text))}
    </bdi>
  );
}

export function Dialog({ title, close, children, is = '' }: { title: string; close: () => void; children: ComponentChildren; is?: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    // The harmless one of its buttons.
    dialog.current?.querySelector<HTMLElement>('[data-first]')?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={is}
      aria-labelledby="dialog-title"
      onCancel={(event: Event) => {
        event.preventDefault();
        close();
      }}
      onClick={(event: MouseEvent) => event.target === dialog.current && close()}
    >
      <div class="dialog-body">
        <h2 id="dialog-title">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

// One small mark per waiter, as high as it has waited long against the others.
export function QueueMarks({ waits }: { waits: Array<number | undefined> }) {
  const shown = waits.slice(0, 10);
  const most = Math.max(1, ...shown.map((one) => one ?? 0));
  return (
    <svg class="queue-marks" width={shown.length * 4} height="12" aria-hidden="true">
      {shown.map((one, index) => {
        const height = 3 + Math.round((9 * (one ?? 0)) / most);
        return <rect x={index * 4} y={12 - height} width="3" height={height} />;
      })}
    </svg>
  );
}
