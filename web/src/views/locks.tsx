// The live table, with the numbers of the last minutes above it.
import { useMemo, useRef, useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import type { Lock } from '../api.ts';
import { words } from '../i18n/index.ts';
import { Plot } from '../plots.tsx';
import { hashOf, states, type StateFilter } from '../route.ts';
import { minutesShown } from '../series.ts';
import { mostLocks } from '../state.ts';
import { duration } from '../time.ts';
import { Age, Countdown, Foreign, QueueMarks, Who, said } from './parts.tsx';

type Column = 'lock' | 'holder' | 'token' | 'held' | 'expires' | 'waiting' | 'longest';
const columns: Column[] = ['lock', 'holder', 'token', 'held', 'expires', 'waiting', 'longest'];
const mostRows = 500;

const longestOf = (lock: Lock) => lock.waiters.reduce((most, one) => Math.max(most, one.waiting ?? 0), lock.waiters.length > 0 ? 0 : -1);

// Numbers: the largest first, as one looks for it; a lease that ends soon comes before one that does not.
function compare(column: Column, a: Lock, b: Lock): number {
  const first = a.holders[0];
  const second = b.holders[0];
  switch (column) {
    case 'lock':
      return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
    case 'holder': {
      const text = (one: typeof first) => (one === undefined ? '\uffff' : `${one.label || '\ufffe'} ${one.host} ${one.pid}`);
      return text(first) < text(second) ? -1 : text(first) > text(second) ? 1 : 0;
    }
    case 'token': {
      // As numbers of 64 bits: the longer text is the larger.
      const [x, y] = [first?.token ?? '', second?.token ?? ''];
      return y.length - x.length || (x < y ? 1 : x > y ? -1 : 0);
    }
    case 'held':
      return (second?.held ?? -1) - (first?.held ?? -1);
    case 'expires':
      return (first?.expiresIn ?? 1e12) - (second?.expiresIn ?? 1e12);
    case 'waiting':
      return b.waiters.length - a.waiters.length;
    case 'longest':
      return longestOf(b) - longestOf(a);
  }
}

const largestFirst: Column[] = ['token', 'held', 'waiting', 'longest'];
const direction = (column: Column, isReversed: boolean) => (largestFirst.includes(column) !== isReversed ? 'descending' : 'ascending');

function hasState(lock: Lock, state: StateFilter, stuck: Set<string>): boolean {
  switch (state) {
    case 'all':
      return true;
    case 'held':
      return lock.holders.length > 0;
    case 'waited':
      return lock.waiters.length > 0;
    case 'deadlock':
      return stuck.has(lock.name);
    case 'free':
      return lock.holders.length === 0;
  }
}

export function modeText(lock: Lock): string {
  const w = words();
  if (lock.permits !== undefined || lock.freePermits !== undefined) {
    const used = lock.holders.reduce((sum, one) => sum + (one.permits ?? 1), 0);
    return w.permitsHeld(used, lock.permits === undefined ? '?' : String(lock.permits));
  }
  const mode = lock.holders[0]?.mode;
  return mode === 'shared' ? w.shared : mode === 'upgradeable' ? w.upgradeable : '';
}

function Row({ lock, at, isCurrent, isReachable, reach }: { lock: Lock; at: number; isCurrent: boolean; isReachable: boolean; reach: () => void }) {
  const { route, go, stuck } = useShared();
  const w = words();
  const first = lock.holders[0];
  const mode = modeText(lock);
  const isStuck = stuck.has(lock.name);
  const longest = lock.waiters.reduce<number | undefined>((most, one) => (one.waiting === undefined ? most : Math.max(most ?? 0, one.waiting)), undefined);
  const holder = first ? (
    <>
      <Who of={first} />
      {lock.holders.length > 1 && (
        <span class="chip" title={w.moreHolders(lock.holders.length - 1)}>
          {w.more(lock.holders.length - 1)}
        </span>
      )}
    </>
  ) : (
    <span class="dim">{w.free}</span>
  );
  return (
    <tr
      class={`${isStuck ? 'stuck ' : ''}${lock.waiters.length > 0 ? 'wanted ' : ''}${first ? '' : 'free'}`}
      aria-selected={isCurrent}
      onClick={(event: MouseEvent) => {
        // A name that is being selected with the mouse is not a click.
        if (String(getSelection()) === '' && !(event.target instanceof Element && event.target.closest('a'))) go({ lock: lock.name });
      }}
    >
      <td class="lock">
        <a class="row" href={hashOf({ ...route, lock: lock.name })} data-name={lock.name} tabIndex={isReachable ? 0 : -1} onFocus={reach} aria-current={isCurrent ? 'true' : undefined}>
          <Foreign text={lock.name} is="name" />
        </a>
        {isStuck && <span class="chip bad">{w.deadlock}</span>}
        {mode !== '' && <span class="chip">{mode}</span>}
        <div class="under">{holder}</div>
      </td>
      <td class="holder">{holder}</td>
      <td class="token number">{first ? <span title={first.token}>{first.token || '–'}</span> : ''}</td>
      <td class="held">{first && <Age seconds={first.held} at={at} />}</td>
      <td class="expires">{first && <Countdown seconds={first.expiresIn} at={at} />}</td>
      <td class="waiting">
        {lock.waiters.length > 0 && (
          <>
            <QueueMarks waits={lock.waiters.map((one) => one.waiting)} />
            <span class="number" title={w.waiters(lock.waiters.length)}>
              {lock.waiters.length}
            </span>
          </>
        )}
      </td>
      <td class="longest">{lock.waiters.length > 0 && <Age seconds={longest} at={at} />}</td>
    </tr>
  );
}

function Plots() {
  const { live } = useShared();
  const w = words();
  const now = Date.now();
  // Five minutes when they have been seen; at first what there is, so that something is to be seen.
  const since = now - Math.min(minutesShown * 60_000, Math.max(60_000, now - (live.series.samples[0]?.at ?? now)));
  const { series } = live;
  const last = series.samples[series.samples.length - 1];
  const granted = series.rate(['granted'], now);
  const ended = series.rate(['lost', 'broken'], now);
  const count = (value: number) => String(Math.round(value * 10) / 10);
  const time = (value: number) => duration(value, w.units);
  const median = series.waited(now, 0.5);
  const slowest = series.waited(now, 0.99);
  const bad = ended.reduce((sum, point) => sum + (point.value ?? 0) * 5, 0);
  const rate = granted[granted.length - 1]?.value;
  return (
    <section class="plots" aria-label={w.plots}>
      <Plot since={since} now={now} title={w.plotHeld} points={series.of('held')} value={last ? count(last.held) : '–'} text={count} />
      <Plot since={since} now={now} title={w.plotWaiting} points={series.of('waiting')} value={last ? count(last.waiting) : '–'} text={count} />
      <Plot
        since={since}
        now={now}
        title={w.plotLongest}
        points={series.of('longest')}
        value={last ? (last.waiting === 0 ? '–' : time(last.longest)) : '–'}
        text={time}
        {...(median === undefined || slowest! < 0.05 ? {} : { note: `${w.median} ${time(median)}, ${w.slowest} ${time(slowest!)}` })}
      />
      <Plot since={since} now={now} title={w.plotGranted} points={granted} value={rate === undefined ? '–' : count(rate)} text={count} isBars />
      <Plot since={since} now={now} title={w.plotLost} points={ended.map((point) => ({ at: point.at, value: point.value === undefined ? undefined : point.value * 5 }))} value={count(bad)} text={count} isBars isBad={bad > 0} />
    </section>
  );
}

function LookUp() {
  const { go } = useShared();
  const w = words();
  const [name, setName] = useState('');
  return (
    <form
      class="look-up"
      onSubmit={(event: Event) => {
        event.preventDefault();
        if (name !== '') go({ lock: name });
      }}
    >
      <label for="look-up">{w.lookUp}</label>
      <input id="look-up" value={name} maxLength={255} autocomplete="off" spellcheck={false} onInput={(event) => setName(event.currentTarget.value)} />
      <button type="submit">{w.show}</button>
    </form>
  );
}

export function LocksView({ prefix }: { prefix: string }) {
  const { live, route, go, stuck } = useShared();
  const w = words();
  const [sort, setSort] = useState<{ column: Column; isReversed: boolean }>({ column: 'lock', isReversed: false });
  const [reached, setReached] = useState('');
  const body = useRef<HTMLTableSectionElement>(null);

  const rows = useMemo(() => {
    // The prefix that is being typed counts at once; the service is asked when it stands still.
    const out = live.locks.filter((lock) => lock.name.startsWith(prefix) && hasState(lock, route.state, stuck));
    const sign = sort.isReversed ? -1 : 1;
    return out.sort((a, b) => sign * compare(sort.column, a, b) || compare('lock', a, b));
  }, [live.locks, prefix, route.state, stuck, sort]);
  const shown = rows.slice(0, mostRows);
  const reachable = shown.some((lock) => lock.name === reached) ? reached : (shown[0]?.name ?? '');

  // One stop for Tab in the whole table; arrows go from row to row.
  const move = (event: KeyboardEvent) => {
    const links = [...(body.current?.querySelectorAll<HTMLAnchorElement>('a.row') ?? [])];
    const at = links.indexOf(document.activeElement as HTMLAnchorElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: links.length - 1, PageDown: at + 15, PageUp: at - 15 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    links[Math.max(0, Math.min(links.length - 1, to))]?.focus();
  };

  const isRefused = live.connection.kind === 'refused';
  return (
    <div class="locks">
      <Plots />
      <div class="bar">
        <fieldset class="choice">
          <legend>{w.stateFilter}</legend>
          {states.map((state) => (
            <label class={state === route.state ? 'on' : ''}>
              <input type="radio" name="state" value={state} checked={state === route.state} onChange={() => go({ state })} />
              {w.states[state]}
            </label>
          ))}
        </fieldset>
        <span class="count dim number">{!isRefused && w.numberOf(rows.length)}</span>
      </div>
      {live.connection.kind === 'refused' ? (
        <div class="notice">
          <p role="alert">{said(live.connection.problem)}</p>
          <LookUp />
        </div>
      ) : (
        <div class="table-frame">
          <table class="lock-table">
            <caption class="unseen">{w.locks}</caption>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th class={column} scope="col" aria-sort={sort.column === column ? direction(column, sort.isReversed) : undefined}>
                    <button
                      type="button"
                      title={w.sortBy(w[column])}
                      onClick={() => setSort({ column, isReversed: sort.column === column && !sort.isReversed })}
                    >
                      {w[column]}
                      <span class="sort" aria-hidden="true">
                        {sort.column !== column ? '' : direction(column, sort.isReversed) === 'ascending' ? '↑' : '↓'}
                      </span>
                    </button>
                  </th>
                ))}
              </tr>
            </thead>
            <tbody ref={body} onKeyDown={move}>
              {shown.map((lock) => (
                <Row
                  key={lock.name}
                  lock={lock}
                  at={live.at}
                  isCurrent={lock.name === route.lock}
                  isReachable={lock.name === reachable}
                  reach={() => setReached(lock.name)}
                />
              ))}
            </tbody>
          </table>
          {shown.length === 0 && live.at > 0 && (
            <div class="empty">
              <p>{prefix === '' && route.state === 'all' ? w.noLocks : w.noLocksWith}</p>
              {(prefix !== '' || route.state !== 'all') && (
                <button type="button" onClick={() => go({ prefix: '', state: 'all' })}>
                  {w.showAll}
                </button>
              )}
            </div>
          )}
          {(rows.length > mostRows || live.locks.length >= mostLocks) && (
            <p class="empty dim">{w.shownOf(shown.length, live.locks.length >= mostLocks ? `≥ ${mostLocks}` : String(rows.length))}</p>
          )}
        </div>
      )}
    </div>
  );
}
