// What the tests of the page stand on: a real `holdfast serve` on a store of its own, clients of it, and a browser that
// notes every complaint. All of it ends with its test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const cli = process.env.HOLDFAST_CLI;
const { chromium } = createRequire(import.meta.url)(process.env.HOLDFAST_PLAYWRIGHT);
// Generous: this machine may have other things to do.
export const patience = 30_000;

const processes = new Set();
for (const signal of ['SIGTERM', 'SIGINT'])
  process.once(signal, () => {
    for (const one of processes) one.kill('SIGKILL');
    process.exit(1);
  });

function start(words) {
  const child = spawn(cli, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  processes.add(child);
  child.said = '';
  child.stderr.on('data', (bytes) => (child.said += bytes));
  child.ended = new Promise((done) => child.on('close', (code, signal) => done({ code, signal })));
  void child.ended.then(() => processes.delete(child));
  child.lines = createInterface({ input: child.stdout });
  return child;
}

// The first line that it prints. It may end without one.
async function firstLine(child) {
  const line = new Promise((done) => child.lines.once('line', done));
  const early = child.ended.then(({ code, signal }) => {
    throw new Error(`holdfast ended (${signal ?? code}) before it said anything: ${child.said}`);
  });
  return Promise.race([line, early]);
}

async function end(child, signal = 'SIGTERM') {
  child.kill(signal);
  return child.ended;
}

async function output(words) {
  const child = start(words);
  let text = '';
  child.lines.on('line', (line) => (text += line + '\n'));
  const { code } = await child.ended;
  assert.equal(code, 0, child.said);
  return text;
}

export async function eventually(what, sentence, limit = patience) {
  const until = Date.now() + limit;
  for (;;) {
    const found = await what();
    if (found) return found;
    if (Date.now() > until) throw new Error(`Not within ${limit / 1000} s: ${sentence}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

// A service with a store in a folder of its own.
export class Service {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'holdfast-dashboard-'));
    this.store = `file:${join(this.folder, 'store')}`;
    this.port = 0;
    this.words = [];
    this.holders = [];
    this.calls = [];
    this.givesUp = new AbortController();
  }

  async start() {
    const state = join(this.folder, 'state');
    this.process = start(['serve', '--store', this.store, '--state', state, '--listen', `127.0.0.1:${this.port}`, ...this.words]);
    const line = await firstLine(this.process);
    const found = / on (http:\/\/127\.0\.0\.1:(\d+))/.exec(line);
    assert.ok(found, `the first line of serve has no address: ${line}`);
    this.address = found[1];
    this.port = Number(found[2]);
    return this;
  }
  async kill() {
    await end(this.process, 'SIGKILL');
  }

  // Keys with these scopes by name; gives their secrets.
  async useKeys(scopes) {
    const lines = [];
    const secrets = {};
    for (const [name, list] of Object.entries(scopes)) {
      const text = await output(['serve', '--new-key', name, '--scopes', list]);
      secrets[name] = /^# {3}(\S+)$/m.exec(text)[1];
      lines.push(text.split('\n').find((line) => line !== '' && !line.startsWith('#')));
    }
    const file = join(this.folder, 'keys');
    writeFileSync(file, lines.join('\n') + '\n', { mode: 0o600 });
    this.words.push('--keys', file);
    return secrets;
  }

  // A process that holds a lock of the same store by the command line, and knows nothing of the service.
  async run(name, label = '') {
    const child = start(['run', name, '--store', this.store, ...(label === '' ? [] : ['--label', label]), '--', 'sh', '-c', 'echo held; exec sleep 600']);
    this.holders.push(child);
    assert.equal(await firstLine(child), 'held');
    return child;
  }
  // The same, in vain until somebody gives it up.
  queue(name, label = '') {
    const child = start(['run', name, '--store', this.store, ...(label === '' ? [] : ['--label', label]), '--', 'sleep', '600']);
    this.holders.push(child);
    return child;
  }

  async ask(method, path, body, key) {
    const answer = await fetch(this.address + path, {
      method,
      headers: { ...(body && { 'Content-Type': 'application/json' }), ...(key && { Authorization: `Bearer ${key}` }) },
      ...(body && { body: JSON.stringify(body) }),
      signal: this.givesUp.signal,
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text === '' ? {} : JSON.parse(text);
  }
  acquire(name, body = {}, key = undefined) {
    return this.ask('POST', `/v1/locks/${encodeURIComponent(name)}:acquire`, { ttl: '10m', ...body }, key);
  }
  release(lease) {
    return this.ask('DELETE', `/v1/leases/${lease}`);
  }
  // Waits at the service. Resolves when the service lists it as a waiter, so that the next one comes behind it.
  async wait(name, label, body = {}) {
    const call = this.acquire(name, { label, wait: '10m', ...body });
    call.catch(() => {});
    this.calls.push(call);
    await eventually(async () => (await this.show(name)).waiters.some((one) => one.label === label), `${label} waits for ${name}`);
  }
  async show(name) {
    return this.ask('GET', `/v1/locks/${encodeURIComponent(name)}`);
  }

  async end() {
    this.givesUp.abort();
    await Promise.allSettled(this.calls);
    await Promise.all(this.holders.map((one) => end(one)));
    if (this.process) await end(this.process);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

const flags = '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync'.split(' ');
let browser;

// Playwright gives it a new profile, which it removes.
export async function openBrowser() {
  browser = await chromium.launch({ executablePath: process.env.HOLDFAST_CHROMIUM, args: flags, timeout: 2 * patience });
}
export async function closeBrowser() {
  await browser?.close();
}

// In development: a bundle that has just been made stands in for the one in the command, under the same headers.
async function standIn(context, folder) {
  for (const [path, file] of [['/', 'index.html'], ['/app.js', 'app.js'], ['/app.css', 'app.css']])
    await context.route((url) => url.pathname === path, async (route) => {
      const response = await route.fetch().catch(() => undefined);
      if (response === undefined) return route.abort('connectionrefused');
      return route.fulfill({ response, body: readFileSync(join(folder, file)) });
    });
}

// The page, and what it complained of.
export async function openPage(service, { path = '', complaints = [], ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, locale: 'en-GB', ...options });
  if (process.env.HOLDFAST_DASHBOARD) await standIn(context, process.env.HOLDFAST_DASHBOARD);
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.complaints = complaints;
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.message}`));
  page.on('dialog', (dialog) => {
    complaints.push(`a dialog of a script: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(`${service.address}/${path}`);
  // A reload would lose this.
  await page.evaluate(() => (window.isSamePage = true));
  return page;
}

export async function isReloaded(page) {
  return page.evaluate(() => window.isSamePage !== true);
}

// A test with a service of its own; `expected` are the complaints of the browser that belong to it.
export function withService(body, { expected = [], start: starts = true } = {}) {
  return async (t) => {
    const service = new Service();
    const complaints = [];
    const pages = [];
    const open = async (options = {}) => {
      const page = await openPage(service, { complaints, ...options });
      pages.push(page);
      return page;
    };
    try {
      if (starts) await service.start();
      await body({ t, service, open });
      const unexpected = complaints.filter((one) => !expected.some((pattern) => pattern.test(one)));
      assert.deepEqual(unexpected, [], 'the console of the browser is empty');
    } catch (failure) {
      await Promise.allSettled(pages.map((page, index) => picture(page, `failed-${t.name.replaceAll(/\W+/g, '-')}-${index}`)));
      throw failure;
    } finally {
      await Promise.allSettled(pages.map((page) => page.context().close()));
      await service.end();
    }
  };
}

// Kept where HOLDFAST_SCREENSHOTS says; nothing is judged by it.
export async function picture(page, name) {
  const folder = process.env.HOLDFAST_SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), animations: 'disabled' });
}
