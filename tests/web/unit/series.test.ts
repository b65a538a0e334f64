import assert from 'node:assert/strict';
import test from 'node:test';
import { lockOf, type EventKind, type LockEvent } from '../../../web/src/api.ts';
import { Series, sampleOf } from '../../../web/src/series.ts';

const event = (kind: EventKind, atMs: number, token = '', pid = 1): LockEvent => ({ kind, atMs, name: 'n', token, label: '', host: 'h', pid, why: '' });

test('a sample counts locks held, waiters, and the longest wait', () => {
  const locks = [lockOf({ name: 'a', holders: [{}, {}], waiters: [{ waiting_seconds: 3 }, { waiting_seconds: 9 }] }), lockOf({ name: 'b' })];
  assert.deepEqual(sampleOf(locks, 5), { at: 5, held: 1, waiting: 2, longest: 9 });
});

test('rates are known only while somebody listened', () => {
  const series = new Series();
  const now = 1_000_000;
  series.listening(now - 20_000);
  series.happened(event('granted', 0, '1'), now - 8_000);
  series.happened(event('granted', 0, '2'), now - 8_000);
  const rate = series.rate(['granted'], now, 5);
  assert.equal(rate[0]?.value, undefined, 'five minutes ago nobody did');
  assert.equal(rate[rate.length - 1]?.value, 0);
  assert.equal(rate[rate.length - 2]?.value, 0.4);
});

test('a time without samples is a gap', () => {
  const series = new Series();
  for (const at of [0, 1000, 20_000]) series.sampled({ at, held: 1, waiting: 0, longest: 0 });
  assert.deepEqual(series.of('held').map((point) => point.value), [1, 1, undefined, 1]);
});

test('samples older than the picture are forgotten', () => {
  const series = new Series();
  for (let at = 0; at < 1_000_000; at += 1000) series.sampled({ at, held: 1, waiting: 0, longest: 0 });
  assert.ok(series.samples.length <= 301);
});

test('waits end with the grant of the same process, first come first', () => {
  const series = new Series();
  series.happened(event('queued', 1000), 1000);
  series.happened(event('queued', 2000), 2000);
  series.happened(event('queued', 2500, '', 2), 2500);
  series.happened(event('granted', 4000, '1'), 4000);
  series.happened(event('granted', 6000, '2'), 6000);
  series.happened(event('granted', 6000, '3', 3), 6000); // it did not wait
  assert.deepEqual(series.grants.map((one) => one.waited), [3, 4, 0]);
  assert.equal(series.waited(6000, 0.5), 3);
  assert.equal(series.waited(6000, 0.99), 4);
  assert.equal(series.waited(600_000, 0.5), undefined, 'of the last minute');
});

test('who gave up waiting is not taken for the next one', () => {
  const series = new Series();
  series.happened(event('queued', 1000), 1000);
  series.happened(event('released', 2000), 2000);
  series.happened(event('granted', 9000, '1'), 9000);
  assert.deepEqual(series.grants.map((one) => one.waited), [0]);
});
