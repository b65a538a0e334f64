// One lock: who has it, who is next, what happened, and the way to break it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import { Problem, type Holder, type Lock } from '../api.ts';
import { stripOf } from '../history.ts';
import { words } from '../i18n/index.ts';
import { StripPlot } from '../plots.tsx';
import { minutesShown } from '../series.ts';
import { hashOf } from '../route.ts';
import { timeOfDay } from '../time.ts';
import { modeText } from './locks.tsx';
import { Age, Countdown, Dialog, Foreign, Who, said } from './parts.tsx';

function modeWord(mode: string): string {
  const w = words();
  return ({ exclusive: w.exclusive, shared: w.shared, upgradeable: w.upgradeable } as Record<string, string>)[mode] ?? mode;
}

function HolderFacts({ of, at }: { of: Holder; at: number }) {
  const w = words();
  return (
    <dl class="facts holder-facts">
      <dt>{w.label}</dt>
      <dd>{of.label === '' ? <span class="dim">{w.nameless}</span> : <Foreign text={of.label} is="label" />}</dd>
      <dt>{w.host}</dt>
      <dd>{of.host === '' ? <span class="dim">{w.unknown}</span> : <Foreign text={of.host} />}</dd>
      <dt>{w.pid}</dt>
      <dd class="number">{of.pid === 0 ? <span class="dim">{w.unknown}</span> : of.pid}</dd>
      <dt>{w.token}</dt>
      <dd class="number token-text">{of.token || '–'}</dd>
      <dt>{w.held}</dt>
      <dd>
        <Age seconds={of.held} at={at} />
      </dd>
      <dt>{w.expires}</dt>
      <dd>
        <Countdown seconds={of.expiresIn} at={at} />
      </dd>
      {of.permits === undefined ? (
        <>
          <dt>{w.mode}</dt>
          <dd>{modeWord(of.mode)}</dd>
        </>
      ) : (
        <>
          <dt>{w.permits}</dt>
          <dd class="number">{of.permits}</dd>
        </>
      )}
      <dt>{w.owner}</dt>
      <dd class="owner">
        <Foreign text={of.owner} />
      </dd>
    </dl>
  );
}

export function BreakDialog({ lock, close, done }: { lock: Lock; close: () => void; done: (holders: number) => void }) {
  const { api, live } = useShared();
  const w = words();
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | undefined>();
  const send = async () => {
    setBusy(true);
    setProblem(undefined);
    try {
      done(await api.breakLock(lock.name));
    } catch (failure) {
      setProblem(failure instanceof Problem ? failure : new Problem(0, 'unreachable', ''));
      setBusy(false);
    }
    live.lookSoon();
  };
  return (
    <Dialog title={w.breakTitle} close={close} is="break">
      <p class="break-name">
        <Foreign text={lock.name} is="name" />
      </p>
      <p>{w.breakHolders(lock.holders.length)}</p>
      {lock.holders.length > 0 && (
        <ul class="break-holders">
          {lock.holders.slice(0, 8).map((holder) => (
            <li>
              <Who of={holder} />
            </li>
          ))}
          {lock.holders.length > 8 && <li class="dim">{w.moreHolders(lock.holders.length - 8)}</li>}
        </ul>
      )}
      <p>{w.breakNext(lock.waiters.length)}</p>
      <p>{w.breakFence}</p>
      <p class="dim">{w.breakWhen}</p>
      {problem && (
        <p role="alert" class="problem">
          {problem.status === 0 ? w.breakUnknown : said(problem)}
        </p>
      )}
      <div class="buttons">
        <button type="button" data-first onClick={close}>
          {w.cancel}
        </button>
        <button type="button" class="danger" disabled={isBusy} onClick={() => void send()}>
          {isBusy ? w.breaking : w.breakNow}
        </button>
      </div>
    </Dialog>
  );
}

function History({ lock }: { lock: Lock }) {
  const { live } = useShared();
  const w = words();
  const now = live.clock.isFrozen ? live.service.now() - (performance.now() - live.clock.now()) : live.service.now();
  const since = now - minutesShown * 60_000;
  const shown = [...lock.history].sort((a, b) => b.atMs - a.atMs).slice(0, 20);
  return (
    <section>
      <h3>{w.history}</h3>
      <StripPlot strip={stripOf(lock.history, lock, since, now)} since={since} now={now} />
      {shown.length === 0 ? (
        <p class="dim">{w.historyNone}</p>
      ) : (
        <ol class="history">
          {shown.map((event) => (
            <li class={event.kind}>
              <time class="number dim">{timeOfDay(event.atMs)}</time>
              <span class={`kind ${event.kind}`}>{w.kinds[event.kind]}</span>
              <span class="by">
                <Who of={event} />
                {event.why !== '' && <Foreign text={event.why} is="why dim" />}
              </span>
              <span class="number dim token-text">{event.token}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

export function DetailView({ name, isBreaking, setBreaking }: { name: string; isBreaking: boolean; setBreaking: (on: boolean) => void }) {
  const { live, route, go, stuck } = useShared();
  const w = words();
  const [broken, setBroken] = useState<{ name: string; holders: number } | undefined>();
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
    setBroken(undefined);
  }, [name]);

  // Until its own answer is there, what the list says about it.
  const detail = live.detail?.name === name ? live.detail : undefined;
  const lock = detail?.lock ?? (detail?.problem ? undefined : live.locks.find((one) => one.name === name));
  const at = detail?.lock ? detail.at : live.at;
  return (
    <aside class="detail" aria-labelledby="detail-title">
      <div class="detail-head">
        <a class="back" href={hashOf({ ...route, lock: '' })}>
          <span aria-hidden="true">‹ </span>
          {w.back}
        </a>
        <button type="button" class="close" aria-label={w.close} title={w.close} onClick={() => go({ lock: '' })}>
          <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
            <path d="M1 1l10 10M11 1L1 11" />
          </svg>
        </button>
      </div>
      <h2 id="detail-title" ref={heading} tabIndex={-1}>
        <Foreign text={name} is="name" />
      </h2>
      <div class="detail-actions">
        {lock && modeText(lock) !== '' && <span class="chip">{modeText(lock)}</span>}
        {lock?.freePermits !== undefined && <span class="chip">{w.permitsFree(String(lock.freePermits))}</span>}
        {stuck.has(name) && (
          <a class="chip bad" href={hashOf({ ...route, view: 'waits', lock: '' })}>
            {w.deadlock}
          </a>
        )}
        <span class="space" />
        <button type="button" class="danger" disabled={!lock} onClick={() => setBreaking(true)}>
          {w.break}
        </button>
      </div>
      <p role="status" class={broken ? 'notice good' : 'unseen'}>
        {broken && w.broken(broken.holders)}
      </p>
      {detail?.problem && (
        <p role="alert" class="notice problem">
          {said(detail.problem)}
        </p>
      )}
      {lock && (
        <>
          <section>
            <h3>
              {w.holders} <span class="number dim">{lock.holders.length > 1 ? lock.holders.length : ''}</span>
            </h3>
            {lock.holders.length === 0 && <p class="dim">{lock.waiters.length === 0 ? w.gone : w.nobodyHolds}</p>}
            {lock.holders.slice(0, 50).map((holder) => (
              <HolderFacts key={`${holder.token} ${holder.owner}`} of={holder} at={at} />
            ))}
            {lock.holders.length > 50 && <p class="dim">{w.moreHolders(lock.holders.length - 50)}</p>}
          </section>
          <section>
            <h3>
              {w.queue} <span class="number dim">{lock.waiters.length > 0 ? lock.waiters.length : ''}</span>
            </h3>
            {lock.waiters.length === 0 ? (
              <p class="dim">{w.nobodyWaits}</p>
            ) : (
              <ol class="queue">
                {lock.waiters.slice(0, 200).map((waiter) => (
                  <li key={waiter.owner}>
                    <Who of={waiter} />
                    <span class="queue-notes">
                      {waiter.permits !== undefined ? (
                        <span class="chip">{waiter.permits}</span>
                      ) : (
                        waiter.mode !== '' && waiter.mode !== 'exclusive' && <span class="chip">{modeWord(waiter.mode)}</span>
                      )}
                      {waiter.priority !== 0 && (
                        <span class="chip" title={w.priority}>
                          {w.priority} {waiter.priority}
                        </span>
                      )}
                      <Age seconds={waiter.waiting} at={at} />
                    </span>
                  </li>
                ))}
              </ol>
            )}
          </section>
          <History lock={lock} />
        </>
      )}
      {isBreaking && lock && (
        <BreakDialog
          lock={lock}
          close={() => setBreaking(false)}
          done={(holders) => {
            setBroken({ name, holders });
            setBreaking(false);
          }}
        />
      )}
    </aside>
  );
}
