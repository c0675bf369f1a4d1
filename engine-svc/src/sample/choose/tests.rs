use proptest::prelude::*;

use super::*;

const DRAWS: usize = 200_000;

fn sampling(temperature: f32, top_k: u32, top_p: f32, min_p: f32) -> Sampling {
    Sampling::new(temperature, top_k, top_p, min_p, 11).unwrap()
}

/// The exact distribution, by definition: sort all, cut, renormalize.
fn exact(logits: &[f32], s: &Sampling) -> Vec<f64> {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
    let weight = |id: usize| (f64::from(logits[id] - logits[ids[0]]) / f64::from(s.temperature)).exp();
    let k = if s.top_k == 0 { ids.len() } else { ids.len().min(s.top_k as usize) };
    let total: f64 = ids[..k].iter().map(|&id| weight(id)).sum();
    let (mut sum, mut kept) = (0.0, Vec::new());
    for &id in &ids[..k] {
        if sum >= f64::from(s.top_p) * total && s.top_p < 1.0 {
            break;
        }
        sum += weight(id);
        kept.push(id);
    }
    kept.retain(|&id| weight(id) >= f64::from(s.min_p));
    let total: f64 = kept.iter().map(|&id| weight(id)).sum();
    let mut probabilities = vec![0.0; logits.len()];
    kept.iter().for_each(|&id| probabilities[id] = weight(id) / total);
    probabilities
}

/// Draws at many positions against the exact distribution.
fn assert_follows(logits: &[f32], s: &Sampling) {
    let expected = exact(logits, s);
    let mut counts = vec![0.0; logits.len()];
    (0..DRAWS).for_each(|position| counts[s.choose(logits, position) as usize] += 1.0);
    let (mut chi, mut cells) = (0.0, 0.0);
    for (id, (&count, &p)) in counts.iter().zip(&expected).enumerate() {
        assert!(p > 0.0 || count == 0.0, "token {id} was cut and yet drawn by {s:?}");
        let want = p * DRAWS as f64;
        if want > 5.0 {
            chi += (count - want) * (count - want) / want;
            cells += 1.0;
        }
    }
    // Mean and standard deviation of χ² are its degrees of freedom and √(2 of them).
    let bound = cells + 5.0 * (2.0_f64 * cells).sqrt();
    assert!(chi < bound, "χ² {chi} over {cells} cells for {s:?}");
}

/// Logits of a long tail, in no order.
fn long_tail(n: usize) -> Vec<f32> {
    (0..n).map(|i| -1.5 * ((1 + i * 37 % n) as f32).ln()).collect()
}

#[test]
fn draws_follow_the_distribution_at_every_temperature() {
    for temperature in [0.3, 1.0, 2.5] {
        assert_follows(&long_tail(500), &sampling(temperature, 0, 1.0, 0.0));
    }
}

#[test]
fn draws_follow_each_cut_and_their_combination() {
    let logits = long_tail(500);
    for s in [
        sampling(1.0, 7, 1.0, 0.0),
        sampling(1.0, 0, 0.8, 0.0),
        sampling(2.0, 0, 0.97, 0.0),
        sampling(1.0, 0, 1.0, 0.05),
        sampling(0.7, 40, 0.9, 0.02),
    ] {
        assert_follows(&logits, &s);
    }
}

#[test]
fn one_candidate_is_always_taken() {
    let logits = [0.0, 3.0, 2.9];
    for s in [sampling(5.0, 1, 1.0, 0.0), sampling(5.0, 0, 1e-6, 0.0), sampling(5.0, 0, 1.0, 1.0)] {
        assert!((0..1000).all(|position| s.choose(&logits, position) == 1));
    }
}

#[test]
fn ties_go_to_the_lowest_id() {
    assert_eq!(Sampling::GREEDY.choose(&[1.0, 2.0, 2.0, 2.0], 0), 1);
    let two = sampling(1.0, 2, 1.0, 0.0);
    assert!((0..1000).all(|position| two.choose(&[0.0; 50], position) < 2));
    let zeros = sampling(1.0, 1, 1.0, 0.0);
    assert_eq!(zeros.choose(&[-0.0, 0.0], 0), 0);
}

#[test]
fn nan_and_infinities_are_survived() {
    let nan = f32::NAN;
    for s in [Sampling::GREEDY, sampling(1.0, 0, 1.0, 0.0), sampling(1.0, 3, 0.9, 0.0)] {
        assert_eq!(s.choose(&[nan, f32::NEG_INFINITY, 1.0, nan], 5), 2);
        assert_eq!(s.choose(&[0.0, f32::INFINITY, f32::INFINITY], 5), 1);
        assert_eq!(s.choose(&[nan, nan], 5), 0);
        assert_eq!(s.choose(&[f32::NEG_INFINITY; 4], 5), 0);
    }
}

#[test]
fn a_very_small_temperature_is_greedy() {
    let s = sampling(f32::MIN_POSITIVE, 0, 1.0, 0.0);
    assert!((0..1000).all(|position| s.choose(&[1.0, 1.1, 1.0], position) == 1));
}

#[test]
fn parameters_out_of_range_are_named() {
    let field = |t, p, m| Sampling::new(t, 0, p, m, 0).unwrap_err().field;
    for t in [-0.1, f32::NAN, f32::INFINITY] {
        assert_eq!(field(t, 1.0, 0.0), "temperature");
    }
    for p in [0.0, -1.0, 1.1, f32::NAN] {
        assert_eq!(field(1.0, p, 0.0), "top_p");
    }
    for m in [-0.1, 1.1, f32::NAN] {
        assert_eq!(field(1.0, 1.0, m), "min_p");
    }
}

proptest! {
    /// The partial sort keeps exactly the set that sorting everything keeps.
    #[test]
    fn the_cuts_keep_the_set_of_the_definition(
        logits in prop::collection::vec(-8.0_f32..8.0, 1..700),
        top_k in 0_u32..800,
        top_p in 0.01_f32..0.99,
    ) {
        let s = sampling(1.0, top_k, top_p, 0.0);
        let allowed = exact(&logits, &s);
        for position in 0..200 {
            let id = s.choose(&logits, position) as usize;
            // A token at the very edge may fall on either side of a rounded sum.
            let edge = allowed.iter().filter(|p| **p > 0.0).fold(1.0_f64, |a, &b| a.min(b));
            prop_assert!(allowed[id] > 0.0 || edge < 1e-6, "token {id}");
        }
    }
}
