import assert from 'node:assert/strict';
import test from 'node:test';
import { MessageReader, follow, type Message } from '../../../web/src/events.ts';

const stream = 'event: hello\ndata: {"a":1}\n\n: a comment\nevent: granted\r\ndata:one\r\ndata: two\r\n\r\ndata: plain\r\rid: 7\n\nevent: nothing\n\n';
const expected: Message[] = [
  { event: 'hello', data: '{"a":1}' },
  { event: 'granted', data: 'one\ntwo' },
  { event: 'message', data: 'plain' },
];

test('messages are read, whatever ends their lines', () => {
  assert.deepEqual(new MessageReader().feed(stream), expected);
});

test('messages are read, wherever they are cut', () => {
  for (let size = 1; size < 12; ++size) {
    const reader = new MessageReader();
    const heard: Message[] = [];
    for (let at = 0; at < stream.length; at += size) heard.push(...reader.feed(stream.slice(at, at + size)));
    assert.deepEqual(heard, expected, `in pieces of ${size}`);
  }
});

test('a message without its end is none', () => {
  assert.deepEqual(new MessageReader().feed('event: granted\ndata: x\n'), []);
});

test('a character cut in two by the network is whole', async () => {
  const bytes = new TextEncoder().encode('data: 库存\n\n');
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const heard: Message[] = [];
  await follow(new Response(body), (message) => heard.push(message));
  assert.deepEqual(heard, [{ event: 'message', data: '库存' }]);
});
