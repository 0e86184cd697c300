// Minimax polynomials of the float forms, highest power first (tools/derive_polynomials.py prints them with their
// errors).
#pragma once

namespace onw::forms {

// e^r = 1 + r + r^2 q(r), |r| <= ln(2)/2
constexpr float kExpTail[] = {0x1.6a2448p-10f, 0x1.1239d4p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
// tanh(x) = x + x^3 t(x^2), |x| < 5/8
constexpr float kTanhTail[] = {-0x1.76ac12p-8f, 0x1.5256d6p-6f, -0x1.b84448p-5f, 0x1.110768p-3f, -0x1.555534p-2f};
// atanh(x) = x + x^3 a(x^2), |x| <= 1/3
constexpr float kAtanhTail[] = {0x1.f1aeep-4f, 0x1.b6d6a4p-4f, 0x1.250972p-3f, 0x1.9996a8p-3f, 0x1.555558p-2f};
// Phi(x) = 1/2 + x p(x^2), |x| < 5/4
constexpr float kPhiOdd[] = {0x1.ff2e8p-22f, -0x1.2ff36cp-17f, 0x1.e27ad6p-14f, -0x1.373194p-10f,
                             0x1.46cfc8p-7f, -0x1.105836p-4f,  0x1.988454p-2f};
// Phi(-x) = e^(-x^2/2) u(1 / (1 + x/3)), 5/4 <= x < 14.5
constexpr float kPhiTail[] = {0x1.744ab6p-5f, -0x1.1c62aap-3f, 0x1.a7b73ep-4f, 0x1.ed302ap-8f, 0x1.9a0e22p-4f,
                              0x1.dc4ceap-4f, 0x1.10b7d8p-3f,  0x1.105412p-3f, 0x1.d4f95cp-25f};

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kMinusLn2 = -0x1.62e43p-1f;  // n * kMinusLn2 + x is exact where n = round(x / ln 2)
constexpr float kMinusLn2Rest = 0x1.05c61p-29f;
constexpr float kRounder = 0x1.8p23f;         // adding it rounds to an integer, which lands in the low bits
constexpr float kExpLowest = -0x1.5d589ep6f;  // e^x >= 2^-126 from here
constexpr float kExpHighest = 0x1.62e42ep6f;  // e^x is finite up to here

// 2u = x (a + b x^2) of GELU's tanh form: a = 2 sqrt(2/pi), b = 0.044715 a
constexpr float kGeluLinear = 0x1.988454p+0f;
constexpr float kGeluCubic = 0x1.2444f2p-4f;

}  // namespace onw::forms
