// Where the reader is, kept in the address behind the #: it can be sent to a colleague, and the browser's way back works.

export const views = ['locks', 'waits', 'events', 'store'] as const;
export type View = (typeof views)[number];
export const states = ['all', 'held', 'waited', 'deadlock', 'free'] as const;
export type StateFilter = (typeof states)[number];
// lock: the one in detail, or ''.
export type Route = { view: View; lock: string; prefix: string; state: StateFilter };

export const start: Route = { view: 'locks', lock: '', prefix: '', state: 'all' };

// A % that means nothing is itself: an address typed by hand must not break the page.
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function routeOf(hash: string): Route {
  const [path = '', question = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [first = '', ...rest] = path.split('/');
  const given = new Map(question.split('&').map((one) => [one.split('=', 1)[0]!, decoded(one.slice(one.indexOf('=') + 1))]));
  const view = views.find((one) => one === first) ?? 'locks';
  return {
    view,
    lock: view === 'locks' ? decoded(rest.join('/')) : '',
    prefix: given.get('prefix') ?? '',
    state: states.find((one) => one === given.get('state')) ?? 'all',
  };
}

export function hashOf(route: Route): string {
  const given: string[] = [];
  if (route.prefix !== '') given.push('prefix=' + encodeURIComponent(route.prefix));
  if (route.state !== 'all') given.push('state=' + route.state);
  const lock = route.view === 'locks' && route.lock !== '' ? '/' + encodeURIComponent(route.lock) : '';
  return `#/${route.view}${lock}${given.length === 0 ? '' : '?' + given.join('&')}`;
}
