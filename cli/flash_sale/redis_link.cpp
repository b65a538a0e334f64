#include "flash_sale/redis_link.hpp"

#include "flash_sale/stores.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

namespace holdfast::cli::flash {

namespace {

// Longer than any wait of a healthy server.
constexpr timeval patience_with_redis{10, 0};

redis_reply copied(const ::redisReply& from) {
  redis_reply out;
  out.is_nil = from.type == REDIS_REPLY_NIL;
  out.number = from.integer;
  if (from.str != nullptr) out.text.assign(from.str, from.len);
  for (std::size_t i = 0; i < from.elements; ++i) out.parts.push_back(copied(*from.element[i]));
  return out;
}

::redisContext* connected(const store_url& url) {
  if (url.scheme() == "unix")
    return ::redisConnectUnixWithTimeout(url.path().c_str(), patience_with_redis);
  const auto& at = url.endpoints().front();
  return ::redisConnectWithTimeout(at.host.c_str(), at.port.value_or(std::uint16_t{6379}),
                                   patience_with_redis);
}

}  // namespace

void redis_link::closer::operator()(redisContext* context) const noexcept { ::redisFree(context); }

redis_link::redis_link(const std::string& text) {
  const auto url = store_url::parse(text).value();
  context_.reset(connected(url));
  if (!context_ || context_->err != 0)
    throw redis_error(fmt::format("No connection to {}: {}", url.str(),
                                  context_ ? context_->errstr : "out of memory"));
  ::redisSetTimeout(context_.get(), patience_with_redis);
  const auto password = password_of(url);
  if (!password.empty() && url.user().empty()) ask({"AUTH", password});
  if (!password.empty() && !url.user().empty()) ask({"AUTH", url.user(), password});
  const auto* option = url.find("db");
  const auto database = option != nullptr        ? *option
                        : url.scheme() == "unix" ? std::string{}
                        : url.path().size() > 1  ? url.path().substr(1)
                                                 : std::string{};
  if (!database.empty()) ask({"SELECT", database});
}

redis_reply redis_link::ask_once(const std::vector<std::string>& words, std::string& refusal) {
  std::vector<const char*> texts;
  std::vector<std::size_t> lengths;
  for (const auto& word : words) {
    texts.push_back(word.data());
    lengths.push_back(word.size());
  }
  struct free_reply {
    void operator()(::redisReply* reply) const noexcept { ::freeReplyObject(reply); }
  };
  const std::unique_ptr<::redisReply, free_reply> got{static_cast<::redisReply*>(::redisCommandArgv(
      context_.get(), static_cast<int>(words.size()), texts.data(), lengths.data()))};
  if (!got) throw redis_error(fmt::format("Redis did not answer: {}", context_->errstr));
  if (got->type == REDIS_REPLY_ERROR) refusal.assign(got->str, got->len);
  return copied(*got);
}

redis_reply redis_link::ask(const std::vector<std::string>& words) {
  std::string refusal;
  auto out = ask_once(words, refusal);
  if (!refusal.empty()) throw redis_error(fmt::format("Redis refused {}: {}", words[0], refusal));
  return out;
}

redis_reply redis_link::run(std::string_view script, const std::vector<std::string>& keys,
                            const std::vector<std::string>& values) {
  std::vector<std::string> words{"EVAL", std::string{script}, std::to_string(keys.size())};
  words.insert(words.end(), keys.begin(), keys.end());
  words.insert(words.end(), values.begin(), values.end());
  return ask(words);
}

}  // namespace holdfast::cli::flash
