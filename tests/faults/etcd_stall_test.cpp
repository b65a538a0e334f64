// What breaks here: the disk of the leader, which hangs. Unlike a leader that is stopped, this one goes on talking: it
// answers keep-alives out of its memory, and etcd up to 3.4.24 and 3.5.7 does so long after the others have chosen
// another leader, which knows nothing of these and ends the lease. What must hold: whoever was told "renewed" by such a
// leader does not believe it for longer than a second after its key has gone.
//
// The hanging is strace's work, which delays every fdatasync of the process.
#include "faults/etcd_faults.hpp"

#include <thread>

namespace holdfast::testing {
namespace {

class etcd_stall : public etcd_faults {
 protected:
  void SetUp() override {
    etcd_faults::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const auto strace = find_program("strace");
    if (!strace) GTEST_SKIP() << "no strace in the PATH";
    process probe{
        {*strace, "-o", "/dev/null", "-e", "trace=fdatasync", find_program("true").value()},
        dir_.file("probe")};
    if (probe.wait() != 0) GTEST_SKIP() << "strace may not trace here";
  }
  // Until the object goes.
  process hang_disk_of(pid_t server) const {
    return process{{find_program("strace").value(), "-f", "-qq", "-o", "/dev/null", "-p",
                    std::to_string(server), "-e", "trace=fdatasync", "-e",
                    "inject=fdatasync:delay_enter=60000000"},
                   dir_.file("strace")};
  }

 private:
  const temp_dir dir_;
};

TEST_F(etcd_stall, leader_that_renews_out_of_its_memory_is_not_believed) {
  etcd_server cluster{{.nodes = 3}};
  const auto leader = cluster.leader(), one = (leader + 1) % 3, two = (leader + 2) % 3;
  // The holder asks the leader first, the waiter the others.
  const auto a =
      client::open(fmt::format("etcd://127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}?session=3s",
                               cluster.port(leader), cluster.port(one), cluster.port(two)));
  const auto b = client::open(
      fmt::format("etcd://127.0.0.1:{},127.0.0.1:{}", cluster.port(one), cluster.port(two)));
  mutex ours{a, "stock"}, theirs{b, "stock"};
  auto held = ours.acquire({.ttl = 3s});
  ASSERT_TRUE(is_ok(held));
  const loss_recorder loss{*held};
  auto waiting = acquire_later(theirs);
  ASSERT_TRUE(wait_for_entries(cluster, "stock", 2));
  auto disk = hang_disk_of(cluster.pid(leader));
  // Somebody must write for the disk to matter; the others find a new leader then.
  ASSERT_TRUE(wait_until([&] {
    cluster.try_etcdctl({"--command-timeout=1s", "put", "other", "x"}, 3s);
    return cluster.metric_of(one, "etcd_server_is_leader ") +
               cluster.metric_of(two, "etcd_server_is_leader ") >
           0;
  })) << "no new leader";
  const auto changed = std::chrono::steady_clock::now();
  // Either the holder has found the new leader, and holds on; or it has not, and somebody else has the lock by now.
  wait_until([&] { return is_ready(waiting) || std::chrono::steady_clock::now() - changed > 8s; });
  if (!is_ready(waiting)) {
    EXPECT_TRUE(held->valid());
    EXPECT_TRUE(is_ok(held->release()));
    EXPECT_TRUE(is_ok(get(waiting)));
    return;
  }
  const auto granted = std::chrono::steady_clock::now();
  ASSERT_TRUE(wait_until([&] { return loss.fired(); }));
  EXPECT_LE(loss.when() - granted, 1s);
  EXPECT_FALSE(held->valid());
}

}  // namespace
}  // namespace holdfast::testing
