#include "base/digest.h"

#include <gtest/gtest.h>

namespace onw {
namespace {

// Values of FIPS 180-4's examples for "abc".
TEST(Digest, is_the_standard_s) {
  Digest sha256;
  sha256.add("abc");
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest sha1(Digest::Kind::sha1);
  sha1.add("a");
  sha1.add("bc");
  EXPECT_EQ(sha1.hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

}  // namespace
}  // namespace onw
