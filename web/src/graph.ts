// Where to draw who waits for whom. Those whom nobody keeps waiting are on top, who waits for them below: the reader
// looks for whom to blame, and finds them first. Who waits in a circle is drawn as one.
import type { Waits } from './api.ts';
import { Circles } from './circles.ts';

export type Box = { id: string; x: number; y: number; isStuck: boolean }; // the middle
export type Arrow = { from: string; to: string; names: string[]; isStuck: boolean; path: string; x: number; y: number; anchor: 'start' | 'middle' | 'end' };
export type Drawing = { boxes: Box[]; arrows: Arrow[]; width: number; height: number; left: number };

export const boxWidth = 148;
export const boxHeight = 38;
const gapX = 28;
const gapY = 62;
const margin = 10;

type Block = { members: string[]; width: number; height: number; layer: number; x: number; y: number; spots: Array<{ x: number; y: number }> };

// At most `limit` boxes are drawn, those in a circle first; `left` says how many are not.
export function drawingOf(given: Waits, width: number, limit = 60): Drawing {
  const { ids, left } = chosen(given, limit);
  const edges = merged(given, ids);
  const circles = new Circles(given);
  const blocks = blocksOf(ids, edges);
  const groups = groupsOf(blocks, edges, circles);
  const size = placed(groups, edges, width);

  const boxes: Box[] = [];
  const middle = new Map<string, { x: number; y: number }>();
  const blockOf = new Map<string, Block>();
  for (const block of blocks)
    block.members.forEach((id, index) => {
      const spot = { x: block.x + block.spots[index]!.x, y: block.y + block.spots[index]!.y };
      middle.set(id, spot);
      blockOf.set(id, block);
      boxes.push({ id, ...spot, isStuck: circles.has(id) });
    });
  const both = new Set(edges.map((edge) => key(edge.from, edge.to)));
  const arrows = edges.map((edge): Arrow => {
    const bend = both.has(key(edge.to, edge.from)) || blockOf.get(edge.from) === blockOf.get(edge.to);
    return { ...edge, isStuck: circles.isStuck(edge), ...curve(middle.get(edge.from)!, middle.get(edge.to)!, bend) };
  });
  return { boxes, arrows, ...size, left };
}

type Spot = { x: number; y: number };
type Edge = { from: string; to: string; names: string[] };
const key = (from: string, to: string) => JSON.stringify([from, to]);

// Only who waits or is waited for; all of a circle, then those with most arrows.
function chosen(given: Waits, limit: number): { ids: string[]; left: number } {
  const degree = new Map<string, number>();
  for (const wait of given.waits) for (const id of [wait.from, wait.to]) degree.set(id, (degree.get(id) ?? 0) + 1);
  const stuck = new Set(given.cycles.flat());
  const all = [...degree.keys()];
  const rank = (id: string) => (stuck.has(id) ? 1e9 : 0) + degree.get(id)!;
  const kept = all.length <= limit ? all : [...all].sort((a, b) => rank(b) - rank(a) || (a < b ? -1 : 1)).slice(0, limit);
  const order = new Map(given.actors.map((actor, index) => [actor.id, index]));
  return { ids: kept.sort((a, b) => (order.get(a) ?? 1e9) - (order.get(b) ?? 1e9)), left: all.length - kept.length };
}

function merged(given: Waits, ids: string[]): Edge[] {
  const known = new Set(ids);
  const out = new Map<string, Edge>();
  for (const wait of given.waits) {
    if (!known.has(wait.from) || !known.has(wait.to)) continue;
    const edge = out.get(key(wait.from, wait.to)) ?? { from: wait.from, to: wait.to, names: [] };
    if (!edge.names.includes(wait.name)) edge.names.push(wait.name);
    out.set(key(wait.from, wait.to), edge);
  }
  return [...out.values()];
}

// Strongly connected parts (Tarjan's algorithm, without recursion), each laid out for itself.
function blocksOf(ids: string[], edges: Edge[]): Block[] {
  const next = new Map<string, string[]>(ids.map((id) => [id, []]));
  for (const edge of edges) next.get(edge.from)!.push(edge.to);
  const seen = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const onStack = new Set<string>();
  const blocks: Block[] = [];
  for (const root of ids) {
    if (seen.has(root)) continue;
    const work: Array<{ id: string; child: number }> = [{ id: root, child: 0 }];
    while (work.length > 0) {
      const top = work[work.length - 1]!;
      if (top.child === 0) {
        seen.set(top.id, seen.size);
        low.set(top.id, seen.get(top.id)!);
        stack.push(top.id);
        onStack.add(top.id);
      }
      const child = next.get(top.id)![top.child++];
      if (child !== undefined) {
        if (!seen.has(child)) work.push({ id: child, child: 0 });
        else if (onStack.has(child)) low.set(top.id, Math.min(low.get(top.id)!, seen.get(child)!));
        continue;
      }
      work.pop();
      const parent = work[work.length - 1];
      if (parent) low.set(parent.id, Math.min(low.get(parent.id)!, low.get(top.id)!));
      if (low.get(top.id) !== seen.get(top.id)) continue;
      const members: string[] = [];
      for (;;) {
        const id = stack.pop()!;
        onStack.delete(id);
        members.push(id);
        if (id === top.id) break;
      }
      blocks.push(block(members.reverse()));
    }
  }
  return blocks;
}

function block(members: string[]): Block {
  const count = members.length;
  const base = { members, layer: 0, x: 0, y: 0 };
  if (count === 1) return { ...base, width: boxWidth, height: boxHeight, spots: [{ x: boxWidth / 2, y: boxHeight / 2 }] };
  if (count === 2) {
    // One above the other: on a phone, too, there is room for the names of both arrows.
    const height = 2 * boxHeight + 72;
    const x = boxWidth / 2 + 84;
    return { ...base, width: boxWidth + 168, height, spots: [{ x, y: boxHeight / 2 }, { x, y: height - boxHeight / 2 }] };
  }
  // As small as it can be without one box covering another.
  let radiusX = 118;
  let radiusY = 62;
  const around = () =>
    members.map((_, index) => {
      const angle = (2 * Math.PI * index) / count - Math.PI / 2;
      return { x: radiusX + boxWidth / 2 + radiusX * Math.cos(angle), y: radiusY + boxHeight / 2 + radiusY * Math.sin(angle) };
    });
  let spots = around();
  const isTight = () => spots.some((a, index) => spots.slice(index + 1).some((b) => Math.abs(a.x - b.x) < boxWidth + 14 && Math.abs(a.y - b.y) < boxHeight + 18));
  while (isTight()) {
    radiusX *= 1.08;
    radiusY *= 1.1;
    spots = around();
  }
  return { ...base, width: 2 * radiusX + boxWidth, height: 2 * radiusY + boxHeight, spots };
}

// What hangs together is drawn together; what is stuck, first.
function groupsOf(blocks: Block[], edges: Edge[], circles: Circles): Block[][] {
  const blockOf = new Map<string, Block>();
  for (const one of blocks) for (const id of one.members) blockOf.set(id, one);
  const near = new Map<Block, Set<Block>>(blocks.map((one) => [one, new Set()]));
  for (const edge of edges) {
    const from = blockOf.get(edge.from)!;
    const to = blockOf.get(edge.to)!;
    near.get(from)!.add(to);
    near.get(to)!.add(from);
  }
  const done = new Set<Block>();
  const groups: Block[][] = [];
  for (const first of blocks) {
    if (done.has(first)) continue;
    const group = [first];
    done.add(first);
    for (const one of group)
      for (const other of near.get(one)!)
        if (!done.has(other)) {
          done.add(other);
          group.push(other);
        }
    groups.push(group);
  }
  const rank = (group: Block[]) => (group.some((one) => one.members.some((id) => circles.has(id))) ? 1000 : 0) + group.length;
  return groups.sort((a, b) => rank(b) - rank(a));
}

// Layers within a group, groups beside each other as long as there is room.
function placed(groups: Block[][], edges: Edge[], width: number): { width: number; height: number } {
  const blockOf = new Map<string, Block>();
  for (const one of groups.flat()) for (const id of one.members) blockOf.set(id, one);
  const below = new Map<Block, Block[]>(); // those that wait for it
  const above = new Map<Block, Block[]>();
  for (const edge of edges) {
    const from = blockOf.get(edge.from)!;
    const to = blockOf.get(edge.to)!;
    if (from === to) continue;
    below.set(to, [...(below.get(to) ?? []), from]);
    above.set(from, [...(above.get(from) ?? []), to]);
  }
  let x = margin;
  let y = margin;
  let rowHeight = 0;
  let widest = 0;
  for (const group of groups) {
    layered(group, below, above);
    const size = stacked(group, above, below, width - 2 * margin);
    if (x > margin && x + size.width + margin > width) {
      x = margin;
      y += rowHeight + gapY;
      rowHeight = 0;
    }
    for (const one of group) {
      one.x += x;
      one.y += y;
    }
    x += size.width + 2 * gapX;
    rowHeight = Math.max(rowHeight, size.height);
    widest = Math.max(widest, x - 2 * gapX + margin);
  }
  return { width: widest, height: y + rowHeight + margin };
}

// The longest way up decides.
function layered(group: Block[], below: Map<Block, Block[]>, above: Map<Block, Block[]>): void {
  const open = new Map(group.map((one) => [one, new Set(above.get(one) ?? []).size]));
  const ready = group.filter((one) => open.get(one) === 0);
  for (const one of ready) one.layer = 0;
  for (const one of ready)
    for (const other of new Set(below.get(one) ?? [])) {
      other.layer = Math.max(other.layer, one.layer + 1);
      open.set(other, open.get(other)! - 1);
      if (open.get(other) === 0) ready.push(other);
    }
}

function stacked(group: Block[], above: Map<Block, Block[]>, below: Map<Block, Block[]>, width: number): { width: number; height: number } {
  const layers: Block[][] = [];
  for (const one of group) (layers[one.layer] ??= []).push(one);
  const place = new Map<Block, number>();
  const number = (layer: Block[]) => layer.forEach((one, index) => place.set(one, index / layer.length));
  layers.forEach(number);
  // Each to the middle of its neighbours, down and up again: few crossings are left.
  const sort = (layer: Block[], near: Map<Block, Block[]>) => {
    const mean = new Map(
      layer.map((one) => {
        const others = near.get(one) ?? [];
        return [one, others.length === 0 ? place.get(one)! : others.reduce((sum, other) => sum + place.get(other)!, 0) / others.length];
      }),
    );
    layer.sort((a, b) => mean.get(a)! - mean.get(b)!);
    number(layer);
  };
  for (let sweep = 0; sweep < 4; ++sweep) {
    for (const layer of layers) sort(layer, above);
    for (const layer of [...layers].reverse()) sort(layer, below);
  }
  // A layer that is far too wide goes on in the next line. On a phone one rather moves the
  // picture: with one box a line, all arrows would run behind boxes.
  const room = Math.max(width, 5 * (boxWidth + gapX));
  const lines = layers.flatMap((layer) => {
    const out: Block[][] = [[]];
    let used = 0;
    for (const one of layer) {
      if (used > 0 && used + one.width > room) {
        out.push([]);
        used = 0;
      }
      out[out.length - 1]!.push(one);
      used += one.width + gapX;
    }
    return out;
  });
  const lengthOf = (line: Block[]) => line.reduce((sum, one) => sum + one.width + gapX, -gapX);
  const widest = Math.max(...lines.map(lengthOf));
  let y = 0;
  for (const line of lines) {
    let x = (widest - lengthOf(line)) / 2;
    const height = Math.max(...line.map((one) => one.height));
    for (const one of line) {
      one.x = x;
      one.y = y + height - one.height; // near those that wait for it
      x += one.width + gapX;
    }
    y += height + gapY;
  }
  return { width: widest, height: y - gapY };
}

// From border to border; bent to the left of its direction, so that two that run opposite ways are two.
function curve(from: { x: number; y: number }, to: { x: number; y: number }, isBent: boolean): Pick<Arrow, 'path' | 'x' | 'y' | 'anchor'> {
  if (from === to) {
    const { x, y } = from;
    return { path: `M${x + boxWidth / 2} ${y - 8}c26 -14 26 30 2 18`, x: x + boxWidth / 2 + 20, y, anchor: 'start' };
  }
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = Math.hypot(dx, dy);
  const bend = isBent ? Math.min(44, 20 + length / 10) : 0;
  const middle = { x: (from.x + to.x) / 2 + (dy / length) * bend, y: (from.y + to.y) / 2 - (dx / length) * bend };
  const begin = border(from, middle, 0);
  const end = border(to, middle, 3); // room for the head
  const round = (value: number) => Math.round(value * 10) / 10;
  return {
    path: `M${round(begin.x)} ${round(begin.y)}Q${round(middle.x)} ${round(middle.y)} ${round(end.x)} ${round(end.y)}`,
    ...(isBent ? named(begin, middle, end, 0.5) : named(begin, middle, end, 0.22)),
  };

  // Of a bent arrow on its outer side; else near who waits, where arrows that lead to the same place are still apart.
  function named(a: Spot, b: Spot, c: Spot, t: number): Pick<Arrow, 'x' | 'y' | 'anchor'> {
    const at = (p: number, q: number, r: number) => (1 - t) * (1 - t) * p + 2 * t * (1 - t) * q + t * t * r;
    const side = isBent ? dy / length : 0;
    const anchor = side > 0.4 ? 'start' : side < -0.4 ? 'end' : 'middle';
    return { x: round(at(a.x, b.x, c.x) + (anchor === 'start' ? 5 : anchor === 'end' ? -5 : 0)), y: round(at(a.y, b.y, c.y)), anchor };
  }
}

function border(of: { x: number; y: number }, towards: { x: number; y: number }, room: number): { x: number; y: number } {
  const dx = towards.x - of.x;
  const dy = towards.y - of.y;
  const scale = Math.min((boxWidth / 2 + room) / Math.max(1e-6, Math.abs(dx)), (boxHeight / 2 + room) / Math.max(1e-6, Math.abs(dy)));
  return { x: of.x + dx * scale, y: of.y + dy * scale };
}
