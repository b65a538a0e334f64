// Who waits for whom: as a graph, and the same as text.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import type { Actor, Wait, Waits } from '../api.ts';
import { Circles } from '../circles.ts';
import { boxHeight, boxWidth, drawingOf } from '../graph.ts';
import { words } from '../i18n/index.ts';
import { hashOf } from '../route.ts';
import { plain, shortened } from '../text.ts';
import { LockLink, Sentence, Who, processOf, said } from './parts.tsx';

const mostCircles = 20;
const mostOfCircle = 30;
const mostListed = 300;
const nobody: Actor = { id: '', host: '', pid: 0, label: '', owner: '?' };

function Graph({ waits, actors }: { waits: Waits; actors: Map<string, Actor> }) {
  const { route } = useShared();
  const w = words();
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setWidth(frame.current?.clientWidth ?? 0));
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  // Drawn anew only when something else is to be seen: it must stand still while one reads it.
  const shape = JSON.stringify([waits.waits, waits.cycles, waits.actors.map((one) => one.id)]);
  const drawing = useMemo(() => drawingOf(waits, Math.max(320, width)), [shape, width]);
  // Where there is not room for all of it, what is stuck is what one sees first.
  useLayoutEffect(() => {
    const first = drawing.boxes.find((box) => box.isStuck) ?? drawing.boxes[0];
    if (first) frame.current!.scrollLeft = first.x - width / 2;
  }, [drawing]);
  return (
    <div class="graph" ref={frame}>
      {width > 0 && (
        <svg width={drawing.width} height={drawing.height} viewBox={`0 0 ${drawing.width} ${drawing.height}`} role="group" aria-label={w.graphOf(drawing.boxes.length, drawing.arrows.length, waits.cycles.length)}>
          <defs>
            {['head', 'head-stuck'].map((id) => (
              <marker id={id} viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
                <path d="M0 0.8L7 4L0 7.2Z" />
              </marker>
            ))}
          </defs>
          {drawing.arrows.map((arrow) => (
            <path key={`${arrow.from} ${arrow.to}`} class={arrow.isStuck ? 'arrow stuck' : 'arrow'} d={arrow.path} marker-end={arrow.isStuck ? 'url(#head-stuck)' : 'url(#head)'} />
          ))}
          {drawing.boxes.map((box) => {
            const actor = actors.get(box.id) ?? nobody;
            const process = processOf(actor);
            const isOne = actor.label === '' || process === '';
            return (
              <g key={box.id} class={box.isStuck ? 'box stuck' : 'box'} transform={`translate(${box.x - boxWidth / 2} ${box.y - boxHeight / 2})`}>
                <title>{plain([actor.label, process].filter((one) => one !== '').join(' '))}</title>
                <rect width={boxWidth} height={boxHeight} rx="3" />
                <text class="first" x={boxWidth / 2} y={isOne ? 24 : 16}>
                  {shortened(plain(actor.label || process), 20)}
                </text>
                {!isOne && (
                  <text class="second" x={boxWidth / 2} y="30">
                    {shortened(plain(process), 22)}
                  </text>
                )}
              </g>
            );
          })}
          {drawing.arrows.map((arrow) => {
            const [name = ''] = arrow.names;
            const more = arrow.names.length > 1 ? ` +${arrow.names.length - 1}` : '';
            return (
              <a key={`${arrow.from} ${arrow.to}`} href={hashOf({ ...route, view: 'locks', lock: name })} aria-label={plain(name)}>
                <text class={arrow.isStuck ? 'arrow-name stuck' : 'arrow-name'} x={arrow.x} y={arrow.y + 4} text-anchor={arrow.anchor}>
                  {shortened(plain(name), 18) + more}
                </text>
              </a>
            );
          })}
        </svg>
      )}
      {drawing.left > 0 && <p class="dim">{w.notDrawn(drawing.left)}</p>}
    </div>
  );
}

export function WaitsView() {
  const { live } = useShared();
  const w = words();
  const { waits } = live;
  const actors = useMemo(() => new Map(waits.actors.map((one) => [one.id, one])), [waits]);
  const who = (id: string) => <Who of={actors.get(id) ?? nobody} />;
  const circles = useMemo(() => new Circles(waits), [waits]);
  const sentence = (one: Wait) => <Sentence of={w.waitsFor} who={who(one.from)} name={<LockLink name={one.name} />} by={who(one.to)} />;
  return (
    <div class="waits">
      <h2 class="unseen">{w.waits}</h2>
      {live.waitsProblem && live.waitsProblem.status > 0 && (
        <p role="alert" class="notice problem">
          {said(live.waitsProblem)}
        </p>
      )}
      {waits.cycles.length > 0 && (
        <section class="cycles" aria-labelledby="stuck-title">
          <h3 id="stuck-title">
            {w.stuck} <span class="number">{waits.cycles.length}</span>
          </h3>
          <p>{w.stuckWhy}</p>
          {waits.cycles.slice(0, mostCircles).map((_, index) => {
            const told = circles.told(index);
            return (
              <>
                <ol class="cycle" aria-label={w.stuckNumber(index + 1)}>
                  {told.slice(0, mostOfCircle).map((one) => (
                    <li>{sentence(one)}</li>
                  ))}
                </ol>
                {told.length > mostOfCircle && <p class="dim">{w.notDrawn(told.length - mostOfCircle)}</p>}
              </>
            );
          })}
          {waits.cycles.length > mostCircles && <p class="dim">{w.notDrawn(waits.cycles.length - mostCircles)}</p>}
        </section>
      )}
      {waits.waits.length === 0 ? (
        <p class="empty">{w.noWaits}</p>
      ) : (
        <>
          <p class="dim">{w.waitsIntro}</p>
          <Graph waits={waits} actors={actors} />
          <section aria-labelledby="all-waits">
            <h3 id="all-waits">
              {w.allWaits} <span class="number dim">{waits.waits.length}</span>
            </h3>
            <ul class="wait-list">
              {waits.waits.slice(0, mostListed).map((one) => (
                <li>{sentence(one)}</li>
              ))}
            </ul>
            {waits.waits.length > mostListed && <p class="dim">{w.notListed(waits.waits.length - mostListed)}</p>}
          </section>
        </>
      )}
    </div>
  );
}
