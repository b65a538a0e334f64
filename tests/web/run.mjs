// The tests of the dashboard.
//
//   node tests/web/run.mjs [unit] [browser] [--only PATTERN]
//
// unit: the modules of web/src that are pure, run by node. browser: the page in headless chromium, against the real
// `holdfast serve`. Without a word, both. Exit code 77: not run, and why; 1 where HOLDFAST_REQUIRE_ENGINES names chromium.
//
//   HOLDFAST_WEB_MODULES   folder in which `npm ci` was run for web/package-lock.json (default: web)
//   HOLDFAST_CLI           the command, built with the dashboard; for browser
//   HOLDFAST_SCREENSHOTS   folder for a picture of each page (default: none is kept)
//   HOLDFAST_CHROMIUM      (default: /usr/bin/chromium)
import { spawn } from 'node:child_process';
import { accessSync, constants, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const skipped = 77;

function skip(why) {
  console.log(`SKIPPED: ${why}`);
  const required = (process.env.HOLDFAST_REQUIRE_ENGINES ?? '').split(',');
  process.exit(required.includes('chromium') || required.includes('all') ? 1 : skipped);
}

const words = process.argv.slice(2);
const only = words.includes('--only') ? words.splice(words.indexOf('--only'), 2)[1] : undefined;
const suites = words.length === 0 ? ['unit', 'browser'] : words;
for (const suite of suites)
  if (suite !== 'unit' && suite !== 'browser') {
    console.error(`There is no suite "${suite}": unit or browser.`);
    process.exit(64);
  }

const modules = join(resolve(process.env.HOLDFAST_WEB_MODULES ?? join(here, '..', '..', 'web')), 'node_modules');
if (!existsSync(join(modules, 'esbuild'))) skip(`there is no ${modules}: run npm ci there, or name another folder in HOLDFAST_WEB_MODULES.`);
const require = createRequire(join(modules, 'nowhere.js'));

function runs(file) {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const environment = { ...process.env };
if (suites.includes('browser')) {
  environment.HOLDFAST_CHROMIUM ??= '/usr/bin/chromium';
  environment.HOLDFAST_PLAYWRIGHT = require.resolve('playwright-core');
  if (!runs(environment.HOLDFAST_CHROMIUM)) skip(`there is no ${environment.HOLDFAST_CHROMIUM}; Debian's package is chromium.`);
  if (!process.env.HOLDFAST_CLI) skip('HOLDFAST_CLI does not name the command.');
  if (!runs(process.env.HOLDFAST_CLI)) {
    console.error(`${process.env.HOLDFAST_CLI} (HOLDFAST_CLI) cannot be run.`);
    process.exit(1);
  }
  environment.HOLDFAST_CLI = resolve(process.env.HOLDFAST_CLI);
}

// Also when it is ended by a signal: ctest's time limit ends this process only.
function run(files) {
  return new Promise((done) => {
    const flags = ['--test', '--test-reporter=spec'];
    if (only !== undefined) flags.push('--test-name-pattern', only);
    const child = spawn(process.execPath, [...flags, ...files], { stdio: 'inherit', env: environment });
    const end = () => child.kill('SIGTERM');
    process.once('SIGTERM', end);
    process.once('SIGINT', end);
    child.on('exit', (code, signal) => done(signal === null ? code : 1));
  });
}

const scratch = mkdtempSync(join(tmpdir(), 'holdfast-web-tests-'));
let failed = 0;
try {
  if (suites.includes('unit')) {
    const sources = readdirSync(join(here, 'unit')).filter((name) => name.endsWith('.test.ts'));
    await require('esbuild').build({
      entryPoints: sources.map((name) => join(here, 'unit', name)),
      outdir: scratch,
      outExtension: { '.js': '.mjs' },
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node18',
      sourcemap: 'inline',
      nodePaths: [modules],
      tsconfigRaw: {},
      logLevel: 'warning',
    });
    failed ||= await run(sources.map((name) => join(scratch, name.replace(/\.ts$/, '.mjs'))));
  }
  if (suites.includes('browser')) failed ||= await run([join(here, 'browser', 'dashboard.test.mjs')]);
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
process.exit(failed);
