import assert from 'node:assert/strict';
import test from 'node:test';
import type { Waits } from '../../../web/src/api.ts';
import { boxHeight, boxWidth, drawingOf } from '../../../web/src/graph.ts';

function waits(pairs: string[], cycles: string[][] = []): Waits {
  const split = pairs.map((pair) => pair.split('>') as [string, string]);
  const ids = [...new Set(split.flat())];
  return {
    actors: ids.map((id) => ({ id, host: 'h', pid: 1, label: id, owner: '' })),
    waits: split.map(([from, to]) => ({ from, to, name: `${from}${to}` })),
    cycles,
  };
}

function apart(drawing: ReturnType<typeof drawingOf>): void {
  drawing.boxes.forEach((a, index) =>
    drawing.boxes.slice(index + 1).forEach((b) => {
      assert.ok(Math.abs(a.x - b.x) >= boxWidth - 0.01 || Math.abs(a.y - b.y) >= boxHeight - 0.01, `${a.id} and ${b.id} cover each other`);
    }),
  );
  for (const box of drawing.boxes) {
    assert.ok(box.x - boxWidth / 2 >= 0 && box.x + boxWidth / 2 <= drawing.width, `${box.id} is outside`);
    assert.ok(box.y - boxHeight / 2 >= 0 && box.y + boxHeight / 2 <= drawing.height, `${box.id} is outside`);
  }
}

const yOf = (drawing: ReturnType<typeof drawingOf>, id: string) => drawing.boxes.find((box) => box.id === id)!.y;

test('nobody waits: nothing is drawn', () => {
  const drawing = drawingOf(waits([]), 800);
  assert.deepEqual([drawing.boxes, drawing.arrows, drawing.left], [[], [], 0]);
});

test('whom others wait for is above them', () => {
  const drawing = drawingOf(waits(['b>a', 'c>a', 'd>b']), 800);
  apart(drawing);
  assert.ok(yOf(drawing, 'a') < yOf(drawing, 'b'));
  assert.ok(yOf(drawing, 'a') < yOf(drawing, 'c'));
  assert.ok(yOf(drawing, 'b') < yOf(drawing, 'd'));
});

test('only what the service marks as a cycle is drawn as stuck', () => {
  const unmarked = drawingOf(waits(['a>b', 'b>a']), 800);
  assert.ok(unmarked.boxes.every((box) => !box.isStuck) && unmarked.arrows.every((arrow) => !arrow.isStuck));
  const marked = drawingOf(waits(['a>b', 'b>a', 'c>a'], [['a', 'b']]), 800);
  assert.deepEqual(marked.boxes.filter((box) => box.isStuck).map((box) => box.id).sort(), ['a', 'b']);
  assert.deepEqual(marked.arrows.filter((arrow) => arrow.isStuck).map((arrow) => arrow.from + arrow.to).sort(), ['ab', 'ba']);
  apart(marked);
});

test('two that run opposite ways are two lines', () => {
  const [first, second] = drawingOf(waits(['a>b', 'b>a'], [['a', 'b']]), 800).arrows;
  assert.notEqual(first!.path, second!.path);
  assert.ok(Math.abs(first!.x - second!.x) > 20, 'their names do not cover each other');
});

test('several names between the same two are one arrow', () => {
  const given = waits(['a>b']);
  given.waits.push({ from: 'a', to: 'b', name: 'another' }, { from: 'a', to: 'b', name: 'another' });
  assert.deepEqual(drawingOf(given, 800).arrows.map((arrow) => arrow.names), [['ab', 'another']]);
});

test('circles of any size are drawn without covering each other', () => {
  for (let size = 2; size <= 12; ++size) {
    const ids = Array.from({ length: size }, (_, index) => `n${index}`);
    apart(drawingOf(waits(ids.map((id, index) => `${id}>${ids[(index + 1) % size]}`), [ids]), 800));
  }
});

test('somebody who waits for itself is drawn', () => {
  const drawing = drawingOf(waits(['a>a'], [['a']]), 800);
  assert.equal(drawing.boxes.length, 1);
  assert.equal(drawing.arrows[0]?.isStuck, true);
});

test('there is a limit, and what is stuck stays', () => {
  const many = Array.from({ length: 200 }, (_, index) => `w${index}>hub`);
  const drawing = drawingOf(waits([...many, 'p>q', 'q>p'], [['p', 'q']]), 900, 60);
  assert.equal(drawing.boxes.length, 60);
  assert.equal(drawing.left, 143);
  assert.ok(['p', 'q', 'hub'].every((id) => drawing.boxes.some((box) => box.id === id)));
  apart(drawing);
});

test('waits of somebody who is not among the actors are drawn all the same', () => {
  const given = waits(['a>b']);
  given.actors = [];
  assert.equal(drawingOf(given, 400).boxes.length, 2);
});

test('random graphs are drawn with every box in its place', () => {
  let seed = 18;
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  for (let round = 0; round < 200; ++round) {
    const count = 2 + random(20);
    const pairs = Array.from({ length: 1 + random(30) }, () => `n${random(count)}>n${random(count)}`);
    const drawing = drawingOf(waits(pairs), 320 + random(1200));
    apart(drawing);
    for (const arrow of drawing.arrows) assert.ok(!/NaN|Infinity/.test(arrow.path + arrow.x + arrow.y), `round ${round}: ${arrow.path}`);
  }
});

test('the same waits are drawn the same way', () => {
  const given = waits(['b>a', 'c>a', 'd>b', 'e>d', 'd>e'], [['d', 'e']]);
  assert.deepEqual(drawingOf(given, 700), drawingOf(structuredClone(given), 700));
});
