// The layouts that keep a lock in one string key: setnx, setnx-expire-lua and getset (setnx_recipes.hpp).
//
// The key is the lock's name, behind the prefix if one was given; the value is the owner and its token. Tokens are the
// server's clock in microseconds, read in the script that takes the lock. Nothing is stored for waiters: they sleep
// for a moment and ask again.
#pragma once

#include "engines/redis/compat_layout.hpp"
#include "engines/redis/setnx_recipes.hpp"

namespace holdfast::engines::redis {

class setnx final : public compat_layout {
 public:
  static result<std::unique_ptr<cluster_part>> open(const recipe& by, const settings& how,
                                                    const engine_config& config);
  ~setnx() override { disconnect(); }

  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;

 private:
  setnx(const recipe& by, const settings& how, const engine_config& config);

  result<void> check(const request& ask) const override;
  command enter_command(const request& ask) const override;
  command settle_command(const request& ask) const override;
  command release_command(const grant& held) const override;
  std::vector<const script*> release_scripts() const override;
  std::optional<command> leave_command(const ticket& place) const override;
  command renew_command(std::span<const renewal> batch) const override;
  command inspect_command(std::string_view name) const override;
  command revoke_command(std::string_view name) const override;
  lock_info read_info(const resp::value& got, std::string_view name) const override;
  std::uint64_t messages_before(const request&) const override { return 0; }
  nanoseconds patience(std::optional<nanoseconds> left) const override;

  command owner_command(const script& what, std::string_view name, const owner_id& owner) const;
  std::string owner_text(const owner_id& owner) const;
  struct written {
    owner_id owner;
    fencing_token token;
  };
  std::optional<written> read_value(std::string_view value) const;
  std::int64_t rounded(nanoseconds ttl) const;

  const recipe& by_;
};

}  // namespace holdfast::engines::redis
