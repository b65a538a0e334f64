// What the browser keeps for us: whether single keys are shortcuts (for good), and the API key (as long as the tab).
const keysPlace = 'holdfast.singleKeys';
const keyPlace = 'holdfast.key';

export function singleKeys(): boolean {
  try {
    return localStorage.getItem(keysPlace) !== 'off';
  } catch {
    return true;
  }
}
export function setSingleKeys(on: boolean): void {
  try {
    localStorage.setItem(keysPlace, on ? 'on' : 'off');
  } catch {
    // Not remembered, then.
  }
}

let key = '';
try {
  key = sessionStorage.getItem(keyPlace) ?? '';
} catch {
  // It lives as long as the page, then.
}
export const apiKey = (): string => key;
export function setApiKey(given: string): void {
  key = given;
  try {
    if (given === '') sessionStorage.removeItem(keyPlace);
    else sessionStorage.setItem(keyPlace, given);
  } catch {
    // As above.
  }
}
