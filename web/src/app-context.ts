// What all views have in common.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Api } from './api.ts';
import type { Route } from './route.ts';
import type { Live } from './state.ts';

export type Shared = {
  api: Api;
  live: Live;
  route: Route;
  go: (to: Partial<Route>) => void;
  // Names of locks in a circle of waits, as the service marks them.
  stuck: Set<string>;
};

export const Context = createContext<Shared>(undefined as unknown as Shared);
export const useShared = (): Shared => useContext(Context);
