#include "engines/redis/script.hpp"

#include <openssl/evp.h>

#include <array>

namespace holdfast::engines::redis {

script make_script(std::string_view first, std::string_view second, std::string_view third) {
  script out;
  out.text.reserve(first.size() + second.size() + third.size());
  out.text.append(first).append(second).append(third);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_Digest(out.text.data(), out.text.size(), digest.data(), &length, EVP_sha1(), nullptr);
  for (unsigned i = 0; i < length; ++i) {
    constexpr std::string_view digits = "0123456789abcdef";
    out.sha += digits[digest[i] >> 4U];
    out.sha += digits[digest[i] & 15U];
  }
  return out;
}

}  // namespace holdfast::engines::redis
