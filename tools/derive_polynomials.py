"""Prints the polynomials of kernels/scalar.cpp: minimax by Remez exchange, rounded, with their errors.

Needs mpmath and numpy. The program does not depend on this script; it says where its numbers come from.
"""

import mpmath as mp
import numpy

mp.mp.dps = 60


def remez(function, weight, low, high, degree, rounds=30):
    """Coefficients (ascending) of the polynomial p that minimises max |weight * (p - function)| on [low, high]."""
    n = degree + 2
    nodes = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (n - 1)) for i in range(n)]
    coefficients = None
    for _ in range(rounds):
        system = mp.matrix(n, n)
        right = mp.matrix(n, 1)
        for i, x in enumerate(nodes):
            for j in range(degree + 1):
                system[i, j] = x**j
            system[i, degree + 1] = (-1) ** i / weight(x)
            right[i] = function(x)
        solution = mp.lu_solve(system, right)
        coefficients = [solution[j] for j in range(degree + 1)]
        error = lambda x: weight(x) * (mp.polyval(coefficients[::-1], x) - function(x))
        grid = [low + (high - low) * mp.mpf(i) / 1200 for i in range(1201)]
        values = [error(x) for x in grid]
        peaks = []  # the largest error between two changes of sign
        for x, v in zip(grid, values):
            if peaks and mp.sign(v) == mp.sign(peaks[-1][1]):
                if abs(v) > abs(peaks[-1][1]):
                    peaks[-1] = (x, v)
            else:
                peaks.append((x, v))
        while len(peaks) > n:
            peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
        if len(peaks) < n:
            break
        new = [p[0] for p in peaks]
        if max(abs(a - b) for a, b in zip(new, nodes)) < mp.mpf(10) ** -12:
            break
        nodes = new
    return coefficients, max(abs(v) for v in values)


def show(name, coefficients, error):
    print(f"{name}: error 2^{mp.nstr(mp.log(error, 2), 5)}, ascending")
    for c in coefficients:
        print(f"  {float(numpy.float32(float(c))).hex()}  // {mp.nstr(c, 12)}")


def avoid_zero(x):
    return x if x != 0 else mp.mpf(10) ** -15


def main():
    one = mp.mpf(1)
    half_ln2 = mp.log(2) / 2 * (1 + mp.mpf(2) ** -20)

    def exp_tail(x):
        x = avoid_zero(x)
        return (mp.exp(x) - 1 - x) / x**2

    show("exp(r) = 1 + r + r^2 q(r)", *remez(exp_tail, lambda x: x**2 / mp.exp(x) + mp.mpf(10) ** -9, -half_ln2, half_ln2, 4))

    def odd_tail(function):  # (f(sqrt y)/sqrt y - 1)/y
        def tail(y):
            y = avoid_zero(y)
            x = mp.sqrt(y)
            return (function(x) / x - 1) / y

        return tail

    show("tanh(x) = x + x^3 t(x^2), |x| < 5/8", *remez(odd_tail(mp.tanh), lambda y: y + mp.mpf(10) ** -9, mp.mpf(0), one * 25 / 64, 4))
    show("atanh(x) = x + x^3 a(x^2), |x| <= 1/3", *remez(odd_tail(mp.atanh), lambda y: y + mp.mpf(10) ** -9, mp.mpf(0), one / 9 * (1 + mp.mpf(2) ** -20), 4))

    def phi_odd(y):  # (Phi(x) - 1/2) / x
        x = mp.sqrt(avoid_zero(y))
        return mp.erf(x / mp.sqrt(2)) / 2 / x

    show("Phi(x) = 1/2 + x p(x^2), |x| < 5/4", *remez(phi_odd, lambda y: 1 / phi_odd(y), mp.mpf(0), one * 25 / 16, 6))

    def phi_tail(t):  # Phi(-x) exp(x^2/2), x = 3/t - 3
        x = 3 / t - 3
        return mp.erfc(x / mp.sqrt(2)) / 2 * mp.exp(x * x / 2)

    bounds = 1 / (1 + mp.mpf(14.5) / 3), 1 / (1 + mp.mpf(1.25) / 3)
    show("Phi(-x) = exp(-x^2/2) u(1/(1 + x/3)), 5/4 <= x < 14.5", *remez(phi_tail, lambda t: 1 / phi_tail(t), *bounds, 8))


if __name__ == "__main__":
    main()
