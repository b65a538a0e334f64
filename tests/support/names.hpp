// Lock names that must be fine everywhere, and names that must be refused everywhere: what one
// store takes as a pattern, a path, a quote or an escape is an ordinary name to us, and must stay
// apart from every other.
#pragma once

#include <string>
#include <vector>

namespace holdfast::testing {

inline std::vector<std::string> good_names() {
  return {
      "a",
      "A",
      "stock/sku-42",
      "x' OR '1'='1",
      "\"; DROP TABLE locks; --",
      "*",
      "{tag}",
      "a}{b",
      "%2e%2e",
      "%00",
      "%2500",
      "a?acquire=1",
      "a#b",
      "a b",
      "a\\b",
      "a:b",
      "=1+1",
      "@x",
      "-rf",
      "...",
      "a/...",
      ".hidden",
      "a/.b",
      "<img src=x onerror=alert(1)>",
      "${HOME}",
      "`id`",
      "caf\xc3\xa9",   // precomposed
      "cafe\xcc\x81",  // decomposed: another name, there is no normalisation
      "\xe2\x80\xae"
      "gnp",  // right-to-left override: printable, if not nice; printing it is the printer's business
      "\xf0\x9f\x94\x92",
      "zookeeper/quota",
      std::string(255, 'n'),
  };
}

inline std::vector<std::string> bad_names() {
  return {
      "",
      std::string(256, 'n'),
      std::string(100'000, 'n'),
      std::string("a\0b", 3),
      std::string("\0", 1),
      "a\nb",
      "a\r\nSET x 1",
      "a\tb",
      "\x1b[2J",
      "\x1b]52;c;aGk=\x07",
      "\x7f",
      "\xc2\x85",  // C1: next line
      "\xc2\x9b"
      "31m",
      " a",
      "a ",
      " ",
      ".",
      "..",
      "/",
      "/a",
      "a/",
      "a//b",
      "a/./b",
      "a/../b",
      "../zookeeper/quota",
      "a/..",
      "\xff",
      "\xc3",
      "\xc0\xaf",          // over-long slash
      "\xed\xa0\x80",      // surrogate
      "\xf4\x90\x80\x80",  // beyond U+10FFFF
  };
}

}  // namespace holdfast::testing
