use super::*;

/// Noise of mean 0 within ± 1, the same in every run.
fn noise(i: u64) -> f64 {
    let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f64 / (1_u64 << 24) as f64) * 2.0 - 1.0
}

fn truth() -> CostModel {
    CostModel { buckets: vec![1, 2, 4, 8, 16, 32, 64], ..CostModel::default() }
}

/// Prefills of 1 to 16 prompts of up to 200 tokens, and decodes of 1 to 64 rows.
fn forwards(cost: &CostModel, noisy: f64) -> Vec<Observed> {
    let mut all = Vec::new();
    for i in 0..400_u64 {
        let mut load = Load::default();
        if i % 2 == 0 {
            for row in 0..1 + i % 16 {
                load.add(0, 5 + ((i * 7 + row * 13) % 200) as usize, true);
            }
        } else {
            for row in 0..1 + i % 64 {
                load.add(20 + ((i * 11 + row * 5) % 900) as usize, 1, false);
            }
        }
        let took = cost.forward(load).mul_f64(1.0 + noisy * noise(i));
        all.push(Observed { load, bucket: cost.bucket(load.decode_rows), took });
    }
    all
}

fn near(found: f64, is: f64, within: f64) {
    assert!((found - is).abs() <= within * is, "{found} is not {is}");
}

#[test]
fn known_costs_are_found_again() {
    let found = fit(&forwards(&truth(), 0.0)).unwrap();
    near(found.prefill_base_us, 8_000.0, 0.01);
    near(found.prefill_row_us, 100.0, 0.05);
    near(found.prefill_token_us, 6.0, 0.01);
    near(found.prefill_attend_us, 0.002, 0.1);
    near(found.decode_base_us, 3_500.0, 0.01);
    near(found.decode_row_us, 20.0, 0.01);
    near(found.decode_attend_us, 0.002, 0.05);
    assert_eq!(found.buckets, truth().buckets);
}

#[test]
fn noise_changes_what_is_told_by_less_than_itself() {
    let (truth, noisy) = (truth(), forwards(&truth(), 0.2));
    let found = fit(&noisy).unwrap();
    for forward in &noisy {
        let told = found.forward(forward.load).as_secs_f64();
        near(told, truth.forward(forward.load).as_secs_f64(), 0.05);
    }
    let quality = Quality::of(&found, noisy.iter().filter(|forward| !forward.prefills()));
    assert!((0.08..0.12).contains(&quality.relative_error), "{quality:?}");
}

#[test]
fn forwards_that_were_held_up_do_not_make_the_model_too_fast() {
    let truth = CostModel { decode_attend_us: 0.0, ..truth() };
    let mut all = forwards(&truth, 0.0);
    for held_up in all.iter_mut().skip(1).step_by(10) {
        held_up.took *= 3;
    }
    let found = fit(&all).unwrap();
    let (took, told): (f64, f64) = all
        .iter()
        .filter(|forward| !forward.prefills())
        .map(|forward| (forward.took.as_secs_f64(), found.forward(forward.load).as_secs_f64()))
        .fold((0.0, 0.0), |sum, x| (sum.0 + x.0, sum.1 + x.1));
    near(told, took, 0.02);
}

#[test]
fn forwards_that_are_all_alike_still_tell_what_half_of_one_takes() {
    let mut alike = Vec::new();
    for i in 0..100_u64 {
        let (mut prefill, mut decode) = (Load::default(), Load::default());
        (0..16).for_each(|_| prefill.add(0, 5, true));
        (0..64).for_each(|_| decode.add(20, 1, false));
        let us = |us: f64| Duration::from_secs_f64(us * (1.0 + 0.05 * noise(i)) / 1e6);
        alike.push(Observed { load: prefill, bucket: 0, took: us(50_000.0) });
        alike.push(Observed { load: decode, bucket: 64, took: us(45_000.0) });
    }
    let found = fit(&alike).unwrap();
    let mut half = Load::default();
    (0..8).for_each(|_| half.add(0, 5, true));
    let (whole, half) = (found.forward(alike[0].load).as_secs_f64(), found.forward(half).as_secs_f64());
    near(whole, 0.050, 0.03);
    assert!((0.3..0.9).contains(&(half / whole)), "{half} of {whole}");
}

#[test]
fn what_is_forgotten_gives_way_to_what_is_new() {
    let (old, new) = (truth(), CostModel { scale: 2.0, ..truth() });
    let mut fitter = Fitter::default();
    for forward in forwards(&old, 0.0) {
        fitter.add(&forward, None, 0.98);
    }
    for forward in forwards(&new, 0.0) {
        fitter.add(&forward, None, 0.98);
    }
    near(fitter.cost().unwrap().decode_base_us, 7_000.0, 0.05);
}

#[test]
fn without_a_forward_of_each_kind_there_is_no_model() {
    let all = forwards(&truth(), 0.0);
    assert_eq!(fit(all.iter().filter(|forward| forward.prefills())), None);
    assert_eq!(fit(&[]), None);
}
