import assert from 'node:assert/strict';
import test from 'node:test';
import { hashOf, routeOf, start, type Route } from '../../../web/src/route.ts';

test('every place can be written and read again', () => {
  const names = ['a', 'a/b', '?x=1&y#z', '100%', '<img src=x onerror=alert(1)>', '库存', ' ', "a'b\"c", '\u202ex'];
  for (const lock of names)
    for (const prefix of ['', ...names]) {
      const route: Route = { view: 'locks', lock, prefix, state: 'waited' };
      assert.deepEqual(routeOf(hashOf(route)), route);
    }
});

test('an address that makes no sense is the first page', () => {
  for (const hash of ['', '#', '#/', '#/nonsense', '#/locks?state=nonsense', '#javascript:alert(1)']) assert.deepEqual(routeOf(hash), start);
  assert.equal(routeOf('#/locks/%E0%A4%A').lock, '%E0%A4%A');
});

test('only the table of locks has one in detail', () => {
  assert.equal(routeOf('#/waits/x').lock, '');
  assert.equal(hashOf({ ...start, view: 'events', lock: 'x' }), '#/events');
});
