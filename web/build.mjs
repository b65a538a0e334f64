// Checks the types, then makes the three files of the page: index.html, app.js, app.css.
//
//   node build.mjs [--modules DIR] [--out DIR] [--check-only | --no-check]
//
// DIR/node_modules is where `npm ci` was run: this folder, or, when CMake builds, a folder of the build. Nothing is
// written into the source tree then.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));

function option(name, otherwise) {
  const at = process.argv.indexOf(name);
  if (at < 0) return otherwise;
  const value = process.argv[at + 1];
  if (value === undefined) throw new Error(`${name} needs a value.`);
  return value;
}

const modules = join(resolve(option('--modules', here)), 'node_modules');
const out = resolve(option('--out', join(here, 'dist')));
const require = createRequire(join(modules, 'nowhere.js'));

// The sources need not lie beside node_modules, so the compiler is told where the packages are.
function checkTypes() {
  const scratch = mkdtempSync(join(tmpdir(), 'holdfast-web-'));
  try {
    const config = join(scratch, 'tsconfig.json');
    writeFileSync(
      config,
      JSON.stringify({
        extends: join(here, 'tsconfig.json'),
        compilerOptions: { paths: { preact: [join(modules, 'preact')], 'preact/*': [join(modules, 'preact/*')] } },
        include: [join(here, 'src')],
      }),
    );
    const tsc = join(dirname(require.resolve('typescript/package.json')), 'bin', 'tsc');
    const { status } = spawnSync(process.execPath, [tsc, '--project', config, '--pretty', 'false'], { stdio: 'inherit' });
    if (status !== 0) throw new Error('The types are wrong.');
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

async function bundle() {
  const { build } = require('esbuild');
  const licence = readFileSync(join(modules, 'preact', 'LICENSE'), 'utf8').trim();
  mkdirSync(out, { recursive: true });
  await build({
    entryPoints: { app: join(here, 'src', 'main.tsx') },
    outdir: out,
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    charset: 'utf8',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    nodePaths: [modules],
    tsconfigRaw: {},
    // Preact is in the bundle, and its licence asks to be there, too.
    banner: { js: `/* Contains Preact:\n${licence.replaceAll('*/', '* /')}\n*/` },
    logLevel: 'warning',
  });
  await build({ entryPoints: [join(here, 'src', 'app.css')], outdir: out, minify: true, charset: 'utf8', logLevel: 'warning' });
  copyFileSync(join(here, 'src', 'index.html'), join(out, 'index.html'));
}

try {
  if (!process.argv.includes('--no-check')) checkTypes();
  if (!process.argv.includes('--check-only')) {
    await bundle();
    for (const name of ['index.html', 'app.js', 'app.css']) {
      const file = join(out, name);
      const bytes = statSync(file).size;
      console.log(`${name}: ${bytes} bytes, ${gzipSync(readFileSync(file)).length} with gzip`);
    }
  }
} catch (error) {
  console.error(`web: ${error.message}`);
  process.exit(1);
}
