#include "engines/redis/greeting.hpp"

#include "engines/redis/errors.hpp"

#include <memory>
#include <string>
#include <utility>

namespace holdfast::engines::redis {

namespace {

// How a channel cuts what this server sends.
class resp_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    const auto found = scanner_.next(bytes);
    if (!found) return found.error();
    return frame{.length = found->length, .push = found->push};
  }

 private:
  resp::frame_scanner scanner_;
};

}  // namespace

void greet_with(net::channel_options& options, std::initializer_list<std::string_view> words) {
  resp::append_command(options.greeting, words);
  ++options.greeting_replies;
}

net::channel_options begin_channel(const settings& how) {
  net::channel_options out;
  out.where = how.where;
  out.description = how.url;
  out.make_framing = [] { return std::make_unique<resp_framing>(); };
  if (how.password.empty()) {
    greet_with(out, {"HELLO", "3", "SETNAME", "holdfast"});
  } else {
    greet_with(out, {"HELLO", "3", "AUTH", how.user.empty() ? "default" : how.user, how.password,
                     "SETNAME", "holdfast"});
  }
  if (how.db != 0) greet_with(out, {"SELECT", std::to_string(how.db)});
  return out;
}

std::function<result<void>(std::string_view)> greeting_judge(const settings& how, unsigned first,
                                                             unsigned last,
                                                             introduction_judge introduced) {
  return [url = how.url, is_login = !how.password.empty(), first, last,
          introduced = std::move(introduced)](std::string_view frames) -> result<void> {
    for (unsigned at = 0; !frames.empty(); ++at) {
      auto value = resp::take(frames);
      if (!value) return std::move(value).error();
      if (value->is_error())
        return is_login ? login_error(value->text, url) : reply_error(value->text, {}, url);
      if (at < first || at >= last) continue;
      if (auto ok = introduced(*value); !ok) return ok;
    }
    return {};
  };
}

}  // namespace holdfast::engines::redis
