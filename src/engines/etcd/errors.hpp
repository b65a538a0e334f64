// The statuses of etcd as our codes.
#pragma once

#include "engines/common/retry_policy.hpp"
#include "engines/common/sentences.hpp"
#include "grpc/channel.hpp"

#include <holdfast/result.hpp>

#include <string_view>

namespace holdfast::engines::etcd {

// Statuses with which the cluster says neither yes nor no: it has no leader at the moment, did not answer in time, is
// shutting down. What was asked may have been done. Another try, perhaps at another member, may help.
bool is_passing(const grpc::reply& status) noexcept;
// It has too much to do, and has not done what was asked.
bool is_overloaded(const grpc::reply& status) noexcept;
// Our login is no longer good: the token is old, or the rights were changed.
bool wants_login(const grpc::reply& status) noexcept;
bool lease_is_gone(const grpc::reply& status) noexcept;
bool lease_exists(const grpc::reply& status) noexcept;
bool is_without_auth(const grpc::reply& status) noexcept;  // this cluster knows no users
bool is_out_of_space(const grpc::reply& status) noexcept;

// A status other than ok, with the lock (may be empty), the store and the server's own words. Certain (not_done)
// where the server refused just this; what it says of itself (no leader, shutting down, something we do not know) is
// a doubt.
error status_error(const grpc::reply& status, std::string_view name, std::string_view store);
// The answer is not of the form that was asked for.
error unexpected_answer(std::string_view name, std::string_view store);

// The answer to a question that changes nothing.
template <class Message>
result<Message> read_reply(const result<grpc::reply>& got, std::string_view name,
                           std::string_view store) {
  if (!got) return as_reading(about(got.error(), name));
  if (!got->ok()) return as_reading(status_error(*got, name, store));
  Message out;
  if (!out.ParseFromString(got->body)) return unexpected_answer(name, store);
  return out;
}

// For the decision whether to ask another member.
retry_policy::fate fate_of(const result<grpc::reply>& got);

}  // namespace holdfast::engines::etcd
