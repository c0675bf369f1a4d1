//! Costs from recorded forwards: the fit, how good it is, and how else it might have come out.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use firstlight_sim::{
    cost::{CostModel, Load},
    fit::{Observed, Quality, fit},
};
use scheduler_svc::{
    admission::{Blocks, Geometry, Tokens},
    replay::{EngineShape, Wire},
};

use super::{
    ms,
    noise::{BLOCK, Noisy, NoisyWire, Recorded},
    reach::Reach,
};
use crate::{
    load::random::Random,
    report::costs::{Costs, Delays, EngineLine, ForwardLine, PairShape},
};

/// What the pair costs.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its engines.
    pub engines: Vec<EngineShape>,
    /// Median delays between scheduler and engine, and between forwards.
    pub wire: Wire,
    /// Mean delays, of which the parts outside of queue and engine are used where a request has none of its own.
    pub delays: Delays,
    /// The fit.
    pub cost: CostModel,
    /// How well it tells forwards that hold prompt rows.
    pub prefill: Quality,
    /// How well it tells the others.
    pub decode: Quality,
    /// The largest forwards that it was made from.
    pub reach: Reach,
    forwards: Vec<Observed>,
    hand_overs: Arc<Recorded>,
}

impl Model {
    /// The model of recorded costs; those of several runs are taken together, engines and delays are the last one's.
    ///
    /// # Errors
    /// When there is no forward of one kind, or the engines are not told.
    pub fn of(costs: &[Costs]) -> anyhow::Result<Self> {
        let pair = &costs.last().context("no costs")?.pair;
        let forwards: Vec<Observed> = costs.iter().flat_map(|c| &c.forwards).map(observed).collect();
        let cost = fit(&forwards).context("no forwards of both kinds, prefill and decode, were recorded")?;
        let of_kind = |prefills| forwards.iter().filter(move |f| f.prefills() == prefills);
        let (prefill, decode) = (Quality::of(&cost, of_kind(true)), Quality::of(&cost, of_kind(false)));
        let engines: Vec<EngineShape> = pair.engines.iter().map(shape).collect::<anyhow::Result<_>>()?;
        anyhow::ensure!(!engines.is_empty(), "the costs name no engine");
        let hand_overs = Arc::new(hand_overs(pair, costs.iter().flat_map(|c| &c.forwards)));
        let wire = Wire {
            dispatch: median(&hand_overs.dispatch),
            wake: median(&hand_overs.wake),
            begun: median(&hand_overs.begun),
            back: median(&hand_overs.back),
            turnaround: median(&hand_overs.turnaround),
        };
        let reach = Reach::of(&forwards);
        Ok(Self { engines, wire, delays: pair.delays, cost, prefill, decode, reach, forwards, hand_overs })
    }

    /// So many engines like those recorded, in turn.
    pub fn with_engines(mut self, count: usize) -> Self {
        self.engines = self.engines.iter().copied().cycle().take(count).collect();
        self
    }

    /// Engines so many times as fast.
    pub fn with_speed(mut self, speed: f64) -> Self {
        self.cost.scale /= speed;
        self
    }

    /// Hand-overs as they might be. The same seed gives the same.
    pub fn draw_wire(&self, seed: u64) -> NoisyWire {
        NoisyWire::new(Arc::clone(&self.hand_overs), Random::new(!seed))
    }

    /// The costs as they might have come out: fitted anew to a draw of the recorded forwards, with their noise.
    /// The same seed gives the same costs.
    pub fn draw(&self, seed: u64) -> Noisy {
        let mut random = Random::new(seed);
        let blocks: Vec<&[Observed]> = self.forwards.chunks(BLOCK).collect();
        let last = blocks.len() as u64 - 1;
        let drawn: Vec<Observed> = (0..blocks.len())
            .flat_map(|_| blocks[random.between(0, last) as usize].iter().copied())
            .collect();
        // A draw without a forward of one kind says nothing about it.
        let mut cost = fit(&drawn).unwrap_or_else(|| self.cost.clone());
        let fitted = CostModel { scale: 1.0, ..self.cost.clone() };
        cost.scale = self.cost.scale;
        cost.buckets.clone_from(&fitted.buckets);
        let ratios = |prefills| -> Arc<[f64]> {
            let of_kind = self.forwards.iter().filter(|f| f.prefills() == prefills);
            of_kind
                .filter_map(|f| {
                    let told = fitted.forward(f.load).as_secs_f64();
                    (told > 0.0).then(|| f.took.as_secs_f64() / told)
                })
                .collect()
        };
        Noisy::new(cost, ratios(true), ratios(false), random)
    }
}

fn observed(f: &ForwardLine) -> Observed {
    Observed {
        load: Load {
            prefill_rows: f.prefill_rows as usize,
            prefill_tokens: f.prefill_tokens as usize,
            decode_rows: f.decode_rows as usize,
            attended: f.attended as usize,
        },
        bucket: f.bucket as usize,
        took: Duration::from_nanos(u64::try_from(f.end_ns - f.start_ns).unwrap_or(0)),
    }
}

fn shape(engine: &EngineLine) -> anyhow::Result<EngineShape> {
    let EngineLine { block_size, kv_blocks, max_sequences, context_length, .. } = *engine;
    let told = [block_size, kv_blocks, max_sequences, context_length].iter().all(|n| *n > 0);
    anyhow::ensure!(told, "engine {:?} does not tell what it can hold: {engine:?}", engine.name);
    let geometry = Geometry {
        context: Tokens(context_length),
        block_size: Tokens(block_size),
        kv_blocks: Blocks(kv_blocks),
        free_blocks: Blocks(kv_blocks),
        max_sequences,
    };
    Ok(EngineShape { geometry, mixed: engine.mixed })
}

/// All that was recorded of hand-overs. Recordings that tell means only stand for it with these.
fn hand_overs<'a>(pair: &PairShape, forwards: impl Iterator<Item = &'a ForwardLine>) -> Recorded {
    let all = |times: &[f64], or: f64| -> Vec<Duration> {
        if times.is_empty() { vec![ms(or)] } else { times.iter().copied().map(ms).collect() }
    };
    let (times, mean) = (&pair.hand_overs, pair.delays);
    Recorded {
        dispatch: all(&times.dispatch_ms, mean.dispatch_ms),
        wake: all(&times.wake_ms, 0.0),
        begun: all(&times.begun_ms, mean.return_ms),
        back: all(&times.return_ms, mean.return_ms),
        turnaround: turnarounds(forwards),
    }
}

/// Times between two forwards of an engine that has more to do.
fn turnarounds<'a>(forwards: impl Iterator<Item = &'a ForwardLine>) -> Vec<Duration> {
    let mut last: BTreeMap<&str, &ForwardLine> = BTreeMap::new();
    let mut gaps = Vec::new();
    for forward in forwards {
        let before = last.insert(&forward.engine, forward).filter(|before| before.active > 0);
        let gap = before.and_then(|before| u64::try_from(forward.start_ns - before.end_ns).ok());
        gaps.extend(gap.map(Duration::from_nanos));
    }
    gaps
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use firstlight_sim::cost::Cost as _;

    use super::*;
    use crate::report::costs::PairShape;

    /// Forwards of the default cost model, one after the other, some twice as long as they should be.
    fn recorded() -> Costs {
        let engine = EngineLine {
            name: "e".into(),
            block_size: 16,
            kv_blocks: 100,
            max_sequences: 64,
            context_length: 512,
            ..EngineLine::default()
        };
        let (cost, mut now, mut forwards) = (CostModel::default(), 0, Vec::new());
        for i in 0..320_u32 {
            let mut load = Load::default();
            (0..1 + i % 8).for_each(|row| load.add((20 * row) as usize, 1, i % 4 == 0));
            let slow = if i / 16 % 5 == 0 { 2.0 } else { 1.0 };
            let took = cost.forward(load).mul_f64(slow).as_nanos() as i64;
            forwards.push(ForwardLine {
                engine: "e".into(),
                start_ns: now,
                end_ns: now + took,
                prefill_rows: load.prefill_rows as u32,
                prefill_tokens: load.prefill_tokens as u32,
                decode_rows: load.decode_rows as u32,
                bucket: cost.bucket(load.decode_rows) as u32,
                attended: load.attended as u64,
                active: 1,
            });
            now += took + 50_000;
        }
        Costs { pair: PairShape { engines: vec![engine], ..PairShape::default() }, forwards }
    }

    #[test]
    fn the_time_between_forwards_is_part_of_the_model() {
        let model = Model::of(&[recorded()]).unwrap();
        assert_eq!(model.wire.turnaround, Duration::from_micros(50));
        assert_eq!(model.decode.forwards + model.prefill.forwards, 320);
    }

    #[test]
    fn draws_differ_by_seed_and_have_the_mean_that_was_recorded() {
        let model = Model::of(&[recorded()]).unwrap();
        let mut load = Load::default();
        (0..8).for_each(|_| load.add(20, 1, false));
        let mean = |seed: u64| {
            let mut noisy = model.draw(seed);
            (0..4_000).map(|_| noisy.next(load).as_secs_f64()).sum::<f64>() / 4_000.0
        };
        assert_eq!(mean(1), mean(1));
        assert_ne!(mean(1), mean(2));
        let means: Vec<f64> = (0..20).map(mean).collect();
        let centre = means.iter().sum::<f64>() / 20.0;
        let told = model.cost.forward(load).as_secs_f64();
        assert!((centre / told - 1.0).abs() < 0.05, "{centre} and {told}");
    }

    #[test]
    fn engines_that_do_not_tell_what_they_hold_are_refused() {
        let mut costs = recorded();
        costs.pair.engines[0].kv_blocks = 0;
        assert!(Model::of(&[costs]).unwrap_err().to_string().contains("\"e\""));
    }
}
