// Certificates made at test time: a CA, and what it signs.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace holdfast::testing {

namespace detail {
struct openssl_free {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const noexcept { X509_EXTENSION_free(extension); }
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
template <class T>
using owned = std::unique_ptr<T, openssl_free>;
}  // namespace detail

// A key and the certificate for it.
class identity {
 public:
  struct wish {
    std::string subject;
    std::string names;                 // "DNS:db.test,IP:127.0.0.1"; empty: none
    const identity* issuer = nullptr;  // null: signed by itself
    bool is_ca = false;
    long valid_from = -3600;  // seconds from now
    long valid_until = 3600;
  };

  explicit identity(const wish& what)
      : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256")), certificate_(X509_new()) {
    static long serial = 0;
    auto* const made = certificate_.get();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made), what.valid_from);
    X509_gmtime_adj(X509_getm_notAfter(made), what.valid_until);
    X509_set_pubkey(made, key_.get());
    auto* const name = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(what.subject.c_str()), -1, -1,
                               0);
    const auto& issuer = what.issuer != nullptr ? *what.issuer : *this;
    X509_set_issuer_name(made, X509_get_subject_name(issuer.certificate_.get()));
    if (what.is_ca) extend(NID_basic_constraints, "critical,CA:TRUE");
    if (!what.names.empty()) extend(NID_subject_alt_name, what.names);
    if (X509_sign(made, issuer.key_.get(), EVP_sha256()) == 0)
      throw std::runtime_error("no certificate");
  }

  EVP_PKEY* key() const noexcept { return key_.get(); }
  X509* certificate() const noexcept { return certificate_.get(); }

  // As PEM files; returns the path.
  const std::string& write_certificate(const std::string& path) const {
    PEM_write_X509(open(path).get(), certificate_.get());
    return path;
  }
  const std::string& write_key(const std::string& path) const {
    PEM_write_PrivateKey(open(path).get(), key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return path;
  }

 private:
  static detail::owned<std::FILE> open(const std::string& path) {
    detail::owned<std::FILE> file{std::fopen(path.c_str(), "w")};
    if (!file) throw std::runtime_error("cannot write " + path);
    return file;
  }
  void extend(int what, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, certificate_.get(), certificate_.get(), nullptr, nullptr, 0);
    const detail::owned<X509_EXTENSION> extension{
        X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str())};
    X509_add_ext(certificate_.get(), extension.get(), -1);
  }

  detail::owned<EVP_PKEY> key_;
  detail::owned<X509> certificate_;
};

}  // namespace holdfast::testing
