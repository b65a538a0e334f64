// What this store guarantees, and what was found when it was looked at.
import { useEffect, useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import { Problem, type Doctor, type Facts } from '../api.ts';
import { words } from '../i18n/index.ts';
import { setting } from '../time.ts';
import { Foreign, said } from './parts.tsx';

type Answer<T> = { value?: T; problem?: Problem };

// The sentences of the store itself come first, then what it can, then how long things take.
const sentences = ['exclusion', 'fencing', 'token_scope', 'token_origin', 'expiry_clock', 'wakeup', 'limits'];
const head = ['store', 'engine'];

function Value({ name, value }: { name: string; value: Facts[string] | undefined }) {
  const w = words();
  // Nothing shorter than its ttl is promised.
  if (name === 'dead_holder_bound_seconds' && value === 0) return <>{w.itsTtl}</>;
  if (typeof value === 'boolean') return <span class={value ? 'yes' : 'no'}>{value ? w.yes : w.no}</span>;
  if (value === null || value === undefined || value === '') return <span class="dim">–</span>;
  if (typeof value === 'number') return <span class="number">{name.endsWith('_seconds') ? setting(value, w.units) : value}</span>;
  if (w.values[value] !== undefined) return <>{w.values[value]}</>;
  return (
    <span lang="en">
      <Foreign text={value} />
    </span>
  );
}

export function StoreView() {
  const { api, live } = useShared();
  const w = words();
  const [facts, setFacts] = useState<Answer<Facts>>({});
  const [doctor, setDoctor] = useState<Answer<Doctor>>({});
  const [looks, setLooks] = useState(0);
  const isLive = live.connection.kind === 'live' || live.connection.kind === 'refused';
  const ask = <T,>(what: Promise<T>, set: (answer: Answer<T>) => void, isCurrent: () => boolean) =>
    void what.then(
      (value) => isCurrent() && set({ value }),
      (problem: Problem) => isCurrent() && set({ problem }),
    );
  useEffect(() => {
    if (!isLive) return;
    let isCurrent = true;
    setDoctor({});
    ask(api.store(), setFacts, () => isCurrent);
    ask(api.doctor(), setDoctor, () => isCurrent);
    return () => {
      isCurrent = false;
    };
  }, [isLive, looks]);

  const given = facts.value ?? {};
  // 0 and '' mean that there is no such bound, no such setting.
  const isSaid = (name: string) => given[name] !== '' && !(name === 'longest_validity_seconds' && given[name] === 0);
  const named = Object.keys(w.facts).filter((name) => name in given && !sentences.includes(name) && isSaid(name));
  const others = Object.keys(given).filter((name) => !(name in w.facts) && !head.includes(name));
  const rank = ['bad', 'warning', 'note', 'good'];
  const findings = [...(doctor.value?.findings ?? [])].sort((a, b) => rank.indexOf(a.level) - rank.indexOf(b.level));
  const isLooking = !doctor.value && !doctor.problem;
  return (
    <div class="store">
      <section class="guarantees" aria-labelledby="guarantees-title">
        <h2 id="guarantees-title">{w.guarantees}</h2>
        <p class="dim">{w.guaranteesWhy}</p>
        {facts.problem && (
          <p role="alert" class="notice problem">
            {said(facts.problem)}
          </p>
        )}
        {!facts.value && !facts.problem && <p class="dim">{w.loading}</p>}
        {facts.value && (
          <>
            <dl class="facts head-facts">
              <dt>{w.address}</dt>
              <dd>
                <Foreign text={String(given.store ?? '')} is="name" />
              </dd>
              <dt>{w.engine}</dt>
              <dd>
                <Foreign text={String(given.engine ?? '')} />
              </dd>
              {sentences
                .filter((name) => given[name] !== undefined && given[name] !== '')
                .map((name) => (
                  <>
                    <dt>{w.facts[name]}</dt>
                    <dd>
                      <Value name={name} value={given[name]} />
                    </dd>
                  </>
                ))}
              <dt>{w.nowhere}</dt>
              <dd>{w.nowhereText}</dd>
            </dl>
            <dl class="facts fact-table">
              {[...named, ...others].map((name) => (
                <div>
                  <dt>{w.facts[name] ?? <code>{name}</code>}</dt>
                  <dd>
                    <Value name={name} value={given[name]} />
                  </dd>
                </div>
              ))}
            </dl>
          </>
        )}
      </section>
      <section class="findings" aria-labelledby="findings-title">
        <div class="bar">
          <h2 id="findings-title">{w.findings}</h2>
          <button type="button" disabled={isLooking} onClick={() => setLooks(looks + 1)}>
            {isLooking ? w.looking : w.lookAgain}
          </button>
        </div>
        <p class="dim">{w.findingsWhy}</p>
        {doctor.problem && (
          <p role="alert" class="notice problem">
            {said(doctor.problem)}
          </p>
        )}
        {doctor.value && findings.length === 0 && <p>{w.noFindings}</p>}
        <ul class="finding-list">
          {findings.map((one) => (
            <li class={`finding ${rank.includes(one.level) ? one.level : 'note'}`}>
              <span class="level">{(w.levels as Record<string, string>)[one.level] ?? one.level}</span>
              <span class="about" lang="en">
                <Foreign text={one.about} />
              </span>
              <span class="sentence" lang="en">
                <Foreign text={one.sentence} />
              </span>
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}
