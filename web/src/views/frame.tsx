// What is around every view: where one is, whether what is shown is true now, the key, the help.
import { useEffect, useRef, useState } from 'preact/hooks';
import { useShared } from '../app-context.ts';
import { language, words } from '../i18n/index.ts';
import { apiKey, setApiKey, setSingleKeys, singleKeys } from '../preferences.ts';
import { hashOf, views } from '../route.ts';
import { duration } from '../time.ts';
import { Dialog, Foreign, Running, Sentence, said } from './parts.tsx';

function Status() {
  const { live } = useShared();
  const w = words();
  const { kind } = live.connection;
  const isDeaf = kind === 'live' && live.listening !== 'yes';
  const text = { starting: w.starting, live: isDeaf ? w.liveWithoutEvents : w.live, away: w.disconnected, key: w.keyTitle, refused: w.refused }[kind];
  const isStore = live.connection.kind === 'away' && live.connection.problem.status >= 500;
  // A slow answer is no missing one, but it is not the present either.
  const late = () => {
    const age = (performance.now() - live.at) / 1000;
    return live.connection.kind === 'live' && live.at > 0 && age > 4 ? w.slow.replace('{age}', duration(age, w.units)) : '';
  };
  return (
    <div class={`status ${kind}${isDeaf ? ' deaf' : ''}`}>
      <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
        {kind === 'live' ? <circle cx="5" cy="5" r="4" /> : kind === 'starting' ? <circle class="ring" cx="5" cy="5" r="3.5" /> : <path d="M1 1l8 8M9 1L1 9" />}
      </svg>
      <span role="status" title={isDeaf ? w.noEvents : ''}>
        {isStore ? w.storeAway : text}
      </span>
      <span class="late">
        <Running text={late} />
      </span>
    </div>
  );
}

export function Header({ prefix, setPrefix, openHelp, changeLanguage }: { prefix: string; setPrefix: (to: string) => void; openHelp: () => void; changeLanguage: () => void }) {
  const { live, route } = useShared();
  const w = words();
  const stuck = live.waits.cycles.length;
  return (
    <header>
      <a class="skip" href="#content" onClick={(event: Event) => { event.preventDefault(); document.getElementById('content')?.focus(); }}>
        {w.skip}
      </a>
      <div class="brand">
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <path d="M3 2v12M13 2v12M3 8h10" />
        </svg>
        <h1>Holdfast</h1>
        {live.address !== '' && (
          <span class="address">
            <Foreign text={live.address} />
          </span>
        )}
      </div>
      <nav aria-label={w.pages}>
        {views.map((view) => (
          <a href={hashOf({ ...route, view, lock: '' })} aria-current={view === route.view ? 'page' : undefined}>
            {w[view]}
            {view === 'waits' && stuck > 0 && (
              <span class="badge" title={w.stuckNow(stuck)} aria-label={w.stuckNow(stuck)}>
                {stuck}
              </span>
            )}
          </a>
        ))}
      </nav>
      <div class="prefix">
        <label for="prefix">{w.prefix}</label>
        <input
          id="prefix"
          type="search"
          value={prefix}
          placeholder={w.prefixHint}
          maxLength={255}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setPrefix(event.currentTarget.value)}
          onKeyDown={(event: KeyboardEvent) => {
            if (event.key !== 'Escape') return;
            event.stopPropagation();
            if (prefix === '') (event.currentTarget as HTMLInputElement).blur();
            else setPrefix('');
          }}
        />
      </div>
      <Status />
      <div class="tools">
        {apiKey() !== '' && live.connection.kind !== 'key' && (
          <button type="button" class="quiet" onClick={() => { setApiKey(''); live.keyChanged(); }}>
            {w.forgetKey}
          </button>
        )}
        <button type="button" class="quiet" lang={language() === 'zh' ? 'en' : 'zh-Hans'} aria-label={w.switchLanguage} onClick={changeLanguage}>
          {w.otherLanguage}
        </button>
        <button type="button" class="quiet help" aria-label={w.helpTitle} title={w.helpTitle} onClick={openHelp}>
          ?
        </button>
      </div>
    </header>
  );
}

// Says plainly that what is shown is not the present, and how old it is.
export function Banner() {
  const { live } = useShared();
  const w = words();
  const { connection } = live;
  if (connection.kind !== 'away') return null;
  return (
    <div class="banner">
      <span role="alert">
        <b>{connection.problem.status >= 500 ? w.storeAway : w.disconnected}.</b> {said(connection.problem)}
      </span>{' '}
      <span>
        {live.at === 0 ? w.nothingShown : <Sentence of={w.shownIs} age={<Running text={() => duration((performance.now() - live.at) / 1000, words().units)} />} />}{' '}
        <Running
          text={() => {
            const left = (connection.retryAt - performance.now()) / 1000;
            return left < 0.1 ? words().tryingNow : words().tryingIn.replace('{time}', duration(Math.ceil(left), words().units, 0));
          }}
        />
      </span>
      <button type="button" onClick={() => live.lookSoon()}>
        {w.tryNow}
      </button>
    </div>
  );
}

export function KeyForm() {
  const { live } = useShared();
  const w = words();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  if (live.connection.kind !== 'key') return null;
  return (
    <form
      class="key-form"
      onSubmit={(event: Event) => {
        event.preventDefault();
        // What cannot stand in a header would be refused by the browser with no word of why.
        const given = (input.current?.value ?? '').trim();
        if (!/^[\x21-\x7e]+$/.test(given)) return input.current?.focus();
        setApiKey(given);
        live.keyChanged();
      }}
    >
      <h2>{w.keyTitle}</h2>
      <p>{w.keyWhy}</p>
      {apiKey() !== '' && (
        <p role="alert" class="notice problem">
          {said(live.connection.problem)}
        </p>
      )}
      <label for="key">{w.key}</label>
      <input id="key" ref={input} type="password" autocomplete="off" spellcheck={false} required />
      <p class="dim">{w.keyKept}</p>
      <button type="submit" class="main">
        {w.useKey}
      </button>
    </form>
  );
}

export function Help({ close }: { close: () => void }) {
  const w = words();
  const [isOn, setOn] = useState(singleKeys());
  const rows: Array<[string[], string]> = [
    [['1', '2', '3', '4'], w.shortcuts.pages],
    [['/'], w.shortcuts.filter],
    [['j', 'k'], w.shortcuts.move],
    [['Enter'], w.shortcuts.open],
    [['Esc'], w.shortcuts.back],
    [['b'], w.shortcuts.break],
    [['?'], w.shortcuts.help],
  ];
  return (
    <Dialog title={w.helpTitle} close={close} is="help">
      <dl class="keys">
        {rows.map(([keys, does]) => (
          <div>
            <dt>
              {keys.map((key) => (
                <kbd>{key}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <label class="check">
        <input
          type="checkbox"
          checked={isOn}
          onChange={() => {
            setSingleKeys(!isOn);
            setOn(!isOn);
          }}
        />
        {w.singleKeys}
      </label>
      <p class="dim">{w.singleKeysWhy}</p>
      <div class="buttons">
        <button type="button" data-first onClick={close}>
          {w.close}
        </button>
      </div>
    </Dialog>
  );
}
