import assert from 'node:assert/strict';
import test from 'node:test';
import { lockOf, type EventKind, type LockEvent } from '../../../web/src/api.ts';
import { stripOf } from '../../../web/src/history.ts';

const event = (kind: EventKind, atMs: number, token = '', label = 'a', why = ''): LockEvent => ({ kind, atMs, name: 'n', token, label, host: 'h', pid: 1, why });
const free = lockOf({ name: 'n' });

test('a grant and its release are a span', () => {
  const strip = stripOf([event('granted', 100, '7'), event('released', 300, '7')], free, 0, 1000);
  assert.deepEqual(strip.spans, [{ from: 100, to: 300, lane: 0, who: 'a', token: '7', isOpen: false }]);
  assert.equal(strip.lanes, 1);
});

test('what began before the picture is cut at its edge', () => {
  const strip = stripOf([event('granted', 100, '7'), event('released', 900, '7'), event('released', 950, '8')], free, 500, 1000);
  assert.deepEqual(strip.spans.map((span) => [span.token, span.from, span.to]), [
    ['7', 500, 900],
    ['8', 500, 950],
  ]);
});

test('what ended before the picture is not in it', () => {
  assert.deepEqual(stripOf([event('granted', 100, '7'), event('released', 200, '7'), event('lost', 210, '8')], free, 500, 1000).spans, []);
  assert.deepEqual(stripOf([event('granted', 100, '7'), event('lost', 200, '7')], free, 500, 1000).marks, []);
});

test('the present holder is shown although nobody told when it came', () => {
  const lock = lockOf({ name: 'n', holders: [{ label: 'b', token: 9, held_seconds: 0.4 }] });
  assert.deepEqual(stripOf([], lock, 0, 1000).spans, [{ from: 600, to: 1000, lane: 0, who: 'b', token: '9', isOpen: true }]);
});

test('a grant that is not held any more and whose end nobody told is not shown as held', () => {
  assert.deepEqual(stripOf([event('granted', 100, '7')], free, 0, 1000).spans, []);
});

test('holders at the same time are in lanes of their own', () => {
  const strip = stripOf([event('granted', 100, '7'), event('granted', 200, '8'), event('released', 300, '7'), event('released', 400, '8'), event('granted', 450, '9'), event('released', 500, '9')], free, 0, 1000);
  assert.equal(strip.lanes, 2);
  assert.deepEqual(strip.spans.map((span) => span.lane), [0, 1, 0]);
});

test('losses and breaks are marked, and a break ends all', () => {
  const strip = stripOf([event('granted', 100, '7'), event('granted', 150, '8'), event('broken', 300, '9')], free, 0, 1000);
  assert.deepEqual(strip.marks, [{ at: 300, kind: 'broken' }]);
  assert.ok(strip.spans.filter((span) => span.token !== '9').every((span) => span.to === 300));
});

test('waiters are counted from queue to grant', () => {
  const strip = stripOf([event('queued', 100), event('queued', 200, '', 'b'), event('granted', 400, '7')], lockOf({ name: 'n', waiters: [{ label: 'b', host: 'h', pid: 1, waiting_seconds: 0.8 }] }), 0, 1000);
  assert.deepEqual(strip.steps, [
    { at: 0, waiting: 0 },
    { at: 100, waiting: 1 },
    { at: 200, waiting: 2 },
    { at: 400, waiting: 1 },
  ]);
  assert.equal(strip.most, 2);
});

test('events may come in any order', () => {
  const events = [event('released', 300, '7'), event('granted', 100, '7')];
  assert.equal(stripOf(events, free, 0, 1000).spans.length, 1);
  assert.equal(events[0]?.kind, 'released', 'and stay in theirs');
});
