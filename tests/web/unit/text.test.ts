import assert from 'node:assert/strict';
import test from 'node:test';
import { pieces, plain, shortened } from '../../../web/src/text.ts';

test('a plain name is one piece', () => {
  assert.deepEqual(pieces('billing/nightly'), [{ text: 'billing/nightly', isCode: false }]);
  assert.deepEqual(pieces(''), []);
});

test('a turn of the direction of writing is shown by its number', () => {
  assert.deepEqual(pieces('a\u202egpj.exe'), [
    { text: 'a', isCode: false },
    { text: 'U+202E', isCode: true },
    { text: 'gpj.exe', isCode: false },
  ]);
  assert.equal(plain('a\u202eb'), 'a<U+202E>b');
});

test('what has no width, controls and halves of a pair are shown, too', () => {
  for (const one of ['\u0000', '\u001b', '\u0085', '\u200b', '\u2066', '\ufeff', '\u{e0041}', '\ud800']) assert.equal(pieces(one)[0]?.isCode, true, JSON.stringify(one));
});

test('other writing is left alone', () => {
  for (const one of ['库存', 'שלום', 'مرحبا', 'é', '<img src=x onerror=alert(1)>', '\u{1f512}']) assert.deepEqual(pieces(one), [{ text: one, isCode: false }]);
});

test('texts are shortened by what they take up, not by their length', () => {
  assert.equal(shortened('abcdef', 6), 'abcdef');
  assert.equal(shortened('abcdefg', 6), 'abcde…');
  assert.equal(shortened('库存库存', 8), '库存库存');
  assert.equal(shortened('库存库存', 6), '库存…');
  assert.equal(shortened('\u{1f512}\u{1f512}\u{1f512}', 4), '\u{1f512}…');
});
