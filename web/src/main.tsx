// The page: one place that knows where the reader is and redraws when something is known anew.
import { render } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Api } from './api.ts';
import { Context, type Shared } from './app-context.ts';
import { Circles } from './circles.ts';
import { language, preferred, speak, words } from './i18n/index.ts';
import { apiKey, singleKeys } from './preferences.ts';
import { hashOf, routeOf, views, type Route } from './route.ts';
import { Live } from './state.ts';
import { DetailView } from './views/detail.tsx';
import { EventsView } from './views/events.tsx';
import { Banner, Header, Help, KeyForm } from './views/frame.tsx';
import { LocksView } from './views/locks.tsx';
import { StoreView } from './views/store.tsx';
import { WaitsView } from './views/waits.tsx';

const api = new Api(apiKey);
const live = new Live(api);
const typingPause = 300; // ms, until the service is asked for a prefix

function rowOf(name: string): HTMLElement | undefined {
  return [...document.querySelectorAll<HTMLElement>('a.row')].find((one) => one.dataset.name === name);
}

function App() {
  const [, redraw] = useState(0);
  const [route, setRoute] = useState<Route>(() => routeOf(location.hash));
  const [prefix, setPrefixText] = useState(route.prefix);
  const [isHelp, setHelp] = useState(false);
  const [isBreaking, setBreaking] = useState(false);
  const typing = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  useEffect(() => live.subscribe(() => redraw((count) => count + 1)), []);
  useEffect(() => {
    const moved = () => {
      const to = routeOf(location.hash);
      setRoute(to);
      setPrefixText(to.prefix);
    };
    addEventListener('hashchange', moved);
    return () => removeEventListener('hashchange', moved);
  }, []);
  useEffect(() => live.aimAt(route), [route]);
  useEffect(() => setBreaking(false), [route.lock]);

  const go = (to: Partial<Route>) => {
    location.hash = hashOf({ ...routeOf(location.hash), ...to });
  };
  // Every letter would be a step back in the browser's history.
  const setPrefix = (text: string) => {
    setPrefixText(text);
    clearTimeout(typing.current);
    typing.current = setTimeout(() => {
      const to = { ...routeOf(location.hash), prefix: text };
      history.replaceState(null, '', hashOf(to));
      setRoute(to);
    }, typingPause);
  };

  // As the service marks them: nothing is judged here.
  const stuck = useMemo(() => new Circles(live.waits).names(), [live.waits]);

  useEffect(() => {
    const cycles = live.waits.cycles.length;
    const count = live.connection.kind === 'away' ? words().disconnected : cycles > 0 ? words().stuckNow(cycles) : '';
    document.title = count === '' ? 'Holdfast' : `${count} · Holdfast`;
  });

  const back = () => {
    const from = route.lock;
    go({ lock: '' });
    // The row that one came from, when it can be seen again.
    setTimeout(() => rowOf(from)?.focus(), 50);
  };
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
      const { target } = event;
      const isTyping = target instanceof HTMLElement && target.matches('input:not([type=radio], [type=checkbox]), textarea, select');
      if (event.key === 'Escape' && !isTyping && route.view === 'locks' && route.lock !== '') return back();
      if (isTyping || !singleKeys()) return;
      const view = views[Number(event.key) - 1];
      if (view !== undefined) go({ view, lock: '' });
      else if (event.key === '/') document.getElementById('prefix')?.focus();
      else if (event.key === '?') setHelp(true);
      else if (event.key === 'b' && route.lock !== '') setBreaking(true);
      else if (event.key === 'j' || event.key === 'k') {
        const links = [...document.querySelectorAll<HTMLElement>('a.row')];
        const at = links.indexOf(document.activeElement as HTMLElement);
        const to = at < 0 ? links.findIndex((one) => one.tabIndex === 0) : at + (event.key === 'j' ? 1 : -1);
        links[Math.max(0, Math.min(links.length - 1, to))]?.focus();
      } else return;
      event.preventDefault();
    };
    addEventListener('keydown', pressed);
    return () => removeEventListener('keydown', pressed);
  });

  const shared: Shared = { api, live, route, go, stuck };
  const isOpen = route.view === 'locks' && route.lock !== '';
  return (
    <Context.Provider value={shared}>
      <Header
        prefix={prefix}
        setPrefix={setPrefix}
        openHelp={() => setHelp(true)}
        changeLanguage={() => {
          speak(language() === 'zh' ? 'en' : 'zh', true);
          redraw((count) => count + 1);
        }}
      />
      <Banner />
      <main id="content" tabIndex={-1} class={`${route.view}-page${isOpen ? ' with-detail' : ''}${live.connection.kind === 'away' ? ' stale' : ''}`}>
        {live.connection.kind === 'key' ? (
          <KeyForm />
        ) : route.view === 'locks' ? (
          <>
            <LocksView prefix={prefix} />
            {isOpen && <DetailView name={route.lock} isBreaking={isBreaking} setBreaking={setBreaking} />}
          </>
        ) : route.view === 'waits' ? (
          <WaitsView />
        ) : route.view === 'events' ? (
          <EventsView />
        ) : (
          <StoreView />
        )}
      </main>
      {isHelp && <Help close={() => setHelp(false)} />}
    </Context.Provider>
  );
}

speak(preferred());
live.start(routeOf(location.hash));
render(<App />, document.getElementById('app')!);
