// Error replies of a server as our errors.
#pragma once

#include "resp/resp.hpp"

#include <holdfast/result.hpp>

#include <string_view>

namespace holdfast::engines::redis {

// An error reply of the server as one of ours, with the lock (may be empty), the store and the server's own words.
error reply_error(std::string_view reply, std::string_view name, std::string_view store);
// The same for an answer to a login, which may repeat a password: only words that we know are shown.
error login_error(std::string_view reply, std::string_view store);
// It is the error of a server that is a replica, as the answer to a command or to a script that writes.
bool is_replica(const resp::value& reply);
// A node of a cluster says that the slot is elsewhere: nothing was done. The reply as it is, and our error for it.
bool is_redirection(std::string_view reply);
error redirected(std::string_view name, std::string_view store);
// The reply is not of the kind that the request asks for.
error unexpected_reply(std::string_view name, std::string_view store);

}  // namespace holdfast::engines::redis
