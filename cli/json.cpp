#include "json.hpp"

#include "bench/report.hpp"
#include "words.hpp"

#include <nlohmann/json.hpp>

namespace holdfast::cli {

namespace {

using json = nlohmann::ordered_json;

std::string text_of(const json& value) {
  // ASCII only: \u escapes for the rest. Bytes that are no UTF-8 are replaced, never passed through.
  return value.dump(2, ' ', true, json::error_handler_t::replace) + '\n';
}

double seconds(nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

// null: not known, or never.
json known_seconds(nanoseconds duration) {
  if (duration == unknown_time || duration == no_expiry) return nullptr;
  return seconds(duration);
}

json entry(const lock_info& lock, const holder_info& listed, bool holds) {
  json out{{"host", listed.host},       {"pid", listed.pid},
           {"label", listed.label},     {"mode", to_string(listed.mode)},
           {"owner", owner_of(listed)}, {"priority", listed.priority}};
  if (is_semaphore(lock)) out["permits"] = listed.weight;
  if (!holds) {
    out["waiting_seconds"] = known_seconds(listed.age);
    return out;
  }
  out["token"] = listed.token.value;
  out["held_seconds"] = known_seconds(listed.age);
  out["expires_in_seconds"] = known_seconds(listed.expires_in);
  return out;
}

json object(const lock_info& lock) {
  json out{{"name", lock.name}, {"holders", json::array()}, {"waiters", json::array()}};
  if (is_semaphore(lock)) out["permits"] = lock.capacity == 0 ? json{} : json(lock.capacity);
  if (lock.free_permits) out["free_permits"] = *lock.free_permits;
  for (const auto& holder : lock.holders) out["holders"].push_back(entry(lock, holder, true));
  for (const auto& waiter : lock.waiters) out["waiters"].push_back(entry(lock, waiter, false));
  return out;
}

json object(std::string_view name, std::int64_t left) {
  return {{"name", name}, {"left", left}, {"open", left == 0}};
}

}  // namespace

std::string locks_json(std::span<const lock_info> locks) {
  auto out = json::array();
  for (const auto& lock : locks) out.push_back(object(lock));
  return text_of(out);
}

std::string lock_json(const lock_info& lock) { return text_of(object(lock)); }

std::string capabilities_json(const std::string& url, const capabilities& caps) {
  return text_of({{"store", url},
                  {"engine", caps.engine},
                  {"fifo", caps.fifo},
                  {"priorities", caps.priorities},
                  {"shared", caps.shared},
                  {"upgrade", caps.upgrade},
                  {"permits", caps.permits},
                  {"counters", caps.counters},
                  {"counters_apart", caps.counters_apart},
                  {"observe", caps.observe},
                  {"atomic_multi", caps.atomic_multi},
                  {"listing", caps.listing},
                  {"cross_process", caps.cross_process},
                  {"survives_restart", caps.survives_restart},
                  {"outlives_client", caps.outlives_client},
                  {"wakeup", word(caps.wakeup)},
                  {"expiry_clock", word(caps.clock)},
                  {"token_origin", word(caps.token)},
                  {"fencing", word(caps.fencing)},
                  {"min_ttl_seconds", seconds(caps.min_ttl)},
                  {"max_ttl_seconds", seconds(caps.max_ttl)},
                  {"dead_holder_bound_seconds", seconds(caps.dead_holder_bound)},
                  {"expiry_slack_seconds", seconds(caps.expiry_slack)},
                  {"longest_validity_seconds", seconds(caps.longest_validity)},
                  {"session_needs_heartbeats", caps.session_needs_heartbeats},
                  {"validity_setting", caps.validity_setting},
                  {"drift_ppm", caps.drift_ppm},
                  {"margin_seconds", seconds(caps.margin)},
                  {"exclusion", caps.exclusion},
                  {"token_scope", caps.token_scope},
                  {"limits", caps.limits}});
}

std::string findings_json(const std::string& url, const std::string& engine,
                          std::span<const finding> findings) {
  auto rows = json::array();
  for (const auto& found : findings)
    rows.push_back(
        {{"level", word(found.how)}, {"about", found.about}, {"sentence", found.sentence}});
  return text_of({{"store", url}, {"engine", engine}, {"findings", std::move(rows)}});
}

std::string latch_json(std::string_view name, std::int64_t left) {
  return text_of(object(name, left));
}

std::string latches_json(std::span<const latch_info> latches) {
  auto out = json::array();
  for (const auto& latch : latches) {
    out.push_back(object(latch.name, latch.left));
    out.back()["forgotten_in_seconds"] = known_seconds(latch.forgotten_in);
  }
  return text_of(out);
}

std::string removed_json(std::string_view name) {
  return text_of({{"name", name}, {"removed", true}});
}

std::string broken_json(std::string_view name, std::size_t holders) {
  return text_of({{"name", name}, {"holders_ended", holders}});
}

std::string bench_json(const bench_report& report) {
  auto rows = json::array();
  for (const auto& row : report.rows) {
    json out{{"measurement", row.what}, {"setup", row.setup}};
    if (!row.skipped.empty()) {
      out["skipped"] = row.skipped;
      rows.push_back(std::move(out));
      continue;
    }
    out["operations"] = row.operations;
    out["per_second"] = row.per_second();
    if (row.latency.count() > 0)
      out["latency_ns"] = {{"mean", row.latency.mean()},
                           {"p50", row.latency.quantile(0.5)},
                           {"p99", row.latency.quantile(0.99)},
                           {"max", row.latency.max()}};
    if (row.fairness)
      out["fairness"] = {{"jain", row.fairness->jain},
                         {"smallest_share", row.fairness->smallest},
                         {"largest_share", row.fairness->largest}};
    if (!row.note.empty()) out["note"] = row.note;
    rows.push_back(std::move(out));
  }
  return text_of({{"store", report.store},
                  {"engine", report.engine},
                  {"machine", report.machine},
                  {"rows", std::move(rows)}});
}

}  // namespace holdfast::cli
