// Events as they happen, the newest on top.
import { useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import { eventKinds, type EventKind } from '../api.ts';
import { words } from '../i18n/index.ts';
import type { Item } from '../state.ts';
import { timeOfDay } from '../time.ts';
import { Foreign, LockLink, Who } from './parts.tsx';

export function EventsView() {
  const { live } = useShared();
  const w = words();
  const [off, setOff] = useState<Set<EventKind>>(new Set());
  const [stopped, setStopped] = useState<Item[] | undefined>();
  const toggle = (kind: EventKind) => {
    const next = new Set(off);
    if (!next.delete(kind)) next.add(kind);
    setOff(next);
  };
  const items = (stopped ?? live.items).filter((item) => 'gap' in item || !off.has(item.event.kind));
  const newest = stopped?.[0]?.id ?? 0;
  const newer = stopped ? live.items.filter((item) => item.id > newest).length : 0;
  return (
    <div class="events">
      <h2 class="unseen">{w.events}</h2>
      <div class="bar">
        <fieldset class="choice">
          <legend class="unseen">{w.event}</legend>
          {eventKinds.map((kind) => (
            <label class={off.has(kind) ? '' : 'on'}>
              <input type="checkbox" checked={!off.has(kind)} onChange={() => toggle(kind)} />
              {w.kinds[kind]}
            </label>
          ))}
        </fieldset>
        <span class="count dim number" role="status">
          {stopped && w.paused(newer)}
        </span>
        <button type="button" onClick={() => setStopped(stopped ? undefined : live.items)}>
          {stopped ? w.resume : w.pause}
        </button>
      </div>
      {live.listening === 'refused' && <p class="notice problem">{w.eventsRefused}</p>}
      {items.length === 0 ? (
        <p class="empty">{w.noEventsYet}</p>
      ) : (
        <div class="table-frame">
          <table class="event-table">
            <caption class="unseen">{w.events}</caption>
            <thead>
              <tr>
                <th scope="col" class="time">{w.time}</th>
                <th scope="col" class="kind">{w.event}</th>
                <th scope="col" class="lock">{w.lock}</th>
                <th scope="col" class="holder">{w.who}</th>
                <th scope="col" class="token">{w.token}</th>
              </tr>
            </thead>
            <tbody>
              {items.map((item) =>
                'gap' in item ? (
                  <tr key={item.id} class="gap">
                    <td class="time number">{timeOfDay(item.at)}</td>
                    <td colSpan={4}>{w[item.gap]}</td>
                  </tr>
                ) : (
                  <tr key={item.id}>
                    <td class="time number">{timeOfDay(item.at)}</td>
                    <td class="kind">
                      <span class={`kind ${item.event.kind}`}>{w.kinds[item.event.kind]}</span>
                    </td>
                    <td class="lock">
                      <LockLink name={item.event.name} />
                      <div class="under">
                        <Who of={item.event} />
                      </div>
                      {item.event.why !== '' && <Foreign text={item.event.why} is="why dim" />}
                    </td>
                    <td class="holder">
                      <Who of={item.event} />
                    </td>
                    <td class="token number">{item.event.token}</td>
                  </tr>
                ),
              )}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}
