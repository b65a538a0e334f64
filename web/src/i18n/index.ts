import { en, type Words } from './en.ts';
import { zh } from './zh.ts';

export type Language = 'en' | 'zh';
const tables: Record<Language, Words> = { en, zh };

// Remembered where the browser allows it; else by what the reader's browser speaks.
const place = 'holdfast.language';
export function preferred(): Language {
  try {
    const kept = localStorage.getItem(place);
    if (kept === 'en' || kept === 'zh') return kept;
  } catch {
    // Storage may be forbidden: then nothing is remembered.
  }
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

let current: Language = 'en';

export function speak(language: Language, isChosen = false): void {
  current = language;
  document.documentElement.lang = language === 'zh' ? 'zh-Hans' : 'en';
  if (!isChosen) return;
  try {
    localStorage.setItem(place, language);
  } catch {
    // As above.
  }
}

export const language = (): Language => current;
export const words = (): Words => tables[current];
export type { Words };
