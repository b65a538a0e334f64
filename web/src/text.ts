// Names and labels are written by anybody who may take a lock. They are shown as text and nothing else; what they hide
// (controls, marks that turn the direction of writing, characters without width) is shown as its number.

export type Piece = { text: string; isCode: boolean };

// Controls, soft hyphen, marks of direction, no width, separators of lines, tags, halves of a pair.
const hidden =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

function code(character: string): string {
  return 'U+' + character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0');
}

export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let from = 0;
  for (const found of text.matchAll(hidden)) {
    if (found.index > from) out.push({ text: text.slice(from, found.index), isCode: false });
    out.push({ text: code(found[0]), isCode: true });
    from = found.index + found[0].length;
  }
  if (from < text.length) out.push({ text: text.slice(from), isCode: false });
  return out;
}

// The same where there can be no markup: titles, SVG, sentences read aloud.
export function plain(text: string): string {
  return text.replace(hidden, (character) => `<${code(character)}>`);
}

const wide = /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u;

// At most `columns` wide, a Chinese character counting two: SVG does not shorten text by itself.
export function shortened(text: string, columns: number): string {
  let used = 0;
  let out = '';
  let longest = ''; // that leaves room for the dots
  for (const character of text) {
    used += wide.test(character) ? 2 : 1;
    if (used > columns) return longest + '…';
    out += character;
    if (used <= columns - 1) longest = out;
  }
  return out;
}
