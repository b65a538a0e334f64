import assert from 'node:assert/strict';
import test from 'node:test';
import type { Waits } from '../../../web/src/api.ts';
import { Circles } from '../../../web/src/circles.ts';
import { drawingOf } from '../../../web/src/graph.ts';

function waits(pairs: string[], cycles: string[][]): Waits {
  const split = pairs.map((pair) => pair.split('>') as [string, string]);
  const ids = [...new Set(split.flat())].sort();
  return {
    actors: ids.map((id) => ({ id, host: 'h', pid: 1, label: id, owner: '' })),
    waits: split.map(([from, to]) => ({ from, to, name: `${from}${to}` })),
    cycles,
  };
}

const told = (circles: Circles, number = 0) => circles.told(number).map((wait) => wait.name);

test('a circle of three is stuck in whatever order the service names its members', () => {
  for (const members of [['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'a', 'c']]) {
    const given = waits(['a>c', 'c>b', 'b>a'], [members]);
    const circles = new Circles(given);
    assert.deepEqual([...circles.names()].sort(), ['ac', 'ba', 'cb']);
    assert.deepEqual(told(circles), ['ac', 'cb', 'ba']);
    assert.ok(drawingOf(given, 800).arrows.every((arrow) => arrow.isStuck));
  }
});

test('who waits for a member of a circle is not in it', () => {
  const circles = new Circles(waits(['a>b', 'b>a', 'd>a', 'd>e'], [['a', 'b']]));
  assert.deepEqual([...circles.names()], ['ab', 'ba']);
  assert.deepEqual([circles.has('a'), circles.has('d')], [true, false]);
});

test('a wait from one circle for another is in neither', () => {
  const circles = new Circles(waits(['a>b', 'b>a', 'c>d', 'd>c', 'c>a'], [['a', 'b'], ['c', 'd']]));
  assert.ok(!circles.names().has('ca'));
  assert.deepEqual([told(circles, 0), told(circles, 1)], [['ab', 'ba'], ['cd', 'dc']]);
});

test('two circles with one in common are told to the end', () => {
  const circles = new Circles(waits(['a>b', 'b>a', 'b>c', 'c>b'], [['a', 'b', 'c']]));
  assert.deepEqual(told(circles).sort(), ['ab', 'ba', 'bc', 'cb']);
});
