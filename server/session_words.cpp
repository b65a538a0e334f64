#include "session_words.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::server {

namespace {

std::int64_t age(steady_time of, steady_time before) {
  return std::max(nanoseconds::zero(), nanoseconds{before - of}).count();
}

const char* enum_text(token_origin origin) noexcept {
  switch (origin) {
    case token_origin::counter:
      return "counter";
    case token_origin::server_time:
      return "server_time";
    case token_origin::store_revision:
      return "store_revision";
  }
  return "counter";
}

const char* enum_text(fencing_strength strength) noexcept {
  switch (strength) {
    case fencing_strength::strict:
      return "strict";
    case fencing_strength::best_effort:
      return "best_effort";
    case fencing_strength::none:
      return "none";
  }
  return "none";
}

const char* enum_text(finding::level how) noexcept {
  switch (how) {
    case finding::level::good:
      return "good";
    case finding::level::note:
      return "note";
    case finding::level::warning:
      return "warning";
    case finding::level::bad:
      return "bad";
  }
  return "note";
}

void add_known(json_object& to, std::string_view field, nanoseconds length) {
  if (length == no_expiry) {
    to.add(field, "never");
  } else if (length != unknown_time) {
    to.add(field, std::max<std::int64_t>(0, length.count()));
  }
}

std::string holder_json(const holder_info& one) {
  json_object out;
  out.add("client", hex_of(one.owner.client)).add("owner", one.owner.sequence);
  out.add("mode", to_string(one.mode)).add("weight", one.weight).add("token", one.token.value);
  add_known(out, "age_ns", one.age);
  add_known(out, "expires_in_ns", one.expires_in);
  out.add("priority", one.priority)
      .add("pid", one.pid)
      .add("host", one.host)
      .add("label", one.label);
  if (!one.owner_text.empty()) out.add("owner_text", one.owner_text);
  return out.text();
}

template <class Range>
std::string array_of(const Range& all) {
  json_array out;
  for (const auto& one : all) out.add_json(holder_json(one));
  return out.text();
}

}  // namespace

bool has_control(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return true;
    const bool is_c1 =
        c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) return true;
  }
  return false;
}

std::string hex_of(const std::array<std::uint64_t, 2>& client) {
  return fmt::format("{:016x}{:016x}", client[0], client[1]);
}

std::string json_of(const capabilities& caps) {
  json_object out;
  out.add("engine", caps.engine).add("fifo", caps.fifo).add("priorities", caps.priorities);
  out.add("shared", caps.shared).add("upgrade", caps.upgrade).add("permits", caps.permits);
  out.add("counters", caps.counters).add("counters_apart", caps.counters_apart);
  out.add("observe", caps.observe)
      .add("atomic_multi", caps.atomic_multi)
      .add("listing", caps.listing);
  out.add("survives_restart", caps.survives_restart).add("outlives_client", caps.outlives_client);
  out.add("token", enum_text(caps.token)).add("fencing", enum_text(caps.fencing));
  out.add("min_ttl_ns", caps.min_ttl.count()).add("max_ttl_ns", caps.max_ttl.count());
  out.add("expiry_slack_ns", caps.expiry_slack.count());
  out.add("longest_validity_ns", caps.longest_validity.count());
  out.add("margin_ns", caps.margin.count()).add("drift_ppm", caps.drift_ppm);
  out.add("validity_setting", caps.validity_setting).add("exclusion", caps.exclusion);
  out.add("token_scope", caps.token_scope).add("limits", caps.limits);
  return out.text();
}

void add_proof(json_object& to, const session_proof& proof, const moment& before) {
  if (proof.number == 0) return;
  to.add("store_session", proof.number).add("proof_age_ns", age(proof.proven_at, before.of_store));
}

std::string json_of(const grant& held, const moment& before) {
  json_object out;
  out.add("owner", held.owner.sequence)
      .add("mode", to_string(held.mode))
      .add("weight", held.weight);
  out.add("token", held.token.value).add("ttl_ns", held.ttl.count());
  out.add("age_ns", age(held.valid_from, before.of_store));
  add_proof(out, held.session, before);
  return out.text();
}

std::string json_of(const renewal& asked, const moment& before) {
  json_object out;
  switch (asked.answer) {
    case renewal::verdict::held:
      out.add("verdict", "held").add("age_ns", age(asked.valid_from, before.of_store));
      add_proof(out, asked.session, before);
      break;
    case renewal::verdict::lost:
      out.add("verdict", "lost");
      break;
    case renewal::verdict::unknown:
      out.add("verdict", "unknown");
      break;
  }
  return out.text();
}

std::string json_of(const lock_info& lock) {
  json_object out;
  out.add("name", lock.name).add("capacity", lock.capacity).add("version", lock.version);
  if (lock.free_permits) out.add("free_permits", *lock.free_permits);
  out.add_json("holders", array_of(lock.holders)).add_json("waiters", array_of(lock.waiters));
  return out.text();
}

std::string json_of(const counter_info& one) {
  json_object out;
  out.add("name", one.name).add("value", one.value);
  add_known(out, "forgotten_in_ns", one.forgotten_in);
  return out.text();
}

std::string json_of(const finding& one) {
  json_object out;
  out.add("level", enum_text(one.how)).add("about", one.about).add("sentence", one.sentence);
  return out.text();
}

void add_counter(json_object& to, const counter& now) {
  to.add("exists", now.exists).add("applied", now.applied).add("value", now.value);
  to.add("version", now.version);
}

}  // namespace holdfast::server
