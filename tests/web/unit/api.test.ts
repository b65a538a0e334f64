import assert from 'node:assert/strict';
import test from 'node:test';
import { Api, Problem, eventOf, lockOf, parseExactly, waitsOf } from '../../../web/src/api.ts';

test('what is missing in an answer does not break the page', () => {
  assert.deepEqual(lockOf({}), { name: '', holders: [], waiters: [], permits: undefined, freePermits: undefined, history: [] });
  assert.deepEqual(waitsOf({}), { actors: [], waits: [], cycles: [] });
  assert.equal(lockOf({ name: 'a', holders: [{}] }).holders[0]?.token, '');
});

test('a lock is read as `holdfast ls --json` writes it', () => {
  const lock = lockOf({
    name: 'a',
    holders: [{ host: 'h', pid: 7, label: 'l', mode: 'shared', owner: 'ab', priority: 0, token: 12, held_seconds: 1.5, expires_in_seconds: null }],
    waiters: [{ host: 'h', pid: 8, label: '', mode: 'exclusive', owner: 'cd', priority: 3, waiting_seconds: 0.5 }],
  });
  assert.equal(lock.holders[0]?.token, '12');
  assert.equal(lock.holders[0]?.expiresIn, undefined, 'null is: no end');
  assert.equal(lock.waiters[0]?.waiting, 0.5);
  assert.equal(lock.waiters[0]?.priority, 3);
});

test('tokens above 2^53 are exact when they are given as text', () => {
  assert.equal(lockOf({ holders: [{ token: 9007199254740992, token_text: '9007199254740993' }] }).holders[0]?.token, '9007199254740993');
});

test('an answer with large numbers is read', () => {
  const read = parseExactly('{"token":9007199254740993,"name":"1234567890123456"}') as { token: unknown; name: string };
  // Exact where the browser gives the source of a number; node learned it later than browsers.
  assert.ok(read.token === '9007199254740993' || read.token === 9007199254740992);
  assert.equal(read.name, '1234567890123456');
});

test('unknown events are left out', () => {
  assert.equal(eventOf('hello', {}), undefined);
  assert.equal(eventOf('granted', { name: 'a', token: 3 })?.token, '3');
  assert.equal(eventOf('queued', { name: 'a', token: 0 })?.token, '', '0 is no token');
});

test('actors are known by their id, or by their place', () => {
  assert.deepEqual(waitsOf({ actors: [{ id: 'x' }, {}], waits: [{ from: 'x', to: 1, name: 'n' }], cycles: [['x', 1]] }), {
    actors: [
      { id: 'x', host: '', pid: 0, label: '', owner: '' },
      { id: '1', host: '', pid: 0, label: '', owner: '' },
    ],
    waits: [{ from: 'x', to: '1', name: 'n' }],
    cycles: [['x', '1']],
  });
});

// ---- what is sent

type Sent = { path: string; method: string; headers: Record<string, string> };

async function withFetch<T>(answer: () => Response | Promise<Response>, run: (sent: Sent[]) => Promise<T>): Promise<T> {
  const before = globalThis.fetch;
  const sent: Sent[] = [];
  globalThis.fetch = (async (path: string, init: RequestInit) => {
    sent.push({ path, method: init.method ?? '', headers: init.headers as Record<string, string> });
    return answer();
  }) as typeof fetch;
  try {
    return await run(sent);
  } finally {
    globalThis.fetch = before;
  }
}

test('names and prefixes are encoded once', async () => {
  await withFetch(
    () => new Response('{"locks":[]}'),
    async (sent) => {
      const api = new Api(() => '');
      await api.lock('a/b:c%2F?#库');
      await api.locks('x&y=', 10);
      assert.equal(sent[0]?.path, './v1/locks/a%2Fb%3Ac%252F%3F%23%E5%BA%93');
      assert.equal(sent[1]?.path, './v1/locks?prefix=x%26y%3D&limit=10');
      assert.equal(sent[0]?.headers.Authorization, undefined);
    },
  );
});

test('the key stands in a header, never in an address', async () => {
  await withFetch(
    () => new Response('{}'),
    async (sent) => {
      await new Api(() => 'CANARY').waits('');
      assert.equal(sent[0]?.path, './v1/waits');
      assert.equal(sent[0]?.headers.Authorization, 'Bearer CANARY');
    },
  );
});

test('breaking says that it is meant', async () => {
  await withFetch(
    () => new Response('{"holders_ended":2}'),
    async (sent) => {
      assert.equal(await new Api(() => '').breakLock('a'), 2);
      assert.equal(sent[0]?.method, 'DELETE');
      assert.equal(sent[0]?.headers['X-Holdfast-Intent'], 'break');
    },
  );
});

test('a refusal has the sentence of the service', async () => {
  const body = '{"type":"about:blank","title":"denied","status":403,"code":"denied","detail":"Not this name.","done":false}';
  await withFetch(
    () => new Response(body, { status: 403, headers: { 'Retry-After': '7' } }),
    async () => {
      await assert.rejects(new Api(() => '').locks('', 1), (problem: Problem) => problem instanceof Problem && problem.status === 403 && problem.detail === 'Not this name.' && problem.retryAfter === 7);
    },
  );
});

test('a proxy that answers in HTML is a problem with its status', async () => {
  await withFetch(
    () => new Response('<h1>Bad gateway</h1>', { status: 502, statusText: 'Bad Gateway' }),
    async () => {
      await assert.rejects(new Api(() => '').locks('', 1), (problem: Problem) => problem.status === 502 && problem.detail === 'HTTP 502 Bad Gateway');
    },
  );
});

test('no answer is a problem without a status', async () => {
  await withFetch(
    () => Promise.reject(new TypeError('fetch failed')),
    async () => {
      await assert.rejects(new Api(() => '').locks('', 1), (problem: Problem) => problem instanceof Problem && problem.status === 0);
    },
  );
});

test('an answer that breaks off is no answer', async () => {
  await withFetch(
    () => new Response('{"locks":[{"na'),
    async () => {
      await assert.rejects(new Api(() => '').locks('', 1), (problem: Problem) => problem instanceof Problem && problem.status === 0);
    },
  );
});
