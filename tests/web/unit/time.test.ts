import assert from 'node:assert/strict';
import test from 'node:test';
import { en } from '../../../web/src/i18n/en.ts';
import { ServiceClock, ShownClock, countdown, duration, setting } from '../../../web/src/time.ts';

const of = (seconds: number) => duration(seconds, en.units);

test('durations have two figures', () => {
  assert.equal(of(0), '0.0 s');
  assert.equal(of(-3), '0.0 s');
  assert.equal(of(9.94), '9.9 s');
  assert.equal(of(9.96), '10 s');
  assert.equal(of(59.4), '59 s');
  assert.equal(of(59.6), '1 m 00 s');
  assert.equal(of(725), '12 m 05 s');
  assert.equal(of(3600), '1 h 00 m');
  assert.equal(of(11_220), '3 h 07 m');
  assert.equal(of(2 * 86_400 + 4 * 3600), '2 d 04 h');
});

test('a countdown keeps its tenths for a minute, and never shows more than is left', () => {
  assert.equal(countdown(59.99, en.units), '59.9 s');
  assert.equal(countdown(0.05, en.units), '0.0 s');
  assert.equal(countdown(-1, en.units), '0.0 s');
  assert.equal(countdown(61, en.units), '1 m 01 s');
});

test('settings are exact', () => {
  assert.equal(setting(0.25, en.units), '250 ms');
  assert.equal(setting(0, en.units), '0 s');
  assert.equal(setting(2.5, en.units), '2.5 s');
  assert.equal(setting(10, en.units), '10 s');
  assert.equal(setting(600, en.units), '10 m');
  assert.equal(setting(604_800, en.units), '7 d');
});

test('what is shown stands still while nothing is heard, and goes on with the next answer', () => {
  let steady = 1000;
  const clock = new ShownClock(() => steady);
  steady = 5000;
  clock.freeze(1200);
  clock.freeze(4000);
  assert.equal(clock.now(), 1200, 'the first freeze counts');
  assert.equal(clock.isFrozen, true);
  clock.run();
  assert.equal(clock.now(), 5000);
});

test('the clock of the service comes from the events that were fastest', () => {
  let wall = 10_000;
  const clock = new ServiceClock(() => wall);
  assert.equal(clock.now(), 10_000);
  clock.heard(3000 - 400); // 400 ms on the way, and 7 s behind
  clock.heard(3000 - 5);
  clock.heard(3000 - 90);
  assert.equal(clock.offset, 7005);
  wall = 11_000;
  assert.equal(clock.now(), 3995);
});
