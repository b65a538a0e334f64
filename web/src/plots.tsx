// Numbers of the last minutes as small lines, and the strip of one lock.
import { minutesShown, type Point } from './series.ts';
import type { Strip } from './history.ts';
import { plain } from './text.ts';
import { words } from './i18n/index.ts';

const width = 300;
const height = 40;

export type PlotData = {
  title: string;
  points: Point[];
  value: string;
  text: (value: number) => string;
  note?: string;
  isBars?: boolean;
  isBad?: boolean;
};

export function Plot({ title, points, value, text, note, isBars, isBad, now, since }: PlotData & { since: number; now: number }) {
  const known = points.filter((point) => point.value !== undefined).map((point) => point.value!);
  const most = Math.max(...known, 0);
  const least = known.length === 0 ? 0 : Math.min(...known);
  const x = (at: number) => Math.round(10 * width * ((at - since) / (now - since))) / 10;
  const y = (one: number) => Math.round(10 * (height - 1 - ((height - 3) * one) / (most || 1))) / 10;
  const label = known.length === 0 ? words().plotNothing(title) : words().plotOf(title, value, text(least), text(most));
  return (
    <figure class={isBad ? 'plot bad' : 'plot'}>
      <figcaption>
        <span class="plot-title">{title}</span>
        <span class="plot-value number">{value}</span>
      </figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        <line class="axis" x1="0" x2={width} y1={height - 0.5} y2={height - 0.5} />
        {isBars ? bars(points, x, y) : lines(points, x, y)}
      </svg>
      <span class="plot-note number">{note ?? (most === 0 ? '\u00a0' : words().peak(text(most)))}</span>
    </figure>
  );
}

function bars(points: Point[], x: (at: number) => number, y: (one: number) => number) {
  const gap = points.length > 1 ? points[1]!.at - points[0]!.at : 5000;
  return points.map((point) => {
    if (!point.value || x(point.at) <= 0) return null;
    const from = Math.max(0, x(point.at - gap));
    return <rect x={from} width={Math.max(0.5, x(point.at) - from - 0.6)} y={y(point.value)} height={height - y(point.value)} />;
  });
}

// A gap where nothing was heard: no line is drawn across it.
function lines(points: Point[], x: (at: number) => number, y: (one: number) => number) {
  const runs: Point[][] = [[]];
  for (const point of points) {
    if (point.value === undefined) runs.push([]);
    else if (x(point.at) >= 0) runs[runs.length - 1]!.push(point);
  }
  return runs
    .filter((run) => run.length > 0)
    .map((run) => {
      // What was seen stays as it is until it is seen otherwise: steps, not slopes.
      let path = `M${x(run[0]!.at)} ${y(run[0]!.value!)}`;
      for (const point of run.slice(1)) path += `H${x(point.at)}V${y(point.value!)}`;
      return (
        <>
          <path class="area" d={`${path}V${height}H${x(run[0]!.at)}Z`} />
          <path class="line" d={path} />
        </>
      );
    });
}

const laneHeight = 12;
const waitHeight = 26;

export function StripPlot({ strip, since, now }: { strip: Strip; since: number; now: number }) {
  const w = words();
  const x = (at: number) => Math.round((1000 * width * (at - since)) / (now - since)) / 1000;
  const lanes = strip.lanes * laneHeight;
  const total = lanes + 4 + waitHeight;
  const y = (waiting: number) => total - (strip.most === 0 ? 0 : (waitHeight * waiting) / strip.most);
  const shade = new Map<string, number>();
  for (const span of strip.spans) shade.set(span.token, shade.get(span.token) ?? shade.size % 2);
  let path = `M0 ${total}`;
  for (const step of strip.steps) path += `H${x(step.at)}V${y(step.waiting)}`;
  path += `H${width}V${total}Z`;
  return (
    <div class="strip">
      <svg viewBox={`0 0 ${width} ${total}`} preserveAspectRatio="none" role="img" aria-label={w.historyOf(minutesShown)}>
        {strip.spans.map((span) => (
          <rect
            class={`span shade${shade.get(span.token)}${span.isOpen ? ' open' : ''}`}
            x={x(span.from)}
            y={span.lane * laneHeight}
            width={Math.max(0.8, x(span.to) - x(span.from) - 0.3)}
            height={laneHeight - 2}
          >
            <title>{plain(`${span.who} ${span.token}`.trim())}</title>
          </rect>
        ))}
        {strip.most > 0 && <path class="waiting" d={path} />}
        <line class="axis" x1="0" x2={width} y1={total} y2={total} />
        {strip.marks.map((mark) => (
          <rect class="mark" x={Math.max(0, x(mark.at) - 0.8)} y="0" width="1.6" height={total}>
            <title>{w.kinds[mark.kind]}</title>
          </rect>
        ))}
      </svg>
      <div class="strip-scale dim number" aria-hidden="true">
        <span>{w.minutesAgo(minutesShown)}</span>
        <span>{strip.most > 0 ? w.mostWaited(strip.most) : ''}</span>
        <span>{w.nowMark}</span>
      </div>
    </div>
  );
}
