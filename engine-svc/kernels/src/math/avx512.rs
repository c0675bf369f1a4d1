//! Exponentials in AVX-512, with fused multiply-add.

use std::arch::x86_64::*;

/// 2ˣ to about 2e-7 of itself, 0 far below what a float holds; NaN passes through.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn exp2(x: __m512) -> __m512 {
    /// Adding this to a small float leaves its nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// 2ʳ on |r| ≤ ½, the Taylor series of e^(r ln 2).
    const SERIES: [f32; 7] =
        [1.540_353e-4, 1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 0.240_226_5, std::f32::consts::LN_2, 1.0];
    // The second operand is returned where one is NaN.
    let x = _mm512_max_ps(_mm512_set1_ps(-160.0), x);
    let round = _mm512_set1_ps(ROUND);
    let whole = _mm512_sub_ps(_mm512_add_ps(x, round), round);
    let rest = _mm512_sub_ps(x, whole);
    let mut sum = _mm512_set1_ps(SERIES[0]);
    for coefficient in &SERIES[1..] {
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(*coefficient));
    }
    _mm512_scalef_ps(sum, whole)
}

/// 1 / x to about 1e-7 of itself, for 1 ≤ x ≤ 2; NaN passes through.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn reciprocal(x: __m512) -> __m512 {
    let guess = _mm512_rcp14_ps(x);
    // One step of Newton's method doubles its 14 bits.
    let rest = _mm512_fnmadd_ps(x, guess, _mm512_set1_ps(1.0));
    _mm512_fmadd_ps(guess, rest, guess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    fn lanes(f: impl Fn(__m512) -> __m512, x: f32) -> f32 {
        // SAFETY: plain data of one size, 16 equal floats.
        unsafe {
            std::mem::transmute::<__m512, [f32; 16]>(f(std::mem::transmute::<[f32; 16], __m512>([x; 16])))[0]
        }
    }

    #[test]
    fn exp2_and_reciprocal_are_within_a_few_units_in_the_last_place() {
        if !Isa::Avx512.is_available() {
            return;
        }
        // SAFETY: available, as just checked.
        let (exp2, reciprocal) = (|x| unsafe { exp2(x) }, |x| unsafe { reciprocal(x) });
        for x in (-125_000..125_000).map(|i| i as f32 / 1000.0) {
            let (got, want) = (f64::from(lanes(exp2, x)), f64::from(x).exp2());
            assert!((got - want).abs() <= 3e-7 * want, "exp2({x}) is {got}, should be {want}");
        }
        for x in (0..10_000).map(|i| 1.0 + i as f32 / 10_000.0) {
            let (got, want) = (f64::from(lanes(reciprocal, x)), 1.0 / f64::from(x));
            assert!((got - want).abs() <= 2e-7 * want, "1 / {x} is {got}, should be {want}");
        }
        assert_eq!((lanes(exp2, f32::NEG_INFINITY), lanes(exp2, -1e9)), (0.0, 0.0));
        assert!(lanes(exp2, f32::NAN).is_nan() && lanes(reciprocal, f32::NAN).is_nan());
    }
}
