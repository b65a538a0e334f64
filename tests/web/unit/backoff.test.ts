import assert from 'node:assert/strict';
import test from 'node:test';
import { Allowance, backoff } from '../../../web/src/backoff.ts';

test('attempts come soon at first, and never less often than every 12.5 s', () => {
  assert.ok(backoff(0, () => 1) <= 650);
  for (let attempt = 0; attempt < 2000; ++attempt) {
    const delay = backoff(attempt);
    assert.ok(delay >= 375 && delay <= 12_500, `attempt ${attempt}: ${delay}`);
  }
});

test('in the long run one request a second is allowed, whatever happens', () => {
  const allowance = new Allowance(1000, 2, 0);
  let sent = 0;
  for (let now = 0; now < 60_000; now += 10)
    if (allowance.wait(now) === 0) {
      allowance.take(now);
      sent += 1;
    }
  assert.ok(sent <= 61, `${sent} in a minute`);
});

test('after a pause one more is allowed at once', () => {
  const allowance = new Allowance(1000, 2, 0);
  allowance.take(0);
  assert.equal(allowance.wait(0), 0);
  allowance.take(0);
  assert.equal(allowance.wait(0), 1000);
  assert.equal(allowance.wait(400), 600);
});
