// What Consul answers when it does not do as asked, as our codes and sentences.
#pragma once

#include "engines/common/sentences.hpp"
#include "engines/consul/agent.hpp"
#include "engines/consul/kv.hpp"

#include <holdfast/result.hpp>

#include <string_view>

namespace holdfast::engines::consul {

// Of a status other than 200 (`name` may be empty).
error status_error(const http_reply& got, std::string_view name, std::string_view store);
error unexpected_answer(std::string_view name, std::string_view store);
// The reply to a transaction, whether it was carried out or not.
result<txn_reply> read_txn_reply(answer said, const transaction& asked, std::string_view name,
                                 std::string_view store);
// One that was not carried out, for a reason that its sender does not expect.
error failed_txn(const txn_reply& got, std::string_view name, std::string_view store);

}  // namespace holdfast::engines::consul
