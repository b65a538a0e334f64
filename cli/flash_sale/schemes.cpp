// The table of schemes.
#include "flash_sale/scheme.hpp"

#include "flash_sale/recipes.hpp"

namespace holdfast::cli::flash {

namespace {

// Of a build without the library there is no recipe, only its row.
#if HOLDFAST_FLASH_REDIS
#define HOLDFAST_WITH_REDIS(maker) maker, ""
#else
#define HOLDFAST_WITH_REDIS(maker) nullptr, "hiredis"
#endif
#if HOLDFAST_FLASH_SQL
#define HOLDFAST_WITH_SQL(maker) maker, ""
#else
#define HOLDFAST_WITH_SQL(maker) nullptr, "MariaDB Connector/C"
#endif

constexpr text_pair until_paused{
    "A lease: free again when its holder dies, renewed while it lives. A holder that is paused for "
    "longer than that writes all the same.",
    "租约：持有者死亡后自动释放，存活时自动续期。但暂停时间超过租约的持有者醒来后仍会写入。"};
constexpr text_pair with_fence{
    "A lease and its token, shown at the read already: the store refuses a holder that slept "
    "through the end of its lease.",
    "租约加令牌，从读取时就出示：睡过租约期限的持有者会被存储拒绝。"};

std::vector<scheme> without_servers() {
  const std::vector<store_kind> none;
  return {
      {"no-lock",
       "unlocked",
       none,
       flaw::traffic,
       {"Two buyers read the same number and both write one less: one sale is forgotten.",
        "两个买家读到同一个数，各自写回减一的值：有一笔销售被遗忘。"},
       &open_unlocked},
      {"process-mutex",
       "unlocked",
       none,
       flaw::traffic,
       {"A mutex in the memory of one process: the buyers of the second one never see it.",
        "互斥锁只在一个进程的内存里：第二个进程的买家根本看不到它。"},
       &open_process_mutex},
      {"embedded",
       "held_locks",
       none,
       flaw::pause,
       {"A mapped file; the kernel tells at once when a holder dies. A holder that is paused for "
        "longer than its ttl writes all the same.",
        "映射文件；持有者死亡时内核立即通知。但暂停时间超过 ttl 的持有者醒来后仍会写入。"},
       &open_held_mutex},
      {"embedded-fenced", "held_locks", none, flaw::none, with_fence, &open_held_mutex_fenced},
      {"embedded-re-entrant",
       "held_locks",
       none,
       flaw::pause,
       {"Who has it may take it again without asking the store; renewed while its process lives.",
        "持有者可以再次进入而不询问存储；进程存活期间自动续期（看门狗）。"},
       &open_held_reentrant},
      {"embedded-read-write",
       "held_locks",
       none,
       flaw::pause,
       {"All browse at once, one buys, and looks again before it does.",
        "浏览可以同时进行，购买一次一个，购买前重新读取。"},
       &open_held_read_write},
      {.name = "embedded-striped",
       .family = "held_locks",
       .needs = none,
       .breaks_by = flaw::pause,
       .why = {"The stock in eight ranges with a lock each: eight buyers sell at a time.",
               "库存分成八段，每段一把锁：八个买家可以同时购买。"},
       .open = &open_held_striped,
       .missing = "",
       .shelves = 8},
  };
}

std::vector<scheme> on_mysql() {
  const std::vector<store_kind> mysql{store_kind::mysql};
  return {
      {"sql-statement",
       "sql_statement",
       mysql,
       flaw::none,
       {"The database subtracts by itself, and only above zero. No time to think in between.",
        "由数据库自己做减法，且只在大于零时执行。中间没有业务思考的时间。"},
       HOLDFAST_WITH_SQL(&open_sql_statement)},
      {"sql-for-update",
       "sql_for_update",
       mysql,
       flaw::none,
       {"The row is locked by a transaction, which ends with its connection. While a holder is "
        "paused nobody sells.",
        "行被事务锁住，连接断开即回滚。持有者暂停期间没有人能卖。"},
       HOLDFAST_WITH_SQL(&open_sql_for_update)},
      {"optimistic-version",
       "optimistic",
       mysql,
       flaw::none,
       {"Written only if the version is still the one that was read; else all again.",
        "只有版本号未变时才写入；否则从头再来。"},
       HOLDFAST_WITH_SQL(&open_optimistic_version)},
      {"optimistic-timestamp",
       "optimistic",
       mysql,
       flaw::none,
       {"The same with a time that never stands still: microseconds, and one more than the last.",
        "同上，但比较时间：微秒级，且总比上一次至少大一。"},
       HOLDFAST_WITH_SQL(&open_optimistic_time)},
      {"optimistic-seconds",
       "optimistic",
       mysql,
       flaw::traffic,
       {"A time in whole seconds, as DATETIME is by default: two writes in one second look like "
        "none.",
        "整秒的时间（DATETIME 的默认精度）：同一秒内的两次写入看起来没有变化。"},
       HOLDFAST_WITH_SQL(&open_optimistic_seconds)},
      {"mysql-row",
       "mysql_row",
       mysql,
       flaw::pause,
       {"A row with a unique name and an end. Others are let in at the end, and a paused holder "
        "writes all the same.",
        "名字唯一、带到期时间的一行。到期后别人可以进入，而暂停过久的持有者仍会写入。"},
       HOLDFAST_WITH_SQL(&open_mysql_row)},
      {"mysql-lock", "held_locks", mysql, flaw::pause, until_paused, &open_held_mutex, "", false},
      {"mysql-lock-fenced", "held_locks", mysql, flaw::none, with_fence, &open_held_mutex_fenced,
       "", false},
  };
}

std::vector<scheme> on_redis_by_hand() {
  const std::vector<store_kind> redis{store_kind::redis};
  return {
      {"redis-watch",
       "redis_watch",
       redis,
       flaw::none,
       {"EXEC does nothing when the key was changed since WATCH. No holder, so nothing to lose.",
        "WATCH 之后键被改过，EXEC 就什么也不做。没有持有者，也就没有什么可丢失。"},
       HOLDFAST_WITH_REDIS(&open_redis_watch)},
      {"setnx-then-expire",
       "setnx_expire",
       redis,
       flaw::kill,
       {"Two commands: who dies between them leaves a lock without an end.",
        "两条命令：在两者之间死亡，就留下一把永不过期的锁。"},
       HOLDFAST_WITH_REDIS(&open_setnx_then_expire),
       true,
       1,
       weak_spot::between},
      {"setnx-expire-lua",
       "setnx_expire",
       redis,
       flaw::pause,
       {"The same in one script: no death can come in between. A pause still can.",
        "同样的两步放进一个脚本：死亡无法插入其间，但暂停仍然可以。"},
       HOLDFAST_WITH_REDIS(&open_setnx_expire_lua)},
      {"set-nx-px",
       "set_nx_px",
       redis,
       flaw::pause,
       {"Lock and end in one command, deleted by its owner only. A paused holder writes all the "
        "same.",
        "一条命令同时加锁和设定期限，只有所有者删除。暂停过久的持有者仍会写入。"},
       HOLDFAST_WITH_REDIS(&open_set_nx_px)},
      {"set-nx-px-del",
       "set_nx_px",
       redis,
       flaw::pause,
       {"Deleted by whoever comes: after a pause a holder deletes its successor's lock.",
        "谁都可以删除：暂停之后，持有者会删掉继任者的锁。"},
       HOLDFAST_WITH_REDIS(&open_set_nx_px_del)},
      {"set-nx-px-fenced",
       "set_nx_px",
       redis,
       flaw::none,
       {"With a number that only rises, which the store compares at every read and write.",
        "加上只增不减的编号，存储在每次读写时都会比较。"},
       HOLDFAST_WITH_REDIS(&open_set_nx_px_fenced)},
      {"getset",
       "getset",
       redis,
       flaw::pause,
       {"The lock holds its end by the clients' clocks; losers of a race overwrite it, and nothing "
        "says whose it is.",
        "锁里存的是按客户端时钟计算的到期时间；竞争失败者也会覆盖它，且看不出归谁所有。"},
       HOLDFAST_WITH_REDIS(&open_getset)},
  };
}

// On a store that this library has an engine for; where the stock lies is another matter.
scheme held(std::string_view name, store_kind on, flaw breaks_by, text_pair why, shop_maker open) {
  return {name, "held_locks", {on}, breaks_by, why, open, "", false};
}

std::vector<scheme> of_this_library() {
  using enum store_kind;
  auto striped = held("redis-striped", redis, flaw::pause,
                      {"The stock in eight ranges with a lock each: eight buyers sell at a time.",
                       "库存分成八段，每段一把锁：八个买家可以同时购买。"},
                      &open_held_striped);
  striped.shelves = 8;
  return {
      held("redis-fair", redis, flaw::pause,
           {"A queue in the store: first come, first served, woken by name. A paused holder writes "
            "all the same.",
            "队列在存储里：先来先得，按名唤醒。暂停过久的持有者仍会写入。"},
           &open_held_mutex),
      held("redis-fair-fenced", redis, flaw::none, with_fence, &open_held_mutex_fenced),
      held("redis-re-entrant", redis, flaw::pause,
           {"Who has it may take it again without asking the store; renewed while its process "
            "lives.",
            "持有者可以再次进入而不询问存储；进程存活期间自动续期（看门狗）。"},
           &open_held_reentrant),
      held("redis-read-write", redis, flaw::pause,
           {"All browse at once, one buys, and looks again before it does.",
            "浏览可以同时进行，购买一次一个，购买前重新读取。"},
           &open_held_read_write),
      striped,
      held("redlock", redlock, flaw::pause,
           {"A majority of independent servers. No queue, and clocks must not jump.",
            "取得多数独立服务器的同意。没有队列，且时钟不能跳变。"},
           &open_held_mutex),
      held("redlock-fenced", redlock, flaw::none, with_fence, &open_held_mutex_fenced),
      held("zk-exclusive", zk, flaw::pause,
           {"One node; all who wait watch it, so each release wakes them all (a herd).",
            "一个节点；所有等待者都监视它，每次释放都会惊动全部（羊群效应）。"},
           &open_held_zk_exclusive),
      held("zk-sequential", zk, flaw::pause,
           {"A queue of nodes; each watches the one before it, so one is woken at a time.",
            "节点排成队列；各自只监视前一个，每次只唤醒一个。"},
           &open_held_mutex),
      held("zk-sequential-fenced", zk, flaw::none, with_fence, &open_held_mutex_fenced),
      held("etcd", etcd, flaw::pause, until_paused, &open_held_mutex),
      held("etcd-fenced", etcd, flaw::none, with_fence, &open_held_mutex_fenced),
      held("consul", consul, flaw::pause, until_paused, &open_held_mutex),
      held("consul-fenced", consul, flaw::none, with_fence, &open_held_mutex_fenced),
  };
}

}  // namespace

const std::vector<scheme>& schemes() {
  static const std::vector<scheme> table = [] {
    std::vector<scheme> all;
    for (const auto& chapter :
         {without_servers(), on_mysql(), on_redis_by_hand(), of_this_library()})
      all.insert(all.end(), chapter.begin(), chapter.end());
    return all;
  }();
  return table;
}

}  // namespace holdfast::cli::flash
