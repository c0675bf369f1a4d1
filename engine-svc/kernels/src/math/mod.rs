//! Exponential functions that the compiler can vectorise: no calls, no branches, the same bits on
//! every instruction set. `avx512` has what is worth writing by hand.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts, so that a multiple of it can be subtracted without rounding.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding this to a small float leaves its nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Lanes that a reduction over a row keeps apart, so that it vectorises and has one fixed order.
pub(crate) const LANES: usize = 16;

/// Combines lanes pairwise: lane i with i + 8, then with i + 4, and so on.
#[inline(always)]
pub(crate) fn reduce(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The larger of two, or the first if either is NaN.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The largest of these, reduced in fixed lanes; NaN is never it. Of nothing above negative infinity: that.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = larger(*lane, *value);
    }
    reduce(lanes, larger)
}

/// eˣ to about 2 units in the last place; 0 below -87, where the result would be denormal.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let shifted = clamped * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN_2_HIGH) - n * LN_2_LOW;
    // The Cephes polynomial for e^r on |r| ≤ ln 2 / 2.
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // 2ⁿ in two factors, since n may be 128.
    let n = (shifted.to_bits() << 9).cast_signed() >> 9;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits(((n + 127) << 23).cast_unsigned());
    let result = p * power(half) * power(n - half);
    if x < -87.0 { 0.0 } else { result }
}

/// tanh x to about 1e-7.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}

/// The logistic function, 1 / (1 + e⁻ˣ).
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The error function to about 2e-7 (Abramowitz and Stegun 7.1.26).
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let p = 1.061_405_4;
    let p = p * t - 1.453_152;
    let p = p * t + 1.421_413_7;
    let p = p * t - 0.284_496_74;
    let p = p * t + 0.254_829_6;
    (1.0 - p * t * exp(-z * z)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep() -> impl Iterator<Item = f32> {
        (-200_000..200_000).map(|i| i as f32 / 2000.0)
    }

    #[test]
    fn exp_is_within_a_few_units_in_the_last_place() {
        for x in sweep().filter(|x| (-87.0..88.7).contains(x)) {
            let want = f64::from(x).exp();
            assert!((f64::from(exp(x)) - want).abs() <= 4e-7 * want, "exp({x}) = {}", exp(x));
        }
    }

    #[test]
    fn exp_of_the_extremes() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((exp(f32::NEG_INFINITY), exp(-1e9), exp(-87.5)), (0.0, 0.0, 0.0));
        assert_eq!((exp(f32::INFINITY), exp(1e9)), (f32::INFINITY, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_and_sigmoid_match_the_library() {
        for x in sweep() {
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 3e-7, "tanh({x})");
            let want = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) - want).abs() < 3e-7, "sigmoid({x})");
        }
        assert!(tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan() && erf(f32::NAN).is_nan());
    }
}
