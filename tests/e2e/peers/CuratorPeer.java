// Apache Curator as a peer in interop tests: takes and gives back locks as it is told, one command per line, and
// answers each with one line. The commands are those of kazoo_peer.py, described in tests/support/zookeeper_peers.hpp.
//
//   java -cp ... CuratorPeer CONNECT_STRING SESSION_TIMEOUT_MS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryOneTime;

public final class CuratorPeer {
  /** A lock of any kind, taken at most once. */
  private interface Lock {
    void take() throws Exception;

    boolean takeWithin(long millis) throws Exception;

    void give() throws Exception;
  }

  /** A lock under the name that the test gave it. Curator's locks belong to the thread that took them. */
  private record Handle(Lock lock, ExecutorService thread) {}

  private final CuratorFramework client;
  private final Map<String, Handle> handles = new ConcurrentHashMap<>();

  private CuratorPeer(CuratorFramework client) {
    this.client = client;
  }

  public static void main(String[] arguments) throws Exception {
    int sessionTimeout = Integer.parseInt(arguments[1]);
    CuratorFramework client =
        CuratorFrameworkFactory.newClient(arguments[0], sessionTimeout, 10_000, new RetryOneTime(100));
    client.start();
    client.blockUntilConnected();
    CuratorPeer peer = new CuratorPeer(client);
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = commands.readLine()) != null && !line.equals("quit"); ) {
      try {
        peer.obey(line.split(" "));
      } catch (Exception e) {
        answer("failed " + e);
      }
    }
    client.close();
    answer("bye");
    System.exit(0); // a thread may still wait for its lock
  }

  private static synchronized void answer(String line) {
    System.out.println(line.replace('\n', ' '));
  }

  private void obey(String[] words) throws Exception {
    switch (words[0]) {
      case "take" -> take(words, -1);
      case "try" -> take(words, 0);
      case "within" -> take(Arrays.copyOfRange(words, 1, words.length), Long.parseLong(words[1]));
      case "give" -> give(words[1]);
      case "leader" -> answer(("leader " + leader(words[1], words[2])).strip());
      case "participants" -> answer(("participants " + participants(words[1], words[2])).strip());
      case "count-get" -> answer("count " + addToCount(words[1], 0));
      case "count-add" -> answer("count " + addToCount(words[1], Integer.parseInt(words[2])));
      case "count-set" -> answer("count " + setCount(words[1], Integer.parseInt(words[2])));
      case "barrier-close" -> {
        new DistributedBarrier(client, words[1]).setBarrier();
        answer("closed");
      }
      case "barrier-open" -> {
        new DistributedBarrier(client, words[1]).removeBarrier();
        answer("open");
      }
      case "session" ->
          answer(String.format("session 0x%x", client.getZookeeperClient().getZooKeeper().getSessionId()));
      default -> answer("failed: unknown command " + words[0]);
    }
  }

  /** VERB HANDLE KIND PATH [MORE]. Waits for ever when millis is negative. */
  private void take(String[] words, long millis) {
    String name = words[1];
    Lock lock = lockOf(words[2], words[3], words.length > 4 ? words[4] : "");
    Handle handle = new Handle(lock, Executors.newSingleThreadExecutor());
    handles.put(name, handle);
    handle.thread.execute(
        () -> {
          try {
            boolean taken = millis < 0 || lock.takeWithin(millis);
            if (millis < 0) lock.take();
            if (!taken) forget(name);
            answer((taken ? "taken " : "busy ") + name);
          } catch (Exception e) {
            forget(name);
            answer("failed " + name + " " + e);
          }
        });
  }

  private void give(String name) {
    Handle handle = handles.get(name);
    if (handle == null) {
      answer("failed " + name + " is not held");
      return;
    }
    handle.thread.execute(
        () -> {
          String said = "given " + name;
          try {
            handle.lock.give();
          } catch (Exception e) {
            said = "failed " + name + " " + e;
          }
          forget(name); // before the test can use the name again
          answer(said);
        });
  }

  private void forget(String name) {
    handles.remove(name).thread.shutdown();
  }

  private Lock lockOf(String kind, String path, String more) {
    return switch (kind) {
      case "mutex" -> exclusive(new InterProcessMutex(client, path));
      case "read" -> exclusive(new InterProcessReadWriteLock(client, path).readLock());
      case "write" -> exclusive(new InterProcessReadWriteLock(client, path).writeLock());
      case "semaphore" -> permit(new InterProcessSemaphoreV2(client, path, Integer.parseInt(more)));
      case "latch" -> latch(new LeaderLatch(client, path, more));
      case "barrier" -> barrier(new DistributedBarrier(client, path));
      case "selector" -> new Selector(client, path, more);
      default -> throw new IllegalArgumentException("unknown kind " + kind);
    };
  }

  private static Lock exclusive(InterProcessMutex mutex) {
    return new Lock() {
      @Override
      public void take() throws Exception {
        mutex.acquire();
      }

      @Override
      public boolean takeWithin(long millis) throws Exception {
        return mutex.acquire(millis, TimeUnit.MILLISECONDS);
      }

      @Override
      public void give() throws Exception {
        mutex.release();
      }
    };
  }

  private static Lock permit(InterProcessSemaphoreV2 semaphore) {
    return new Lock() {
      private Lease lease;

      @Override
      public void take() throws Exception {
        lease = semaphore.acquire();
      }

      @Override
      public boolean takeWithin(long millis) throws Exception {
        lease = semaphore.acquire(millis, TimeUnit.MILLISECONDS);
        return lease != null;
      }

      @Override
      public void give() throws Exception {
        semaphore.returnLease(lease);
      }
    };
  }

  private static Lock latch(LeaderLatch latch) {
    return new Lock() {
      @Override
      public void take() throws Exception {
        latch.start();
        latch.await();
      }

      @Override
      public boolean takeWithin(long millis) throws Exception {
        latch.start();
        if (latch.await(millis, TimeUnit.MILLISECONDS)) return true;
        latch.close();
        return false;
      }

      @Override
      public void give() throws Exception {
        latch.close();
      }
    };
  }

  /** Taken when it is open. */
  private static Lock barrier(DistributedBarrier barrier) {
    return new Lock() {
      @Override
      public void take() throws Exception {
        barrier.waitOnBarrier();
      }

      @Override
      public boolean takeWithin(long millis) throws Exception {
        return barrier.waitOnBarrier(millis, TimeUnit.MILLISECONDS);
      }

      @Override
      public void give() {}
    };
  }

  /** Leads from the call of its listener until that returns. Its node is deleted by the same thread, after that. */
  private static final class Selector extends LeaderSelectorListenerAdapter implements Lock {
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final LeaderSelector selector;
    private final CountDownLatch leads = new CountDownLatch(1);
    private final CountDownLatch leave = new CountDownLatch(1);

    Selector(CuratorFramework client, String path, String id) {
      selector = new LeaderSelector(client, path, thread, this);
      selector.setId(id);
    }

    @Override
    public void takeLeadership(CuratorFramework client) throws Exception {
      leads.countDown();
      leave.await();
    }

    @Override
    public void take() throws Exception {
      selector.start();
      leads.await();
    }

    @Override
    public boolean takeWithin(long millis) throws Exception {
      selector.start();
      if (leads.await(millis, TimeUnit.MILLISECONDS)) return true;
      selector.close();
      awaitEnd();
      return false;
    }

    @Override
    public void give() throws Exception {
      leave.countDown();
      awaitEnd();
      selector.close();
    }

    private void awaitEnd() throws InterruptedException {
      thread.shutdown();
      thread.awaitTermination(10, TimeUnit.SECONDS);
    }
  }

  /** The id of the one that leads, or nothing. */
  private String leader(String kind, String path) throws Exception {
    return (kind.equals("latch") ? new LeaderLatch(client, path).getLeader() : observer(path).getLeader()).getId();
  }

  /** Their ids, the leader first. */
  private String participants(String kind, String path) throws Exception {
    Collection<Participant> all =
        kind.equals("latch") ? new LeaderLatch(client, path).getParticipants() : observer(path).getParticipants();
    return all.stream().map(Participant::getId).collect(Collectors.joining(" "));
  }

  private LeaderSelector observer(String path) {
    return new LeaderSelector(client, path, new LeaderSelectorListenerAdapter() {
      @Override
      public void takeLeadership(CuratorFramework ignored) {}
    });
  }

  private int addToCount(String path, int more) throws Exception {
    try (SharedCount count = new SharedCount(client, path, 0)) {
      count.start();
      while (more != 0) {
        var seen = count.getVersionedValue();
        if (count.trySetCount(seen, seen.getValue() + more)) break;
      }
      return count.getCount();
    }
  }

  private int setCount(String path, int value) throws Exception {
    try (SharedCount count = new SharedCount(client, path, 0)) {
      count.start();
      count.setCount(value);
      return count.getCount();
    }
  }
}
