import assert from 'node:assert/strict';
import test from 'node:test';
import { en } from '../../../web/src/i18n/en.ts';
import { zh } from '../../../web/src/i18n/zh.ts';

type Table = { [name: string]: unknown };

function compare(a: Table, b: Table, path: string): void {
  assert.deepEqual(Object.keys(b).sort(), Object.keys(a).sort(), `the entries of ${path}`);
  for (const [name, value] of Object.entries(a)) {
    const other = b[name];
    assert.equal(typeof other, typeof value, `${path}.${name}`);
    if (typeof value === 'object') compare(value as Table, other as Table, `${path}.${name}`);
    // A place for a link must be there in both languages.
    else if (typeof value === 'string') {
      const places = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();
      assert.deepEqual(places(other as string), places(value), `${path}.${name}`);
      assert.notEqual(other, '', `${path}.${name}`);
    }
  }
}

test('both languages have the same entries, with the same places in them', () => compare(en, zh as unknown as Table, 'words'));

test('Chinese is Chinese', () => {
  const untranslated: string[] = [];
  const walk = (table: Table, path: string) => {
    for (const [name, value] of Object.entries(table)) {
      if (typeof value === 'object') walk(value as Table, `${path}.${name}`);
      else if (typeof value === 'string' && !/[\u4e00-\u9fff]/.test(value)) untranslated.push(`${path}.${name}`);
    }
  };
  walk(zh as unknown as Table, 'zh');
  assert.deepEqual(untranslated, ['zh.otherLanguage']);
});
