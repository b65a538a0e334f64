// A service in the middle of its day, for pictures: what an operator would find on the page, a deadlock among it.
import { eventually } from './support.mjs';

// Locks that come and go, so that plots and events have something to tell.
async function traffic(service, seconds) {
  const until = Date.now() + seconds * 1000;
  for (let turn = 0; turn === 0 || Date.now() < until; ++turn) {
    const label = `web-${1 + (turn % 3)}`;
    const { lease } = await service.acquire(`orders/${4700 + (turn % 9)}`, { label });
    const { lease: short } = await service.acquire('billing/invoice-number', { label: `billing-${1 + (turn % 2)}` });
    await new Promise((done) => setTimeout(done, 120 + 80 * (turn % 5)));
    await service.release(short);
    await service.release(lease);
  }
}

export async function scene(service, seconds = 0) {
  const night = await service.run('reports/night-run', 'night-run');
  await service.wait('reports/night-run', 'retry-of-monday', { priority: 5 });
  await service.wait('reports/night-run', 'ad-hoc');
  service.queue('reports/night-run', 'from-the-shell');

  await service.acquire('catalogue/index', { mode: 'shared', label: 'search-1', ttl: '45s' });
  await service.acquire('catalogue/index', { mode: 'shared', label: 'search-2', ttl: '50s' });
  await service.wait('catalogue/index', 'rebuild');
  for (const label of ['web-1', 'web-2', 'web-3'])
    await service.ask('POST', '/v1/semaphores/db%2Fconnections:acquire', { permits: 2, of: 8, ttl: '30s', label });
  await service.acquire('stock/sku-1042', { label: 'checkout-7', ttl: '20s' });
  await service.acquire('migrations/schema', { label: '部署-42', ttl: '5m' });

  await service.acquire('accounts/17', { label: 'transfer-a' });
  await service.acquire('accounts/42', { label: 'transfer-b' });
  await service.wait('accounts/42', 'transfer-a');
  await service.wait('accounts/17', 'transfer-b');
  await service.wait('accounts/17', 'audit');

  await traffic(service, seconds);
  await eventually(async () => (await service.show('reports/night-run')).waiters.length === 3, 'three wait for the night run');
  return night;
}
